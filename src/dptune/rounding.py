"""Rounding toward privacy, in computations and for display.

Costs are rounded up; allowances, which may still be spent, are rounded down.

>>> cost(0.99633912), allowance(0.88404569)
('0.9964', '0.8840')
>>> cost(0.000123456), allowance(0.000123456)
('0.000124', '0.000123')
>>> probability(1e-05), probability(0.00011037527593818985)
('1e-05', '0.000110376')
"""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

# Two units in the last place of 1. One product, quotient or root, and one product by this factor,
# are each rounded by at most half a unit, so the result is still on the safe side.
_LAST_PLACES = 4e-16
# Computed epsilons already exceed the true value by at least this relative margin, so an epsilon of
# 1.0000000000000002 may be shown as 1.0000.
_ALREADY_SAFE = 1e-14


def above(value: float) -> float:
    """Slightly more than `value`, which may have been rounded down: at least the exact number."""
    return value * (1.0 + _LAST_PLACES)


def below(value: float) -> float:
    """Slightly less than `value`, which may have been rounded up: at most the exact number."""
    return value * (1.0 - _LAST_PLACES)


def cost(value: float, decimals: int = 4) -> str:
    """`value` rounded up to `decimals` places, or to three significant digits if that is finer."""
    return _round(value * (1 - _ALREADY_SAFE), decimals, ROUND_CEILING)


def allowance(value: float, decimals: int = 4) -> str:
    """`value` rounded down in the same way."""
    return _round(value * (1 + _ALREADY_SAFE), decimals, ROUND_FLOOR)


def probability(value: float) -> str:
    """A delta rounded up to six significant digits; one with fewer digits stays unchanged.

    This uses the digits that Python prints: those of 1e-05 are the intended number, although the
    float is slightly above it. If digits are cut, the result exceeds the float, too, since Python
    would otherwise have printed a shorter number between the two.
    """
    return repr(float(Context(prec=6, rounding=ROUND_CEILING).create_decimal(repr(value))))


def share(value: float) -> float:
    """A share of a budget, rounded up to thousandths."""
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
