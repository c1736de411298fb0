"""Numbers are shown rounded toward privacy."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptune.rounding import allowance, cost


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
