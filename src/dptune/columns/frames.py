"""Turn frames of pandas, polars and pyarrow, and mappings of arrays, into Arrow tables. Of these
packages only pyarrow is imported here."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dptune.columns.problems import Problems


def as_table(frame: Any) -> Any:
    """Return the table of a frame or of a mapping of names to arrays; None for anything else."""
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if isinstance(frame, Mapping):
        return _make_table([str(name) for name in frame], list(frame.values()))
    if hasattr(frame, "columns") and hasattr(frame, "iloc"):  # pandas; a name may appear twice
        names = [str(name) for name in frame.columns]
        return _make_table(names, [frame.iloc[:, place] for place in range(len(names))])
    if hasattr(frame, "columns") and hasattr(frame, "__arrow_c_stream__"):  # polars and others
        return pa.table(frame)
    return None


def _make_table(names: Sequence[str], columns: Sequence[Any]) -> Any:
    problems = Problems()
    arrays = []
    for name, values in zip(names, columns, strict=True):
        try:
            arrays.append(_array(values))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):  # they show values
            problems.add(
                name,
                "must hold one value per row, all of one type; convert its values to text, for "
                "example with .astype(str), or leave it out.",
            )
    if len({len(array) for array in arrays}) > 1:
        problems.add(", ".join(names), "must all have the same length.")
    problems.raise_any("the columns of the frame cannot be read")
    return pa.table(arrays, names=list(names))


def _array(values: Any) -> Any:
    if isinstance(values, str | bytes | Mapping):  # Arrow would split them into parts
        raise TypeError
    return values if isinstance(values, pa.ChunkedArray) else pa.array(values, from_pandas=True)
