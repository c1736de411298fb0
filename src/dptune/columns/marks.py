"""Public marks, and noisy counts of the rows below each (ranks), from which ranges are estimated.

All columns have the same marks: every float32 whose last bits are 0, from 2^-20 to 2^40, and the
same below zero. The rows between two marks are counted exactly. The ranks are sums of these counts,
A x, where A is the lower triangular matrix of ones. With independent noise in every count, the
noise of a sum would grow with the square root of its length. So R x + noise is released, where R is
the square root of A: A x = R (R x). All ranks then have noise of about the same size: some 4 times
that of one count with fine marks, 3 times with coarse ones.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune import rounding, validate
from dptune.noise import add_noise

Array = NDArray[np.float64]
Cells = NDArray[np.int64]

SMALLEST, _LARGEST = 2.0**-20, 2.0**40


@dataclass(frozen=True)
class Marks:
    """The float32 numbers from `SMALLEST` to `_LARGEST` whose last `cut` bits are 0. The bits of
    float32 numbers sort like the numbers, so the cell of a number is its bits without these."""

    cut: int

    @cached_property
    def _first(self) -> int:
        return self._index(SMALLEST)

    @cached_property
    def _side(self) -> int:
        """The number of cells above zero, of which the last is unbounded."""
        return self._index(_LARGEST) - self._first

    @property
    def cells(self) -> int:
        return 2 * self._side + 1

    def _index(self, value: float) -> int:
        """The index of the mark at or below a number that is not negative."""
        return int(np.float32(value).view(np.uint32)) >> self.cut

    def cells_of(self, values: NDArray[Any]) -> Cells:
        """The cell of each number: the middle one is around zero, the outer ones are unbounded."""
        with np.errstate(over="ignore"):  # too large for float32 becomes infinite
            narrow = np.asarray(values).astype(np.float32)
        indices = (np.abs(narrow).view(np.uint32) >> np.uint32(self.cut)).astype(np.int64)
        far = np.clip(indices - self._first + 1, 0, self._side)
        cells: Cells = self._side + np.where(narrow < 0, -far, far)
        return cells

    def around(self, cell: int) -> tuple[float, float]:
        """The bounds of a cell."""
        far = abs(cell - self._side)
        if far == 0:
            return -SMALLEST, SMALLEST
        near, beyond = (
            float(np.uint32((self._first + mark) << self.cut).view(np.float32))
            for mark in (far - 1, far)
        )
        return (near, beyond) if cell > self._side else (-beyond, -near)

    def noisy_ranks(self, counts: Cells, noise: float, stream_normal: validate.Normal) -> Array:
        """The noisy number of rows in each cell or below it: A x + R noise = R (R x + noise). The
        noise is scaled to R x, whose columns have a norm of at most `_longest_column`."""

        def times_root(shape: tuple[int, ...]) -> Array:
            return self._times_root(validate.drawn(stream_normal, *shape))

        return add_noise(np.cumsum(counts), noise * self._longest_column, times_root)

    def noise_of_ranks(self, noise: float) -> float:
        """The largest standard deviation of a rank."""
        return noise * self._longest_column**2

    @cached_property
    def _root(self) -> Array:
        """The first column of R; the others are the same, shifted down. A is 1 / (1 - z) as a
        series, and R has the coefficients (2j over j) / 4^j of 1 / sqrt(1 - z)."""
        steps = np.arange(1, self.cells)
        return np.cumprod(np.concatenate([[1.0], (2 * steps - 1) / (2 * steps)]))

    @cached_property
    def _longest_column(self) -> float:
        """The largest norm of a column of R (of the first), rounded up by more than its error."""
        return rounding.above(math.sqrt(math.fsum(self._root**2))) * (1 + 1e-12)

    @property
    def _period(self) -> int:
        """The length of the Fourier transforms: long enough that products do not wrap around."""
        return 1 << (2 * self.cells).bit_length()

    @cached_property
    def _root_transformed(self) -> NDArray[np.complex128]:
        return np.fft.rfft(self._root, self._period)

    def _times_root(self, vector: Array) -> Array:
        transformed = np.fft.rfft(vector, self._period) * self._root_transformed
        product: Array = np.fft.irfft(transformed, self._period)
        return product[: self.cells]


# 128 marks in every octave (all of bfloat16), and 8.
FINE, COARSE = Marks(cut=16), Marks(cut=20)
