"""What a private second moment is good for: a matrix that evens out the directions of the rows, and
how much of them one direction holds afterwards. Both use released and public numbers alone."""

import math
from dataclasses import dataclass
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


@dataclass(frozen=True, eq=False)
class Whitening:
    """`matrix`: V diag(1 / sqrt(eigenvalue + level)) V', symmetric, to multiply rows with, and
    divided by what makes them about as long as they were, on average.

    `largest` is what one direction held of the rows before, an eigenvalue up to 1; `curvature`
    about the same of the rows that were multiplied by the matrix and then scaled to unit length:
    from 1/columns to 1. Noise that drowns most directions also counts as theirs, so then it may be
    as little as half of it.
    """

    matrix: NDArray[np.float64]
    largest: float
    curvature: float

    @staticmethod
    def of(second_moment: NDArray[Any], noise_multiplier: float, rows: int) -> "Whitening":
        """From what `private_second_moment` released with this noise over this PUBLIC number of
        rows."""
        moment = _moment(second_moment)
        level = _level(len(moment), noise_multiplier, rows)
        eigenvalues, vectors = np.linalg.eigh(moment)
        real = np.maximum(eigenvalues, 0)
        left = real / (real + level)  # what whitening makes of them
        made = (vectors / np.sqrt(real + level)) @ vectors.T
        # Rows of unit length leave no less than if one direction held all of them, whatever noise
        # says.
        length = math.sqrt(max(left.sum(), 1 / (1 + level)))
        curvature = 1.0  # where nothing is known: no rows of unit length have more
        if left.any():
            curvature = float(np.clip(left.max() / left.sum(), 1 / len(left), 1.0))
        return Whitening((made + made.T) / (2 * length), min(float(real[-1]), 1.0), curvature)


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
