"""What a private second moment is good for: a matrix that evens out the directions of the rows, and
how much of them one direction holds afterwards. Both use released and public numbers alone."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.errors import InvalidInput

# The largest eigenvalue of symmetric noise is about sqrt(2 columns) times its deviation on the
# diagonal: eigenvalues below that are mostly noise.
_NOISE_LEVEL = 1.4
# Of the mean eigenvalue of rows of unit length, 1/columns: keeps directions that hold next to
# nothing from being blown up where the noise is small.
_EMPTY_LEVEL = 0.3


def whitening_of(
    second_moment: NDArray[Any], noise_multiplier: float, rows: int
) -> NDArray[np.float64]:
    """V diag(1 / sqrt(eigenvalue + level)) V' of a second moment that `private_second_moment`
    released with this noise over this PUBLIC number of rows: symmetric, to multiply rows with, and
    divided by what makes them about as long as they were, on average."""
    moment = _moment(second_moment)
    level = _level(len(moment), noise_multiplier, rows)
    eigenvalues, vectors = np.linalg.eigh(moment)
    left = _left(eigenvalues, level)
    made = (vectors / np.sqrt(np.maximum(eigenvalues, 0) + level)) @ vectors.T
    # Rows of unit length leave no less than if one direction held all of them, whatever noise says.
    length = math.sqrt(max(left.sum(), 1 / (1 + level)))
    whitening: NDArray[np.float64] = (made + made.T) / (2 * length)
    return whitening


def curvature_of(second_moment: NDArray[Any], noise_multiplier: float, rows: int) -> float:
    """About the largest eigenvalue of the second moment of rows that were multiplied by
    `whitening_of` the same numbers and then scaled to unit length: from 1/columns to 1. Noise that
    drowns most directions also counts as theirs, so then it may be as little as half of it."""
    moment = _moment(second_moment)
    level = _level(len(moment), noise_multiplier, rows)
    left = _left(np.linalg.eigvalsh(moment), level)
    if not left.any():
        return 1.0  # nothing is known, and no rows of unit length have more
    return float(np.clip(left.max() / left.sum(), 1 / len(left), 1.0))


def _left(eigenvalues: NDArray[Any], level: float) -> NDArray[np.float64]:
    """What whitening makes of them."""
    real = np.maximum(eigenvalues, 0)
    left: NDArray[np.float64] = real / (real + level)
    return left


def _level(columns: int, noise_multiplier: float, rows: int) -> float:
    """What is added to every eigenvalue."""
    noise_multiplier = validate.positive(at_most=1e100, noise_multiplier=noise_multiplier)
    rows = validate.whole(1, rows=rows)
    return _NOISE_LEVEL * math.sqrt(columns) * noise_multiplier / rows + _EMPTY_LEVEL / columns


def _moment(second_moment: NDArray[Any]) -> NDArray[np.float64]:
    moment = np.asarray(second_moment, dtype=np.float64)
    square = moment.ndim == 2 and moment.size and moment.shape[0] == moment.shape[1]
    if not square or not bool(np.isfinite(moment).all()) or bool((moment != moment.T).any()):
        raise InvalidInput(
            "a second moment must be a symmetric matrix of finite numbers; got shape "
            f"{moment.shape}. Take what private_second_moment gave."
        )
    return moment
