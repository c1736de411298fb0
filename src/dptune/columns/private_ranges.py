"""Estimate ranges of columns privately: quantiles from noisy counts of rows below public marks,
paid for as `NoisyRanks`."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.columns.marks import COARSE, FINE, SMALLEST, Array, Marks
from dptune.columns.stretch import Stretch
from dptune.errors import InvalidInput

_CHUNK = 65_536
# An end is placed so that this fraction of all rows lies beyond it.
_TAIL = 0.01
# The tail has at least this many times the noise of a count of rows below a mark. Otherwise noise
# between thousands of empty marks would be taken for rows, and an end could lie anywhere.
_CLEAR = 3.0
# Rows lie between two ends if their count is this many times that noise. Fewer than one in two
# hundred columns of two values are then mistaken for columns of more.
_CLEAR_BETWEEN = 4.0
_MOST_TAIL = 0.4  # with noise that large, ends say little, but are still in order
# Pairs of a tail fraction and a limit. The middle of a column is what lies within both tails of
# this fraction. If an end is farther from the center than the limit, in half-widths of the middle,
# the column has heavy tails (the end of normal values is at 3.4, of exponential ones at 7). The
# second pair is for columns whose first middle includes a code for missing values; its limit is
# larger than the ends of other columns reach.
_MIDDLES = ((0.25, 5.0), (0.375, 100.0))
# The largest noise of a count of rows below a mark, as a fraction of the rows, for which ranges are
# useful, and for which they are useful to compare scales only. With a fifth, one in thirteen sets
# of columns of one scale is not recognised; with a quarter, one in four.
GOOD, _OF_SIZES = 0.1, 0.2


class Range(NamedTuple):
    """A private range. `between`: whether rows lie between the ends, as far as the noise shows; a
    column of two values has none there. `stretch`: the log scale of a column with heavy tails.
    Older versions stored the two ends only, later also `between`."""

    low: float
    high: float
    between: bool = True
    stretch: Stretch | None = None


def private_ranges(
    tables: Iterable[NDArray[Any]],
    columns: int,
    noise: float,
    rows: int,
    stream_normal: validate.Normal,
    marks: Marks = FINE,
    *,
    stretching: bool = True,
) -> list[Range]:
    """Return a range for each column over all `tables`.

    `NoisyRanks(columns=columns, noise=noise)` pays for the result. Missing values (NaN) are not
    counted. One row moves what is released of a column by at most 1, before noise. `rows` is the
    PUBLIC number of rows; `stream_normal` gives fresh standard normal numbers of a shape;
    `stretching` allows the log scale for columns with heavy tails.
    """
    noise = validate.positive(at_most=1e100, noise=noise)
    rows = validate.whole(1, rows=rows)
    counts = np.zeros((columns, marks.cells), dtype=np.int64)
    for table in tables:
        if table.ndim != 2 or table.shape[1] != columns:
            raise InvalidInput(f"the rows must have {columns} columns; got shape {table.shape}.")
        for start in range(0, len(table), _CHUNK):
            for column, values in enumerate(table[start : start + _CHUNK].T):
                present = values[~np.isnan(values)]
                counts[column] += np.bincount(marks.cells_of(present), minlength=marks.cells)
    return [
        _estimate(marks.noisy_ranks(exact, noise, stream_normal), noise, rows, marks, stretching)
        for exact in counts
    ]


def marks_for(noise: float, rows: int) -> Marks:
    """Fine marks if they give good ranges; else coarse ones, with less noisy ranks, which suffice
    to compare the scales of columns."""
    return FINE if rows >= rows_needed(noise) else COARSE


def rows_needed(noise: float, *, for_sizes: bool = False) -> int:
    """The smallest number of rows for which ranges with this noise are useful."""
    return math.ceil(noise / most_noise(1, for_sizes=for_sizes))


def most_noise(rows: int, *, for_sizes: bool = False) -> float:
    """The largest noise with which ranges of this many rows are useful."""
    return noise_for(rows, _OF_SIZES, COARSE) if for_sizes else noise_for(rows, GOOD)


def noise_for(rows: int, part: float, marks: Marks = FINE) -> float:
    """The noise with which a count of rows below a mark is off by this fraction of the rows."""
    return part * rows / marks.noise_of_ranks(1.0)


def _estimate(ranks: Array, noise: float, rows: int, marks: Marks, stretching: bool) -> Range:
    """Estimate a range from noisy ranks alone."""
    from scipy.optimize import isotonic_regression  # slow to import

    rising: Array = isotonic_regression(ranks).x
    present = min(max(float(rising[-1]), 1.0), float(rows))  # rows without a missing value
    off = marks.noise_of_ranks(noise)
    tail = min(max(_TAIL, _CLEAR * off / present), _MOST_TAIL)
    places = _places(rising, tail, present)
    first, last = places[0], places[-1]
    rows_between = float(rising[max(last - 1, first)] - rising[first])
    between = rows_between > _CLEAR_BETWEEN * off
    low, below, above, high = _ends(marks, places, tail)
    stretch = None
    if stretching and between:
        middles = ((_middle(marks, rising, present, off, part), limit) for part, limit in _MIDDLES)
        stretch = next((s for s, limit in middles if s and s.farthest(low, high) > limit), None)
    extends = between and stretch is None  # on a log scale nothing lies much farther out
    # Rows hidden by noise are assumed to go on beyond the ends like a normal tail; for two values
    # there are none. Zero has a cell of its own: an end in this cell is exactly zero.
    if low != -SMALLEST:
        low -= below * extends
    elif high > SMALLEST:
        low = 0.0
    if high != SMALLEST:
        high += above * extends
    elif low < -SMALLEST:
        high = 0.0
    return Range(low, high, between, stretch)


def _middle(marks: Marks, rising: Array, present: float, off: float, part: float) -> Stretch | None:
    """The middle of a column. None if no rows are seen in its wider half: noise may then have put
    that end anywhere between the values of the column."""
    beyond = part * present - _CLEAR * off  # noise alone must not make it narrower
    first, middle, last = _cells(rising, np.array([beyond, present / 2, present - beyond]))
    low, high = marks.around(first)[0], marks.around(last)[1]
    center = sum(marks.around(middle)) / 2
    inner, outer = (first, middle) if center - low > high - center else (middle, last)
    if rising[max(outer - 1, inner)] - rising[inner] <= _CLEAR_BETWEEN * off:
        return None
    return Stretch(center, (high - low) / 2)


def _places(rising: Array, tail: float, present: float) -> list[int]:
    """The cells with a fraction `tail` of the rows below, twice that, and the same from above."""
    inner = _inner(tail)
    return _cells(rising, np.array([tail, inner, 1 - inner, 1 - tail]) * present)


def _cells(rising: Array, ranks: Array) -> list[int]:
    """The cells in which the ranks are reached."""
    return [min(int(place), len(rising) - 1) for place in np.searchsorted(rising, ranks)]


def _ends(marks: Marks, places: list[int], tail: float) -> tuple[float, float, float, float]:
    """The two outer ends, and how far a normal tail goes on beyond each until `_TAIL` is left. That
    distance is zero if the inner and the outer place are the same."""
    from scipy.special import ndtri

    low, inner_low = (marks.around(place)[0] for place in places[:2])
    inner_high, high = (marks.around(place)[1] for place in places[2:])
    further = float((ndtri(_TAIL) - ndtri(tail)) / (ndtri(tail) - ndtri(_inner(tail))))
    return low, further * (inner_low - low), further * (high - inner_high), high


def _inner(tail: float) -> float:
    return min(2 * tail, 0.5)
