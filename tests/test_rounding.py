"""Numbers are shown rounded toward privacy."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptune.rounding import above, allowance, below, cost, probability


@given(st.floats(1e-6, 1e3))
def test_costs_round_up_and_allowances_down(value: float) -> None:
    assert Decimal(cost(value)) >= Decimal(value) * (1 - Decimal("1e-14"))
    assert Decimal(allowance(value)) <= Decimal(value) * (1 + Decimal("1e-14"))
    assert float(cost(value)) - float(allowance(value)) <= max(1.1e-4, 0.02 * value)


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [
        (0.88404, "0.8841", "0.8840"),
        (1.0, "1.0000", "1.0000"),
        (1.0000000000000002, "1.0000", "1.0000"),
        (0.000123456, "0.000124", "0.000123"),
        (0.0, "0.0000", "0.0000"),
        (1.23456e-12, "1.24e-12", "1.23e-12"),
    ],
)
def test_shown_digits(value: float, up: str, down: str) -> None:
    assert (cost(value), allowance(value)) == (up, down)


@given(st.floats(0, 1))
def test_a_delta_is_never_shown_smaller_than_it_is(value: float) -> None:
    shown = probability(value)
    assert value <= float(shown) <= value * (1 + 1e-5) or value < 1e-300
    assert len(Decimal(shown).normalize().as_tuple().digits) <= 6
    assert probability(float(shown)) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1e-5, "1e-05"),
        (0.0001, "0.0001"),
        (1 / 3000, "0.000333334"),
        (0.00011037527593818985, "0.000110376"),
        (0.0, "0.0"),
    ],
)
def test_digits_of_a_delta(value: float, shown: str) -> None:
    assert probability(value) == shown


@given(st.floats(1e-150, 1e150), st.floats(1e-100, 1e100))
def test_a_product_or_root_that_was_rounded_ends_on_the_safe_side(a: float, b: float) -> None:
    exact = Fraction(a) * Fraction(b)
    assert Fraction(below(a * b)) <= exact <= Fraction(above(a * b))
    root = math.sqrt(a)
    assert Fraction(below(root)) ** 2 <= Fraction(a) <= Fraction(above(root)) ** 2
    assert above(a) / a - 1 < 1e-15 and 1 - below(a) / a < 1e-15


def test_the_hair_is_two_units_in_the_last_place() -> None:
    assert above(1.0) == math.nextafter(math.nextafter(1.0, 2.0), 2.0) == 1 + 4e-16
    assert below(1.0) == 1 - 2**-51 == 1 - 4e-16
