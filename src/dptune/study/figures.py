"""Exact results of the final model on test rows: accuracy; of texts also F1, exact match and
perplexity; of values their errors, in the target's own units, and R^2."""

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dptune.data import Data
from dptune.data.made_by import is_of_texts
from dptune.data.rows import DataFacts, Rows
from dptune.engines.base import Engine, Model
from dptune.printable import markdown
from dptune.texts import metrics

ACCURACY = "accuracy"
PERPLEXITY, BEFORE = "perplexity", "perplexity before tuning"
RMSE, MAE, R2 = "RMSE", "MAE", "R^2"  # as they are shown, and by which results are stored
# What is reported of texts for each loss.
_OF_TEXTS = {
    "softmax": (ACCURACY, "F1"),
    "inside": (ACCURACY, "F1"),
    "words": (PERPLEXITY, BEFORE),
    "spans": ("exact match", "F1"),
}


def figures_of(data: Data) -> tuple[str, ...]:
    """What is reported of such data, by name."""
    if data.facts.asks_inside or is_of_texts(data.made_by):
        return _OF_TEXTS[data.loss]
    return (ACCURACY,) if data.learns_classes else (RMSE, MAE, R2)


def figures_in_words(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What test rows said, by name: exact, since they are public."""
    accuracy = result["test_accuracy"]
    shares = {} if accuracy is None else {"accuracy": accuracy}
    shares |= result.get("test_figures", {})  # older runs have none
    return [(name, _written(name, value)) for name, value in shares.items()]


def rows_in_words(result: Mapping[str, Any], target_range: tuple[float, float] | None) -> str:
    """On which rows; predictions are not clipped."""
    where = f"on {result['test_rows']:,} rows"
    if target_range is None:
        return where
    low, high = target_range
    return f"{where}, whose values are clipped to {low:g} to {high:g}"


def lines_of_figures(
    result: Mapping[str, Any], target_range: tuple[float, float] | None
) -> list[str]:
    """The same for a model's card, in Markdown."""
    where = rows_in_words(result, target_range)
    figures = figures_in_words(result)
    item = "- " if len(figures) > 1 else ""  # else Markdown makes one line of several
    lines = [f"{item}Test {markdown(name)}: **{figure}** {where}." for name, figure in figures]
    return lines or ["Not measured: no test rows were given."]


def _written(name: str, value: float) -> str:
    if name in (PERPLEXITY, BEFORE):
        return f"{value:,.2f}"
    if name == R2:
        return f"{value:.4f}"
    # Errors are in the target's own units, whatever they are.
    return f"{value:,.4g}" if name in (RMSE, MAE) else f"{100 * value:.2f} %"


def on_test_rows(
    engine: Engine[Any], model: Model, rows: Rows | None, data: Data
) -> dict[str, float]:
    """The figures of such data; none where there are no test rows."""
    names = figures_of(data)
    if rows is None or not names:
        return {}
    if names == (ACCURACY,):
        return {ACCURACY: engine.evaluate_many([model], rows)[0].correct / rows.count}
    if data.loss == "words":
        told = {PERPLEXITY: _perplexity(model, rows)}
        # A GPU may have no room for a second model, and nothing of what was paid is lost for that.
        with suppress(torch.cuda.OutOfMemoryError):
            if (begun := engine.inspection.initial_model(rows.shape)) is not None:
                told[BEFORE] = _perplexity(begun, rows)
        return told
    found, asked = _answers(model, rows, data.loss)
    values: tuple[float, ...]
    if data.target_range is not None:
        low, high = data.target_range
        values = _errors(found[:, 0], asked, (high - low) / 2)
    else:
        values = _values(found, asked, data.facts)
    return dict(zip(names, values, strict=True))


def _answers(model: Model, rows: Rows, loss: str) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """What a model gives for rows, and what was asked."""
    found, asked = [], []
    for chunk in rows.chunks():
        first = chunk.features[:, 0]
        found.append(model.logits(first).double().cpu().numpy())
        answers = first[:, 1, :2] if loss == "spans" else chunk.targets
        asked.append(answers.cpu().numpy())
    return np.concatenate(found), np.concatenate(asked)


def _errors(
    found: NDArray[np.float64], asked: NDArray[Any], half: float
) -> tuple[float, float, float]:
    """Root mean squared and mean absolute error in units of `half`, and R^2: the part of the
    variance of the asked that is explained, at most 1, below 0 where a constant would do better,
    and not known (NaN) where all of them are the same."""
    asked = asked.astype(np.float64).reshape(len(found))
    off = found - asked
    squared, variance = float(np.mean(off**2)), float(np.var(asked))
    r2 = 1 - squared / variance if variance else math.nan
    return half * math.sqrt(squared), half * float(np.mean(np.abs(off))), r2


def _perplexity(model: Model, rows: Rows) -> float:
    found, _ = _answers(model, rows, "words")
    return metrics.perplexity(found[:, 0], found[:, 1])


def _values(found: NDArray[Any], asked: NDArray[Any], facts: DataFacts) -> tuple[float, ...]:
    if facts.loss == "spans":
        return metrics.spans(found[:, 1:].astype(np.int64), asked)
    classes = (found[:, 1:] if facts.loss == "inside" else found).argmax(1)
    return metrics.accuracy(classes, asked), metrics.f1(classes, asked, facts.outputs)
