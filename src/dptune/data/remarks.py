"""What whoever holds private rows should know before paying: signs that something was mistaken.

All of it is computed from the rows themselves. So it is for the screen of the one who holds them,
as refusals are; nothing of it is stored or released.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.columns import Date, Encoding, Number
from dptune.table_files import listed


def of_targets(targets: NDArray[Any], *, classes: bool) -> Iterator[str]:
    """Where all rows say the same."""
    if len(targets) and targets.ndim == 1 and bool((targets == targets[0]).all()):
        said = "are of one class" if classes else "have one value, or one beyond its range,"
        yield f"all rows {said}, so there is nothing to learn; look at the column of labels"


def of_columns(rows: NDArray[Any], encoding: Encoding) -> Iterator[str]:
    """Where a column says the same of every row."""
    same, outside = [], []
    for name, codes in zip(encoding.columns.kept, rows.T, strict=True):
        column = encoding.columns.declared[name]
        known = codes[~np.isnan(codes)]
        if not len(known) or known.min() == known.max():
            same.append(name)
        elif isinstance(column, Number | Date) and column.range not in (None, "paid"):
            low, high = column.pair or (-np.inf, np.inf)
            if known.max() <= low or known.min() >= high:
                outside.append(name)
    if same:
        yield f"the same in every row, so they tell nothing: {listed(same)}; drop such columns"
    if outside:
        yield (
            f"outside of their declared ranges in every row, and clipped to one number: "
            f"{listed(outside)}; look at their units, and declare ranges that are known"
        )
