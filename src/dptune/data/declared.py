"""Rows whose columns are declared by name: frames as raw codes, and what that makes public."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dptune.columns import (
    Category,
    Coded,
    Columns,
    Date,
    Drop,
    Encoding,
    Number,
    as_table,
    code,
)
from dptune.columns.marks import SMALLEST
from dptune.data.arrays import as_array
from dptune.data.fingerprint import fingerprint_arrays
from dptune.data.table_fingerprint import fingerprint_table
from dptune.errors import InvalidInput
from dptune.table_files import listed

Vocabularies = Mapping[str, tuple[str, ...]]

_ZERO = 3 * SMALLEST  # the marks next to zero, as rough ranges widen them


def named_table(values: Any, names: Sequence[str], what: str) -> pa.Table:
    """A frame, or an array whose columns have these `names`, as an Arrow table."""
    table = as_table(values)
    if table is not None:
        return table
    array = as_array(values, what)
    if not names or array.ndim != 2 or array.shape[1] != len(names):
        raise InvalidInput(
            f"{what} have columns that are declared by name, so they must be a frame (pandas, "
            f"polars, Arrow) or a mapping of arrays; got {type(values).__name__} of shape "
            f"{array.shape}. Name its columns, in order, with column_names."
        )
    return as_table({name: array[:, place] for place, name in enumerate(names)})


def code_frame(
    values: Any,
    columns: Columns,
    what: str,
    names: Sequence[str] = (),
    vocabularies: Vocabularies | None = None,
    *,
    new: bool = False,
) -> Coded:
    """Raw codes of a frame; rows of a file are coded already."""
    if isinstance(values, Coded):
        return values
    table = named_table(values, names, what)
    return code(table, columns, where=what, vocabularies=vocabularies, new=new)


def takes_numbers(encoding: Encoding) -> bool:
    """Whether nothing is declared of its columns, so that codes are the numbers of the rows."""
    return encoding.columns == Columns.of_numbers(encoding.columns.kept)


def code_new_rows(values: Any, encoding: Encoding) -> NDArray[np.float32]:
    """The same for a model, which knows only those names of categories that it paid for."""
    columns, what = encoding.columns, "the table of new rows"
    return code_frame(values, columns, what, columns.kept, encoding.categories, new=True).rows


def fingerprint_declared(values: Any, names: Sequence[str], labels: NDArray[Any]) -> str:
    """The fingerprint of all that a frame holds: the same rows stay the same data set under another
    declaration."""
    if isinstance(values, Coded):
        words = [name for vocabulary in values.vocabularies.values() for name in vocabulary]
        return fingerprint_arrays(values.rows, labels, np.array(words, dtype=str))
    return fingerprint_table(named_table(values, names, "the features"), labels)


def describe_column(encoding: Encoding, name: str) -> str:
    """What is declared of a column, or was estimated privately, in a few words."""
    column = encoding.columns.declared[name]
    words = []
    if isinstance(column, Number | Date):
        ends = column.range if isinstance(column.range, tuple) else encoding.ranges.get(name)
        paid = " (estimated privately)" * (name in encoding.ranges)  # rough ones are widened
        words.append("as it is" if ends is None else f"{_between(*ends)}{paid}")
    if stretch := encoding.stretches.get(name):
        words.append(f"log-scaled beyond {stretch.scale:g} from {stretch.center:g}")
    if isinstance(column, Category):
        names = column.values if isinstance(column.values, tuple) else encoding.categories.get(name)
        paid = " (estimated privately)" * (name in encoding.categories)
        words.append(f"{listed(names)}{paid}" if names else f"{column.slots} buckets")
        if column.paid and not names:
            words = ["none of its names"]
    if isinstance(column, Date) and column.parts:
        words.append(f"with {', '.join(column.parts)}")
    if name in encoding.degrees:
        words.append(f"polynomial of degree {encoding.degrees[name]}")
    if not isinstance(column, Drop) and column.fill is not None:
        words.append(f"gaps: {_end(column.fill)}")
    return "; ".join(words)


def _between(low: float | str, high: float | str) -> str:
    if isinstance(low, float) and isinstance(high, float) and -low == high <= _ZERO:
        return "nearly always 0; more counts as 1, less as -1"
    return f"{_end(low)} to {_end(high)}"


def _end(end: float | str) -> str:
    return f"{end:g}" if isinstance(end, float) else str(end)


def facts_in_words(encoding: Encoding) -> str:
    """What a declaration makes public."""
    kinds, features = encoding.columns.in_words(), f"{encoding.width:,} features before curves"
    return f"the columns by name, and what they hold ({kinds}; {features}), as declared"
