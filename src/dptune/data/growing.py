"""A table that grows as its rows are read, and is in memory once."""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_MORE = 1.25  # what is asked for beyond what is there: memory that is not used yet is held too


class GrowingTable:
    """Rows of so many columns, one batch after another. The system moves what is there without
    copying it, so there are never two of them, as where batches are kept and joined."""

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
        """All rows; nothing can be added to them."""
        self._resize(self.count)
        rows, self._rows = self._rows, np.empty((0, self._rows.shape[1]), self._rows.dtype)
        self.count = 0
        return rows

    def _resize(self, count: int) -> None:
        # Nobody else holds these rows, whatever a debugger may count.
        self._rows.resize((count, self._rows.shape[1]), refcheck=False)
