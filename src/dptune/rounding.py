"""Numbers as people read them, rounded toward privacy.

What something costs is shown rounded up, what somebody may still spend rounded down.

>>> cost(0.99633912), allowance(0.88404569)
('0.9964', '0.8840')
>>> cost(0.000123456), allowance(0.000123456)
('0.000124', '0.000123')
"""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

# Computed epsilons lie at least this much (relative) on the safe side of the truth already, so an
# epsilon of 1.0000000000000002 may be shown as 1.0000.
_ALREADY_SAFE = 1e-14


def cost(value: float, decimals: int = 4) -> str:
    """Rounded up to `decimals` places, or to three significant digits where that says more."""
    return _round(value * (1 - _ALREADY_SAFE), decimals, ROUND_CEILING)


def allowance(value: float, decimals: int = 4) -> str:
    """Rounded down likewise."""
    return _round(value * (1 + _ALREADY_SAFE), decimals, ROUND_FLOOR)


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
