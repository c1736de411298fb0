"""The features of one column: how many, what they are called, and what they are for each code.

A number or a date within its range is one feature x, from -1 to 1, of which a linear model makes a
straight line. With a degree, Chebyshev polynomials of x up to it stand beside x, all from -1 to 1,
too: then the model draws a curve over the column. They bend most near the ends of a range, where
the values of most columns crowd that a round range was declared for.
"""

from collections.abc import Sequence

import numpy as np
from numpy.polynomial.chebyshev import chebvander
from numpy.typing import NDArray

from dptune.columns import dates
from dptune.columns.coding import bucket
from dptune.columns.kinds import LARGEST, Boolean, Category, Column, Date, Drop, Number, Pair
from dptune.columns.stretch import Stretch

Features = NDArray[np.float64]
Gaps = NDArray[np.bool_]


def width(column: Column, degree: int) -> int:
    """Known before anything is bought."""
    if isinstance(column, Drop):
        return 0
    if isinstance(column, Category):
        return column.slots + 1 + column.indicator
    if isinstance(column, Date):
        return degree + sum(len(dates.PARTS[part]) for part in column.parts) + column.indicator
    return degree + column.indicator


def names(name: str, column: Column, degree: int, bought: Sequence[str]) -> list[str]:
    """Of the features; `bought` are names of a category."""
    if isinstance(column, Drop):
        return []
    found = [name, *(f"{name} (curve {power})" for power in range(2, degree + 1))]
    if isinstance(column, Category):
        found = [f"{name}={value}" for value in _values(column, bought)]
        found.append(f"{name}=other" if f"{name}=other" not in found else f"{name}=(other)")
    if isinstance(column, Date):
        for part in column.parts:
            found += [f"{name} ({part}={value})" for value in dates.PARTS[part]]
    return [*found, f"{name} missing"] if column.indicator else found


def put_number(
    codes: Features,
    column: Number,
    degree: int,
    bought: Pair | None,
    stretch: Stretch | None,
    features: Features,
) -> None:
    """The range, declared or bought, mapped to [-1, 1] and bent; the number itself where there is
    none. `stretch`: of a range that was bought, before it is mapped."""
    pair = column.pair or bought
    gaps = np.isnan(codes)
    if isinstance(column.fill, float):
        codes = np.where(gaps, column.fill, codes)
    # Infinite only where a range was asked for and could not be bought.
    scaled = codes.clip(-LARGEST, LARGEST) if pair is None else _scaled(codes, pair, stretch)
    features[:, :degree] = _curve(np.where(np.isnan(scaled), 0, scaled), degree)
    _indicate(gaps, column.indicator, features)


def put_boolean(codes: Features, column: Boolean, features: Features) -> None:
    """-1 and 1; a gap without a fill is between them."""
    gaps = np.isnan(codes)
    filled = np.where(gaps, 0.5 if column.fill is None else column.fill, codes)
    features[:, 0] = 2 * filled - 1
    _indicate(gaps, column.indicator, features)


def put_date(codes: Features, column: Date, degree: int, features: Features) -> None:
    """The range mapped to [-1, 1] and bent, and a one for each part. A gap without a fill is in the
    middle of the range, and has no parts."""
    gaps = np.isnan(codes)
    if column.fill is not None:
        codes = np.where(gaps, dates.hours_of(column.fill), codes)
    known = ~np.isnan(codes)
    (rows,) = np.nonzero(known)
    hours = codes[rows].astype(np.int64)
    features[:, :degree] = _curve(np.where(known, _scaled(codes, column.pair), 0), degree)
    start = degree
    for part in column.parts:
        features[rows, start + dates.part(part, hours)] = 1
        start += len(dates.PARTS[part])
    _indicate(gaps, column.indicator, features)


def put_category(
    codes: Features, column: Category, bought: Sequence[str], features: Features
) -> None:
    """A one for each name. A gap without a fill has none if an indicator says so, and is one of the
    other names if not."""
    gaps = np.isnan(codes)
    stands_for_gap = column.slots if column.fill is None else _place(column.fill, column, bought)
    places = whole_places(codes, last=column.slots)
    places[gaps] = stands_for_gap
    rows = np.arange(len(codes))
    if column.fill is None and column.indicator:
        rows, places = rows[~gaps], places[~gaps]
    features[rows, places] = 1
    _indicate(gaps, column.indicator, features)


def whole_places(codes: Features, last: int) -> NDArray[np.int64]:
    """Codes as places from 0 to `last`, which also stands for all that is no such place."""
    inside = (codes >= 0) & (codes < last)  # NaN is not
    return np.where(inside, codes, last).astype(np.int64)


def _indicate(gaps: Gaps, indicator: bool, features: Features) -> None:
    if indicator:
        features[:, -1] = gaps


def _scaled(codes: Features, pair: Pair, stretch: Stretch | None = None) -> Features:
    """What is outside the range is clipped to it."""
    if stretch is not None:
        codes, pair = stretch.of(codes), stretch.ends(pair)
    low, high = pair[0] / 2, pair[1] / 2  # halves: no difference overflows
    return ((codes / 2).clip(low, high) - low) / (high - low) * 2 - 1


def _curve(inside: Features, degree: int) -> Features:
    """Numbers, and what bends a line through them where they are from -1 to 1."""
    return np.asarray(chebvander(inside, degree)[:, 1:], np.float64)


def _values(column: Category, bought: Sequence[str]) -> list[str]:
    if isinstance(column.values, tuple):
        return list(column.values)
    if column.buckets is not None:
        return [f"bucket {number}" for number in range(column.buckets)]
    return [*bought, *(f"(unused {slot})" for slot in range(len(bought), column.slots))]


def _place(fill: str, column: Category, bought: Sequence[str]) -> int:
    if column.buckets is not None:
        return bucket(fill, column.buckets)
    known = column.values if isinstance(column.values, tuple) else bought
    return known.index(fill) if fill in known else column.slots
