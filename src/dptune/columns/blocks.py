"""The features of one column: their number, their names, and their values for each code.

A number or a date with a range is one feature x from -1 to 1. With a degree above 1, the Chebyshev
polynomials of x up to this degree are added, which also lie from -1 to 1: polynomial features. They
are finest near the ends of the range. Most values are there if a generous round range was declared.
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
    """The number of features; it does not depend on the rows."""
    if isinstance(column, Drop):
        return 0
    if isinstance(column, Category):
        return column.slots + 1 + column.indicator
    if isinstance(column, Date):
        return degree + sum(len(dates.PARTS[part]) for part in column.parts) + column.indicator
    return degree + column.indicator


def names(name: str, column: Column, degree: int, estimated: Sequence[str]) -> list[str]:
    """The names of the features; `estimated` are the private values of a category."""
    if isinstance(column, Drop):
        return []
    features = [name, *(f"{name} (curve {power})" for power in range(2, degree + 1))]
    if isinstance(column, Category):
        features = [f"{name}={value}" for value in _values(column, estimated)]
        features.append(f"{name}=other" if f"{name}=other" not in features else f"{name}=(other)")
    if isinstance(column, Date):
        for part in column.parts:
            features += [f"{name} ({part}={value})" for value in dates.PARTS[part]]
    return [*features, f"{name} missing"] if column.indicator else features


def put_number(
    codes: Features,
    column: Number,
    degree: int,
    estimated: Pair | None,
    stretch: Stretch | None,
    features: Features,
) -> None:
    """Write the number, its declared or estimated range mapped to [-1, 1], with its polynomial
    features; without a range the number itself. `stretch` is applied before an estimated range."""
    pair = column.pair or estimated
    gaps = np.isnan(codes)
    if isinstance(column.fill, float):
        codes = np.where(gaps, column.fill, codes)
    # Infinite only if a range was asked for and could not be estimated.
    scaled = codes.clip(-LARGEST, LARGEST) if pair is None else _scale(codes, pair, stretch)
    features[:, :degree] = _polynomials(np.where(np.isnan(scaled), 0, scaled), degree)
    _indicate(gaps, column.indicator, features)


def put_boolean(codes: Features, column: Boolean, features: Features) -> None:
    """Write -1 or 1; a missing value without a fill is 0."""
    gaps = np.isnan(codes)
    filled = np.where(gaps, 0.5 if column.fill is None else column.fill, codes)
    features[:, 0] = 2 * filled - 1
    _indicate(gaps, column.indicator, features)


def put_date(codes: Features, column: Date, degree: int, features: Features) -> None:
    """Write the date, its range mapped to [-1, 1], with its polynomial features and one-hot parts.
    A missing value without a fill is in the middle of the range, and has no parts."""
    gaps = np.isnan(codes)
    if column.fill is not None:
        codes = np.where(gaps, dates.hours_of(column.fill), codes)
    present = ~np.isnan(codes)
    (rows,) = np.nonzero(present)
    hours = codes[rows].astype(np.int64)
    features[:, :degree] = _polynomials(np.where(present, _scale(codes, column.pair), 0), degree)
    start = degree
    for part in column.parts:
        features[rows, start + dates.part(part, hours)] = 1
        start += len(dates.PARTS[part])
    _indicate(gaps, column.indicator, features)


def put_category(
    codes: Features, column: Category, estimated: Sequence[str], features: Features
) -> None:
    """Write the one-hot value. A missing value without a fill is all zeros if there is an
    indicator, and else counts as a value that is not listed."""
    gaps = np.isnan(codes)
    places = whole_places(codes, last=column.slots)
    places[gaps] = column.slots if column.fill is None else _place(column.fill, column, estimated)
    rows = np.arange(len(codes))
    if column.fill is None and column.indicator:
        rows, places = rows[~gaps], places[~gaps]
    features[rows, places] = 1
    _indicate(gaps, column.indicator, features)


def whole_places(codes: Features, last: int) -> NDArray[np.int64]:
    """Codes as indices from 0 to `last`; `last` also stands for every other code."""
    inside = (codes >= 0) & (codes < last)  # False for NaN
    return np.where(inside, codes, last).astype(np.int64)


def _indicate(gaps: Gaps, indicator: bool, features: Features) -> None:
    if indicator:
        features[:, -1] = gaps


def _scale(codes: Features, pair: Pair, stretch: Stretch | None = None) -> Features:
    """Clip to the range and map it to [-1, 1]."""
    if stretch is not None:
        codes, pair = stretch.of(codes), stretch.ends(pair)
    low, high = pair[0] / 2, pair[1] / 2  # halves, so that no difference overflows
    return ((codes / 2).clip(low, high) - low) / (high - low) * 2 - 1


def _polynomials(inside: Features, degree: int) -> Features:
    """The Chebyshev polynomials of degree 1 to `degree`."""
    return np.asarray(chebvander(inside, degree)[:, 1:], np.float64)


def _values(column: Category, estimated: Sequence[str]) -> list[str]:
    if isinstance(column.values, tuple):
        return list(column.values)
    if column.buckets is not None:
        return [f"bucket {number}" for number in range(column.buckets)]
    return [*estimated, *(f"(unused {slot})" for slot in range(len(estimated), column.slots))]


def _place(fill: str, column: Category, estimated: Sequence[str]) -> int:
    if column.buckets is not None:
        return bucket(fill, column.buckets)
    values = column.values if isinstance(column.values, tuple) else estimated
    return values.index(fill) if fill in values else column.slots
