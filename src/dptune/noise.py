"""Gaussian noise on exact sums, in the form in which it may be seen.

A normal number in floating point is one of comparatively few: NumPy's are whole multiples of one of
256 constants. So the last bits of `sum + noise` tell which sums are possible beneath it, and of two
data sets that differ in one row often only one is. Nothing noisy is therefore seen as it is added
up, but rounded to a public grid, 2^16 steps to the deviation of the noise: that many more noise
values lie within one step that what is left of their own grid is beyond telling
(docs/design/noise.md has the bound). Rounding is post-processing of the priced mechanism, and
costs no accuracy.

All noise of the package is added here, whatever draws it: arrays of NumPy and tensors alike.
"""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dptune import validate

_STEPS = 16  # of the grid are 2^16 to 2^17 in one deviation of the noise
_LEAST_EXPONENT = -960  # of a step, which must stay a normal number
Numbers = TypeVar("Numbers", bound=Any)  # an array or a tensor of float64


def grid_step(noise: Any) -> Any:
    """The spacing of the grid that sums with noise of this deviation are rounded to, a power of
    two; of one deviation, or of an array of them."""
    _, exponents = np.frexp(noise)
    return np.ldexp(1.0, np.maximum(exponents - 1 - _STEPS, _LEAST_EXPONENT))


def rounder(noise: Any) -> Any:
    """What rounds a number in float64 to the grid when it is added to it and taken away again: the
    sum has no finer digits. Nothing is rounded where there is no noise."""
    return 1.5 * 2.0**52 * grid_step(noise) * (np.asarray(noise) > 0)


def round_to_grid_(noisy: Numbers, rounders: Any) -> Numbers:
    """In place; `rounders` is one number, or one for each that `noisy` has."""
    noisy += rounders
    noisy -= rounders
    return noisy


def add_noise(
    exact: NDArray[Any], noise: float | NDArray[np.float64], stream_normal: validate.Normal
) -> NDArray[np.float64]:
    """`exact` sums with fresh noise of this deviation, or each of its own, as they may be released;
    `stream_normal` gives standard normal numbers of a shape."""
    drawn = validate.drawn(stream_normal, *np.shape(exact))
    return round_to_grid_(exact + noise * drawn, rounder(noise))
