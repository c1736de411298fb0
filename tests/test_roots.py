"""Brent's method against SciPy's, number by number."""

import math
import sys
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import brentq

from dptune import gdp
from dptune.roots import root

Function = Callable[[float], float]

FUNCTIONS: dict[str, tuple[Function, float, float]] = {
    "a straight line": (lambda x: 3 * x - 1, 0.0, 7.0),
    "a root at an end": (lambda x: x, 0.0, 1.0),
    "a root at the other end": (lambda x: x - 1, 0.0, 1.0),
    "a root of order nine": (lambda x: (x - 0.1) ** 9, -1.0, 4.0),
    "a step": (lambda x: 1.0 if x > 1 / 3 else -1.0, 0.0, 1.0),
    "three levels": (lambda x: min(max(1e9 * (x - 2), -1e3), 1e3), -50.0, 77.0),
    "a pole": (lambda x: 1 / (x - 0.7), 0.0, 1.0),
    "ends in falling order": (math.cos, 3.0, 0.1),
    "a root near zero": (lambda x: math.expm1(x) - 1e-200, 0.0, 1.0),
}


@pytest.mark.parametrize("tolerances", [(1e-300, 1e-15), (5e-6, 4 * sys.float_info.epsilon)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_root_evaluates_the_points_that_scipy_does(
    name: str, tolerances: tuple[float, float]
) -> None:
    function, low, high = FUNCTIONS[name]
    absolute, relative = tolerances
    ours, theirs = list[float](), list[float]()

    def noting(points: list[float]) -> Function:
        return lambda x: (points.append(x), function(x))[1]

    found = root(noting(ours), low, high, absolute=absolute, relative=relative)
    wanted = brentq(noting(theirs), low, high, xtol=absolute, rtol=relative, maxiter=2000)
    assert found == pytest.approx(wanted, rel=1e-14, abs=1e-300)
    assert ours == pytest.approx(theirs, rel=1e-14, abs=1e-300)


@given(epsilon=st.floats(1e-4, 100), delta=st.floats(1e-30, 0.5))
def test_root_prices_a_budget_as_scipy_does(epsilon: float, delta: float) -> None:
    target = math.log(delta)

    def excess(mu: float) -> float:
        return gdp.log_delta(mu, epsilon) - target

    assume(excess(1e-6) < 0 < excess(100.0))
    wanted = brentq(excess, 1e-6, 100.0, xtol=1e-300, rtol=1e-15, maxiter=2000)
    assert root(excess, 1e-6, 100.0, relative=1e-15) == pytest.approx(wanted, rel=4e-15)


def test_root_refuses_ends_of_one_sign() -> None:
    with pytest.raises(ValueError, match="no change of sign"):
        root(math.exp, 0.0, 1.0)
