"""Prices, each by two independent derivations."""

import itertools
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import dp_event, pld, rdp
from hypothesis import given, settings
from hypothesis import strategies as st
from prv_accountant import GaussianMechanism, PRVAccountant
from scipy.special import expit
from scipy.stats import norm

from dptune import accounting, gdp
from dptune.accounting import Guarantee
from dptune.accounting.replace_one import replace_one_direct_epsilon
from dptune.errors import InvalidInput, UnpricedEvent
from dptune.privacy import (
    Composition,
    Event,
    FullBatchRun,
    NoisyCount,
    Price,
    PrivateMean,
    PrivateSecondMoment,
    RandomStopping,
    SampledRun,
    total,
)

DELTA = 1e-5
SAMPLED = SampledRun(steps=1000, noise_multiplier=1.0, sampling_rate=0.01)
# Noise at which a full-batch run of 100 steps is mu-GDP with mu = 0.1
BASE = FullBatchRun(steps=100, noise_multiplier=100.0)

steps = st.integers(1, 500)
noises = st.floats(0.5, 1e4)


def test_published_noise_matches_its_code_only_at_100_steps() -> None:
    """The authors' code offers sigma = 37.80 as epsilon 1 with a default of 110 epochs."""
    at_100 = accounting.price(FullBatchRun(steps=100, noise_multiplier=37.80))
    at_110 = accounting.price(FullBatchRun(steps=110, noise_multiplier=37.80))
    assert accounting.epsilon(at_100, DELTA) == pytest.approx(0.98567, abs=1e-5)
    assert accounting.epsilon(at_110, DELTA) == pytest.approx(1.03863, abs=1e-5)


@pytest.mark.parametrize(
    ("run", "noise"), list(itertools.product([1, 20, 100], [4.0, 40.0, 400.0]))
)
def test_full_batch_epsilon_agrees_with_pld_and_prv(run: int, noise: float) -> None:
    ours = accounting.epsilon(
        accounting.price(FullBatchRun(steps=run, noise_multiplier=noise)), DELTA
    )
    event = dp_event.GaussianDpEvent(noise)
    by_pld = pld.PLDAccountant().compose(event, run).get_epsilon(DELTA)
    assert ours == pytest.approx(by_pld, rel=1e-3, abs=1e-4)
    prv = PRVAccountant(
        [GaussianMechanism(noise)],
        eps_error=0.02,
        delta_error=DELTA / 1000,
        max_self_compositions=[run],
    )
    low, _, high = prv.compute_epsilon(DELTA, [run])
    assert low - 1e-6 <= ours <= high + 1e-6


def test_counts_move_by_their_sensitivity() -> None:
    """Centred counts: the closed form against a search over everything one row can do."""
    for n in range(1, 8):
        votes = np.array(list(itertools.product([0, 1], repeat=n)))
        moved = votes - votes.mean(axis=1, keepdims=True)
        worst = float((moved**2).sum(axis=1).max())
        centered = accounting.price(NoisyCount(counts=n, noise=5.0, centered=True))
        assert centered.mu_squared == pytest.approx(worst / 25, rel=1e-12, abs=1e-300)
        raw = accounting.price(NoisyCount(counts=n, noise=5.0))
        assert raw.mu_squared == pytest.approx((votes**2).sum(axis=1).max() / 25, rel=1e-12)


@pytest.mark.parametrize(
    ("noise", "raw", "centered"),
    [(500, 0.0049, 0.0023), (100, 0.0245, 0.0115), (25, 0.0980, 0.0462)],
)
def test_price_of_two_scored_sweeps_of_three(noise: float, raw: float, centered: float) -> None:
    """Known values, for sweeps on 50,000 rows."""
    six = accounting.price(NoisyCount(counts=6, noise=noise))
    assert six.mu == pytest.approx(raw, abs=6e-5)
    sweep = accounting.price(NoisyCount(counts=3, noise=noise, centered=True))
    assert total([sweep, sweep]).mu == pytest.approx(centered, abs=6e-5)


def test_a_private_mean_is_one_full_batch_step() -> None:
    mean = accounting.price(PrivateMean(noise_multiplier=7.0))
    assert mean == accounting.price(FullBatchRun(steps=1, noise_multiplier=7.0))
    by_theirs = dp_accounting.get_epsilon_gaussian(7.0, DELTA)
    assert accounting.epsilon(mean, DELTA) == pytest.approx(by_theirs, rel=1e-9)


def test_a_private_second_moment_is_a_gaussian_mechanism_of_sensitivity_1() -> None:
    """tests/test_moments.py shows that noise and sensitivity are those of one."""
    moment = PrivateSecondMoment(noise_multiplier=7.0)
    paid = accounting.price(moment)
    assert paid.mu_squared == pytest.approx(1 / 49, rel=1e-14) and paid.mu_squared >= 1 / 49
    by_theirs = dp_accounting.get_epsilon_gaussian(7.0, DELTA)
    assert accounting.epsilon(paid, DELTA) == pytest.approx(by_theirs, rel=1e-9)
    exchanged = dp_accounting.get_epsilon_gaussian(3.5, DELTA)  # sqrt 2 would do; twice is safe
    assert accounting.replace_one_epsilon(paid, DELTA) == pytest.approx(exchanged, rel=1e-9)


def test_a_mean_and_a_second_moment_beside_sampled_runs_compose_directly() -> None:
    moments = [PrivateMean(noise_multiplier=20.0), PrivateSecondMoment(noise_multiplier=14.0)]
    ours = accounting.direct_epsilon([*moments, SAMPLED], DELTA)
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    for noise in (20.0, 14.0):
        accountant.compose(dp_event.GaussianDpEvent(noise))
    step = dp_event.GaussianDpEvent(SAMPLED.noise_multiplier)
    accountant.compose(dp_event.PoissonSampledDpEvent(SAMPLED.sampling_rate, step), SAMPLED.steps)
    assert ours == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)
    assert ours > accounting.direct_epsilon([*moments[:1], SAMPLED], DELTA)


@given(st.lists(st.tuples(steps, noises), min_size=1, max_size=12))
def test_price_of_composition_is_the_sum_in_any_order(runs: list[tuple[int, float]]) -> None:
    events = [FullBatchRun(steps=t, noise_multiplier=noise) for t, noise in runs]
    whole = accounting.price(Composition(parts=tuple(events)))
    one_by_one = total(accounting.price(event) for event in reversed(events))
    assert whole == one_by_one
    assert whole.mu_squared >= max(accounting.price(event).mu_squared for event in events)
    assert whole.mu_squared >= sum(t / noise**2 for t, noise in runs) * (1 - 1e-15)


def test_sum_of_prices_with_slack_is_at_least_direct_composition() -> None:
    parts = [SAMPLED, SampledRun(steps=200, noise_multiplier=2.0, sampling_rate=0.05), BASE]
    spent = accounting.price(Composition(parts=tuple(parts)), slack=1e-7)
    assert spent.slack == pytest.approx(1e-7)
    adaptive = accounting.epsilon(spent, DELTA)
    direct = accounting.direct_epsilon(parts, DELTA)
    assert direct < adaptive < 1.1 * direct


def test_slack_is_taken_off_delta() -> None:
    """delta = slack + (1 - slack) * delta_gdp, checked at the epsilon that is reported."""
    spent = Price(0.07, slack=4e-6)
    epsilon = accounting.epsilon(spent, DELTA)
    covered = spent.slack + (1 - spent.slack) * gdp.delta_from_mu(spent.mu, epsilon)
    assert covered == pytest.approx(DELTA, rel=1e-9)
    assert epsilon > accounting.epsilon(Price(0.07), DELTA)
    with pytest.raises(InvalidInput, match="larger delta"):
        accounting.epsilon(Price(0.07, slack=1e-5), DELTA)


def test_replace_one_doubles_mu() -> None:
    """The epsilon = 1 pipeline becomes 2.1547."""
    mu = gdp.mu_from_epsilon(1.0, DELTA)
    replaced = accounting.replace_one_epsilon(Price(mu * mu), DELTA)
    assert replaced == pytest.approx(2.1547, abs=5e-5)
    # A replaced row moves the sum by two clipping norms: half the noise.
    assert replaced == pytest.approx(dp_accounting.get_epsilon_gaussian(1 / (2 * mu), DELTA))


def test_replace_one_with_slack_covers_the_worst_pair_of_pairs() -> None:
    """The bound against exact group privacy of the extremal mechanism, by its trade-off curve."""
    mu, slack = 0.3, 1e-4
    alphas = np.concatenate([np.geomspace(1e-9, 0.5, 4000), np.linspace(0.5, 1, 2000)])

    def hits(false_alarm: np.ndarray) -> np.ndarray:
        inside = np.minimum(false_alarm / (1 - slack), 1.0)
        return slack + (1 - slack) * norm.cdf(norm.ppf(inside) + mu)

    twice = hits(hits(alphas))
    delta = 1e-2
    epsilon = accounting.replace_one_epsilon(Price(mu * mu, slack), delta)
    assert np.max(twice - math.exp(epsilon) * alphas) <= delta
    assert epsilon >= gdp.epsilon_from_mu(2 * mu, delta)


def exchanged_delta(run: SampledRun, epsilon: float) -> float:
    """Delta of opposite unit gradients, by the losses of one step on a grid, composed by Fourier
    transforms: a third way, that knows nothing of emptied rows."""
    q, noise, width = run.sampling_rate, run.noise_multiplier, 1e-3
    z = np.linspace(-12 * noise - 1, 12 * noise + 1, 400_001)
    one, other = (
        (1 - q) * norm.pdf(z, 0, noise) + q * norm.pdf(z, side, noise) for side in (1, -1)
    )
    losses = np.round(np.log(one / other) / width).astype(int)
    size = 1 << int(np.ceil(np.log2(4 * (np.abs(losses).max() + 1) * math.sqrt(run.steps) + 1)))
    chances = np.bincount(losses % size, one * (z[1] - z[0]), size)
    composed = np.fft.irfft(np.fft.rfft(chances) ** run.steps, size)
    told = np.fft.fftfreq(size, 1 / size) * width
    return float(composed @ np.maximum(-np.expm1(np.minimum(epsilon - told, 0)), 0))


@pytest.mark.parametrize(
    "run",
    [
        SampledRun(steps=1, noise_multiplier=0.8, sampling_rate=0.2),
        SampledRun(steps=200, noise_multiplier=2.8, sampling_rate=0.05),
        SampledRun(steps=10, noise_multiplier=0.45, sampling_rate=0.05),
    ],
)
def test_replace_one_of_runs_fixed_beforehand_covers_opposite_gradients(run: SampledRun) -> None:
    stated = say([run], adaptive=False).replace_one_epsilon
    assert exchanged_delta(run, stated) <= DELTA
    emptied = accounting.direct_epsilon([run], DELTA)
    assert exchanged_delta(run, emptied) > 1.1 * DELTA, "to exchange is more than to empty"


def test_replace_one_of_runs_fixed_beforehand_is_finite_with_little_noise() -> None:
    """With so little noise two emptied rows say nothing; rows that are in every sample do."""
    loud = SampledRun(steps=10, noise_multiplier=0.45, sampling_rate=0.05)
    assert math.isinf(say([loud]).replace_one_epsilon)
    by_theirs = dp_accounting.get_epsilon_gaussian(0.45 / math.sqrt(10) / 2, DELTA)
    assert say([loud], adaptive=False).replace_one_epsilon == pytest.approx(by_theirs, rel=1e-9)
    quiet = SampledRun(steps=200, noise_multiplier=2.8, sampling_rate=0.05)
    stated = replace_one_direct_epsilon([quiet], DELTA)
    share = DELTA / (1 + math.exp(stated / 2))  # group privacy of two
    accountant = pld.PLDAccountant(value_discretization_interval=1e-5)
    step = dp_event.PoissonSampledDpEvent(0.05, dp_event.GaussianDpEvent(2.8))
    assert accountant.compose(step, 200).get_epsilon(share) <= stated / 2 * (1 + 1e-3)
    assert say([quiet], adaptive=False).replace_one_epsilon <= stated
    assert stated < 3 * accounting.direct_epsilon([quiet], DELTA)


def test_a_sampled_event_needs_a_slack() -> None:
    with pytest.raises(InvalidInput, match="slack above 0"):
        accounting.price(SAMPLED)


def test_event_without_accountant_is_an_error() -> None:
    class Mystery:
        kind = "mystery"

    with pytest.raises(UnpricedEvent, match="no accountant"):
        accounting.price(Mystery())  # type: ignore[arg-type]
    with pytest.raises(UnpricedEvent, match="no accountant"):
        accounting.direct_epsilon([RandomStopping(trial=BASE, expected_trials=3)], DELTA)


# --- Renyi DP and random stopping -------------------------------------------------------------


def papernot_steinke(
    base: "np.ndarray", orders: "np.ndarray", mean: float, distribution: str, mu: float
) -> float:
    """The published formula, written out: epsilon at DELTA for a base with these RDP values."""
    if distribution == "poisson":
        profile = [gdp.delta_from_mu(mu, math.log1p(1 / (a - 1))) for a in orders]
        curve = base + mean * np.array(profile) + math.log(mean) / (orders - 1)
    else:
        if distribution == "geometric":
            eta, gamma = 1.0, 1 / mean
        else:  # solve (1/gamma - 1)/log(1/gamma) = mean
            low, high = 1e-12, 1 - 1e-12
            for _ in range(200):
                gamma = math.sqrt(low * high)
                if (1 / gamma - 1) / math.log(1 / gamma) > mean:
                    low = gamma
                else:
                    high = gamma
            eta = 0.0
        best = np.min((1 - 1 / orders) * base + math.log(1 / gamma) / orders)
        curve = base + (1 + eta) * best + math.log(mean) / (orders - 1)
    epsilons = curve + np.log1p(-1 / orders) - np.log(DELTA * orders) / (orders - 1)
    return float(epsilons.min())


@pytest.mark.parametrize(
    ("distribution", "mean", "mu", "table"),
    [
        ("geometric", 3, 0.1, 0.6887),
        ("geometric", 10, 0.1, 0.8491),
        ("logarithmic", 10, 0.1, 0.6938),
        ("geometric", 3, 0.2, 1.3992),
        ("geometric", 10, 0.5, 4.3151),
        ("geometric", 10, 1.0, 8.5135),
    ],
)
def test_random_stopping_matches_the_formula_and_the_table(
    distribution: str, mean: float, mu: float, table: float
) -> None:
    """Known values of the RDP bound."""
    base = FullBatchRun(steps=1, noise_multiplier=1 / mu)
    event = RandomStopping(trial=base, expected_trials=mean, distribution=distribution)
    ours = accounting.rdp_epsilon([event], DELTA)
    orders = np.concatenate([np.linspace(1.05, 12, 2000), np.geomspace(12, 20_000, 4000)])
    formula = papernot_steinke(orders * mu**2 / 2, orders, mean, distribution, mu)
    assert ours == pytest.approx(table, abs=2e-3)
    assert formula * (1 - 1e-6) <= ours <= formula * 1.003


@pytest.mark.parametrize(
    ("distribution", "table"),
    [("logarithmic", 3.52263), ("geometric", 4.10327), ("poisson", 4.32950)],
)
def test_random_stopping_of_sampled_runs_matches_the_table(distribution: str, table: float) -> None:
    """Known values of the RDP bound."""
    event = RandomStopping(trial=SAMPLED, expected_trials=10, distribution=distribution)
    assert accounting.rdp_epsilon([event], DELTA) == pytest.approx(table, abs=2e-4)


def test_a_poisson_number_of_trials_is_bounded_from_the_safe_side() -> None:
    """dp-accounting derives Poisson's extra term from RDP, which is looser than the profile."""
    event = RandomStopping(trial=BASE, expected_trials=10, distribution="poisson")
    ours = accounting.rdp_epsilon([event], DELTA)
    orders = np.geomspace(1.05, 20_000, 6000)
    assert ours >= papernot_steinke(orders * 0.1**2 / 2, orders, 10, "poisson", 0.1)
    assert ours == pytest.approx(0.898, abs=2e-3)


def test_random_stopping_in_the_currency_dominates_its_epsilon_and_delta() -> None:
    event = RandomStopping(trial=BASE, expected_trials=10)
    slack = 1e-6
    paid = accounting.price(event, slack=slack)
    for delta in np.geomspace(slack, 1e-3, 30):  # farther up, other points bound it better
        epsilon = accounting.sealed_bound(event, float(delta)).epsilon
        covered = paid.slack + (1 - paid.slack) * gdp.delta_from_mu(paid.mu, epsilon)
        assert delta <= covered * (1 + 1e-9)
    # One point of the profile alone would say this, which is dearer.
    epsilon = accounting.sealed_bound(event, slack).epsilon
    assert paid.mu < 0.7 * -2 * norm.ppf(expit(-epsilon))


@pytest.mark.parametrize(("epsilon", "extra"), [(0.01, 1.134), (0.1, 1.105), (1.0, 1.084)])
def test_rdp_of_a_full_batch_run_is_loose_by_the_known_amount(epsilon: float, extra: float) -> None:
    """Noise that RDP asks for over what is needed."""
    mu = gdp.mu_from_epsilon(epsilon, DELTA)
    run = FullBatchRun(steps=1, noise_multiplier=extra / mu)
    assert accounting.rdp_epsilon([run], DELTA) == pytest.approx(epsilon, rel=5e-3)


def test_rdp_of_sampled_runs_agrees_with_dp_accounting() -> None:
    one = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0))
    theirs = rdp.RdpAccountant().compose(one, 1000).get_epsilon(DELTA)
    assert accounting.rdp_epsilon([SAMPLED], DELTA) == pytest.approx(theirs, rel=1e-3)
    assert accounting.rdp_epsilon([SAMPLED], DELTA) > accounting.direct_epsilon([SAMPLED], DELTA)


# --- Calibration ------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "noise"), [(0.1, 13.1695), (0.2, 7.0619)])
def test_direct_calibration_matches_the_table(epsilon: float, noise: float) -> None:
    """Known values of a search over a language model."""
    run = accounting.calibrate_direct(epsilon=epsilon, delta=DELTA, steps=200, sampling_rate=0.03)
    assert run.noise_multiplier == pytest.approx(noise, rel=2e-4)
    assert accounting.direct_epsilon([run], DELTA) <= epsilon


def test_direct_calibration_of_a_final_run_beside_its_search() -> None:
    search = [
        SampledRun(steps=600, noise_multiplier=13.1695, sampling_rate=0.03),
        SampledRun(steps=600, noise_multiplier=7.0619, sampling_rate=0.03),
    ]
    run = accounting.calibrate_direct(
        epsilon=1.0, delta=DELTA, steps=400, sampling_rate=0.03, beside=search
    )
    assert run.noise_multiplier == pytest.approx(2.6656, rel=3e-4)
    assert accounting.direct_epsilon([*search, run], DELTA) <= 1.0
    assert accounting.direct_epsilon([run], DELTA) == pytest.approx(0.88992, abs=2e-3)


def test_calibration_refuses_run_after_search_that_uses_whole_budget() -> None:
    with pytest.raises(InvalidInput, match="nothing is left"):
        accounting.calibrate_direct(
            epsilon=1.0, delta=DELTA, steps=400, sampling_rate=0.03, beside=[SAMPLED]
        )


@settings(max_examples=12)
@given(
    mu=st.floats(0.02, 2),
    rate=st.floats(0.005, 0.5),
    count=st.integers(2, 500),
)
def test_calibration_returns_the_side_that_satisfies_the_budget(
    mu: float, rate: float, count: int
) -> None:
    run = accounting.calibrate_sampled(mu=mu, slack=1e-7, steps=count, sampling_rate=rate)
    assert accounting.price(run, slack=1e-7).mu <= mu
    less = SampledRun(
        steps=count, noise_multiplier=run.noise_multiplier * 0.999, sampling_rate=rate
    )
    assert accounting.price(less, slack=1e-7).mu > mu


# --- Statements -------------------------------------------------------------------------------


def say(events: list[Event], **options: bool) -> Guarantee:
    return accounting.guarantee(
        events,
        DELTA,
        covers_search=True,
        covers_selection=False,
        releases=("the final model",),
        **options,
    )


def test_the_statement_names_the_accountant_it_used() -> None:
    exact = say([BASE])
    assert exact.accountant == "Gaussian DP, exact"
    assert exact.epsilon == pytest.approx(gdp.epsilon_from_mu(0.1, DELTA))

    adaptive, direct = say([SAMPLED, BASE]), say([SAMPLED, BASE], adaptive=False)
    assert "dominates" in adaptive.accountant
    assert "composed directly" in direct.accountant
    assert any("fixed before the first output" in note for note in direct.caveats)
    assert direct.epsilon < adaptive.epsilon
    assert adaptive.sampler == "all rows in every step (full batch); Poisson sampling at rate 0.01"
    counted = say([SAMPLED, NoisyCount(noise=10.0)])
    assert counted.sampler == ("Poisson sampling at rate 0.01; all rows in counts and sums")

    sealed = RandomStopping(trial=SAMPLED, expected_trials=10)
    alone, composed = say([sealed]), say([sealed, BASE], adaptive=False)
    assert alone.epsilon == accounting.sealed_bound(sealed, DELTA).epsilon
    assert alone.epsilon == pytest.approx(2.8712, abs=1e-4)
    assert alone.epsilon < accounting.rdp_epsilon([sealed], DELTA)
    assert alone.sampler == "Poisson sampling at rate 0.01"
    assert any("stay secret" in note for note in alone.caveats)
    assert any("loose" in note for note in composed.caveats)
    assert composed.epsilon > alone.epsilon


def test_the_statement_of_nothing_is_epsilon_zero() -> None:
    nothing = say([])
    assert nothing.epsilon == 0.0
    assert nothing.sampler == "no rows were used"


def test_replace_one_of_a_sealed_search_of_sampled_trials_is_group_privacy_of_two() -> None:
    sealed = RandomStopping(trial=SAMPLED, expected_trials=10)
    stated = say([sealed]).replace_one_epsilon
    half = stated / 2
    # (half, d)-DP twice is (2 half, d (1 + e^half))-DP; this is the largest such d.
    share = DELTA / (1 + math.exp(half))
    assert accounting.sealed_bound(sealed, share).epsilon <= half
    assert stated > 2 * accounting.sealed_bound(sealed, DELTA).epsilon
    assert stated < 3 * accounting.sealed_bound(sealed, DELTA).epsilon


def test_replace_one_of_a_sealed_search_doubles_the_mu_of_its_trials() -> None:
    """And no more: the bound once more, maximised on a grid, for trials of twice the mu."""
    sealed = RandomStopping(trial=BASE, expected_trials=10)
    stated = say([sealed]).replace_one_epsilon
    z = np.linspace(-6, 6, 200_001)
    gains = 2 * np.log((0.1 + 0.9 * norm.cdf(0.2 - z)) / (0.1 + 0.9 * norm.cdf(-z)))
    one_trial = dp_accounting.get_epsilon_gaussian(1 / 0.2, DELTA / 10)
    assert stated == pytest.approx(one_trial + gains.max(), rel=1e-6)
    half = accounting.sealed_bound(sealed, DELTA / 3).epsilon  # group privacy costs more
    assert stated < 2 * half


# --- Inputs that once gave a wrong price ------------------------------------------------------


def test_small_integers_do_not_wrap_around() -> None:
    wrapped = accounting.price(NoisyCount(counts=np.int16(500), noise=10.0, centered=True))
    assert wrapped == accounting.price(NoisyCount(counts=500, noise=10.0, centered=True))
    assert wrapped.mu_squared == pytest.approx(250 * 250 / 500 / 100)
    run = SampledRun(steps=np.int8(100), noise_multiplier=2.0, sampling_rate=0.1)
    assert run.steps == 100 and type(run.steps) is int


def test_single_precision_does_not_enter_a_price() -> None:
    assert gdp.epsilon_from_mu(np.float32(0.5), DELTA) == gdp.epsilon_from_mu(0.5, DELTA)
    event = FullBatchRun(steps=1, noise_multiplier=np.float32(3.7))
    assert type(event.noise_multiplier) is float


def test_group_privacy_of_a_hopeless_search_is_not_understated() -> None:
    trial = FullBatchRun(steps=1, noise_multiplier=0.1)
    sealed = RandomStopping(trial=trial, expected_trials=3.0)
    assert say([sealed]).replace_one_epsilon >= gdp.epsilon_from_mu(20, DELTA)


@pytest.mark.parametrize("slack", [math.nan, math.inf, -1e-7, 1.0, "x"])
def test_price_refuses_invalid_slack(slack: float) -> None:
    with pytest.raises(InvalidInput, match="slack must"):
        accounting.price(SAMPLED, slack=slack)


def test_a_budget_that_allows_any_noise_still_gets_some() -> None:
    run = accounting.calibrate_direct(epsilon=1.0, delta=0.9, steps=1, sampling_rate=0.5)
    assert run.noise_multiplier == pytest.approx(0.1)
    run = accounting.calibrate_sampled(mu=0.1, slack=1e-3, steps=1, sampling_rate=1e-7)
    assert accounting.price(run, slack=1e-3).mu <= 0.1


def test_very_unequal_runs_compose_quickly_and_from_above() -> None:
    runs = [
        SampledRun(steps=2120, noise_multiplier=7.0, sampling_rate=0.993),
        SampledRun(steps=2, noise_multiplier=21.0, sampling_rate=0.99999),
        SampledRun(steps=402, noise_multiplier=225.0, sampling_rate=0.0024),
    ]
    ours = accounting.direct_epsilon(runs, DELTA)
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    for run in runs:
        step = dp_event.PoissonSampledDpEvent(
            run.sampling_rate, dp_event.GaussianDpEvent(run.noise_multiplier)
        )
        accountant.compose(step, run.steps)
    assert ours == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)


@pytest.mark.parametrize(
    "sealed",
    [
        RandomStopping(trial=FullBatchRun(steps=1, noise_multiplier=0.02), expected_trials=5),
        RandomStopping(
            trial=PrivateMean(noise_multiplier=1e-8), expected_trials=10, distribution="poisson"
        ),
    ],
)
def test_a_sealed_search_out_of_range_is_refused(sealed: RandomStopping) -> None:
    with pytest.raises(UnpricedEvent):
        accounting.price(sealed, slack=1e-7)
