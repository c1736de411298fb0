"""Frames of pandas, polars and pyarrow, and columns of a program, as Arrow's tables. None of these
packages is imported here but pyarrow."""

from collections.abc import Mapping
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
        return _of_columns({str(name): values for name, values in frame.items()})
    package = type(frame).__module__.partition(".")[0]
    if package == "pandas" and hasattr(frame, "columns"):
        # By place, since names may be there twice. The index is no column.
        names = [str(name) for name in frame.columns]
        found = [frame.iloc[:, place] for place in range(len(names))]
        return _of_pairs(list(zip(names, found, strict=True)))
    if hasattr(frame, "__arrow_c_stream__") and hasattr(frame, "columns"):
        return pa.table(frame)
    return None


def _of_columns(columns: Mapping[str, Any]) -> Any:
    return _of_pairs(list(columns.items()))


def _of_pairs(pairs: list[tuple[str, Any]]) -> Any:
    problems = Problems()
    arrays = []
    for name, values in pairs:
        try:
            arrays.append(pa.array(values, from_pandas=True))
        except (pa.ArrowException, TypeError, ValueError):  # whose words show values
            problems.add(
                name,
                "must hold one value a row, all of one type; turn its values into texts, say with "
                ".astype(str), or leave it out.",
            )
    if len({len(array) for array in arrays}) > 1:
        problems.add(", ".join(name for name, _ in pairs), "must all be of one length.")
    problems.raise_any("the columns of the frame cannot be read")
    return pa.table(arrays, names=[name for name, _ in pairs])
