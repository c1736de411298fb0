"""Rows of a data set in which some are empty, such as pictures that cannot be read.

An empty row contributes nothing. But sums in floating point are rounded block by block: if the row
were missing, all rows after it would move to other blocks, every block would be rounded
differently, and a million small differences add up. So engines that add blocks see an empty row at
its place, as zeros of infinite norm, which clipping scales to zero.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dptune.data.rows import Chunk, MemoryRows, Rows

_AT_ONCE = 2**13  # places


class RowsWithGaps:
    """`rows`, and the ascending `places` that they have among `count` rows."""

    def __init__(self, rows: Rows, places: Tensor, count: int) -> None:
        self._rows, self._places, self._all = rows, places.to(rows.device), count
        self._at_their_places: Rows | None = None
        self.count, self.shape, self.columns = rows.count, rows.shape, rows.columns
        self.copies, self.device, self.dtype = rows.copies, rows.device, rows.dtype
        self.target_facts = rows.target_facts

    def chunks(self) -> Iterator[Chunk]:
        return self._rows.chunks()

    def pick(self, indices: Tensor) -> Chunk:
        return self._rows.pick(indices)

    def taken(self, mask: Tensor) -> Rows:
        return self._rows.taken(mask)

    def at_their_places(self) -> Rows:
        """As many rows as there are places."""
        if self._at_their_places is None:
            rows = self._rows
            if isinstance(rows, MemoryRows):
                present = Chunk(rows.features, rows.targets, rows.norms)
                spread = Chunk(*_spread(present, self._places, self._all))
                self._at_their_places = rows.with_rows(spread)
            else:
                self._at_their_places = _Placed(rows, self._places, self._all)
        return self._at_their_places


def numbers_of_kept(
    kept: NDArray[np.bool_], numbers: NDArray[np.int64] | None
) -> NDArray[np.int64] | None:
    """The numbers of the rows that are kept; None if no row is empty."""
    if numbers is None:
        return None if kept.all() else np.flatnonzero(kept)
    return numbers[kept]


def at_their_places(rows: Rows) -> Rows:
    """The same rows, with an empty one wherever one is missing."""
    return rows.at_their_places() if isinstance(rows, RowsWithGaps) else rows


class _Placed:
    """The same for rows that are read when they are needed."""

    def __init__(self, rows: Rows, places: Tensor, count: int) -> None:
        self._rows, self._places, self.count = rows, places, count
        self.shape, self.columns, self.copies = rows.shape, rows.columns, rows.copies
        self.device, self.dtype, self.target_facts = rows.device, rows.dtype, rows.target_facts

    def chunks(self) -> Iterator[Chunk]:
        for start in range(0, self.count, _AT_ONCE):
            end = min(start + _AT_ONCE, self.count)
            yield self.pick(torch.arange(start, end, device=self.device))

    def pick(self, indices: Tensor) -> Chunk:
        """`indices` ascend."""
        there = torch.isin(indices, self._places)
        numbers = torch.searchsorted(self._places, indices[there])
        if len(numbers):
            chunk = self._rows.pick(numbers)
        else:
            one = self._rows.pick(torch.zeros(1, dtype=torch.int64, device=self.device))
            chunk = one.taken(slice(0, 0))
        return Chunk(*_spread(chunk, there.nonzero()[:, 0], len(indices)), chunk.bias)

    def taken(self, mask: Tensor) -> Rows:
        raise NotImplementedError("rows are taken before they are placed")


def _spread(chunk: Chunk, places: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    features = chunk.features.new_zeros((count, *chunk.features.shape[1:]))
    targets = chunk.targets.new_zeros((count, *chunk.targets.shape[1:]))
    norms = chunk.norms.new_full((count, *chunk.norms.shape[1:]), torch.inf)
    features[places], targets[places], norms[places] = chunk.features, chunk.targets, chunk.norms
    return features, targets, norms
