"""Estimate privately which values a category has, paid for as `ThresholdedCount`.

The set of values is as private as the rows. A value that some row has is released if its noisy
count reaches a threshold. The threshold is so high that a value of a single row reaches it only
with a probability that delta covers.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.errors import InvalidInput
from dptune.noise import add_noise, grid_step

_CHUNK = 65_536


def private_categories(
    tables: Iterable[NDArray[Any]],
    vocabularies: Sequence[Sequence[str]],
    at_most: Sequence[int],
    noise: float,
    threshold: float,
    stream_normal: validate.Normal,
) -> tuple[tuple[str, ...], ...]:
    """Return the commonest values of every column over all `tables`, at most `at_most` of each.

    `ThresholdedCount(counts=columns, noise=noise, threshold=threshold)` pays for the result.
    `tables` hold codes: indices into the PRIVATE vocabulary of their column, NaN where missing.
    `stream_normal` gives fresh standard normal numbers of a shape.
    """
    noise = validate.positive(at_most=1e100, noise=noise)
    counts = _count(tables, vocabularies)
    return tuple(
        _select(names, exact, most, noise, threshold, stream_normal)
        for names, exact, most in zip(vocabularies, counts, at_most, strict=True)
    )


def _count(
    tables: Iterable[NDArray[Any]], vocabularies: Sequence[Sequence[str]]
) -> list[NDArray[np.int64]]:
    """The exact number of rows with each value; `_select` adds the noise."""
    counts = [np.zeros(len(names), dtype=np.int64) for names in vocabularies]
    for table in tables:
        if table.ndim != 2 or table.shape[1] != len(counts):
            raise InvalidInput(
                f"the rows must have {len(counts)} columns; got shape {table.shape}."
            )
        for start in range(0, len(table), _CHUNK):
            for column, codes in enumerate(table[start : start + _CHUNK].T):
                places = codes[~np.isnan(codes)].astype(np.int64)
                size = len(counts[column])
                if places.size and not 0 <= places.min() <= places.max() < size:
                    raise InvalidInput(
                        "the rows hold codes that their vocabulary does not have; code them with "
                        "that vocabulary."
                    )
                counts[column] += np.bincount(places, minlength=size)
    return counts


def _select(
    names: Sequence[str],
    exact: NDArray[np.int64],
    most: int,
    noise: float,
    threshold: float,
    stream_normal: validate.Normal,
) -> tuple[str, ...]:
    # A value that no row has must not be released, whatever the noise.
    (present,) = np.nonzero(exact)
    noisy = add_noise(exact[present], noise, stream_normal)
    falling = np.argsort(-noisy, kind="stable")[:most]
    # One step more, because rounding may have brought a count up to the threshold.
    reached = threshold + grid_step(noise)
    return tuple(names[present[place]] for place in falling if noisy[place] >= reached)
