"""Models of texts: what they take, what they say, and exact figures on test rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dptune.data.rows import Rows
from dptune.engines.base import Model
from dptune.errors import InvalidInput
from dptune.texts import Encoder, Texts, metrics, read
from dptune.texts.cutting import NOT_ASKED


def new_texts(encoder: Encoder, given: Any) -> Texts:
    """Texts to predict: a list of them, or of tuples where there are several columns; columns by
    name; or where they lie, as `read` takes it."""
    columns = encoder.columns[:-1] if encoder.task == "spans" else encoder.columns
    if isinstance(given, Texts):
        return given
    if isinstance(given, np.ndarray):
        given = given.tolist()
    if isinstance(given, Sequence) and not isinstance(given, str):
        rows = [(row,) if isinstance(row, str) else tuple(row) for row in given]
        if any(len(row) != len(columns) for row in rows):
            raise InvalidInput(
                f"this model takes texts of {len(columns)} columns ({', '.join(columns)}); give a "
                "list of texts for one column, of tuples for several."
            )
        given = {name: [row[i] for row in rows] for i, name in enumerate(columns)}
    elif hasattr(given, "columns"):  # a frame
        given = {name: given[name] for name in given.columns}
    answers = encoder.task == "words" and encoder.has_answers
    return read(given, columns, answers=answers, splits=("test", "train"))


def figures(made_by: Mapping[str, Any], model: Model, rows: Rows) -> dict[str, float]:
    """By name, of all texts in `rows`, which are nobody's secret."""
    task = made_by["task"]
    texts, targets, outputs = _answered(task, model, rows)
    if task == "words":
        losses, words = outputs[:, 0], outputs[:, 1]
        return {"perplexity": metrics.perplexity(losses * words, words)}
    if task == "spans":
        tokenizer = Encoder.of(made_by).words
        said, wanted = (
            [_decoded(tokenizer, row, places) for row, places in zip(texts, found, strict=True)]
            for found in (outputs[:, 1:3], targets)
        )
        return {"exact match": metrics.exact_match(said, wanted), "F1": metrics.token_f1(said, wanted)}
    predicted = outputs.argmax(1)
    return {
        "accuracy": metrics.accuracy(predicted, targets),
        "F1": metrics.f1(predicted, targets),
    }


def _answered(
    task: str, model: Model, rows: Rows
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The numbers of the words of every text, what is asked of it, and what the model gives; of a
    unit each text by itself, none where it has no more."""
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    for chunk in rows.chunks():
        copies = chunk.features.shape[1]
        flat = chunk.features.flatten(0, 1)
        targets = chunk.targets.repeat_interleave(copies)
        if task != "classes":
            flat = flat[(flat[:, 1] != NOT_ASKED).any(1)]
            targets = flat[:, 1, 0] if task == "inside" else flat[:, 1, :2]
        outputs = model.logits(flat).cpu()
        if task == "inside":
            outputs = outputs[:, 1:]
        parts.append((flat.cpu() if task == "classes" else flat[:, 0].cpu(), targets.cpu(), outputs))
    words, asked, given = (torch.cat(part).numpy() for part in zip(*parts, strict=True))
    return words, asked, given


def _decoded(tokenizer: Any, words: NDArray[Any], places: NDArray[Any]) -> str:
    """From the first to the last place; both 0 say that there is no answer."""
    first, last = (int(place) for place in places)
    return str(tokenizer.decode(words[first : last + 1])) if last else ""
