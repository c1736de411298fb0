"""Sealed searches: every bound by a second derivation, and against an adversary's scores."""

import json
import math
import random
from collections import Counter
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event, rdp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import chi2, geom, logser, nbinom, norm, poisson

from dptune import Budget, accounting, gdp
from dptune.accounting import Guarantee, sealed
from dptune.accounting.renyi import RenyiCurve
from dptune.accounting.sealed import GaussianMechanism
from dptune.accounting.trial_count import SHAPES, TrialCount
from dptune.errors import InvalidInput, UnpricedEvent
from dptune.privacy import (
    Composition,
    FullBatchRun,
    NoisyCount,
    Parallel,
    PrivateMean,
    RandomStopping,
    SampledRun,
    SubsetSearch,
    event_from_dict,
    event_to_dict,
    total,
)
from support.adversary import POISSON, Adversary, by_formula, cells_of

DELTA = 1e-5
SAMPLED = SampledRun(steps=1000, noise_multiplier=1.0, sampling_rate=0.01)

means = st.floats(1.01, 300)
shapes = st.floats(-0.9, 20)
mus = st.floats(1e-3, 3)


def count(mean: float, shape: float) -> TrialCount:
    return TrialCount(mean=mean, shape=shape)


def gaussian(mu: float) -> FullBatchRun:
    return FullBatchRun(steps=1, noise_multiplier=1 / mu)


def search(mu: float, mean: float, distribution: str = "geometric") -> RandomStopping:
    return RandomStopping(trial=gaussian(mu), expected_trials=mean, distribution=distribution)


def largest_mu(trials: TrialCount, epsilon: float, delta: float, bound: str = "ratio") -> float:
    """The largest mu a trial may have for the search to be (epsilon, delta)-DP, rounded down."""

    def cost(mu: float) -> float:
        return sealed.gaussian_epsilon(trials, mu, delta, bound)

    low = high = gdp.mu_from_epsilon(epsilon, delta)  # no bound is below the epsilon of one trial
    while cost(low) > epsilon:
        low, high = low / 2, low
    if low == high:
        return low
    root = float(brentq(lambda mu: cost(mu) - epsilon, low, high, rtol=1e-12, xtol=1e-300))
    while cost(root) > epsilon:
        root *= 1 - 1e-12
    return root


# --- The number of trials ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "gamma", "one"),
    [
        (1.0, 0.1, 0.1000),
        (0.5, 0.0625, 0.1563),
        (0.0, 0.0269182596, 0.2692),
        (-0.5, 0.0027700831, 0.5263),
        (2.0, 0.1708203932, 0.0498),
    ],
)
def test_ten_trials_have_the_known_gamma(shape: float, gamma: float, one: float) -> None:
    trials = count(10, shape)
    assert trials.gamma == pytest.approx(gamma, abs=6e-11)
    assert trials.gamma == pytest.approx(by_formula(10, shape)[0], rel=1e-9)
    assert trials.probability(1) == pytest.approx(one, abs=6e-5)


@pytest.mark.parametrize("mean", [1.1, 3.0, 10.0, 40.0])
def test_probabilities_are_scipys(mean: float) -> None:
    cases: list[tuple[float, Callable[[float], Callable[[int], float]]]] = [
        (1.0, lambda gamma: geom(gamma).pmf),
        (0.0, lambda gamma: logser(1 - gamma).pmf),
        (2.5, lambda gamma: lambda k: nbinom.pmf(k, 2.5, gamma) / nbinom.sf(0, 2.5, gamma)),
    ]
    for shape, law in cases:
        trials = count(mean, shape)
        pmf = law(trials.gamma)
        for k in (1, 2, 3, 10, 50):
            assert trials.probability(k) == pytest.approx(float(pmf(k)), rel=1e-9)
        assert trials.probability(0) == 0.0
    for k in (0, 1, 2, 30):
        found = count(mean, POISSON).probability(k)
        assert found == pytest.approx(float(poisson.pmf(k, mean)), rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(mean=st.floats(1.01, 30), shape=st.one_of(st.floats(-0.7, 20), st.just(POISSON)))
def test_the_derivative_generates_the_probabilities(mean: float, shape: float) -> None:
    trials = count(mean, shape)
    listed = [trials.probability(k) for k in range(60)]
    for x in (0.0, 0.1, 0.4, 0.6):  # at 0.6 what comes after 60 no longer counts
        series = math.fsum(k * p * x ** (k - 1) for k, p in enumerate(listed) if k)
        assert trials.derivative(x) == pytest.approx(series, rel=1e-9, abs=1e-10)
    assert trials.derivative(1.0) == pytest.approx(mean, rel=1e-12)
    assert math.fsum(listed) <= 1 + 1e-12


@pytest.mark.parametrize("shape", [-0.5, 0.0, 0.5, 1.0, 4.0, POISSON])
def test_draws_follow_the_probabilities(shape: float) -> None:
    """Chi-square over cells that expect at least ten; the seed is fixed, the level one in 1,000."""
    trials, uniform, draws = count(6, shape), random.Random(20240817).random, 8_000
    drawn = Counter(trials.draw(uniform) for _ in range(draws))
    statistic, cells, rest, seen = 0.0, 0, 1.0, 0
    for k in range(200):
        probability = trials.probability(k)
        if draws * probability >= 10 and draws * (rest - probability) >= 10:
            statistic += (drawn[k] - draws * probability) ** 2 / (draws * probability)
            cells, rest, seen = cells + 1, rest - probability, seen + drawn[k]
    statistic += (draws - seen - draws * rest) ** 2 / (draws * rest)
    assert cells > 5
    assert statistic < chi2.isf(1e-3, cells)


@pytest.mark.parametrize("shape", [-0.5, 0.0, 1.0, POISSON])
def test_a_draw_is_an_exact_inversion(shape: float) -> None:
    """Just below the sum of the first k probabilities it is k, just above it k + 1."""
    trials = count(5, shape)
    first = 0 if shape == POISSON else 1
    for k in (first, first + 1, first + 6):
        below = math.fsum(trials.probability(j) for j in range(k + 1))
        assert trials.draw(lambda point=below: point - 1e-13) == k
        assert trials.draw(lambda point=below: point + 1e-13) == k + 1
    assert trials.draw(lambda: 0.0) == first
    assert trials.draw(lambda: 1 - 2**-53) > 100 or shape == POISSON  # far in the tail, but ends
    with pytest.raises(InvalidInput, match="must return numbers"):
        trials.draw(lambda: 1.0)


@pytest.mark.parametrize(
    ("mean", "shape"),
    [(1.0, 1.0), (10, -1.0), (10, math.nan), (10, 1e4), (math.inf, 1.0), (1e8, -0.999)],
)
def test_trial_count_refuses_invalid_mean_and_shape(mean: float, shape: float) -> None:
    with pytest.raises(InvalidInput, match=r"must|tail"):
        count(mean, shape)


# --- The ratio bound --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mu", "shape", "mean", "log_ratio", "epsilon"),
    [
        (0.1, 1.0, 10, 0.180217, 0.577075),
        (0.1, 0.0, 10, 0.138067, 0.534924),
        (0.5, 1.0, 10, 0.892174, 3.146259),
        (0.1, POISSON, 3, 0.119633, 0.487984),
    ],
)
def test_the_ratio_bound_has_its_known_values(
    mu: float, shape: float, mean: float, log_ratio: float, epsilon: float
) -> None:
    trials, trial = count(mean, shape), GaussianMechanism(mu)
    assert sealed.log_ratio(trials, trial) == pytest.approx(log_ratio, abs=6e-7)
    assert sealed.ratio_epsilon(trials, trial, DELTA) == pytest.approx(epsilon, abs=6e-7)
    assert gdp.epsilon_from_mu(0.1, 1e-6) == pytest.approx(0.396857, abs=6e-7)


@pytest.mark.parametrize("mu", [1e-6, 0.01, 0.1, 0.5, 1.0, 4.0])
@pytest.mark.parametrize(
    ("mean", "shape"),
    [(10, 1.0), (10, 0.0), (1.5, 3.0), (1000, 1.0), (30, -0.5), (5, -0.9), (10, POISSON)],
)
def test_the_ratio_is_the_maximum_over_thresholds_from_above(
    mu: float, mean: float, shape: float
) -> None:
    """Forty digits: maximise log f'(Phi(z)) - log f'(Phi(z - mu)) itself, which has one peak."""
    trials = count(mean, shape)
    with mpmath.workdps(40):
        if shape != POISSON:
            gamma = mpmath.exp(-mpmath.mpf(trials.log_inverse_gamma))

        def gain(z: mpmath.mpf) -> mpmath.mpf:
            u, v = mpmath.ncdf(-z), mpmath.ncdf(mu - z)
            if shape == POISSON:
                return mean * (v - u)
            return (shape + 1) * mpmath.log((gamma + (1 - gamma) * v) / (gamma + (1 - gamma) * u))

        low, high = mpmath.mpf(-3), mpmath.mpf(40)
        for _ in range(150):
            third = (high - low) / 3
            if gain(low + third) < gain(high - third):
                low += third
            else:
                high -= third
        peak = gain((low + high) / 2)
        found = mpmath.mpf(sealed.log_ratio(trials, GaussianMechanism(mu)))
        assert 0 <= float(found / peak - 1) < 1e-10


TABLE = [  # mu, shape, mean; Renyi, profile, ratio; at delta 1e-5
    (0.1, 1.0, 3, 0.6887, 0.5218, 0.4556),
    (0.1, 1.0, 10, 0.8491, 0.7296, 0.5771),
    (0.1, 0.0, 10, 0.6938, 0.6224, 0.5349),
    (0.1, POISSON, 10, 0.7216, 0.7956, 0.7956),
    (0.2, 1.0, 3, 1.3992, 1.0746, 0.9532),
    (0.2681, 1.0, 10, 2.3108, 1.9992, 1.6258),
    (0.5, 1.0, 10, 4.3151, 3.7570, 3.1463),
    (1.0, 1.0, 10, 8.5135, 7.5109, 6.6175),
]


@pytest.mark.parametrize(("mu", "shape", "mean", "renyi", "profile", "ratio"), TABLE)
def test_the_bounds_compare_as_in_the_table(
    mu: float, shape: float, mean: float, renyi: float, profile: float, ratio: float
) -> None:
    known = {"renyi": renyi, "profile": profile, "ratio": ratio}
    for bound, epsilon in known.items():
        found = sealed.gaussian_epsilon(count(mean, shape), mu, DELTA, bound)
        assert found == pytest.approx(epsilon, abs=6e-5), bound


@pytest.mark.parametrize(
    ("shape", "mean", "renyi", "profile", "ratio"),
    [
        (1.0, 3, 0.5065, 0.6727, 0.7621),
        (1.0, 10, 0.4057, 0.4763, 0.6033),
        (1.0, 30, 0.3537, 0.4025, 0.5086),
        (0.0, 3, 0.5902, 0.6842, 0.7826),
        (0.0, 10, 0.5012, 0.5609, 0.6512),
        (0.0, 30, 0.4521, 0.4989, 0.5735),
    ],
)
def test_a_trial_may_spend_what_the_table_says(
    shape: float, mean: float, renyi: float, profile: float, ratio: float
) -> None:
    """For a total of epsilon 1: the epsilon of one trial."""
    trials, known = count(mean, shape), {"renyi": renyi, "profile": profile, "ratio": ratio}
    for bound, epsilon in known.items():
        mu = largest_mu(trials, 1.0, DELTA, bound)
        assert gdp.epsilon_from_mu(mu, DELTA) == pytest.approx(epsilon, abs=6e-5), bound
        assert sealed.gaussian_epsilon(trials, mu, DELTA, bound) <= 1.0
        assert sealed.gaussian_epsilon(trials, mu * (1 + 1e-6), DELTA, bound) > 1.0


def test_profiles_match_a_grid_over_every_exponent() -> None:
    mu, gamma = 0.5, 0.1
    grid = np.linspace(0, 8 * mu + mu * mu, 20_001)
    deltas = norm.cdf(mu / 2 - grid / mu) - np.exp(grid) * norm.cdf(-mu / 2 - grid / mu)
    extra = 2 * np.min(np.log(np.exp(grid) + (1 - gamma) / gamma * deltas))
    found = sealed.profile_epsilon(count(10, 1.0), GaussianMechanism(mu), DELTA)
    assert found == pytest.approx(gdp.epsilon_from_mu(mu, DELTA / 10) + extra, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(mu=mus, mean=means, shape=shapes, delta=st.floats(1e-12, 0.1))
def test_the_ratio_bound_is_no_worse_than_profiles_and_grows_with_mu(
    mu: float, mean: float, shape: float, delta: float
) -> None:
    trials = count(mean, shape)
    ratio = sealed.gaussian_epsilon(trials, mu, delta)
    assert ratio <= sealed.gaussian_epsilon(trials, mu, delta, "profile") * (1 + 1e-9)
    assert ratio >= gdp.epsilon_from_mu(mu, delta)
    for bound in sealed.BOUNDS:
        less = sealed.gaussian_epsilon(trials, 0.9 * mu, delta, bound)
        assert less <= sealed.gaussian_epsilon(trials, mu, delta, bound) * (1 + 1e-6)


@settings(max_examples=30, deadline=None)
@given(mean=st.floats(1.01, 100), shape=shapes, epsilon=st.floats(0.01, 20))
def test_the_inverse_is_rounded_down(mean: float, shape: float, epsilon: float) -> None:
    trials = count(mean, shape)
    mu = largest_mu(trials, epsilon, DELTA)
    assert sealed.gaussian_epsilon(trials, mu, DELTA) <= epsilon
    assert sealed.gaussian_epsilon(trials, mu * (1 + 1e-7), DELTA) > epsilon


def test_bounds_at_the_ends_of_the_range() -> None:
    trials = count(10, 1.0)
    assert sealed.gaussian_epsilon(trials, 0.0, DELTA) == 0.0
    # Nothing is told about a single trial, and log R is the shape's most: 2 log(1/gamma).
    hopeless = sealed.log_ratio(trials, GaussianMechanism(1e4))
    assert hopeless == pytest.approx(2 * math.log(10), rel=1e-9)
    assert hopeless >= 2 * math.log(10)
    # Too quiet for a privacy loss above delta: the ratio alone, to first order in mu.
    quiet = sealed.gaussian_epsilon(trials, 1e-9, DELTA)
    assert 0 < quiet < 1e-7
    with pytest.raises(InvalidInput, match="bound must be one of"):
        sealed.gaussian_epsilon(trials, 0.1, DELTA, "hope")


# --- Renyi DP ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize(("mu", "mean"), [(0.1, 3.0), (0.5, 10.0), (1.0, 30.0)])
def test_renyi_dp_agrees_with_dp_accounting(mu: float, mean: float, shape: float) -> None:
    event = dp_event.RepeatAndSelectDpEvent(dp_event.GaussianDpEvent(1 / mu), mean, shape)
    orders = list(RenyiCurve.gaussian(mu).orders[::5])
    theirs = rdp.RdpAccountant(orders).compose(event).get_epsilon(DELTA)
    ours = sealed.gaussian_epsilon(count(mean, shape), mu, DELTA, "renyi")
    assert ours == pytest.approx(theirs, rel=1e-3)
    assert ours <= theirs * (1 + 1e-9)  # from more orders


@settings(max_examples=40, deadline=None)
@given(mu=st.floats(0.02, 1.5), mean=st.floats(1.2, 100), shape=st.floats(-0.9, 3))
def test_renyi_dp_of_gaussians_has_a_closed_form(mu: float, mean: float, shape: float) -> None:
    """Both orders solved for by hand, also for the negative shapes dp-accounting refuses."""
    trials = count(mean, shape)
    log_inverse = trials.log_inverse_gamma
    best = max(1.0, math.sqrt(2 * log_inverse) / mu)
    extra = (1 + shape) * ((best - 1) * mu * mu / 2 + log_inverse / best)
    order = 1 + np.geomspace(1e-3, 1e5, 200_000)
    curve = order * mu * mu / 2 + extra + math.log(mean) / (order - 1)
    epsilons = curve + np.log1p(-1 / order) - np.log(DELTA * order) / (order - 1)
    ours = sealed.gaussian_epsilon(trials, mu, DELTA, "renyi")
    assert ours == pytest.approx(float(epsilons.min()), rel=3e-5)
    assert ours >= float(epsilons.min()) * (1 - 1e-7)


@pytest.mark.parametrize(
    ("shape", "table"), [(0.0, 3.52263), (0.5, 3.83060), (1.0, 4.10327), (2.0, 4.57585)]
)
def test_renyi_dp_of_sampled_trials_has_its_known_values(shape: float, table: float) -> None:
    event = RandomStopping(
        trial=SAMPLED, expected_trials=10, distribution="negative-binomial", shape=shape
    )
    assert accounting.rdp_epsilon([event], DELTA) == pytest.approx(table, abs=6e-6)
    found = accounting.sealed_bound(event, DELTA)
    assert found.published == pytest.approx(table, abs=6e-6)
    assert found.epsilon < 0.8 * table


def test_a_poisson_number_of_sampled_trials_takes_the_smaller_bound() -> None:
    event = RandomStopping(trial=SAMPLED, expected_trials=10, distribution="poisson")
    assert accounting.rdp_epsilon([event], DELTA) == pytest.approx(4.32950, abs=6e-6)
    found = accounting.sealed_bound(event, DELTA)
    assert found.epsilon <= found.published <= 4.3296  # dp-accounting takes its delta from RDP
    with pytest.raises(InvalidInput, match="profile"):
        sealed.renyi_epsilon(count(10, POISSON), RenyiCurve.gaussian(0.1), DELTA)


# --- An adversary who chooses the score -------------------------------------------------------


@pytest.mark.parametrize(("mu", "shape", "mean", "renyi", "profile", "ratio"), TABLE)
def test_no_adversary_exceeds_the_bounds_and_one_comes_close(
    mu: float, shape: float, mean: float, renyi: float, profile: float, ratio: float
) -> None:
    found = Adversary(*cells_of(mu), mean, shape).found(DELTA)
    tightest = min(renyi, profile, ratio)
    assert found <= tightest
    assert found >= 0.9 * tightest


@settings(max_examples=12, deadline=None)
@given(
    mu=st.floats(0.05, 1.5),
    mean=st.floats(1.2, 60),
    shape=st.one_of(st.floats(-0.6, 6), st.just(POISSON)),
    delta=st.sampled_from([1e-6, 1e-4, 1e-2]),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_adversary_exceeds_any_bound(
    mu: float, mean: float, shape: float, delta: float, seed: int
) -> None:
    assume(abs(shape) > 0.01)  # the textbook's formula cancels there; `sealed` does not
    trials = count(mean, shape)
    found = Adversary(*cells_of(mu), mean, shape).found(delta, seed)
    for bound in sealed.BOUNDS:
        assert found <= sealed.gaussian_epsilon(trials, mu, delta, bound)


@pytest.mark.parametrize(("rate", "noise"), [(0.05, 0.5), (0.5, 1.0), (0.3, 2.0)])
@pytest.mark.parametrize(("mean", "shape"), [(10, 1.0), (5, 0.0), (4, POISSON)])
def test_no_adversary_exceeds_the_bound_of_a_sampled_trial(
    rate: float, noise: float, mean: float, shape: float
) -> None:
    empty, full = cells_of(1 / noise)
    found = Adversary(empty, (1 - rate) * empty + rate * full, mean, shape).found(DELTA)
    trial = SampledRun(steps=1, noise_multiplier=noise, sampling_rate=rate)
    name = {1.0: "geometric", 0.0: "logarithmic", POISSON: "poisson"}[shape]
    event = RandomStopping(trial=trial, expected_trials=mean, distribution=name)
    bound = accounting.sealed_bound(event, DELTA).epsilon
    assert 0.8 * bound <= found <= bound


# --- DP-HyPO ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "shape", "floor"),
    [
        (2 / 0.75, 0.0, 1.962),
        (2 / 0.75, 1.0, 2.942),
        (1.33 / 0.75, 0.0, 1.146),
        (1.33 / 0.75, 1.0, 1.719),
        (1.1, 0.0, 0.191),
        (1.1, 1.0, 0.286),
    ],
)
def test_choosing_settings_costs_a_floor_even_without_data(
    ratio: float, shape: float, floor: float
) -> None:
    trials = count(10, shape)
    still = RenyiCurve.gaussian(1e-9)
    found = sealed.adaptive_epsilon(trials, still, DELTA, density_ratio=ratio)
    assert found == pytest.approx(floor, abs=6e-4)
    if floor > 1:
        message = f"costs epsilon {found:.4f} .*density_ratio nearer to 1"
        with pytest.raises(InvalidInput, match=message):
            accounting.calibrate_sealed(learning(shape, ratio), Budget(1.0, DELTA))


def learning(shape: float, ratio: float) -> Callable[[float], RandomStopping]:
    """Ten trials that learn from each other, by the mu of one."""
    return lambda mu: RandomStopping(
        trial=gaussian(mu),
        expected_trials=10,
        distribution="negative-binomial",
        shape=shape,
        density_ratio=ratio,
    )


@pytest.mark.parametrize(("ratio", "left"), [(1.5625, 0.047), (1.1, 0.400)])
def test_choosing_settings_leaves_a_trial_what_is_known(ratio: float, left: float) -> None:
    trials = count(10, 0.0)
    mu = accounting.calibrate_sealed(learning(0.0, ratio), Budget(1.0, DELTA))
    assert gdp.epsilon_from_mu(mu, DELTA) == pytest.approx(left, abs=6e-4)
    curve = RenyiCurve.gaussian(mu)
    assert sealed.adaptive_epsilon(trials, curve, DELTA, density_ratio=ratio) <= 1.0
    # The formula once more, both orders on grids.
    log_inverse, orders = math.log(1 / by_formula(10, 0.0)[0]), 1 + np.geomspace(1, 1e4, 50_000)
    values = orders * mu * mu / 2
    extra = np.min((1 - 1 / orders) * values + log_inverse / orders)
    values += extra + (orders / (orders - 1) + 1) * math.log(ratio) + math.log(10) / (orders - 1)
    values += np.log1p(-1 / orders) - np.log(DELTA * orders) / (orders - 1)
    assert float(values.min()) == pytest.approx(1.0, rel=2e-4)


def test_a_density_ratio_of_one_is_renyi_dp() -> None:
    trials, curve = count(10, 1.0), RenyiCurve.gaussian(0.3)
    plain = sealed.renyi_epsilon(trials, curve, DELTA)
    assert sealed.adaptive_epsilon(trials, curve, DELTA, density_ratio=1.0) == plain
    for refused, ratio in ((trials, 0.9), (count(10, POISSON), 1.1)):
        with pytest.raises(InvalidInput, match="needs a density_ratio of at least 1"):
            sealed.adaptive_epsilon(refused, curve, DELTA, density_ratio=ratio)


class Learner:
    """Trials on cells, each with one of two settings, drawn from densities that lie within a ratio
    of each other: a trial that fell on one side makes one setting the likelier for the next.

    A setting turns the score around. The winner is exact: a walk over the best so far and the side
    of the last trial, which stops with probability gamma after every trial (geometric).
    """

    def __init__(self, mean: float, ratio: float, side: np.ndarray, scores: np.ndarray) -> None:
        self.stop = 1 / mean
        favour = ratio / (1 + ratio)
        self.densities = np.array([[favour, 1 - favour], [1 - favour, favour]])
        self.side, self.rank = side, np.argsort(np.argsort(scores.ravel())).reshape(2, -1)

    def winner(self, masses: np.ndarray) -> np.ndarray:
        """By rank: which setting and which cell."""
        size = 2 * masses.size
        trial = np.zeros((2, 2, size))  # side before, side after, rank
        for before in (0, 1):
            for setting in (0, 1):
                at = (before, self.side, self.rank[setting])
                trial[at] += self.densities[before, setting] * masses
        start = np.full(2, 0.5)  # which setting is the likelier at first is a coin's choice
        best = np.einsum("b,bar->ar", start, trial)
        won, alive = np.zeros(size), best
        up_to = np.cumsum(trial, axis=2)
        for _ in range(4000):
            won += self.stop * alive.sum(axis=0)
            # max(best, new): F_best * F_new, side by side
            reached = (1 - self.stop) * np.cumsum(alive, axis=1)
            reached = np.einsum("br,bar->ar", reached, up_to)
            alive = np.diff(reached, axis=1, prepend=0.0)
            if alive.sum() < 1e-12:
                break
        return won


@pytest.mark.parametrize("mu", [0.3, 1.0])
@pytest.mark.parametrize(("mean", "ratio"), [(5, 1.2), (20, 1.2), (10, 3.0)])
def test_no_learner_exceeds_the_bound_of_dp_hypo(mu: float, mean: float, ratio: float) -> None:
    delta = 1e-4
    event = RandomStopping(trial=gaussian(mu), expected_trials=mean, density_ratio=ratio)
    bound = accounting.sealed_bound(event, delta).epsilon
    one, other = (np.add.reduceat(part, np.arange(0, 1500, 10)) for part in cells_of(mu))
    cells, chance = np.arange(150), np.random.default_rng(11)
    found = 0.0
    for cut in (50, 75, 95, 110):
        side = (cells > cut).astype(int)
        for scores in (
            np.array([cells, -cells]),
            np.array([cells, cells + 0.5]),
            np.array([cells, cells - 200]),
            np.array([-cells, -cells - 200]),
            np.array([np.abs(cells - 90), -np.abs(cells - 90)]),
            chance.normal(size=(2, 150)),
        ):
            learner = Learner(mean, ratio, side, scores)
            winners = learner.winner(one), learner.winner(other)
            assert winners[0].sum() == pytest.approx(1, abs=1e-9)
            for first, second in (winners, winners[::-1]):
                low, high = 0.0, 20.0
                for _ in range(35):
                    middle = (low + high) / 2
                    shown = np.maximum(first - math.exp(middle) * second, 0).sum()
                    low, high = (middle, high) if shown > delta else (low, middle)
                found = max(found, low)
    assert gdp.epsilon_from_mu(mu, delta) < found <= bound


def test_learning_is_bounded_for_sampled_trials_too() -> None:
    """By the curve of one trial, and the formula once more."""
    event = RandomStopping(trial=SAMPLED, expected_trials=10, density_ratio=1.1)
    found = accounting.sealed_bound(event, DELTA)
    orders = np.array(accounting.renyi.ORDERS)
    step = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0))
    values = np.array(rdp.RdpAccountant(list(orders)).compose(step, 1000).rdp)
    extra = 2 * np.min((1 - 1 / orders) * values + math.log(10) / orders)
    values = values + extra + (orders / (orders - 1) + 2) * math.log(1.1)
    values += math.log(10) / (orders - 1)
    epsilons = values + np.log1p(-1 / orders) - np.log(DELTA * orders) / (orders - 1)
    assert found.epsilon == pytest.approx(float(epsilons.min()), rel=1e-6)
    assert found.epsilon == found.published
    assert found.epsilon > 4.10327 + 3 * math.log(1.1)


# --- Calibration ------------------------------------------------------------------------------


@pytest.mark.parametrize("distribution", ["geometric", "logarithmic", "poisson"])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
def test_a_search_is_calibrated_to_its_budget(distribution: str, epsilon: float) -> None:
    """Against the inverse of each bound, to twelve digits."""
    trials, budget = TrialCount.named(distribution, 10), Budget(epsilon, DELTA)
    by = {bound: largest_mu(trials, epsilon, DELTA, bound) for bound in ("ratio", "renyi")}
    for published, exact in ((False, max(by.values())), (True, by["renyi"])):
        found = accounting.calibrate_sealed(
            lambda mu: search(mu, 10, distribution), budget, published=published
        )
        assert exact * (1 - 1e-4) <= found <= exact


def test_calibration_takes_parts_of_any_strength() -> None:
    """The argument is a scale: here a trial has half of it and a score a tenth."""

    def at(mu: float) -> RandomStopping:
        parts = (gaussian(mu / 2), NoisyCount(noise=10 / mu))
        return RandomStopping(trial=Composition(parts=parts), expected_trials=10)

    found = accounting.calibrate_sealed(at, Budget(1.0, DELTA))
    exact = largest_mu(count(10, 1.0), 1.0, DELTA) / math.hypot(0.5, 0.1)
    assert exact * (1 - 1e-4) <= found <= exact
    assert accounting.sealed_bound(at(found), DELTA).epsilon <= 1.0


def test_sampled_trials_are_calibrated_by_their_noise() -> None:
    def at(mu: float) -> RandomStopping:
        noise = accounting.central_limit_noise(mu, 100, 0.05)
        trial = SampledRun(steps=100, noise_multiplier=noise, sampling_rate=0.05)
        return RandomStopping(trial=trial, expected_trials=5)

    mu = accounting.calibrate_sealed(at, Budget(2.0, DELTA))
    assert accounting.sealed_bound(at(mu), DELTA).epsilon <= 2.0
    assert accounting.sealed_bound(at(mu * 1.0002), DELTA).epsilon > 2.0


def test_calibration_raises_for_unpriced_events() -> None:
    with pytest.raises(UnpricedEvent, match="may not contain"):
        accounting.calibrate_sealed(
            lambda mu: RandomStopping(trial=search(mu, 3), expected_trials=3), Budget(1.0, DELTA)
        )


# --- Events and statements --------------------------------------------------------------------


OLD_RECORD = """{"kind": "random-stopping", "trial": {"kind": "full-batch-run", "steps": 100,
    "noise_multiplier": 100.0}, "expected_trials": 10.0, "distribution": "%s"}"""


@pytest.mark.parametrize(
    ("distribution", "shape", "before", "now"),
    [
        ("geometric", 1.0, 0.8494, 0.577075),
        ("logarithmic", 0.0, 0.6940, 0.534924),
        ("poisson", POISSON, 0.8982, 0.721556),
    ],
)
def test_old_records_load_and_never_cost_more(
    distribution: str, shape: float, before: float, now: float
) -> None:
    event = event_from_dict(json.loads(OLD_RECORD % distribution))
    assert isinstance(event, RandomStopping) and event.shape is None
    assert event_from_dict(json.loads(json.dumps(event_to_dict(event)))) == event
    old = accounting.rdp_epsilon([event], DELTA)
    assert old == pytest.approx(before, abs=1e-3)
    found = accounting.sealed_bound(event, DELTA)
    assert found.epsilon == pytest.approx(now, abs=2e-5)
    assert found.epsilon <= found.published <= old
    if shape != POISSON:
        named = RandomStopping(
            trial=event.trial, expected_trials=10, distribution="negative-binomial", shape=shape
        )
        assert accounting.sealed_bound(named, DELTA) == found
        assert event_from_dict(json.loads(json.dumps(event_to_dict(named)))) == named


@pytest.mark.parametrize(
    "options",
    [
        {"distribution": "negative-binomial"},
        {"distribution": "negative-binomial", "shape": -1.0},
        {"distribution": "negative-binomial", "shape": math.inf},
        {"distribution": "negative-binomial", "shape": "1"},
        {"distribution": "geometric", "shape": 1.0},
        {"shape": 0.0},
    ],
)
def test_a_shape_belongs_to_a_negative_binomial(options: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="shape"):
        RandomStopping(trial=gaussian(0.1), expected_trials=10, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ratio", "distribution"),
    [(0.99, "geometric"), (math.inf, "geometric"), (math.nan, "geometric"), (1.1, "poisson")],
)
def test_invalid_density_ratio_is_refused(ratio: float, distribution: str) -> None:
    with pytest.raises(InvalidInput, match=r"density_ratio.*got"):
        RandomStopping(
            trial=gaussian(0.1), expected_trials=10, distribution=distribution, density_ratio=ratio
        )


def test_a_density_ratio_is_kept_and_its_absence_means_independence() -> None:
    plain = event_to_dict(search(0.1, 10))
    assert "density_ratio" not in plain
    old = event_from_dict(plain)
    assert isinstance(old, RandomStopping) and old.density_ratio is None
    event = RandomStopping(trial=gaussian(0.1), expected_trials=10, density_ratio=1.1)
    plain = json.loads(json.dumps(event_to_dict(event)))
    assert plain["density_ratio"] == 1.1
    assert event_from_dict(plain) == event
    assert accounting.price(event, slack=1e-8).mu > accounting.price(old, slack=1e-8).mu
    with pytest.raises(UnpricedEvent, match="Use sealed_bound"):  # it would be too cheap there
        accounting.rdp_epsilon([event], DELTA)


@pytest.mark.parametrize(
    "inside",
    [
        search(0.1, 3),
        Parallel(parts=(gaussian(0.1), NoisyCount(noise=10.0))),
        Composition(parts=(gaussian(0.1), Parallel(parts=(gaussian(0.1),)))),
    ],
)
def test_sealed_search_refuses_trial_with_parallel_or_sealed_parts(
    inside: RandomStopping | Parallel,
) -> None:
    event = RandomStopping(trial=inside, expected_trials=3)
    with pytest.raises(UnpricedEvent, match="may not contain a"):
        accounting.price(event, slack=1e-8)
    with pytest.raises(UnpricedEvent, match="may not contain a"):
        accounting.sealed_bound(event, DELTA)


def test_a_trial_of_several_gaussian_parts_is_one_gaussian() -> None:
    parts = (gaussian(0.06), PrivateMean(noise_multiplier=1 / 0.08))
    whole = RandomStopping(trial=Composition(parts=parts), expected_trials=10)
    found = accounting.sealed_bound(whole, DELTA).epsilon
    assert found == pytest.approx(0.577075, abs=1e-6)


def test_a_trial_with_sampled_parts_is_bounded_by_its_curve() -> None:
    """Sampling almost all rows is almost no sampling: the Gaussian's bound, from another route."""
    nearly = SampledRun(steps=25, noise_multiplier=50.0, sampling_rate=1 - 1e-9)
    for name in ("geometric", "logarithmic", "poisson"):
        event = RandomStopping(trial=nearly, expected_trials=10, distribution=name)
        found = accounting.sealed_bound(event, DELTA)
        exact = accounting.sealed_bound(search(0.1, 10, name), DELTA)
        assert found.epsilon == pytest.approx(exact.epsilon, rel=2e-3)
        assert found.epsilon >= exact.epsilon * (1 - 1e-5)
        assert found.published == pytest.approx(exact.published, rel=5e-3)


def test_where_no_curve_can_be_had_renyi_dp_prices_the_search() -> None:
    """At a delta double precision cannot certify sampled steps for."""
    event = RandomStopping(trial=SAMPLED, expected_trials=10)
    found = accounting.sealed_bound(event, 1e-14)
    assert "Renyi" in found.accountant
    assert found.epsilon == found.published
    assert found.epsilon == pytest.approx(accounting.rdp_epsilon([event], 1e-14), rel=1e-9)


def test_the_tighter_bound_decides_what_fits() -> None:
    """A search that the published bound refuses."""
    mu = largest_mu(count(10, 1.0), 1.0, DELTA)
    event = search(mu * (1 - 1e-9), 10)
    paid = accounting.price(event, slack=1e-8)
    assert accounting.rdp_epsilon([event], DELTA) > 1.4
    assert accounting.fits([event], paid, Budget(1.0, DELTA), paid.slack)
    assert not accounting.fits([search(mu * 1.001, 10)], paid, Budget(1.0, DELTA), paid.slack)
    assert accounting.epsilon_of([event], paid, DELTA) <= 1.0


def test_the_statement_names_the_bound_and_the_published_one() -> None:
    def say(event: RandomStopping) -> Guarantee:
        return accounting.guarantee(
            [event], DELTA, covers_search=True, covers_selection=True, releases=("a model",)
        )

    promise = say(search(0.1, 10))
    assert promise.epsilon == pytest.approx(0.577075, abs=1e-6)
    assert "ratio of trade-off curves" in promise.accountant
    published = "(Renyi DP, Papernot & Steinke 2022) is epsilon 0.8492"
    assert any(published in note for note in promise.caveats)
    poisson = say(search(0.1, 10, "poisson"))
    assert "Renyi DP" in poisson.accountant
    assert any("2022) is the one used" in note for note in poisson.caveats)
    assert not any("density" in note for note in promise.caveats)

    learning = RandomStopping(trial=gaussian(0.1), expected_trials=10, density_ratio=1.1)
    promise = say(learning)
    exact = sealed.adaptive_epsilon(
        count(10, 1.0), RenyiCurve.gaussian(0.1), DELTA, density_ratio=1.1
    )
    assert promise.epsilon == pytest.approx(exact, rel=1e-12)
    assert "DP-HyPO" in promise.accountant
    notes = " ".join(promise.caveats)
    assert "(Renyi DP, Wang et al. 2023) is the one used" in notes
    assert "C/c at most 1.1" in notes and "losing trials" in notes
    # Twice the mu where a row is exchanged; densities depend on outputs only.
    exact = sealed.adaptive_epsilon(
        count(10, 1.0), RenyiCurve.gaussian(0.2), DELTA, density_ratio=1.1
    )
    assert promise.replace_one_epsilon == pytest.approx(exact, rel=1e-12)


@settings(max_examples=25, deadline=None)
@given(
    mu=st.floats(1e-4, 0.5),
    mean=st.floats(1.5, 30),
    distribution=st.sampled_from(["geometric", "logarithmic"]),
    alarms=st.lists(st.floats(-12, -1e-3), min_size=20, max_size=20),
)
def test_composable_price_of_sealed_search_covers_its_whole_curve(
    mu: float, mean: float, distribution: str, alarms: list[float]
) -> None:
    """Whatever test an attacker makes, its hits are bounded by every point of the profile; and by
    the Gaussian of the price, outside the failure."""
    event, slack = search(mu, mean, distribution), 1e-8
    paid = accounting.price(event, slack=slack)
    trial = GaussianMechanism(mu)
    extra = sealed.log_ratio(count(mean, SHAPES[distribution]), trial)
    at = np.linspace(0.0, 12 * mu, 4000)
    deltas = np.minimum(1.0, mean * np.array([trial.delta(float(e)) for e in at]))
    for alarm in 10.0 ** np.array(alarms):
        steep = deltas + np.exp(at + extra) * alarm
        flat = 1 - np.exp(-at - extra) * (1 - deltas - alarm)
        hits = min(float(np.min(steep)), float(np.min(flat)), 1.0)
        covered = slack + (1 - slack) * norm.cdf(norm.ppf(alarm / (1 - slack)) + paid.mu)
        assert covered >= hits * (1 - 1e-5)


@pytest.mark.parametrize("distribution", ["geometric", "logarithmic", "poisson"])
@pytest.mark.parametrize(("mu", "beside"), [(0.05, 0.1), (0.18, 0.3), (0.5, 0.2)])
def test_sum_of_prices_of_sealed_search_exceeds_joint_bound(
    distribution: str, mu: float, beside: float
) -> None:
    """A search on a sample of nearly all rows, and a run on all rows, are one after the other: the
    dominating pair bounds that without any prices. So does one point of the profile, more loosely.
    """
    event, slack = search(mu, 10, distribution), 1e-8
    paid = accounting.price(event, slack=slack)
    by_prices = accounting.epsilon(total([paid, accounting.price(gaussian(beside))]), DELTA)
    together = SubsetSearch(
        search=event, final=gaussian(beside), sampling_rate=1 - 1e-9, disjoint=False
    )
    assert accounting.sealed_bound(together, DELTA).epsilon < by_prices
    one_point = -2 * norm.ppf(1 / (1 + math.exp(accounting.sealed_bound(event, slack).epsilon)))
    assert paid.mu < 0.7 * one_point


def test_composed_sealed_search_does_not_name_its_own_bound() -> None:
    event = search(0.1, 10)
    paid = accounting.price(event, slack=1e-8)
    both = total([paid, accounting.price(gaussian(0.1))])
    assert accounting.epsilon_of([event, gaussian(0.1)], both, DELTA) == accounting.epsilon(
        both, DELTA
    )
