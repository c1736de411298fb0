"""Exact figures of the final model on test rows: accuracy; of texts also F1, exact match and
perplexity."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.data import Data
from dptune.data.made_by import is_of_texts
from dptune.data.rows import DataFacts, Rows
from dptune.engines.base import Engine, Model
from dptune.texts import metrics

ACCURACY = "accuracy"
# What is told of texts for each loss.
_OF_TEXTS = {
    "softmax": (ACCURACY, "F1"),
    "inside": (ACCURACY, "F1"),
    "words": ("perplexity",),
    "spans": ("exact match", "F1"),
}


def figures_of(data: Data) -> tuple[str, ...]:
    """What is told of such data, by name."""
    if data.facts.asks_inside or is_of_texts(data.made_by):
        return _OF_TEXTS[data.loss]
    return (ACCURACY,) if data.classes else ()


def on_test_rows(
    engine: Engine[Any], model: Model, rows: Rows | None, data: Data
) -> dict[str, float]:
    """The figures of such data; none where there are no test rows."""
    names = figures_of(data)
    if rows is None or not names:
        return {}
    if names == (ACCURACY,):
        return {ACCURACY: engine.evaluate_many([model], rows)[0].correct / rows.count}
    found, asked = [], []
    for chunk in rows.chunks():
        first = chunk.features[:, 0]
        found.append(model.logits(first).double().cpu().numpy())
        answers = first[:, 1, :2] if data.loss == "spans" else chunk.targets
        asked.append(answers.cpu().numpy())
    values = _values(np.concatenate(found), np.concatenate(asked), data.facts)
    return dict(zip(names, values, strict=True))


def _values(found: NDArray[Any], asked: NDArray[Any], facts: DataFacts) -> tuple[float, ...]:
    if facts.loss == "words":
        return (metrics.perplexity(found[:, 0], found[:, 1]),)
    if facts.loss == "spans":
        return metrics.spans(found[:, 1:].astype(np.int64), asked)
    classes = (found[:, 1:] if facts.loss == "inside" else found).argmax(1)
    return metrics.accuracy(classes, asked), metrics.f1(classes, asked, facts.outputs)
