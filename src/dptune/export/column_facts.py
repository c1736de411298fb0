"""Read what an encoding does to a column from a few made-up rows, so that exports repeat none of
its rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse

from dptune.columns import Category, Columns, Encoding
from dptune.columns.values import GAPS, TRUTHS
from dptune.errors import InvalidInput
from dptune.export.steps import Numbers

# How programs write a missing value; the encoding accepts each of them in any case.
_GAP_WORDS = ("", "NA", "na", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NaT", "null", "NULL")
_AT_ONCE = 256


@dataclass(frozen=True)
class Names:
    """The texts of a category or a boolean, and their features as rows of a sparse matrix. The last
    row of a category is for all other texts."""

    texts: tuple[str, ...]
    features: Any


def alone(encoding: Encoding, name: str) -> Encoding:
    """Restrict an encoding to one column."""

    def its(facts: Mapping[str, Any]) -> dict[str, Any]:
        return {name: facts[name]} if name in facts else {}

    return Encoding(
        Columns(its(encoding.columns.declared)),
        its(encoding.ranges),
        its(encoding.categories),
        its(encoding.degrees),
        its(encoding.stretches),
    )


def features_of_gap(encoding: Encoding, name: str) -> Numbers | None:
    """The features of a missing value; None if the column must have none."""
    column = encoding.columns.declared[name]
    if column.fill is None and not column.indicator:  # type: ignore[union-attr]  # none is dropped
        return None
    (features,) = alone(encoding, name).apply(np.array([[np.nan]]))
    return np.asarray(features)


def names_of(encoding: Encoding, name: str, *, empty: tuple[str, ...] = ()) -> Names:
    """The texts of a category; those in `empty` stand for a missing text."""
    column = encoding.columns.declared[name]
    assert isinstance(column, Category)
    if column.buckets is not None:
        raise InvalidInput(
            f"{name}: this column is hashed into buckets, which neither scikit-learn nor ONNX "
            "supports; declare values, or serve the model with dptune."
        )
    values = (
        column.values if isinstance(column.values, tuple) else encoding.categories.get(name, ())
    )
    forms = dict.fromkeys(form for value in values for form in _forms(value))
    gaps = [word for word in _GAP_WORDS if word not in forms]
    texts = [*forms, *gaps, *(word for word in empty if word not in forms)]
    other = "?"
    while other in forms:
        other += "?"
    read = [None if text in empty and text not in forms else text for text in (*texts, other)]
    return Names(tuple(texts), _features(encoding, name, read))


def truths_of(encoding: Encoding, name: str, *, empty: str) -> Names:
    """The texts of a boolean in lower case, and those of a missing value (`empty` is one of them),
    unless the column must have none."""
    gaps = [] if features_of_gap(encoding, name) is None else [*GAPS, empty]
    return Names((*TRUTHS, *gaps), _features(encoding, name, [*TRUTHS, *(None for _ in gaps)]))


def _features(encoding: Encoding, name: str, texts: Sequence[str | None]) -> Any:
    reader = alone(encoding, name)
    parts = []
    for start in range(0, len(texts), _AT_ONCE):  # in parts, because 10,000 values are wide
        table = pa.table({name: pa.array(texts[start : start + _AT_ONCE], pa.large_string())})
        rows = reader.code(table, where="the texts of the model")
        parts.append(scipy.sparse.csr_array(reader.apply(rows)))
    return scipy.sparse.vstack(parts, format="csr")


def _forms(value: str) -> tuple[str, ...]:
    """The forms in which programs write a value: 1 is also 1.0, and true also True."""
    if value.lstrip("-").isascii() and value.lstrip("-").isdigit():
        return value, f"{value}.0"
    return (value, value.title(), value.upper()) if value in ("true", "false") else (value,)
