"""Exact figures of the final model on test rows of texts: F1, exact match, perplexity."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.data import Data
from dptune.data.made_by import is_of_texts
from dptune.data.rows import DataFacts, Rows
from dptune.engines.base import Model
from dptune.texts import metrics

# What is told for each loss, beside the accuracy where there are classes.
_FIGURES = {
    "softmax": ("F1",),
    "inside": ("F1",),
    "words": ("perplexity",),
    "spans": ("exact match", "F1"),
}


def figures_of(data: Data) -> tuple[str, ...]:
    """What is told of such data, by name; nothing unless they are texts."""
    return _FIGURES[data.loss] if is_of_texts(data.made_by) or data.facts.asks_inside else ()


def on_test_rows(model: Model, rows: Rows, data: Data) -> dict[str, float]:
    """The figures of such data."""
    names, facts = figures_of(data), data.facts
    if not names:
        return {}
    found, asked = [], []
    for chunk in rows.chunks():
        first = chunk.features[:, 0]
        found.append(model.logits(first).double().cpu().numpy())
        answers = first[:, 1, :2] if facts.loss == "spans" else chunk.targets
        asked.append(answers.cpu().numpy())
    values = _values(np.concatenate(found), np.concatenate(asked), facts)
    return dict(zip(names, values, strict=True))


def _values(found: NDArray[Any], asked: NDArray[Any], facts: DataFacts) -> tuple[float, ...]:
    if facts.loss == "words":
        return (metrics.perplexity(found[:, 0], found[:, 1]),)
    if facts.loss == "spans":
        return metrics.spans(found[:, 1:].astype(np.int64), asked)
    logits = found[:, 1:] if facts.loss == "inside" else found
    return (metrics.f1(logits.argmax(1), asked, facts.outputs),)
