"""Gaussian noise on exact sums, in a form that is safe to release.

Normal numbers in floating point take comparatively few values: NumPy's are whole multiples of one
of 256 constants. So the last bits of `sum + noise` reveal which sums are possible, and often only
one of two neighbouring data sets is. Noisy sums are therefore rounded to a public grid, with 2^16
steps per standard deviation of the noise. One step then contains so many noise values that their
own grid has no visible effect (docs/design/noise.md has the bound). Rounding is post-processing of
the priced mechanism, and costs no accuracy.

All noise of the package is added here, on NumPy arrays and tensors.
"""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dptune import validate

_STEPS = 16  # one deviation of the noise has 2^16 to 2^17 grid steps
_LEAST_EXPONENT = -960  # a grid step must stay a normal number
Numbers = TypeVar("Numbers", bound=Any)  # an array or a tensor of float64


def grid_step(noise: Any) -> Any:
    """The grid spacing, a power of two, for noise of this standard deviation (or an array of
    them)."""
    _, exponents = np.frexp(noise)
    return np.ldexp(1.0, np.maximum(exponents - 1 - _STEPS, _LEAST_EXPONENT))


def rounder(noise: Any) -> Any:
    """The constant that rounds a float64 to the grid when it is added and subtracted again, because
    the sum has no finer digits. Without noise it is 0 and rounds nothing."""
    return 1.5 * 2.0**52 * grid_step(noise) * (np.asarray(noise) > 0)


def round_to_grid_(noisy: Numbers, rounders: Any) -> Numbers:
    """Round `noisy` in place; `rounders` is one number, or one for each entry."""
    noisy += rounders
    noisy -= rounders
    return noisy


def add_noise(
    exact: NDArray[Any], noise: float | NDArray[np.float64], stream_normal: validate.Normal
) -> NDArray[np.float64]:
    """`exact` sums with fresh noise, safe to release. `noise` is one standard deviation or one for
    each sum; `stream_normal` returns standard normal numbers of a shape."""
    drawn = validate.drawn(stream_normal, *np.shape(exact))
    return round_to_grid_(exact + noise * drawn, rounder(noise))
