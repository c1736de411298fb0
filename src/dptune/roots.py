"""Roots of functions by Brent's method, with exactly SciPy's steps.

`scipy.optimize` takes a quarter of a second to import. All results are equal to SciPy's to the last
bit, so a resumed study computes the same prices as the versions that used SciPy.
"""

import math
import sys
from collections.abc import Callable

_LEAST_RELATIVE = 4 * sys.float_info.epsilon  # a smaller tolerance is lost in rounding errors


def root(
    function: Callable[[float], float],
    low: float,
    high: float,
    *,
    absolute: float = 1e-300,
    relative: float = _LEAST_RELATIVE,
) -> float:
    """A root of `function` between `low` and `high`, where it has different signs. The error is at
    most `absolute` + `relative` * |root| (Brent 1973, chapter 4).

    >>> round(root(lambda x: x * x - 2, 0.0, 2.0), 12)
    1.414213562373
    """
    previous, current = low, high
    before, now = function(previous), function(current)
    if before == 0:
        return previous
    if now != 0 and (before > 0) == (now > 0):
        raise ValueError(f"no change of sign: {before!r} at {low!r}, {now!r} at {high!r}")
    other, across = previous, before  # the end of the bracket on the other side of the root
    while True:
        if before != 0 and now != 0 and (before > 0) != (now > 0):
            other, across = previous, before
            last_step = step = current - previous
        if abs(across) < abs(now):
            previous, current, other = current, other, current
            before, now, across = now, across, now
        tolerance = (absolute + relative * abs(current)) / 2
        half = (other - current) / 2
        if now == 0 or abs(half) < tolerance:
            return current
        proposed = math.inf
        if abs(last_step) > tolerance and abs(now) < abs(before):
            proposed = _proposed_step(previous, current, other, before, now, across)
        if 2 * abs(proposed) < min(abs(last_step), 3 * abs(half) - tolerance):
            last_step, step = step, proposed
        else:
            last_step = step = half
        previous, before = current, now
        current += step if abs(step) > tolerance else math.copysign(tolerance, half)
        now = function(current)


def _proposed_step(
    previous: float, current: float, other: float, before: float, now: float, across: float
) -> float:
    """The step by linear interpolation of two points or hyperbolic interpolation of three; infinite
    if it does not exist."""
    if previous == other:
        return -now * (current - previous) / (now - before)
    slope = (before - now) / (previous - current)
    slope_across = (across - now) / (other - current)
    below = slope_across * slope * (across - before)
    return -now * (across * slope_across - before * slope) / below if below else math.inf
