"""Categories that nobody may know of: names that many rows have, paid for as `ThresholdedCount`.

Which names there are is as private as the rows. A name is counted if some row has it, and known
from then on if its noisy count reaches a threshold so high that the name of a single row does so
with a probability that delta pays for.
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
    """The commonest names of every column, `at_most` so many, from all `tables`: what
    `ThresholdedCount(counts=columns, noise=noise, threshold=threshold)` pays for.

    `tables` hold codes: places in the PRIVATE vocabulary of their column; a gap (NaN) is no name.
    `stream_normal` gives fresh standard normal numbers of a shape.
    """
    noise = validate.positive(at_most=1e100, noise=noise)
    counts = _counted(tables, vocabularies)
    return tuple(
        _known(names, counted, most, noise, threshold, stream_normal)
        for names, counted, most in zip(vocabularies, counts, at_most, strict=True)
    )


def _counted(
    tables: Iterable[NDArray[Any]], vocabularies: Sequence[Sequence[str]]
) -> list[NDArray[np.int64]]:
    """How many rows have each name, exactly: noise comes last."""
    counts = [np.zeros(len(names), dtype=np.int64) for names in vocabularies]
    for table in tables:
        if table.ndim != 2 or table.shape[1] != len(counts):
            raise InvalidInput(
                f"the rows must have {len(counts)} columns, as was said; got shape {table.shape}."
            )
        for start in range(0, len(table), _CHUNK):
            for column, codes in enumerate(table[start : start + _CHUNK].T):
                places = codes[~np.isnan(codes)].astype(np.int64)
                known = len(counts[column])
                if places.size and not 0 <= places.min() <= places.max() < known:
                    raise InvalidInput(
                        "the rows hold codes that their vocabulary does not have; code them with "
                        "the vocabulary that is given."
                    )
                counts[column] += np.bincount(places, minlength=known)
    return counts


def _known(
    names: Sequence[str],
    counted: NDArray[np.int64],
    most: int,
    noise: float,
    threshold: float,
    stream_normal: validate.Normal,
) -> tuple[str, ...]:
    # A name that no row has must not appear, whatever the noise.
    (present,) = np.nonzero(counted)
    noisy = add_noise(counted[present], noise, stream_normal)
    falling = np.argsort(-noisy, kind="stable")[:most]
    # A step more: rounding may have brought a count up to the threshold.
    reached = threshold + grid_step(noise)
    return tuple(names[present[place]] for place in falling if noisy[place] >= reached)
