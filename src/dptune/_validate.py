"""Checks of arguments. The keyword becomes the name in the message: `positive(epsilon=x)`."""

import math
from numbers import Integral, Real

from dptune.errors import InvalidInput


def _number(name: str, value: object, wanted: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value):
        raise InvalidInput(f"{name} must be {wanted}; got {value!r}.")
    return float(value)


def positive(**named: object) -> None:
    """Finite and above zero."""
    for name, value in named.items():
        if not 0 < _number(name, value, "a finite number above 0") < math.inf:
            raise InvalidInput(f"{name} must be a finite number above 0; got {value!r}.")


def non_negative(**named: object) -> None:
    """Finite and not below zero."""
    for name, value in named.items():
        if not 0 <= _number(name, value, "a finite number, 0 or above") < math.inf:
            raise InvalidInput(f"{name} must be a finite number, 0 or above; got {value!r}.")


def strictly_between(low: float, high: float, **named: object) -> None:
    """Inside the open interval."""
    for name, value in named.items():
        if not low < _number(name, value, f"a number between {low} and {high}") < high:
            raise InvalidInput(f"{name} must lie strictly between {low} and {high}; got {value!r}.")


def whole(at_least: int, **named: object) -> None:
    """A whole number, not below `at_least`."""
    for name, value in named.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < at_least:
            raise InvalidInput(
                f"{name} must be a whole number, {at_least} or above; got {value!r}."
            )


def one_of(allowed: tuple[str, ...], **named: object) -> None:
    """One of a few words."""
    for name, value in named.items():
        if value not in allowed:
            raise InvalidInput(f"{name} must be one of {', '.join(allowed)}; got {value!r}.")


def text(**named: object) -> None:
    """A string with something in it."""
    for name, value in named.items():
        if not isinstance(value, str) or not value.strip():
            raise InvalidInput(f"{name} must be a text that is not empty; got {value!r}.")
