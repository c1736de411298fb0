"""What the holder of private rows should know before paying: signs of a mistake.

All of it is computed from the rows, so it is for the screen of their holder, as refusals are; none
of it is stored or released.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.columns import Date, Encoding, Number
from dptune.table_files import listed


def of_targets(targets: NDArray[Any], *, classes: bool) -> Iterator[str]:
    """Whether all rows have the same target."""
    if len(targets) and targets.ndim == 1 and bool((targets == targets[0]).all()):
        same = "are of one class" if classes else "have one value, or one beyond its range,"
        yield f"all rows {same}, so there is nothing to learn; look at the column of labels"


def of_columns(rows: NDArray[Any], encoding: Encoding) -> Iterator[str]:
    """Columns whose values are the same in every row."""
    same, outside = [], []
    for name, codes in zip(encoding.columns.kept, rows.T, strict=True):
        column = encoding.columns.declared[name]
        present = codes[~np.isnan(codes)]
        if not len(present) or present.min() == present.max():
            same.append(name)
        elif isinstance(column, Number | Date) and column.range not in (None, "paid"):
            low, high = column.pair or (-np.inf, np.inf)
            if present.max() <= low or present.min() >= high:
                outside.append(name)
    if same:
        yield f"the same in every row, so without information: {listed(same)}; drop such columns"
    if outside:
        yield (
            f"outside of their declared ranges in every row, and clipped to one number: "
            f"{listed(outside)}; look at their units, and declare ranges from general knowledge"
        )
