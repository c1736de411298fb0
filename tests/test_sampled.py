"""Poisson-sampled runs against dp-accounting, prv-accountant, plain integration and limits."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event, pld
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant
from scipy.stats import norm

from dptune import gdp
from dptune.accounting.sampled import Step, trade_off
from dptune.errors import UnpricedEvent

DELTA = 1e-5

# By dp-accounting and by prv-accountant: (sampling rate, noise, steps) -> epsilon at delta 1e-5
VECTORS = {
    (0.01, 1.0, 1000): 1.82824,
    (0.1, 2.0, 100): 2.33740,
    (0.02, 0.8, 500): 4.66801,
    (0.5, 4.0, 50): 3.96143,
    (0.2, 20.0, 500): 0.82295,
    (0.0205, 1.2, 488): 1.98677,
}


def step(rate: float, noise: float, count: int) -> Step:
    return Step(sampling_rate=rate, noise_multiplier=noise, count=count)


def single_step_delta(rate: float, noise: float, epsilon: float, removed: bool) -> float:
    """Hockey-stick divergence of one step: both hypotheses beyond the point where the log ratio
    is epsilon (or -epsilon, in the other direction)."""
    shift = 1 / noise
    if epsilon > 600:  # beyond what exp can hold; the other direction has no such losses
        at = (epsilon - math.log(rate)) / shift + shift / 2
        null = math.exp(epsilon + norm.logsf(at))
        return max(0.0, rate * float(norm.sf(at - shift)) - null) if removed else 0.0
    ratio = math.exp(epsilon if removed else -epsilon)
    if ratio <= 1 - rate:
        return 0.0  # the mixture is never that much less likely
    at = math.log((ratio - 1 + rate) / rate) / shift + shift / 2
    if removed:
        null = norm.sf(at)
        return float((1 - rate) * null + rate * norm.sf(at - shift) - ratio * null)
    null = norm.cdf(at)
    mixture = (1 - rate) * null + rate * norm.cdf(at - shift)
    return float(null - math.exp(epsilon) * mixture)


@pytest.mark.parametrize(("run", "epsilon"), VECTORS.items())
def test_epsilon_matches_the_table_from_above(
    run: tuple[float, float, int], epsilon: float
) -> None:
    found = trade_off([step(*run)], failure=DELTA).epsilon(DELTA)
    assert epsilon - 1e-5 <= found <= epsilon + 1e-3


@pytest.mark.parametrize(
    "run", [(0.01, 1.0, 1000), (0.3, 20.0, 20), (1.0, 50.0, 100), (0.01, 0.3, 50)]
)
@pytest.mark.parametrize("removed", [False, True])
def test_repeated_losses_are_those_of_dp_accounting(
    run: tuple[float, float, int], removed: bool
) -> None:
    from dptune.accounting.sampled import _one_step_losses, _repeat

    one, cut = step(*run), 1e-9
    losses = _one_step_losses(one, removed, 0.02 * one.loss_deviation, cut)
    offset, masses = pld.common.self_convolve(losses.masses, one.count, tail_mass_truncation=cut)
    repeated = _repeat(losses, one, cut)
    assert repeated.lowest == losses.lowest * one.count + offset
    assert np.allclose(repeated.masses, np.maximum(masses, 0.0), rtol=1e-9, atol=1e-18)


def test_heterogeneous_runs_and_counts_match_the_table() -> None:
    runs = [step(0.03, 20, 600), step(0.03, 12, 600), step(0.03, 4, 400)]
    assert trade_off(runs, failure=DELTA).epsilon(DELTA) == pytest.approx(0.61144, abs=1e-4)
    seven_counts = math.sqrt(7) / 100
    with_counts = trade_off(runs, gaussian_mu=seven_counts, failure=DELTA).epsilon(DELTA)
    assert with_counts == pytest.approx(0.61927, abs=1e-4)


@pytest.mark.parametrize("run", [(0.01, 1.0, 1000), (0.1, 5.0, 200), (0.3, 50.0, 1000)])
@pytest.mark.parametrize("delta", [1e-7, 1e-5, 1e-3])
def test_epsilon_agrees_with_two_independent_accountants(
    run: tuple[float, float, int], delta: float
) -> None:
    rate, noise, steps = run
    ours = trade_off([step(*run)], failure=delta).epsilon(delta)
    one = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
    theirs = pld.PLDAccountant(value_discretization_interval=1e-4).compose(one, steps)
    assert ours == pytest.approx(theirs.get_epsilon(delta), rel=1e-3)
    mechanism = PoissonSubsampledGaussianMechanism(rate, noise)
    prv = PRVAccountant(
        [mechanism], eps_error=0.01, delta_error=delta / 1000, max_self_compositions=[steps]
    )
    low, _, high = prv.compute_epsilon(delta, [steps])
    assert low <= ours <= high + 1e-3 * high


@pytest.mark.parametrize("rate", [0.001, 0.1, 0.7])
@pytest.mark.parametrize("noise", [0.4, 1.0, 8.0])
@pytest.mark.parametrize("removed", [True, False])
def test_one_step_covers_the_closed_form_at_every_epsilon(
    rate: float, noise: float, removed: bool
) -> None:
    """Both the curve itself and the Gaussian that dominates it, in each direction."""
    slack = 1e-7
    curve = trade_off([step(rate, noise, 1)], failure=slack)
    mu = curve.mu(slack)
    for epsilon in np.linspace(0, 3, 13):
        truth = single_step_delta(rate, noise, epsilon, removed)
        bound = max(0.0, float(np.max(curve.hit - math.exp(epsilon) * curve.false_alarm)))
        assert truth <= bound + 1e-12
        assert truth <= slack + (1 - slack) * gdp.delta_from_mu(mu, epsilon) + 1e-12


@pytest.mark.parametrize("run", VECTORS)
@pytest.mark.parametrize("slack", [1e-9, 1e-7, 1e-4])
def test_the_price_dominates_the_profile_of_dp_accounting(
    run: tuple[float, float, int], slack: float
) -> None:
    rate, noise, steps = run
    mu = trade_off([step(*run)], failure=slack).mu(slack)
    # An optimistic estimate is below the truth, so the truth dominates it and so must our price.
    profile = pld.privacy_loss_distribution.from_gaussian_mechanism(
        noise, sampling_prob=rate, value_discretization_interval=1e-3, pessimistic_estimate=False
    ).self_compose(steps)
    for epsilon in np.linspace(0, 8, 33):
        covered = slack + (1 - slack) * gdp.delta_from_mu(mu, epsilon)
        assert profile.get_delta_for_epsilon(epsilon) <= covered + 1e-12


@pytest.mark.parametrize("run", VECTORS)
def test_the_price_is_tight(run: tuple[float, float, int]) -> None:
    """A mu smaller by one percent is refuted by the profile itself."""
    slack = 1e-7
    curve = trade_off([step(*run)], failure=slack)
    mu = 0.99 * curve.mu(slack)
    epsilons = np.linspace(0, 12, 400)
    profile = [np.max(curve.hit - math.exp(e) * curve.false_alarm) for e in epsilons]
    covered = [slack + (1 - slack) * gdp.delta_from_mu(mu, e) for e in epsilons]
    assert np.any(np.array(profile) > np.array(covered))


@settings(max_examples=25)
@given(
    noise=st.floats(0.5, 2000),
    steps=st.sampled_from([1, 10, 1000]),
    slack=st.sampled_from([1e-4, 1e-7]),
)
def test_sampling_everything_is_the_gaussian(noise: float, steps: int, slack: float) -> None:
    exact = math.sqrt(steps) / noise
    assume(exact < 8)
    mu = trade_off([step(1.0, noise, steps)], failure=slack).mu(slack)
    assert mu <= exact * (1 + 2e-4)
    for epsilon in np.linspace(0, 3 * exact, 7):
        covered = slack + (1 - slack) * gdp.delta_from_mu(mu, epsilon)
        assert gdp.delta_from_mu(exact, epsilon) * (1 - 1e-9) <= covered


@settings(max_examples=15)
@given(
    rate=st.floats(0.001, 0.5),
    noise=st.floats(0.7, 20),
    steps=st.integers(1, 500),
)
def test_more_noise_fewer_steps_or_rarer_rows_never_cost_more(
    rate: float, noise: float, steps: int
) -> None:
    slack, tolerance = 1e-7, 1 + 1e-3  # grids differ, each within 1e-4 of the truth
    assume(rate * math.sqrt(steps) / noise < 4)
    mu = trade_off([step(rate, noise, steps)], failure=slack).mu(slack)
    for other in (
        step(rate, noise * 1.1, steps),
        step(rate, noise, max(1, steps - 1)),
        step(rate * 0.9, noise, steps),
    ):
        assert trade_off([other], failure=slack).mu(slack) <= mu * tolerance


def test_masses_stay_probabilities_on_very_fine_grids() -> None:
    """Where second differences of deltas lose their digits, quadrature does not."""
    run = step(0.01, 1000.0, 10_000)
    mu = trade_off([run], failure=1e-9).mu(1e-9)
    central_limit = 0.01 * math.sqrt(10_000 * math.expm1(1e-6))
    assert mu == pytest.approx(central_limit, rel=2e-4)


@pytest.mark.parametrize(
    "run",
    [(1.0, 1.0, 1000), (0.9, 0.3, 500), (0.5, 0.05, 10), (0.01, 0.02, 1), (0.5, 1e-5, 1)],
)
def test_sampled_run_with_almost_no_noise_is_refused(run: tuple[float, float, int]) -> None:
    with pytest.raises(UnpricedEvent, match="more noise"):
        trade_off([step(*run)], failure=1e-7).mu(1e-7)


@settings(max_examples=200)
@given(
    rate=st.floats(1e-6, 0.999999),
    noise=st.floats(1e-3, 1e5),
    delta=st.sampled_from([1e-9, 1e-5, 1e-2, 0.3]),
)
def test_one_step_of_any_strength_is_never_undercharged(
    rate: float, noise: float, delta: float
) -> None:
    try:
        curve = trade_off([step(rate, noise, 1)], failure=delta)
        epsilon, mu = curve.epsilon(delta), curve.mu(delta)
    except UnpricedEvent:
        return
    for removed in (True, False):
        assert single_step_delta(rate, noise, epsilon, removed) <= delta * (1 + 1e-9)
        for other in (0.0, epsilon / 2, epsilon):
            covered = delta + (1 - delta) * gdp.delta_from_mu(mu, min(other, 1e5))
            assert single_step_delta(rate, noise, other, removed) <= covered + 1e-12


def test_a_failure_probability_below_double_precision_is_refused() -> None:
    with pytest.raises(UnpricedEvent, match="double precision"):
        trade_off([step(0.01, 1.0, 10_000)], failure=1e-13)
