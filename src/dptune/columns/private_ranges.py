"""Ranges of columns that nobody knows: private quantiles of the rows, paid for as `NoisyRanks`.

All columns have the same public marks: every number that bfloat16 has, from 2^-20 to 2^40 and the
same below zero, so 128 in every octave. The rows between two marks are counted exactly. How many
rows lie below a mark is a sum of such counts, A x, where A is lower triangular and all ones; with
independent noise in every count, that of a sum would grow with the square root of its length. So
what is released is R x + noise, where R is the square root of A: A x = R (R x). Sums then have
noise of the same size all along, some 4 times that of one count.
"""

import math
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dptune import rounding, validate
from dptune.errors import InvalidInput

Array = NDArray[np.float64]
Cells = NDArray[np.int64]

# A float32 without its last 16 bits is a bfloat16; as whole numbers both keep their order.
_CUT = 16
SMALLEST, _LARGEST = 2.0**-20, 2.0**40
_CHUNK = 65_536
# Ends are looked for where this part of all rows lies beyond, on either side.
_TAIL = 0.01
# And where that is so many times the noise of a count of rows below a mark: what is found there is
# never far out by noise alone, which between thousands of empty marks would else be taken for rows.
_CLEAR = 3.0
# Ends lie no further out than those of normal rows, judged by where this part of all rows lies
# beyond: else a few large numbers would squeeze all others, and the more so the more budget.
_THINNING = 0.03
# Rows lie between two ends where they are so many times that noise: of a column of two values fewer
# than one in two hundred would be said to have others.
_CLEAR_BETWEEN = 4.0
_MOST_TAIL = 0.4  # where noise is that large, ends say little, but are still in order
# From how many times the noise of a count of rows below a mark on ranges are of use; and those that
# only tell sizes. With a fifth of the rows one set of columns of one size in twenty is not seen to
# be so, with a quarter one in four.
_ROWS_PER_NOISE, _ROWS_PER_NOISE_OF_SIZES = 10.0, 5.0


class Range(NamedTuple):
    """`between`: whether rows lie between the ends, as far as noise lets it be seen; not so where a
    column has two values."""

    low: float
    high: float
    between: bool


def private_ranges(
    tables: Iterable[NDArray[Any]],
    columns: int,
    noise: float,
    rows: int,
    stream_normal: validate.Normal,
) -> list[Range]:
    """One for each of the columns, from all `tables`: what
    `NoisyRanks(columns=columns, noise=noise)` pays for.

    A gap (NaN) is in no count. One row moves what is released of a column by at most 1; `rows` is
    the PUBLIC number of rows; `stream_normal` gives fresh standard normal numbers of a shape.
    """
    noise = validate.positive(at_most=1e100, noise=noise)
    rows = validate.whole(1, rows=rows)
    counts = np.zeros((columns, CELLS), dtype=np.int64)
    for table in tables:
        if table.ndim != 2 or table.shape[1] != columns:
            raise InvalidInput(
                f"the rows must have {columns} columns, as was said; got shape {table.shape}."
            )
        for start in range(0, len(table), _CHUNK):
            for column, values in enumerate(table[start : start + _CHUNK].T):
                known = values[~np.isnan(values)]
                counts[column] += np.bincount(cells_of(known), minlength=CELLS)
    return [
        _found(noisy_ranks(counted, noise, validate.drawn(stream_normal, CELLS)), noise, rows)
        for counted in counts
    ]


def rows_needed(noise: float, *, for_sizes: bool = False) -> int:
    """From how many rows on ranges bought with this noise are of use."""
    return math.ceil(_rows_per_noise(for_sizes) * noise_of_ranks(noise))


def most_noise(rows: int, *, for_sizes: bool = False) -> float:
    """Up to which ranges of so many rows are of use."""
    return noise_for(rows, 1 / _rows_per_noise(for_sizes))


def _rows_per_noise(for_sizes: bool) -> float:
    return _ROWS_PER_NOISE_OF_SIZES if for_sizes else _ROWS_PER_NOISE


def noise_for(rows: int, part: float) -> float:
    """With which counts of rows below a mark are off by this part of so many rows."""
    return part * rows / noise_of_ranks(1.0)


def noise_of_ranks(noise: float) -> float:
    """Of a count of rows below a mark, at most."""
    return noise * _longest_column() ** 2


def noisy_ranks(counts: Cells, noise: float, drawn: Array) -> Array:
    """How many rows lie in a cell or below it: A x + R noise. As the noise is that of R x, whose
    columns are at most `_longest_column`, multiplied by R, this is R (R x + noise)."""
    return np.cumsum(counts) + noise * _longest_column() * _times_root(drawn)


def _index(value: float) -> int:
    """The number of the bfloat16 at or below a number that is not negative."""
    return int(np.float32(value).view(np.uint32)) >> _CUT


_FIRST = _index(SMALLEST)
_SIDE = _index(_LARGEST) - _FIRST  # cells above zero, the last without an end
CELLS = 2 * _SIDE + 1
_PERIOD = 1 << (2 * CELLS).bit_length()  # of Fourier transforms: products do not come around


def cells_of(values: NDArray[Any]) -> Cells:
    """The cell of each number: in the middle those around zero, at the ends all beyond."""
    with np.errstate(over="ignore"):  # what float32 does not know is beyond, too
        narrow = np.asarray(values).astype(np.float32)
    indices = (np.abs(narrow).view(np.uint32) >> np.uint32(_CUT)).astype(np.int64)
    far = np.clip(indices - _FIRST + 1, 0, _SIDE)
    cells: Cells = _SIDE + np.where(narrow < 0, -far, far)
    return cells


def marks_of(cell: int) -> tuple[float, float]:
    """Between which numbers a cell lies."""
    far = abs(cell - _SIDE)
    if far == 0:
        return -SMALLEST, SMALLEST
    near, beyond = (
        float(np.uint32((_FIRST + mark) << _CUT).view(np.float32)) for mark in (far - 1, far)
    )
    return (near, beyond) if cell > _SIDE else (-beyond, -near)


@cache
def _root() -> Array:
    """The first column of R, the others of which are the same further down: A is 1 / (1 - z), and R
    the coefficients (2j over j) / 4^j of 1 / sqrt(1 - z)."""
    steps = np.arange(1, CELLS)
    return np.cumprod(np.concatenate([[1.0], (2 * steps - 1) / (2 * steps)]))


@cache
def _longest_column() -> float:
    """Of R, the first; rounded up by more than the sum of its squares is off."""
    return rounding.above(math.sqrt(math.fsum(_root() ** 2))) * (1 + 1e-12)


@cache
def _root_transformed() -> NDArray[np.complex128]:
    return np.fft.rfft(_root(), _PERIOD)


def _times_root(vector: Array) -> Array:
    product: Array = np.fft.irfft(np.fft.rfft(vector, _PERIOD) * _root_transformed(), _PERIOD)
    return product[:CELLS]


def _found(ranks: Array, noise: float, rows: int) -> Range:
    """From noisy ranks alone."""
    from scipy.optimize import isotonic_regression  # slow to import

    rising: Array = isotonic_regression(ranks).x
    everybody = min(max(float(rising[-1]), 1.0), float(rows))  # without gaps
    off = noise_of_ranks(noise) / everybody
    tail = min(max(_TAIL, _CLEAR * off), _MOST_TAIL)
    places = _places(rising, tail, everybody)
    first, last = places[0], places[-1]
    rows_between = float(rising[max(last - 1, first)] - rising[first])
    between = rows_between > _CLEAR_BETWEEN * noise_of_ranks(noise)
    low, below, above, high = _ends(places, tail)
    # What noise hides lies as far beyond as if rows went on as normal ones do from there; of two
    # values none does. And zero has a cell of its own: where it is an end, it is that end.
    if low != -SMALLEST:
        low -= below * between
    elif high > SMALLEST:
        low = 0.0
    if high != SMALLEST:
        high += above * between
    elif low < -SMALLEST:
        high = 0.0
    if between and tail < _THINNING:
        places = _places(rising, _THINNING, everybody)
        inner_low, below, above, inner_high = _ends(places, _THINNING)
        low = max(low, inner_low - below) if below else low
        high = min(high, inner_high + above) if above else high
    return Range(low, high, between)


def _places(rising: Array, tail: float, everybody: float) -> list[int]:
    """The cells where `tail` of the rows lies below, twice that, and as much above."""
    inner = _inner(tail)
    parts = np.array([tail, inner, 1 - inner, 1 - tail])
    return [min(int(place), CELLS - 1) for place in np.searchsorted(rising, parts * everybody)]


def _ends(places: list[int], tail: float) -> tuple[float, float, float, float]:
    """The outer two of the places; and between these, how far normal rows would go on from either
    until `_TAIL` lies beyond, which is nowhere where the inner one is the same."""
    from scipy.special import ndtri

    low, inner_low = (marks_of(place)[0] for place in places[:2])
    inner_high, high = (marks_of(place)[1] for place in places[2:])
    further = float((ndtri(_TAIL) - ndtri(tail)) / (ndtri(tail) - ndtri(_inner(tail))))
    return low, further * (inner_low - low), further * (high - inner_high), high


def _inner(tail: float) -> float:
    return min(2 * tail, 0.5)
