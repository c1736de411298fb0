"""Ranges of columns that nobody knows: private quantiles of the rows, from how many lie below
public marks, paid for as `NoisyRanks`."""

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
# Ends are looked for where this part of all rows lies beyond, on either side.
_TAIL = 0.01
# And where that is so many times the noise of a count of rows below a mark: what is found there is
# never far out by noise alone, which between thousands of empty marks would else be taken for rows.
_CLEAR = 3.0
# Rows lie between two ends where they are so many times that noise: of a column of two values fewer
# than one in two hundred would be said to have others.
_CLEAR_BETWEEN = 4.0
_MOST_TAIL = 0.4  # where noise is that large, ends say little, but are still in order
# Where an end lies so many times farther from the middle of a column than half of that is wide, it
# squeezes most rows into one place: normal ones go on for 3.4, exponential ones for 7. In the
# middle is what neither of these parts of all rows lies beyond: of the second where the first has a
# code for gaps in it, for which an end must lie much further out than any is else.
_MIDDLES = ((0.25, 5.0), (0.375, 100.0))
# Up to noise of which part of the rows, in a count of rows below a mark, ranges are of use; and
# those that only tell sizes. With a fifth one set of columns of one size in thirteen is not seen to
# be so, with a quarter one in four.
GOOD, _OF_SIZES = 0.1, 0.2


class Range(NamedTuple):
    """`between`: whether rows lie between the ends, as far as noise lets it be seen; not so where a
    column has two values. `stretch`: how to take numbers of which some lie far out. Older versions
    bought the two ends alone, then also whether rows lie between."""

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
    """One for each of the columns, from all `tables`: what
    `NoisyRanks(columns=columns, noise=noise)` pays for.

    A gap (NaN) is in no count. One row moves what is released of a column by at most 1; `rows` is
    the PUBLIC number of rows; `stream_normal` gives fresh standard normal numbers of a shape.
    `stretching`: whether columns of numbers far out may be stretched.
    """
    noise = validate.positive(at_most=1e100, noise=noise)
    rows = validate.whole(1, rows=rows)
    counts = np.zeros((columns, marks.cells), dtype=np.int64)
    for table in tables:
        if table.ndim != 2 or table.shape[1] != columns:
            raise InvalidInput(
                f"the rows must have {columns} columns, as was said; got shape {table.shape}."
            )
        for start in range(0, len(table), _CHUNK):
            for column, values in enumerate(table[start : start + _CHUNK].T):
                known = values[~np.isnan(values)]
                counts[column] += np.bincount(marks.cells_of(known), minlength=marks.cells)
    return [
        _found(marks.noisy_ranks(counted, noise, stream_normal), noise, rows, marks, stretching)
        for counted in counts
    ]


def marks_for(noise: float, rows: int) -> Marks:
    """Fine ones where ranges are good by them. Else they only tell sizes, as coarse ones do, by
    which ranks have less noise."""
    return FINE if rows >= rows_needed(noise) else COARSE


def rows_needed(noise: float, *, for_sizes: bool = False) -> int:
    """From how many rows on ranges bought with this noise are of use."""
    return math.ceil(noise / most_noise(1, for_sizes=for_sizes))


def most_noise(rows: int, *, for_sizes: bool = False) -> float:
    """Up to which ranges of so many rows are of use."""
    return noise_for(rows, _OF_SIZES, COARSE) if for_sizes else noise_for(rows, GOOD)


def noise_for(rows: int, part: float, marks: Marks = FINE) -> float:
    """With which counts of rows below a mark are off by this part of so many rows."""
    return part * rows / marks.noise_of_ranks(1.0)


def _found(ranks: Array, noise: float, rows: int, marks: Marks, stretching: bool) -> Range:
    """From noisy ranks alone."""
    from scipy.optimize import isotonic_regression  # slow to import

    rising: Array = isotonic_regression(ranks).x
    everybody = min(max(float(rising[-1]), 1.0), float(rows))  # without gaps
    off = marks.noise_of_ranks(noise)
    tail = min(max(_TAIL, _CLEAR * off / everybody), _MOST_TAIL)
    places = _places(rising, tail, everybody)
    first, last = places[0], places[-1]
    rows_between = float(rising[max(last - 1, first)] - rising[first])
    between = rows_between > _CLEAR_BETWEEN * off
    low, below, above, high = _ends(marks, places, tail)
    stretch = None
    if stretching and between:
        found = ((_middle(marks, rising, everybody, off, part), far) for part, far in _MIDDLES)
        stretch = next((s for s, far in found if s and s.farthest(low, high) > far), None)
    goes_on = between and stretch is None  # of logarithms nothing is much farther out
    # What noise hides lies as far beyond as if rows went on as normal ones do from there; of two
    # values none does. And zero has a cell of its own: where it is an end, it is that end.
    if low != -SMALLEST:
        low -= below * goes_on
    elif high > SMALLEST:
        low = 0.0
    if high != SMALLEST:
        high += above * goes_on
    elif low < -SMALLEST:
        high = 0.0
    return Range(low, high, between, stretch)


def _middle(
    marks: Marks, rising: Array, everybody: float, off: float, part: float
) -> Stretch | None:
    """Of a column; None where nothing is seen to lie in it on its wider side: between the values
    that there are, noise may have put its end anywhere."""
    beyond = part * everybody - _CLEAR * off  # not narrower by noise alone
    first, middle, last = _cells(rising, np.array([beyond, everybody / 2, everybody - beyond]))
    low, high = marks.around(first)[0], marks.around(last)[1]
    center = sum(marks.around(middle)) / 2
    inner, outer = (first, middle) if center - low > high - center else (middle, last)
    if rising[max(outer - 1, inner)] - rising[inner] <= _CLEAR_BETWEEN * off:
        return None
    return Stretch(center, (high - low) / 2)


def _places(rising: Array, tail: float, everybody: float) -> list[int]:
    """The cells where `tail` of the rows lies below, twice that, and as much above."""
    inner = _inner(tail)
    return _cells(rising, np.array([tail, inner, 1 - inner, 1 - tail]) * everybody)


def _cells(rising: Array, ranks: Array) -> list[int]:
    """Those up to which so many rows lie."""
    return [min(int(place), len(rising) - 1) for place in np.searchsorted(rising, ranks)]


def _ends(marks: Marks, places: list[int], tail: float) -> tuple[float, float, float, float]:
    """The outer two of the places; and between these, how far normal rows would go on from either
    until `_TAIL` lies beyond, which is nowhere where the inner one is the same."""
    from scipy.special import ndtri

    low, inner_low = (marks.around(place)[0] for place in places[:2])
    inner_high, high = (marks.around(place)[1] for place in places[2:])
    further = float((ndtri(_TAIL) - ndtri(tail)) / (ndtri(tail) - ndtri(_inner(tail))))
    return low, further * (inner_low - low), further * (high - inner_high), high


def _inner(tail: float) -> float:
    return min(2 * tail, 0.5)
