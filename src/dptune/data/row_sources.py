"""Training, test and public rows as `Data` keeps them until they are opened."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dptune.data.disk import DiskRows
from dptune.data.preprocess import Preprocessing
from dptune.data.rows import MemoryRows, Rows

_AT_ONCE = 1 << 16  # rows of a table at a time, so that prepared copies fit in memory, too


@dataclass(frozen=True)
class ClassNumbers:
    """Converts labels that are stored as any type of number."""

    def __call__(self, labels: Tensor) -> Tensor:
        return labels.long()


@dataclass(frozen=True)
class Scale:
    """Clips values to a declared range, and scales them to [-1, 1]."""

    low: float
    high: float

    def __call__(self, values: Tensor) -> Tensor:
        inside = values.double().clip(self.low, self.high)
        return (inside - self.low) / (self.high - self.low) * 2 - 1


class RowSource(Protocol):
    """Where some rows of a data set are, in memory or on disk."""

    @property
    def count(self) -> int: ...
    @property
    def copies(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]:
        """Of one row's features."""
        ...

    def rows(self, preprocessing: Preprocessing | None, *, device: str, precision: str) -> Rows:
        """As an engine reads them."""
        ...

    def tables(self, *, copies: int = 1) -> Iterator[NDArray[Any]]:
        """The first copies of every row, as given, in tables that one after another fit in
        memory."""
        ...

    def taken(self, mask: NDArray[np.bool_]) -> "RowSource":
        """The rows where `mask` is true."""
        ...


@dataclass(frozen=True, eq=False, repr=False)  # no repr: it would print rows
class ArraySource:
    """Checked features (rows, *shape), or (rows, copies, *shape) if `augmented`, and targets as
    engines take them: class numbers, or values in [-1, 1]."""

    features: NDArray[Any]
    targets: NDArray[Any]
    augmented: bool = False

    @property
    def count(self) -> int:
        return len(self.targets)

    @property
    def copies(self) -> int:
        return self.features.shape[1] if self.augmented else 1

    @property
    def shape(self) -> tuple[int, ...]:
        return self.features.shape[2 if self.augmented else 1 :]

    def rows(self, preprocessing: Preprocessing | None, *, device: str, precision: str) -> Rows:
        made = preprocessing is not None
        return MemoryRows(
            self.features if preprocessing is None else preprocessing.apply_to_all(self.features),
            self.targets,
            device=device,
            precision=precision,
            augmented=self.augmented,
            shared=not made,
        )

    def tables(self, *, copies: int = 1) -> Iterator[NDArray[Any]]:
        for copy in range(copies if self.augmented else 1):
            features = self.features[:, copy] if self.augmented else self.features
            for start in range(0, max(1, self.count), _AT_ONCE):
                some = features[start : start + _AT_ONCE]
                yield some.reshape(len(some), -1)

    def taken(self, mask: NDArray[np.bool_]) -> "ArraySource":
        return ArraySource(self.features[mask], self.targets[mask], self.augmented)


@dataclass(frozen=True, eq=False, repr=False)
class DiskSource:
    """The rows of chunks in a folder for which `mask` is true. Targets are `scaled` when they are
    read. The files must not change."""

    chunks: DiskRows
    scaled: Scale | ClassNumbers
    mask: NDArray[np.bool_] | None = None

    @property
    def count(self) -> int:
        return self.chunks.count if self.mask is None else int(self.mask.sum())

    @property
    def copies(self) -> int:
        return self.chunks.copies

    @property
    def shape(self) -> tuple[int, ...]:
        return self.chunks.shape

    def rows(self, preprocessing: Preprocessing | None, *, device: str, precision: str) -> Rows:
        self.chunks.must_be_unchanged()
        rows = self.chunks.prepared(preprocessing, self.scaled, device=device, precision=precision)
        return rows if self.mask is None else rows.taken(torch.from_numpy(self.mask))

    def tables(self, *, copies: int = 1) -> Iterator[NDArray[Any]]:
        self.chunks.must_be_unchanged()
        for copy in range(copies):
            start = 0
            for table in self.chunks.tables(copy):
                end = start + len(table)
                yield table if self.mask is None else table[self.mask[start:end]]
                start = end

    def taken(self, mask: NDArray[np.bool_]) -> "DiskSource":
        both = np.ones(self.chunks.count, dtype=bool) if self.mask is None else self.mask.copy()
        both[both] = mask
        return DiskSource(self.chunks, self.scaled, both)
