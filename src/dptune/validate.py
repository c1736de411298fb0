"""Checks of arguments: `positive(epsilon=x)` returns x as a plain float or raises InvalidInput.

The message names the argument by its keyword. Results are Python's own numbers, because a price
computed in float32, or in an integer that overflows, would be wrong.
"""

import math
from collections.abc import Callable
from numbers import Integral, Real

import numpy as np
from numpy.typing import NDArray

from dptune.errors import InvalidInput

_LARGEST_COUNT = 10**12

Normal = Callable[[tuple[int, ...]], NDArray[np.float64]]


def positive(*, at_most: float = math.inf, **named: object) -> float:
    """A finite number above zero and at most `at_most`."""
    limit = "" if at_most == math.inf else f" and at most {at_most:g}"
    name, value, number = _number(named, f"a finite number above 0{limit}")
    if 0 < number < math.inf and number <= at_most:
        return number
    raise InvalidInput(f"{name} must be a finite number above 0{limit}; got {value!r}.")


def non_negative(*, at_most: float = math.inf, **named: object) -> float:
    """A finite number from zero to `at_most`."""
    limit = "" if at_most == math.inf else f" and at most {at_most:g}"
    name, value, number = _number(named, f"a finite number, 0 or above{limit}")
    if 0 <= number < math.inf and number <= at_most:
        return number
    raise InvalidInput(f"{name} must be a finite number, 0 or above{limit}; got {value!r}.")


def strictly_between(low: float, high: float, **named: object) -> float:
    """A number inside the open interval."""
    name, value, number = _number(named, f"a number between {low:g} and {high:g}")
    if low < number < high:
        return number
    raise InvalidInput(f"{name} must lie strictly between {low:g} and {high:g}; got {value!r}.")


def whole(at_least: int, *, at_most: int = _LARGEST_COUNT, **named: object) -> int:
    """An integer from `at_least` to `at_most`."""
    ((name, value),) = named.items()
    if not isinstance(value, bool) and isinstance(value, Integral):
        number = int(value)
        if at_least <= number <= at_most:
            return number
    raise InvalidInput(
        f"{name} must be a whole number from {at_least:,} to {at_most:,}; got {value!r}."
    )


def one_of(allowed: tuple[str, ...], **named: object) -> None:
    """Refuse a value that is none of the `allowed` words."""
    ((name, value),) = named.items()
    if value not in allowed:
        raise InvalidInput(f"{name} must be one of {', '.join(allowed)}; got {value!r}.")


def flag(**named: object) -> bool:
    """True or False; other truthy or falsy values are refused."""
    ((name, value),) = named.items()
    if str(value) in ("True", "False") and not isinstance(value, str):  # also NumPy's
        return bool(value)
    raise InvalidInput(f"{name} must be true or false; got {value!r}.")


def text(**named: object) -> None:
    """Refuse anything but one line of printable text that is not empty."""
    for name, value in named.items():
        if not isinstance(value, str) or not value.strip():
            raise InvalidInput(f"{name} must be a text that is not empty; got {value!r}.")
        if "\0" in value or not value.isprintable():
            raise InvalidInput(f"{name} must be one line of printable text; got {value!r}.")


def drawn(stream_normal: Normal, *shape: int) -> NDArray[np.float64]:
    """Draw standard normal numbers, and refuse a source that returns another shape or type."""
    noise = stream_normal(shape)
    # A single number broadcast to all entries would be easy to subtract again.
    if noise.shape != shape or noise.dtype != np.float64:
        raise InvalidInput(
            f"stream_normal must return float64 numbers of shape {shape}; got {noise.dtype} of "
            f"shape {noise.shape}."
        )
    return noise


def store(frozen: object, **values: object) -> None:
    """Set checked and converted values of a frozen record during its construction."""
    for name, value in values.items():
        object.__setattr__(frozen, name, value)


def _number(named: dict[str, object], requirement: str) -> tuple[str, object, float]:
    ((name, value),) = named.items()
    if not isinstance(value, bool) and isinstance(value, Real):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isnan(number):
            return name, value, number
    raise InvalidInput(f"{name} must be {requirement}; got {value!r}.")
