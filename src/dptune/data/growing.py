"""A table that grows as its rows are read, and is in memory once."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_MORE = 1.25  # how much more is allocated than is needed; unused memory is held, too


class GrowingTable:
    """Rows added batch by batch. The system grows the memory in place, so there are never two
    copies, as there are if batches are kept and joined."""

    def __init__(self, columns: int, dtype: DTypeLike) -> None:
        self._rows: NDArray[Any] = np.empty((0, columns), dtype)
        self.count = 0

    def add(self, batch: NDArray[Any]) -> None:
        end = self.count + len(batch)
        if end > len(self._rows):
            self._resize(max(end, int(_MORE * len(self._rows))))
        self._rows[self.count : end] = batch
        self.count = end

    def whole(self) -> NDArray[Any]:
        """All rows; the table is empty afterwards."""
        self._resize(self.count)
        rows, self._rows = self._rows, np.empty((0, self._rows.shape[1]), self._rows.dtype)
        self.count = 0
        return rows

    def _resize(self, count: int) -> None:
        # These rows have no other owner, whatever a debugger may count.
        self._rows.resize((count, self._rows.shape[1]), refcheck=False)
