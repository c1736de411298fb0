"""Rows as scikit-learn's users have them (arrays, frames, sparse matrices), made ready for `Data`.

Messages name the column that needs a change, and show no value.
"""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from dptune.columns import Category, Column, Columns, Drop, Number, as_table, code
from dptune.columns.kinds import MIDDLE, PAID
from dptune.data import Data
from dptune.data.arrays import of_one_kind
from dptune.errors import InvalidInput
from dptune.printable import printable

_ROWS_AT_ONCE = 4096
_SHARE_OF_MEMORY = 0.5  # that dense rows may take; training needs some beside
_MOST_NAMED = 10
_BUCKETS = 10_000


@dataclass(frozen=True)
class Rows:
    """A table of numbers, or an Arrow table whose columns are declared."""

    features: Any = field(repr=False)
    columns: Columns | None = None
    names: tuple[str, ...] = ()

    def data(self, labels: NDArray[Any], **facts: Any) -> Data:
        if self.columns is not None:
            return Data.from_columns(self.features, labels, self.columns, **facts)
        return Data.from_table(self.features, labels, column_names=self.names, **facts)

    def compared(self) -> NDArray[Any]:
        """Numbers that are the same in every fit, whatever is declared and whatever other rows
        there are: all columns by their own types, texts in public buckets."""
        if self.columns is None:
            rows: NDArray[Any] = self.features
            return rows
        return code(self.features, self._by_type(), where="the table of features").rows

    def scales(self, compared: NDArray[Any]) -> NDArray[Any]:
        """The columns of these numbers whose scale the user chose: numbers without gaps."""
        if self.columns is None:
            return compared
        by_type, declared = self._by_type(), self.columns.declared
        are_numbers = [
            isinstance(by_type.declared[name], Number) and isinstance(declared.get(name), Number)
            for name in by_type.kept
        ]
        return compared[:, np.array(are_numbers, bool) & ~np.isnan(compared).any(0)]

    def _by_type(self) -> Columns:
        """A declaration by type alone, which fits every table."""
        return Columns({field.name: _of_type(field.type) for field in self.features.schema})


def rows_of_columns(X: Any, declared: Mapping[str, Any] | Columns) -> Rows:
    """Rows of a table whose columns are declared."""
    columns = Columns.of(declared)
    return Rows(named_table(X, columns.names), columns)


def rows_of_numbers(
    table: Any, names: tuple[str, ...], ranges: Sequence[tuple[float, float]] | str | None
) -> Rows:
    """Rows of a table of numbers, which may be sparse."""
    rows = dense(table)
    must_be_finite(rows, names)
    if not isinstance(ranges, str):
        return Rows(rows, None, names)
    if ranges != PAID:
        raise InvalidInput(
            f'ranges must be pairs (low, high), one a column, or "{PAID}"; got {ranges!r}.'
        )
    names = names or tuple(f"x{place}" for place in range(rows.shape[1]))
    return rows_of_columns(rows, {name: Number(range=PAID) for name in names})


def _of_type(kind: Any) -> Column:
    if _holds_numbers(kind):
        return Number(range=PAID, fill=MIDDLE)
    unread = pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return Drop() if unread else Category(buckets=_BUCKETS)


def named_table(X: Any, names: Sequence[str]) -> Any:
    """A frame as an Arrow table; the columns of anything else get these names."""
    if sparse.issparse(X):
        raise InvalidInput(
            "sparse rows hold only numbers, and columns are declared by name; leave columns out, "
            "or give the table that the sparse rows were made from."
        )
    table = _table_of(X)
    if table is not None:
        return table
    array = np.asarray(X)
    if array.ndim != 2 or array.shape[1] != len(names):
        raise InvalidInput(
            f"{len(names)} columns are declared by name, so X must be a frame (pandas, polars, "
            f"Arrow) or an array with these columns, in order; got shape {array.shape}."
        )
    return as_table(dict(zip(names, array.T, strict=True)))


def must_have_rows(X: Any) -> None:
    """Refuse a table without rows."""
    table = _table_of(X)
    shape = getattr(X, "shape", ()) if table is None else table.shape
    if (isinstance(X, list | tuple) and not X) or (shape and not shape[0]):
        raise InvalidInput("X has no rows, so there is nothing to learn from; give some.")


def labels_of_one_kind(y: Any) -> Any:
    """Labels as they are, or, if they are objects, in the one type that they have: NumPy would make
    a class of a gap among texts, or fail to sort it."""
    array = np.asarray(y, dtype=object if isinstance(y, list | tuple) else None)
    if array.ndim != 1 or not len(array):
        return y
    if array.dtype.kind == "f" and bool(np.isnan(array).any()):
        array = array.astype(object)
    return of_one_kind(array, "the labels") if array.dtype.kind == "O" else y


def _table_of(X: Any) -> Any:
    """A frame as an Arrow table, whose columns have different names; None for anything else."""
    table = None if sparse.issparse(X) else as_table(X)
    if table is None:
        return None
    twice = [name for name, times in Counter(table.column_names).items() if times > 1]
    if twice:
        raise InvalidInput(f"{_named(twice)} there more than once; leave out all but one.")
    if not table.num_columns:
        raise InvalidInput("X has no columns; give a frame with some.")
    return table


def must_be_numbers(X: Any) -> None:
    """Refuse a frame with columns of other types."""
    table = _table_of(X)
    if table is None:
        return
    others = [field.name for field in table.schema if not _holds_numbers(field.type)]
    if others:
        raise InvalidInput(
            f"{_named(others)} no numbers; declare what columns hold with columns={{...}} "
            "(docs/guide/tables.md), or leave these out."
        )


def dense(X: Any) -> NDArray[Any]:
    """Sparse rows made dense in float32, a few at a time; all others as they are."""
    if not sparse.issparse(X):
        rows: NDArray[Any] = X
        return rows
    needed, there = 4 * X.shape[0] * X.shape[1], _memory()
    if needed > _SHARE_OF_MEMORY * there:
        raise InvalidInput(
            f"{X.shape[0]:,} sparse rows of {X.shape[1]:,} columns take {needed / 2**30:,.1f} GiB "
            f"when they are dense, and this machine has {there / 2**30:,.1f} GiB; hash them into "
            "fewer columns, or take fewer rows."
        )
    made = np.empty(X.shape, np.float32)
    for start in range(0, len(made), _ROWS_AT_ONCE):
        made[start : start + _ROWS_AT_ONCE] = X[start : start + _ROWS_AT_ONCE].toarray()
    return made


def must_be_finite(rows: NDArray[Any], names: Sequence[str]) -> None:
    """Refuse gaps and infinite numbers, column by column."""
    for wrong, what, instead in (
        (np.isnan, "NaN", "what stands for a gap"),
        (np.isinf, "infinite numbers", "a range to clip them to"),
    ):
        bad = np.zeros(rows.shape[1], bool)
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            bad |= wrong(rows[start : start + _ROWS_AT_ONCE]).any(0)
        if bad.any():
            columns = [
                names[place] if names else str(place + 1) for place in np.flatnonzero(bad).tolist()
            ]
            counted = "" if names else "(counted from 1) "
            holds = _named(columns, f"{counted}holds", f"{counted}hold")
            raise InvalidInput(
                f"{holds} {what}; declare {instead} with columns={{...}} (docs/guide/tables.md)."
            )


def _holds_numbers(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _named(columns: Sequence[str], one: str = "is", several: str = "are") -> str:
    shown = ", ".join(map(printable, columns[:_MOST_NAMED]))
    more = len(columns) - _MOST_NAMED
    shown += f" and {more} more" if more > 0 else ""
    return f"column {shown} {one}" if len(columns) == 1 else f"columns {shown} {several}"


def _memory() -> float:
    """Bytes of this machine; infinite if the system does not report it."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return float("inf")
