"""Rows of pixels that stay in their files, mapped into memory; processes get their address."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.pictures.stored import Rows


@dataclass(frozen=True)
class MappedRows:
    """Row i is `shape` bytes at `start + i * step`, with its axes reordered to (height, width,
    colour) by `axes`."""

    path: Path
    rows: int
    start: int
    step: int
    shape: tuple[int, ...]
    axes: tuple[int, ...] | None = None

    @cached_property
    def _bytes(self) -> NDArray[np.uint8]:
        return np.memmap(self.path, np.uint8, mode="r")

    def __reduce__(self) -> tuple[Any, ...]:  # without the map, whose content would be sent
        return type(self), (self.path, self.rows, self.start, self.step, self.shape, self.axes)

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> NDArray[np.uint8]:
        begin = self.start + row * self.step
        stored = np.array(self._bytes[begin : begin + math.prod(self.shape)]).reshape(self.shape)
        return stored if self.axes is None else stored.transpose(self.axes)

    def bytes_before(self) -> NDArray[np.uint8]:
        """The byte before each row's pixels: its label, in some files."""
        return np.array(self._bytes[self.start - 1 :: self.step])


@dataclass(frozen=True)
class JoinedRows:
    """The rows of several files, one file after the other."""

    parts: Sequence[Rows]

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(map(len, self.parts)))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, row: int) -> Any:
        part = bisect_right(self._ends, row)
        return self.parts[part][row - (self._ends[part - 1] if part else 0)]


def mapped_npy(path: Path) -> MappedRows:
    """Map the rows of an .npy of uint8."""
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.dtype != np.uint8 or array.ndim not in (3, 4) or not array.flags.c_contiguous:
        raise ValueError(
            "must be pixels (rows, height, width, 3) of type uint8; found "
            f"{array.dtype} {array.shape}"
        )
    shape = array.shape[1:]
    return MappedRows(path, len(array), array.offset, math.prod(shape), shape)


def mapped_records(
    path: Path, before: int, shape: tuple[int, ...], axes: tuple[int, ...]
) -> MappedRows:
    """Map a file of equal records: `before` bytes, then the pixels."""
    record = before + math.prod(shape)
    size = path.stat().st_size
    if size == 0 or size % record:
        raise ValueError(f"must be records of {record} bytes each; found {size} bytes")
    return MappedRows(path, size // record, before, record, shape, axes)
