"""The mean and the second moment of private rows, with noise: releases that are paid for.

Rows longer than 1 are clipped and all are rounded towards zero, to a grid on which every sum is
exact. So one row moves a sum by no more than its own share, in any order and any company.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune import rounding, validate
from dptune.data.tables import directions, table_of, wide_chunks
from dptune.errors import InvalidInput
from dptune.noise import add_noise

# Sums are of multiples of 2^-24 up to 1. A product of two coordinates must be one of them.
_UNIT = 2.0**-24
_UNIT_OF_FACTORS = 2.0**-12
_EXACT_ROWS = 2**29  # of multiples of the unit up to 1, in float64
_BELOW_ONE = 1 - 1e-9  # norms are rounded sums: aimed at from a little below, 1 is never exceeded


def private_mean(
    tables: Iterable[NDArray[Any]],
    columns: int,
    noise_multiplier: float,
    rows: int,
    stream_normal: validate.Normal,
) -> NDArray[np.float64]:
    """The mean row of all `tables`, with noise: what `PrivateMean(noise_multiplier=...)` pays for.

    One row moves the sum by at most 1. `rows` is the PUBLIC number of rows; `stream_normal` gives
    fresh standard normal numbers of a shape.
    """
    noise_multiplier = validate.positive(at_most=1e100, noise_multiplier=noise_multiplier)
    rows = validate.whole(1, rows=rows)
    total = np.zeros(columns)
    for chunk in _clipped(tables, columns, _UNIT):
        total += chunk.sum(0)
    return add_noise(total * _UNIT, noise_multiplier, stream_normal) / rows


def shrunk(mean: NDArray[np.float64], noise: float) -> NDArray[np.float64]:
    """A released mean that may be mostly noise, of this deviation in every column, brought as near
    to 0 as is best on average whatever the true one is (James and Stein); to 0 where noise alone
    would be as long."""
    squared = float(mean @ mean)
    of_noise = len(mean) * noise**2
    return mean * (max(0.0, 1 - of_noise / squared) if squared else 0.0)


def private_second_moment(
    tables: Iterable[NDArray[Any]],
    columns: int,
    noise_multiplier: float,
    rows: int,
    stream_normal: validate.Normal,
) -> NDArray[np.float64]:
    """The mean of x x' over the rows x of all `tables`, with noise: what
    `PrivateSecondMoment(noise_multiplier=...)` pays for.

    One row moves the sum by x x', whose Frobenius norm |x|^2 is at most 1. The noise is a symmetric
    matrix, as long on average in every direction of that norm: an entry off the diagonal counts
    twice in it, and so has half the variance of one on it.
    """
    noise_multiplier = validate.positive(at_most=1e100, noise_multiplier=noise_multiplier)
    rows = validate.whole(1, rows=rows)
    total = np.zeros((columns, columns))
    for chunk in _clipped(tables, columns, _UNIT_OF_FACTORS):
        total += chunk.T @ chunk  # of whole numbers, so exact whatever order BLAS adds in
    total *= _UNIT
    on_and_below = np.tril_indices(columns)
    noise = np.full(len(on_and_below[0]), noise_multiplier)
    # Rounded up: a hair less noise off the diagonal would not be what was paid for.
    noise[on_and_below[0] != on_and_below[1]] *= rounding.above(math.sqrt(0.5))
    total[on_and_below] = add_noise(total[on_and_below], noise, stream_normal)
    total.T[on_and_below] = total[on_and_below]
    return total / rows


def _clipped(
    tables: Iterable[NDArray[Any]], columns: int, unit: float
) -> Iterator[NDArray[np.float64]]:
    """Rows of length at most 1 in whole multiples of the unit, a chunk at a time."""
    summed = 0
    for table in map(table_of, tables):
        if table.shape[1] != columns:  # a single one would be added to all
            raise InvalidInput(
                f"the rows must have {columns} columns, as was said; got {table.shape[1]}."
            )
        for chunk in wide_chunks(table):
            summed += len(chunk)
            if summed > _EXACT_ROWS:
                raise InvalidInput(
                    f"sums of up to {_EXACT_ROWS:,} rows are exact; got more. Use fewer."
                )
            ahead, lengths = directions(chunk)
            long = lengths[:, None] > _BELOW_ONE
            yield np.trunc(np.where(long, ahead * _BELOW_ONE, chunk) / unit)
