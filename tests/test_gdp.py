"""Exact Gaussian DP against published vectors, 50-digit arithmetic, dp-accounting and algebra."""

import math

import dp_accounting
import mpmath
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dptune import gdp
from dptune.errors import InvalidInput

mpmath.mp.dps = 50

epsilons = st.floats(1e-4, 100)
deltas = st.floats(1e-15, 0.5)
mus = st.floats(1e-4, 30)


def exact_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """The closed form, in 50 digits."""
    t = mpmath.mpf(epsilon) / mu - mpmath.mpf(mu) / 2
    return mpmath.ncdf(-t) - mpmath.exp(epsilon) * mpmath.ncdf(-t - mu)


# Computed once in 50 digits and by dp-accounting; delta = 1e-5
MU_OF_EPSILON = {
    0.01: 0.00410196773661,
    0.05: 0.01730981418463,
    0.1: 0.03252078405620,
    0.2: 0.06133413988869,
    0.3: 0.08898345287381,
    0.5: 0.14221055866926,
    0.7: 0.19355491095965,
    0.88: 0.23856770016436,
    0.9: 0.24350900380026,
    0.96: 0.25826642358210,
    0.97: 0.26071654069938,
    0.99: 0.26560886969922,
    1.0: 0.26805112321129,
    2.0: 0.50155168916966,
    3.0: 0.71911743522179,
    8.0: 1.66603059784572,
}
EPSILON_OF_MU = {
    0.01: 0.02721941981458,
    0.05: 0.16004203445813,
    0.1: 0.34066936468433,
    0.2: 0.72552175085780,
    0.5: 1.99309140441512,
    1.0: 4.37717809568122,
    2.0: 9.99725614643430,
    4.0: 24.38161088311367,
}
DELTA_AT_EPSILON_1 = {
    0.05: 1.129033e-91,
    0.1: 1.230836e-25,
    0.2: 1.754633e-08,
    0.5: 6.829594983e-03,
    1.0: 1.269367375e-01,
    2.0: 5.098616601e-01,
    4.0: 9.267112813e-01,
}
# Likewise: noise for (steps, epsilon) at delta 1e-5
NOISE = {
    (1, 0.01): 243.7854,
    (1, 1.0): 3.7306,
    (20, 0.1): 137.5162,
    (50, 0.2): 115.2876,
    (100, 0.01): 2437.8544,
    (100, 0.88): 41.9168,
    (100, 1.0): 37.3063,
    (145, 0.05): 695.6513,
    (150, 0.96): 47.4218,
}


@pytest.mark.parametrize(("epsilon", "mu"), MU_OF_EPSILON.items())
def test_mu_of_a_budget_matches_the_table(epsilon: float, mu: float) -> None:
    assert gdp.mu_from_epsilon(epsilon, 1e-5) == pytest.approx(mu, rel=1e-10)


@pytest.mark.parametrize(
    ("delta", "mu"), [(1e-6, 0.23670438), (8.3333e-6, 0.26515073), (3.9027e-7, 0.22652424)]
)
def test_mu_of_epsilon_1_at_other_deltas(delta: float, mu: float) -> None:
    assert gdp.mu_from_epsilon(1.0, delta) == pytest.approx(mu, abs=2e-6)


@pytest.mark.parametrize(("mu", "epsilon"), EPSILON_OF_MU.items())
def test_epsilon_of_mu_matches_the_table(mu: float, epsilon: float) -> None:
    assert gdp.epsilon_from_mu(mu, 1e-5) == pytest.approx(epsilon, rel=1e-10)


@pytest.mark.parametrize(("mu", "delta"), DELTA_AT_EPSILON_1.items())
def test_delta_of_mu_matches_the_table(mu: float, delta: float) -> None:
    assert gdp.delta_from_mu(mu, 1.0) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize(("run", "noise"), NOISE.items())
def test_noise_of_a_full_batch_run_matches_the_table(run: tuple[int, float], noise: float) -> None:
    steps, epsilon = run
    mu = gdp.mu_from_epsilon(epsilon, 1e-5)
    assert gdp.noise_multiplier(mu, steps) == pytest.approx(noise, abs=6e-5)


@given(mu=st.floats(1e-6, 100), t=st.floats(-5, 37))
def test_log_delta_is_exact_far_below_the_margin(mu: float, t: float) -> None:
    epsilon = mu * (t + mu / 2)
    assume(epsilon >= 0)
    exact = mpmath.log(exact_delta(mu, epsilon))
    assume(exact > -690)
    assert abs(gdp.log_delta(mu, epsilon) - exact) < gdp.LOG_MARGIN / 10


@given(epsilon=epsilons, delta=deltas)
def test_a_budget_in_mu_is_never_above_the_true_value_and_close(
    epsilon: float, delta: float
) -> None:
    mu = gdp.mu_from_epsilon(epsilon, delta)
    assert exact_delta(mu, epsilon) <= delta
    assert exact_delta(mu * (1 + 1e-9), epsilon) > delta


@given(mu=mus, delta=deltas)
def test_a_reported_epsilon_is_never_below_the_true_value_and_close(
    mu: float, delta: float
) -> None:
    epsilon = gdp.epsilon_from_mu(mu, delta)
    assert exact_delta(mu, epsilon) <= delta
    if epsilon > 1e-6:
        assert exact_delta(mu, epsilon * (1 - 1e-4)) > delta


@given(mu=mus, epsilon=epsilons)
def test_a_reported_delta_is_never_below_the_true_value_and_close(
    mu: float, epsilon: float
) -> None:
    exact = exact_delta(mu, epsilon)
    delta = gdp.delta_from_mu(mu, epsilon)
    assert delta >= exact
    assert delta <= max(exact * (1 + 1e-9), 1e-300)


@given(epsilon=epsilons, delta=deltas)
def test_round_trip(epsilon: float, delta: float) -> None:
    mu = gdp.mu_from_epsilon(epsilon, delta)
    assert gdp.epsilon_from_mu(mu, delta) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
def test_agrees_with_dp_accounting(epsilon: float, delta: float) -> None:
    mu = gdp.mu_from_epsilon(epsilon, delta)
    theirs = dp_accounting.get_sigma_gaussian(epsilon, delta)
    assert 1 / mu == pytest.approx(theirs, rel=1e-9)
    back = dp_accounting.get_epsilon_gaussian(theirs, delta)
    assert gdp.epsilon_from_mu(1 / theirs, delta) == pytest.approx(back, rel=1e-9)


@given(mu=mus, factor=st.floats(1.0001, 10), epsilon=epsilons, delta=deltas)
def test_more_mu_is_less_private(mu: float, factor: float, epsilon: float, delta: float) -> None:
    assert gdp.epsilon_from_mu(mu * factor, delta) >= gdp.epsilon_from_mu(mu, delta)
    assert gdp.delta_from_mu(mu * factor, epsilon) >= gdp.delta_from_mu(mu, epsilon)


@given(epsilon=epsilons, delta=deltas, factor=st.floats(1.0001, 10))
def test_more_budget_is_more_mu(epsilon: float, delta: float, factor: float) -> None:
    mu = gdp.mu_from_epsilon(epsilon, delta)
    assert gdp.mu_from_epsilon(epsilon * factor, delta) > mu
    assert gdp.mu_from_epsilon(epsilon, min(delta * factor, 0.9)) > mu


@given(st.lists(st.floats(0, 5), min_size=1, max_size=30))
def test_composition_is_never_cheaper_than_its_largest_part(parts: list[float]) -> None:
    assert gdp.compose(parts) >= max(parts)


@given(st.lists(st.floats(0, 5), min_size=1, max_size=30))
def test_adaptive_sum_equals_batch_sum(parts: list[float]) -> None:
    so_far = 0.0
    for part in parts:
        so_far = gdp.compose([so_far, part])
    assert so_far == pytest.approx(gdp.compose(parts), rel=1e-12)
    assert so_far >= math.sqrt(sum(part**2 for part in parts)) * (1 - 1e-15)


@given(mu=mus, steps=st.integers(1, 10_000))
def test_calibrated_noise_costs_at_most_its_mu(mu: float, steps: int) -> None:
    noise = gdp.noise_multiplier(mu, steps)
    assert gdp.full_batch_mu_squared(steps, noise) <= mu * mu
    assert gdp.full_batch_mu_squared(steps, noise * (1 - 1e-12)) > mu * mu


def test_nothing_released_costs_nothing() -> None:
    assert gdp.epsilon_from_mu(0.0, 1e-5) == 0.0
    assert gdp.delta_from_mu(0.0, 1.0) == 0.0
    assert gdp.compose([]) == 0.0


def test_a_delta_too_small_for_a_float_is_not_called_zero() -> None:
    assert 0 < gdp.delta_from_mu(0.001, 10.0) < 1e-300


@pytest.mark.parametrize("delta", [0, 1, -1e-5, 2, math.nan, "1e-5", True])
def test_a_delta_outside_its_range_is_refused(delta: float) -> None:
    with pytest.raises(InvalidInput, match="delta must"):
        gdp.mu_from_epsilon(1.0, delta)


@pytest.mark.parametrize("epsilon", [-1, math.inf, math.nan, None])
def test_an_epsilon_outside_its_range_is_refused(epsilon: float) -> None:
    with pytest.raises(InvalidInput, match="epsilon must"):
        gdp.mu_from_epsilon(epsilon, 1e-5)


@pytest.mark.parametrize(
    "call",
    [
        lambda: gdp.epsilon_from_mu(1e5, 1e-5),
        lambda: gdp.mu_from_epsilon(1e25, 1e-5),
        lambda: gdp.mu_from_epsilon(0.0, 3.5e-298),
        lambda: gdp.noise_multiplier(1e-155, 1),
        lambda: gdp.noise_multiplier(0.0, 1),
        lambda: gdp.noise_multiplier(0.1, 10**400),
    ],
)
def test_beyond_its_range_it_refuses_and_does_not_hang(call: "object") -> None:
    with pytest.raises(InvalidInput, match="must"):
        call()  # type: ignore[operator]


def test_the_corners_of_its_range_work() -> None:
    for epsilon in (0.0, 1e-12, 1e6):
        for delta in (1e-99, 1e-5, 1 - 1e-12):
            mu = gdp.mu_from_epsilon(epsilon, delta)
            assert exact_delta(mu, epsilon) <= delta
            assert gdp.epsilon_from_mu(mu, delta) == pytest.approx(epsilon, rel=1e-6, abs=1e-9)


@given(mu=st.floats(0.01, 5), epsilon=st.floats(0.01, 20))
def test_how_often_the_odds_go_beyond_epsilon_is_exact_for_one_gaussian(
    mu: float, epsilon: float
) -> None:
    where = mpmath.mpf(epsilon) / mu + mpmath.mpf(mu) / 2  # there the densities' ratio is e^epsilon
    truth = mpmath.ncdf(mu - where)
    assume(truth > 1e-300)
    found = gdp.gaussian_exceedance(mu, epsilon)
    assert truth <= found <= truth * (1 + mpmath.mpf("1e-9"))
    assert found > gdp.delta_from_mu(mu, epsilon) * (1 - 1e-9)


@pytest.mark.parametrize("slack", [0.0, 1e-6])
@pytest.mark.parametrize(("mu", "epsilon"), [(0.268, 1.0), (0.0325, 0.1), (1.666, 8.0), (3.0, 2.0)])
def test_nothing_of_the_same_mu_goes_beyond_epsilon_more_often(
    mu: float, epsilon: float, slack: float
) -> None:
    """The worst mechanism has one output for all of it, on the curve of mu; a run that stops as
    soon as the odds are bad lies between it and one Gaussian."""
    found = gdp.largest_exceedance(mu, epsilon, slack)
    keep = 1 - mpmath.mpf(slack)

    def above_the_curve(log_p: mpmath.mpf) -> mpmath.mpf:
        alarm = mpmath.exp(log_p - epsilon) / keep
        quantile = -mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * alarm)
        return mpmath.exp(log_p) - slack - keep * mpmath.ncdf(quantile + mu)

    worst = mpmath.exp(mpmath.findroot(above_the_curve, mpmath.log(found)))
    assert worst <= found <= worst * (1 + mpmath.mpf("1e-3"))
    if not slack:
        stopped = gdp.gaussian_exceedance(mu, epsilon)
        stopped += math.exp(epsilon) * float(mpmath.ncdf(-mu / 2 - epsilon / mu))
        assert gdp.gaussian_exceedance(mu, epsilon) < stopped < found
