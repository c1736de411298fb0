"""How many rows hold numbers of very unlike size, as those of a table do that come as they are: an
income beside a year, an age, and a yes or no. Features that a network made, pixels and answers from
1 to 5 do not."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.data.tables import table_of, wide_chunks
from dptune.noise import add_noise

# Signs and zeros aside, the largest number of such a row is more than so many times as large as
# what this part of its numbers do not exceed. Principal directions shrink about as one over their
# number, so beyond so many columns each adds to that.
_TIMES, _COLUMNS, _TIMES_A_COLUMN, _SMALL = 30.0, 40, 3.0, 1 / 3


def are_unlike(rows: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Of each row, by that row alone; one of zeros is not."""
    sizes = np.sort(np.abs(rows), axis=1)
    zeros = (sizes == 0).sum(1)
    last = sizes.shape[1] - 1
    place = zeros + np.maximum(last - zeros, 0) * _SMALL
    small = np.take_along_axis(sizes, np.minimum(place.astype(int), last)[:, None], axis=1)[:, 0]
    times = _TIMES + _TIMES_A_COLUMN * max(0, last + 1 - _COLUMNS)
    return np.asarray(sizes[:, -1] / times > small)


def private_unlike(
    tables: Iterable[NDArray[Any]],
    columns: int,
    noise: float,
    rows: int,
    stream_normal: validate.Normal,
) -> NDArray[np.float64]:
    """A noisy count of such rows: a row is counted once, so this is one `NoisyCount`."""
    counted = sum(
        int(are_unlike(chunk).sum()) for table in tables for chunk in wide_chunks(table_of(table))
    )
    return add_noise(np.array([counted]), noise, stream_normal)
