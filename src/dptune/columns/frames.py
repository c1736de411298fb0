"""Frames of pandas, polars and pyarrow, and columns of a program, as Arrow's tables. None of these
packages is imported here but pyarrow."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from dptune.columns.problems import Problems


def as_table(frame: Any) -> Any:
    """The table of a frame or of a mapping of names to arrays; None of anything else."""
    if isinstance(frame, pa.Table):
        return frame
    if isinstance(frame, pa.RecordBatch):
        return pa.Table.from_batches([frame])
    if isinstance(frame, Mapping):
        return _of_columns([str(name) for name in frame], list(frame.values()))
    if hasattr(frame, "columns") and hasattr(frame, "iloc"):  # pandas; names may be there twice
        names = [str(name) for name in frame.columns]
        return _of_columns(names, [frame.iloc[:, place] for place in range(len(names))])
    if hasattr(frame, "columns") and hasattr(frame, "__arrow_c_stream__"):  # polars and others
        return pa.table(frame)
    return None


def _of_columns(names: Sequence[str], columns: Sequence[Any]) -> Any:
    problems = Problems()
    arrays = []
    for name, values in zip(names, columns, strict=True):
        try:
            arrays.append(_array(values))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):  # which show values
            problems.add(
                name,
                "must hold one value a row, all of one type; turn its values into texts, say with "
                ".astype(str), or leave it out.",
            )
    if len({len(array) for array in arrays}) > 1:
        problems.add(", ".join(names), "must all be of one length.")
    problems.raise_any("the columns of the frame cannot be read")
    return pa.table(arrays, names=list(names))


def _array(values: Any) -> Any:
    if isinstance(values, str | bytes | Mapping):  # which Arrow takes apart
        raise TypeError
    return values if isinstance(values, pa.ChunkedArray) else pa.array(values, from_pandas=True)
