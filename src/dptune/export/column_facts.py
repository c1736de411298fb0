"""What an encoding does to a column, read from what it makes of a few made-up rows of it, so that
none of its rules is written twice."""

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

# How programs write that nothing is known; the encoding knows each of them in any case.
_GAP_WORDS = ("", "NA", "na", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NaT", "null", "NULL")
_AT_ONCE = 256


@dataclass(frozen=True)
class Names:
    """Texts of a category or a boolean, and the features that each of them becomes, as rows of a
    sparse matrix; of a category its last row is for all other texts."""

    texts: tuple[str, ...]
    features: Any


def alone(encoding: Encoding, name: str) -> Encoding:
    """The same, for tables of that column alone."""

    def its(known: Mapping[str, Any]) -> dict[str, Any]:
        return {name: known[name]} if name in known else {}

    return Encoding(
        Columns(its(encoding.columns.declared)),
        its(encoding.ranges),
        its(encoding.categories),
        its(encoding.degrees),
        its(encoding.stretches),
    )


def features_of_gap(encoding: Encoding, name: str) -> Numbers | None:
    """What a gap becomes; None where the column must have none."""
    column = encoding.columns.declared[name]
    if column.fill is None and not column.indicator:  # type: ignore[union-attr]  # none is dropped
        return None
    (features,) = alone(encoding, name).apply(np.array([[np.nan]]))
    return np.asarray(features)


def names_of(encoding: Encoding, name: str, *, empty: tuple[str, ...] = ()) -> Names:
    """The texts that a category knows; those in `empty` stand for no text at all."""
    column = encoding.columns.declared[name]
    assert isinstance(column, Category)
    if column.buckets is not None:
        raise InvalidInput(
            f"{name}: a public hash sorts this column into buckets, which neither scikit-learn nor "
            "ONNX can; declare values, or serve the model with dptune."
        )
    values = (
        column.values if isinstance(column.values, tuple) else encoding.categories.get(name, ())
    )
    known = dict.fromkeys(form for value in values for form in _forms(value))
    gaps = [word for word in _GAP_WORDS if word not in known]
    texts = [*known, *gaps, *(word for word in empty if word not in known)]
    other = "?"
    while other in known:
        other += "?"
    read = [None if text in empty and text not in known else text for text in (*texts, other)]
    return Names(tuple(texts), _features(encoding, name, read))


def truths_of(encoding: Encoding, name: str, *, empty: str) -> Names:
    """The texts that a boolean knows, in small letters, and those that say there is a gap, unless
    the column must have none; `empty` is one of these."""
    gaps = [] if features_of_gap(encoding, name) is None else [*GAPS, empty]
    return Names((*TRUTHS, *gaps), _features(encoding, name, [*TRUTHS, *(None for _ in gaps)]))


def _features(encoding: Encoding, name: str, texts: Sequence[str | None]) -> Any:
    reader = alone(encoding, name)
    parts = []
    for start in range(0, len(texts), _AT_ONCE):  # ten thousand names are wide
        table = pa.table({name: pa.array(texts[start : start + _AT_ONCE], pa.large_string())})
        rows = reader.code(table, where="the texts of the model")
        parts.append(scipy.sparse.csr_array(reader.apply(rows)))
    return scipy.sparse.vstack(parts, format="csr")


def _forms(value: str) -> tuple[str, ...]:
    """How programs write it: 1 is also 1.0, and true also True."""
    if value.lstrip("-").isascii() and value.lstrip("-").isdigit():
        return value, f"{value}.0"
    return (value, value.title(), value.upper()) if value in ("true", "false") else (value,)
