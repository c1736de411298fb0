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
    """A frame as Arrow has it; so is an array whose columns have these `names`."""
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


def coded(
    values: Any,
    columns: Columns,
    what: str,
    names: Sequence[str] = (),
    vocabularies: Vocabularies | None = None,
    *,
    new: bool = False,
) -> Coded:
    """As raw codes, which a file's rows are already."""
    if isinstance(values, Coded):
        return values
    table = named_table(values, names, what)
    return code(table, columns, where=what, vocabularies=vocabularies, new=new)


def takes_numbers(encoding: Encoding) -> bool:
    """Whether nothing is declared of its columns, so that their codes are the numbers that rows
    hold."""
    return encoding.columns == Columns.of_numbers(encoding.columns.kept)


def codes_of_new_rows(values: Any, encoding: Encoding) -> NDArray[np.float32]:
    """The same for a model, which knows names of categories only where they were bought."""
    known, what = encoding.categories, "the table of new rows"
    return coded(values, encoding.columns, what, encoding.columns.kept, known, new=True).rows


def fingerprint_declared(values: Any, names: Sequence[str], labels: NDArray[Any]) -> str:
    """Of all that a frame holds, whatever is declared of it: the same rows stay the same data set
    under another declaration."""
    if isinstance(values, Coded):
        words = [name for vocabulary in values.vocabularies.values() for name in vocabulary]
        return fingerprint_arrays(values.rows, labels, np.array(words, dtype=str))
    return fingerprint_table(named_table(values, names, "the features"), labels)


def known_of(encoding: Encoding, name: str) -> str:
    """What is declared of a column, or was bought, in a few words."""
    column = encoding.columns.declared[name]
    said = []
    if isinstance(column, Number | Date):
        ends = column.range if isinstance(column.range, tuple) else encoding.ranges.get(name)
        bought = " (by what was bought)" * (name in encoding.ranges)  # rough ones are widened
        said.append("as it is" if ends is None else f"{_between(*ends)}{bought}")
    if stretch := encoding.stretches.get(name):
        said.append(f"farther than {stretch.scale:g} from {stretch.center:g} by its logarithm")
    if isinstance(column, Category):
        names = column.values if isinstance(column.values, tuple) else encoding.categories.get(name)
        bought = " (bought)" * (name in encoding.categories)
        said.append(f"{listed(names)}{bought}" if names else f"{column.slots} buckets")
        if column.paid and not names:
            said = ["none of its names"]
    if isinstance(column, Date) and column.parts:
        said.append(f"with {', '.join(column.parts)}")
    if name in encoding.degrees:
        said.append(f"a curve of degree {encoding.degrees[name]}")
    if not isinstance(column, Drop) and column.fill is not None:
        said.append(f"gaps: {_end(column.fill)}")
    return "; ".join(said)


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
