"""Numbers rounded toward privacy: as computers add them up, and as people read them.

What something costs is rounded up, what somebody may still spend rounded down.

>>> cost(0.99633912), allowance(0.88404569)
('0.9964', '0.8840')
>>> cost(0.000123456), allowance(0.000123456)
('0.000124', '0.000123')
>>> probability(1e-05), probability(0.00011037527593818985)
('1e-05', '0.000110376')
"""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

# Two units in the last place of 1. One product, quotient or root, and one more product by this
# factor, are each rounded by half a unit at most, so the answer is still on the safe side.
_LAST_PLACES = 4e-16
# Computed epsilons lie at least this much (relative) on the safe side of the truth already, so an
# epsilon of 1.0000000000000002 may be shown as 1.0000.
_ALREADY_SAFE = 1e-14


def above(value: float) -> float:
    """A hair more than `value`, which hardware may have rounded down: never less than the truth."""
    return value * (1.0 + _LAST_PLACES)


def below(value: float) -> float:
    """A hair less than `value`, which hardware may have rounded up: never more than the truth."""
    return value * (1.0 - _LAST_PLACES)


def cost(value: float, decimals: int = 4) -> str:
    """Rounded up to `decimals` places, or to three significant digits where that says more."""
    return _round(value * (1 - _ALREADY_SAFE), decimals, ROUND_CEILING)


def allowance(value: float, decimals: int = 4) -> str:
    """Rounded down likewise."""
    return _round(value * (1 + _ALREADY_SAFE), decimals, ROUND_FLOOR)


def probability(value: float) -> str:
    """A delta, rounded up to six significant digits; one that has no more stays as it is.

    By the digits that Python prints: those of 1e-05 are the number that was meant, though the float
    is a hair above it. Where more are cut off, the result is above the float, too: a shorter number
    between the two would have been printed in place of all those digits.
    """
    return repr(float(Context(prec=6, rounding=ROUND_CEILING).create_decimal(repr(value))))


def share(value: float) -> float:
    """A part of a budget, rounded up to what can be read aloud: thousandths."""
    return math.ceil(1000 * value - 1e-9) / 1000


def _round(value: float, decimals: int, direction: str) -> str:
    exact = Decimal(value)
    if not exact.is_finite():
        return str(value)
    if exact == 0:
        return f"{exact:.{decimals}f}"
    magnitude = exact.adjusted()
    if -5 < magnitude < 12:
        decimals = max(decimals, 2 - magnitude)
        return f"{exact.quantize(Decimal(1).scaleb(-decimals), rounding=direction):f}"
    return f"{Context(prec=3, rounding=direction).create_decimal(exact):.2e}"
