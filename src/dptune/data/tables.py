"""Tables of numbers in float64, a few thousand rows at a time; lengths and directions of rows."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.errors import InvalidInput

_CHUNK = 4096  # rows widened to float64 at a time


def table_of(features: NDArray[Any]) -> NDArray[Any]:
    """The features, if they are a table of numbers that is not empty."""
    features = np.asarray(features)
    if features.ndim != 2 or 0 in features.shape or features.dtype.kind not in "biuf":
        raise InvalidInput(
            "features must be a table of numbers of shape (rows, columns); got "
            f"{features.dtype} of shape {features.shape}."
        )
    return features


def slices_of(table: NDArray[Any]) -> Iterator[slice]:
    """Slices of as many rows as are widened at a time."""
    for start in range(0, len(table), _CHUNK):
        yield slice(start, start + _CHUNK)


def wide_chunks(table: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
    """All rows in order; one that is not finite is refused."""
    for part in slices_of(table):
        chunk = table[part].astype(np.float64)
        if not bool(np.isfinite(chunk).all()):
            raise InvalidInput(
                "the features hold values that are not finite; remove or replace those rows first."
            )
        yield chunk


def directions(
    rows: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows scaled to length 1, and the lengths they had; a row of zeros stays zero.
    Dividing by the largest entry first keeps squares from overflowing or vanishing."""
    largest = np.abs(rows).max(1, keepdims=True)
    largest[largest == 0] = 1
    inside = rows / largest
    norms = np.linalg.norm(inside, axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        lengths = (largest * norms)[:, 0]
    norms[norms == 0] = 1
    inside /= norms
    return inside, lengths
