"""A search on a secret sample of the rows, then a final run: every number by a second route."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event, rdp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from dptune import Budget, Ledger, accounting, gdp
from dptune.accounting import Guarantee, subset
from dptune.accounting.sealed import GaussianSearch, RenyiCurve, TrialCount
from dptune.errors import BudgetExceeded, InvalidInput, UnpricedEvent
from dptune.privacy import (
    Composition,
    Event,
    FullBatchRun,
    NoisyCount,
    PrivateMean,
    RandomStopping,
    SampledRun,
    SubsetSearch,
    event_from_dict,
    event_to_dict,
)
from support.adversary import Adversary, cells_of
from support.ledgers import ROWS, new_ledger

DELTA = 1e-5
SAMPLED = SampledRun(steps=10, noise_multiplier=5.0, sampling_rate=0.1)

mus = st.floats(0.01, 2)
rates = st.floats(0.01, 0.99)


def gaussian(mu: float) -> FullBatchRun:
    return FullBatchRun(steps=1, noise_multiplier=1 / mu)


def stopping(mu: float, mean: float = 10, distribution: str = "geometric") -> RandomStopping:
    return RandomStopping(trial=gaussian(mu), expected_trials=mean, distribution=distribution)


def both(
    search: Event | float, final: Event | float, rate: float, disjoint: bool = True
) -> SubsetSearch:
    """Numbers are the mu of one full-batch step."""
    first, second = (
        gaussian(part) if isinstance(part, float) else part for part in (search, final)
    )
    return SubsetSearch(search=first, final=second, sampling_rate=rate, disjoint=disjoint)


def epsilon_of(event: SubsetSearch, delta: float = DELTA) -> float:
    return accounting.sealed_bound(event, delta).epsilon


def ratios_of(mu: float) -> subset.LikelihoodRatios:
    largest = gdp.epsilon_from_mu(mu, 1e-12)
    return subset.discretize(lambda epsilon: gdp.delta_from_mu(mu, epsilon), largest)


# --- The pair, by brute force -----------------------------------------------------------------


def released(
    rate: float, disjoint: bool, search: tuple[np.ndarray, ...], final: tuple[np.ndarray, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of all that can be released, without the row and with it. Parts are given as
    probabilities without and with it; those of the final run may have a line for every outcome of
    the search."""
    (q1, p1), (q2, p2) = search, (np.atleast_2d(part) for part in final)
    q1, p1 = q1[:, None], p1[:, None]
    if disjoint:
        return q1 * q2, rate * p1 * q2 + (1 - rate) * q1 * p2
    return q1 * q2, (rate * p1 + (1 - rate) * q1) * p2


def delta_of(one: np.ndarray, other: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


def worse_epsilon(without: np.ndarray, with_row: np.ndarray, delta: float) -> float:
    found = 0.0
    for one, other in ((without, with_row), (with_row, without)):
        low, high = 0.0, 30.0
        for _ in range(30):
            middle = (low + high) / 2
            too_low = delta_of(one, other, middle) > delta
            low, high = (middle, high) if too_low else (low, middle)
        found = max(found, low)
    return found


TABLE = [  # mu of the search, of the final run, rate; disjoint, its Renyi bound, on all rows
    (0.26805, 0.26805, 0.1, 0.9290, 1.0260, 1.0062),
    (0.26805, 0.26805, 0.5, 0.6951, 0.7977, 1.1631),
    (0.5361, 0.26805, 0.1, 0.9337, 1.0440, 1.0420),
    (0.5, 0.26805, 0.05, 0.9654, 1.0639, 1.0067),
    (1.0, 0.26805, 0.1, 1.6907, 2.5568, 1.8792),
]


@pytest.mark.parametrize(("first", "second", "rate", "apart", "renyi", "everywhere"), TABLE)
def test_epsilons_are_those_of_the_table(
    first: float, second: float, rate: float, apart: float, renyi: float, everywhere: float
) -> None:
    found = accounting.sealed_bound(both(first, second, rate), DELTA)
    assert found.epsilon == pytest.approx(apart, abs=1e-4)
    assert found.published == pytest.approx(renyi, abs=1e-4)
    assert epsilon_of(both(first, second, rate, disjoint=False)) == pytest.approx(
        everywhere, abs=1e-4
    )


@pytest.mark.parametrize("disjoint", [True, False])
@pytest.mark.parametrize(
    ("first", "second", "rate", "delta"),
    [
        (0.5361, 0.26805, 0.1, DELTA),
        (0.3, 0.8, 0.5, 1e-3),
        (2.0, 0.05, 0.02, 1e-4),
        (1.0, 1.0, 0.95, 0.05),
    ],
)
def test_the_closed_forms_agree_with_a_grid(
    first: float, second: float, rate: float, delta: float, disjoint: bool
) -> None:
    """Cells merge outcomes: what they reveal is a lower bound, and here a close one."""
    found = worse_epsilon(*released(rate, disjoint, cells_of(first), cells_of(second)), delta)
    bound = epsilon_of(both(first, second, rate, disjoint), delta)
    assert found <= bound <= found * (1 + 2e-4)


@settings(max_examples=40)
@given(data=st.data(), rate=rates, mu=mus, disjoint=st.booleans(), epsilon=st.floats(0, 2))
def test_both_directions_count(
    data: st.DataObject, rate: float, mu: float, disjoint: bool, epsilon: float
) -> None:
    """Ratios as lopsided as you like, so that now one direction is the worse and now the other;
    the final run is on cells."""
    size = data.draw(st.integers(2, 6))
    weights = st.lists(st.floats(0.01, 1), min_size=size, max_size=size)
    without, with_row = (np.array(data.draw(weights)) for _ in range(2))
    without, with_row = without / without.sum(), with_row / with_row.sum()
    search = subset.LikelihoodRatios(np.log(with_row / without), without, 0.0)
    found = subset.DominatingPair.of(search, mu, sampling_rate=rate, disjoint=disjoint).delta(
        epsilon
    )
    one, other = released(rate, disjoint, (without, with_row), cells_of(mu))
    exact = max(delta_of(one, other, epsilon), delta_of(other, one, epsilon))
    assert exact * (1 - 1e-9) <= found <= exact * (1 + 1e-3) + 1e-9


def test_the_row_that_is_gone_can_be_the_worse_case() -> None:
    """Proof that a row was there and proof that it was not, each against the closed form."""
    mostly = np.log(np.array([1 / 0.9]))
    gone = subset.LikelihoodRatios(np.append(mostly, -math.inf), np.array([0.9, 0.1]), 0.0)
    there = subset.LikelihoodRatios(np.array([math.log(0.9)]), np.array([1.0]), 0.1)
    for search in (gone, there):
        pair = subset.DominatingPair.of(search, 0.0, sampling_rate=0.2, disjoint=False)
        assert pair.delta(0.0) == pytest.approx(0.2 * 0.1, rel=1e-9)
    # Without the row an atom of 0.1 has ratio 1 - 0.2, which is below e^-0.2 and not e^-0.3.
    pair = subset.DominatingPair.of(gone, 0.0, sampling_rate=0.2, disjoint=False)
    assert pair.delta(0.2) == pytest.approx(0.1 * (1 - 0.8 * math.exp(0.2)), rel=1e-6)
    assert pair.delta(0.3) < 1e-9


# --- Likelihood ratios of a profile -----------------------------------------------------------


def profile_of(search: subset.LikelihoodRatios, epsilon: float) -> float:
    ratios = np.exp(search.log_ratio)
    return search.proof + float(search.mass @ np.maximum(ratios - math.exp(epsilon), 0))


@settings(max_examples=30)
@given(mu=st.floats(1e-6, 8), share=st.floats(0, 1.5))
def test_discretized_ratios_of_gaussian_are_tight(mu: float, share: float) -> None:
    search = ratios_of(mu)
    assert search.mass.min() >= 0
    assert search.mass.sum() == pytest.approx(1, abs=1e-12)
    assert float(search.mass @ np.exp(search.log_ratio)) + search.proof == pytest.approx(1)
    epsilon = share * gdp.epsilon_from_mu(mu, 1e-5)
    exact = gdp.delta_from_mu(mu, epsilon)
    assert exact * (1 - 1e-9) <= profile_of(search, epsilon) <= exact * (1 + 1e-3) + 1e-10
    # By parity, the other direction: delta of -epsilon belongs to what is not there.
    mirrored = float(search.mass @ np.maximum(1 - math.exp(epsilon) * np.exp(search.log_ratio), 0))
    assert mirrored == pytest.approx(profile_of(search, epsilon), rel=1e-9)


@settings(max_examples=30)
@given(
    steps=st.lists(st.tuples(st.floats(0, 3), st.floats(0, 1)), min_size=1, max_size=6),
    largest=st.floats(0, 4),
)
def test_discretized_ratios_dominate_irregular_profiles(
    steps: list[tuple[float, float]], largest: float
) -> None:
    """Profiles are smooth; a minimum of several bounds is not. Where it is known, it is kept, and
    the curve is that of two distributions."""

    def profile(epsilon: float) -> float:
        return min((delta for at, delta in steps if epsilon >= at), default=1.0)

    search = subset.discretize(profile, largest)
    assert search.mass.min() >= 0
    assert search.mass.sum() == pytest.approx(1, abs=1e-12)
    for epsilon in np.linspace(0.0, largest, 1000)[::37]:
        assert profile_of(search, float(epsilon)) <= profile(float(epsilon)) + 1e-12


def test_a_profile_of_nothing_and_of_everything() -> None:
    nothing = subset.discretize(lambda _: 0.0, 0.0)
    assert nothing.proof == 0.0
    pair = subset.DominatingPair.of(nothing, 0.3, sampling_rate=0.5, disjoint=False)
    assert pair.epsilon(DELTA) == pytest.approx(gdp.epsilon_from_mu(0.3, DELTA), rel=1e-6)
    everything = subset.discretize(lambda _: 1.0, 5.0)
    assert everything.proof == 1.0
    pair = subset.DominatingPair.of(everything, 0.3, sampling_rate=0.01, disjoint=True)
    assert pair.delta(5.0) >= 0.01
    assert pair.epsilon(1e-3) == math.inf


@pytest.mark.parametrize("disjoint", [True, False])
@pytest.mark.parametrize(
    ("first", "second", "epsilon"), [(0.5, 0.25, 0.9), (1e-4, 1e-3, 8e-3), (3.0, 1e-2, 9.0)]
)
def test_terms_are_rounded_up_and_by_little(
    first: float, second: float, epsilon: float, disjoint: bool
) -> None:
    """In 40 digits: the corners between tangents, and the sum over some of the atoms."""
    rate, search = 0.1, ratios_of(first)
    at = np.linspace(0.0, gdp.epsilon_from_mu(first, 1e-12), 1000)
    deltas = np.array([gdp.delta_from_mu(first, float(point)) for point in at])
    touching, corners = subset._envelope(at, deltas)
    some = subset.LikelihoodRatios(search.log_ratio[::50], search.mass[::50], 0.0)
    found = subset.DominatingPair.of(some, second, sampling_rate=rate, disjoint=disjoint).delta(
        epsilon
    )
    with mpmath.workdps(40):
        for number in range(0, len(corners), 60):
            one, two = touching[number], touching[number + 1]
            height = mpmath.mpf(deltas[one]) - mpmath.mpf(deltas[two])
            exact = height / (mpmath.exp(mpmath.mpf(at[two])) - mpmath.exp(mpmath.mpf(at[one])))
            assert abs(float(corners[number] / exact - 1)) < 1e-13
        mu, q, factor = mpmath.mpf(second), mpmath.mpf(rate), mpmath.exp(mpmath.mpf(epsilon))
        there = gone = mpmath.mpf(0)
        for log_ratio, mass in zip(some.log_ratio, some.mass, strict=True):
            ratio = mpmath.exp(mpmath.mpf(log_ratio))
            flat, steep = (q * ratio, 1 - q) if disjoint else (mpmath.mpf(0), q * ratio + 1 - q)
            # E[(flat + steep e^(mu y - mu^2/2) - strike)_+], and the reverse
            for strike, sign in ((factor, 1), (1 / factor, -1)):
                value = mpmath.mpf(0) if sign < 0 else flat + steep - strike
                if strike > flat:
                    end = mpmath.log((strike - flat) / steep) / mu + mu / 2
                    value = sign * (
                        steep * mpmath.ncdf(sign * (mu - end))
                        - (strike - flat) * mpmath.ncdf(-sign * end)
                    )
                if sign > 0:
                    there += mpmath.mpf(mass) * value
                else:
                    gone += factor * mpmath.mpf(mass) * value
        assert 0 <= float(found / max(there, gone) - 1) < 1e-8


# --- Limits and orders ------------------------------------------------------------------------


@settings(max_examples=30)
@given(first=mus, second=mus, rate=rates, disjoint=st.booleans(), epsilon=st.floats(0, 4))
def test_delta_lies_between_what_the_parts_say(
    first: float, second: float, rate: float, disjoint: bool, epsilon: float
) -> None:
    """Below: an attacker who looks at one part only, which is amplified by sampling. Above: one who
    is told whether the row was in the sample."""
    pair = subset.DominatingPair.of(ratios_of(first), second, sampling_rate=rate, disjoint=disjoint)
    found = pair.delta(epsilon)

    def amplified(mu: float, chance: float) -> float:
        return chance * gdp.delta_from_mu(mu, math.log1p(math.expm1(epsilon) / chance))

    least = max(amplified(first, rate), amplified(second, 1 - rate if disjoint else 1.0))
    one, two = gdp.delta_from_mu(first, epsilon), gdp.delta_from_mu(second, epsilon)
    together = gdp.delta_from_mu(math.hypot(first, second), epsilon)
    told = rate * (one if disjoint else together) + (1 - rate) * two
    assert least * (1 - 1e-9) <= found <= told * (1 + 1e-3) + 1e-10


@settings(max_examples=20)
@given(first=mus, second=mus, rate=st.floats(0.05, 0.9), disjoint=st.booleans())
def test_more_of_anything_costs_more(
    first: float, second: float, rate: float, disjoint: bool
) -> None:
    found = epsilon_of(both(first, second, rate, disjoint))
    assert epsilon_of(both(first * 0.9, second, rate, disjoint)) <= found * (1 + 1e-5)
    assert epsilon_of(both(first, second * 0.9, rate, disjoint)) <= found * (1 + 1e-5)
    assert epsilon_of(both(first, second, rate, disjoint), 2 * DELTA) <= found
    assert epsilon_of(both(first, second, rate, True)) <= epsilon_of(
        both(first, second, rate, False)
    ) * (1 + 1e-9)
    if not disjoint:
        assert epsilon_of(both(first, second, rate * 0.9, disjoint)) <= found * (1 + 1e-5)


@pytest.mark.parametrize(
    ("rate", "disjoint", "limit"),
    [
        (1e-9, True, 0.3),
        (1e-9, False, 0.3),
        (1 - 1e-9, True, 0.5),
        (1 - 1e-9, False, math.hypot(0.3, 0.5)),
    ],
)
def test_sampling_rates_near_0_and_1_match_no_sampling(
    rate: float, disjoint: bool, limit: float
) -> None:
    found = epsilon_of(both(0.5, 0.3, rate, disjoint))
    assert found == pytest.approx(gdp.epsilon_from_mu(limit, DELTA), rel=2e-5)


def test_sealed_searches_have_the_same_limits() -> None:
    search = stopping(0.3)
    alone = accounting.sealed_bound(search, DELTA).epsilon
    nearly = epsilon_of(both(search, 1e-9, 1 - 1e-9))
    assert alone <= nearly * (1 + 1e-6)  # a curve of tangents
    assert nearly == pytest.approx(alone, rel=1e-3)
    final = epsilon_of(both(search, 0.3, 1e-9))
    assert final == pytest.approx(gdp.epsilon_from_mu(0.3, DELTA), rel=2e-5)


@pytest.mark.parametrize("disjoint", [True, False])
@pytest.mark.parametrize("first", [1e-12, 1e-3, 10.0])
@pytest.mark.parametrize("second", [1e-12, 1e-3, 10.0])
def test_extremes_stay_bounds_and_make_no_noise(
    first: float, second: float, disjoint: bool
) -> None:
    """At a delta that double precision cannot tell from the rest of 1."""
    rate, delta = 0.3, 1e-30
    found = epsilon_of(both(first, second, rate, disjoint), delta)
    for mu, chance in ((first, rate), (second, 1 - rate if disjoint else 1.0)):
        one_part = gdp.delta_from_mu(mu, math.log1p(math.expm1(found) / chance))
        assert chance * one_part <= delta * (1 + 1e-9)
    together = gdp.epsilon_from_mu(math.hypot(first, second), delta)
    assert found <= together * (1 + 1e-4) + 1e-10


def test_what_reveals_nothing_and_what_reveals_everything() -> None:
    still = NoisyCount(noise=1.0, centered=True)
    alone = gdp.epsilon_from_mu(0.3, DELTA)
    assert epsilon_of(both(still, 0.3, 0.5, False)) == pytest.approx(alone, rel=1e-5)
    assert epsilon_of(both(still, still, 0.5)) < 1e-10
    with pytest.raises(UnpricedEvent, match="so little noise"):
        epsilon_of(both(2e4, 1.0, 0.3))


# --- An adversary who chooses the score and the final run -------------------------------------


@pytest.mark.parametrize("disjoint", [True, False])
@pytest.mark.parametrize(
    ("mean", "shape", "name"),
    [(10, 1.0, "geometric"), (5, 0.0, "logarithmic"), (4, math.inf, "poisson")],
)
def test_no_adversary_exceeds_the_bound_of_a_search(
    mean: float, shape: float, name: str, disjoint: bool
) -> None:
    """The winner's distribution is exact for any order of 1,500 cells; a Poisson number of trials
    may be none. The final run is told on 300 cells."""
    first, second, rate, delta = 0.4, 0.2, 0.2, 1e-4
    event = both(stopping(first, mean, name), second, rate, disjoint)
    bound = epsilon_of(event, delta)
    adversary = Adversary(*cells_of(first), mean, shape)
    final = tuple(np.add.reduceat(part, np.arange(0, 1500, 5)) for part in cells_of(second))
    found = 0.0
    for number, order in enumerate(adversary.orders(seed=3)):
        if number % 6 == 0:
            winners = [
                np.append(adversary._winner(part, order), adversary.nothing)
                for part in (adversary.one, adversary.other)
            ]
            for search in (tuple(winners), tuple(winners[::-1])):
                # Merge outcomes by what they say, or it would take minutes.
                found = max(found, worse_epsilon(*merged(rate, disjoint, search, final), delta))
    assert 0.75 * bound <= found <= bound


def merged(
    rate: float, disjoint: bool, search: tuple[np.ndarray, ...], final: tuple[np.ndarray, ...]
) -> tuple[np.ndarray, np.ndarray]:
    without, with_row = search
    ratio = np.log(np.maximum(with_row, 1e-300) / np.maximum(without, 1e-300))
    order = np.argsort(ratio)
    starts = np.arange(0, order.size, 5)
    few = tuple(np.add.reduceat(part[order], starts) for part in search)
    return released(rate, disjoint, few, final)


@pytest.mark.parametrize("disjoint", [True, False])
def test_choosing_the_final_run_from_the_search_gains_nothing(disjoint: bool) -> None:
    """A final run of either sign, of less strength or none at all, by what the search released."""
    first, second, rate, delta = 0.5, 0.3, 0.3, 1e-4
    bound = epsilon_of(both(first, second, rate, disjoint), delta)
    search = tuple(np.add.reduceat(part, np.arange(0, 1500, 3)) for part in cells_of(first))
    q2, p2 = cells_of(second)
    choices = [(q2, p2), (q2, q2), (p2, q2), cells_of(second / 2)]
    chance = np.random.default_rng(5)
    places = np.arange(search[0].size)
    rules = [places * 0, places > 250, places < 250, places * 4 // places.size]
    rules += [2 * (places > 300), 2 * (places < 200), chance.integers(0, 4, places.size)]
    found = []
    for rule in rules:
        lines = [choices[int(choice)] for choice in rule]
        final = tuple(np.array([line[side] for line in lines]) for side in (0, 1))
        found.append(worse_epsilon(*released(rate, disjoint, search, final), delta))
    assert max(found) == found[0]
    assert found[0] <= bound <= found[0] * (1 + 5e-4)


def test_a_sample_whose_size_is_known_is_not_covered() -> None:
    """An attacker who knows all other rows, and the size, knows whether this one is in: the reason
    why the size is never used."""
    first, second, rate = 0.26805, 0.26805, 0.5
    bound = epsilon_of(both(first, second, rate))
    told = rate * gdp.delta_from_mu(first, bound) + (1 - rate) * gdp.delta_from_mu(second, bound)
    assert told > 5 * DELTA


# --- The published bound ----------------------------------------------------------------------

integers = np.arange(2.0, 200.0)


def divergences(one: np.ndarray, other: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """The larger of both directions."""
    found = [
        [np.log(np.sum(p**a * q ** (1 - a))) / (a - 1) for a in orders]
        for p, q in ((one, other), (other, one))
    ]
    return np.max(found, axis=0)


@pytest.mark.parametrize("disjoint", [True, False])
@settings(max_examples=25)
@given(
    chance=st.integers(0, 2**32 - 1), rate=rates, size=st.integers(2, 5), spread=st.floats(0.1, 3)
)
def test_renyi_dp_covers_both_directions_of_any_parts(
    disjoint: bool, chance: int, rate: float, size: int, spread: float
) -> None:
    """Parts that are not symmetric, with a divergence for each order, on a few outcomes."""
    draw = np.random.default_rng(chance)
    weights = np.exp(spread * draw.normal(size=(4, size)))
    q1, p1, q2, p2 = weights / weights.sum(axis=1, keepdims=True)
    orders = np.arange(2.0, 12.0)
    parts = (divergences(q, p, orders) for q, p in ((q1, p1), (q2, p2)))
    found_at, bound = subset.renyi_divergences(*parts, sampling_rate=rate, disjoint=disjoint)
    without, with_row = released(rate, disjoint, (q1, p1), (q2, p2))
    exact = divergences(without, with_row, found_at)
    assert np.all(exact <= bound * (1 + 1e-9) + 1e-12)


def test_renyi_dp_of_a_mixture_is_exact_in_one_direction() -> None:
    """Moments of the mixture of two Gaussians, against their integral."""
    first, second, rate, order = 0.6, 0.4, 0.3, 7
    at, values = subset.renyi_divergences(
        integers * first**2 / 2, integers * second**2 / 2, sampling_rate=rate, disjoint=True
    )
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights = weights / weights.sum()
    x, y = np.exp(first * nodes - first**2 / 2), np.exp(second * nodes - second**2 / 2)
    ratio = rate * x[:, None] + (1 - rate) * y
    moment = float(weights @ ratio**order @ weights)
    there = math.log(moment) / (order - 1)
    gone = math.log(float(weights @ ratio ** (1 - order) @ weights)) / (order - 1)
    found = values[list(at).index(order)]
    assert gone <= there <= found
    inverse = rate / x[:, None] + (1 - rate) / y
    by_inverses = math.log(float(weights @ inverse ** (order - 1) @ weights)) / (order - 1)
    assert found == pytest.approx(max(there, by_inverses), rel=1e-9)


@pytest.mark.parametrize(("mu", "rate"), [(0.5, 0.1), (1.0, 0.02), (0.2, 0.5)])
def test_renyi_dp_on_all_rows_is_what_is_known_of_sampling(mu: float, rate: float) -> None:
    """dp-accounting has the exact divergence of a sampled Gaussian, and ours, which holds for any
    search, is above it by at most log(3) over the order less one; a final run adds."""
    nothing = np.zeros_like(integers)
    at, values = subset.renyi_divergences(
        integers * mu**2 / 2, nothing, sampling_rate=rate, disjoint=False
    )
    event = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(1 / mu))
    theirs = np.array(rdp.RdpAccountant(list(at)).compose(event).rdp)
    assert np.all(theirs <= values * (1 + 1e-9))
    assert np.all(values <= theirs + math.log(3) / (at - 1) + 1e-9)
    assert values[0] == pytest.approx(theirs[0], rel=1e-9)  # order 2 is exact
    _, more = subset.renyi_divergences(
        integers * mu**2 / 2, integers, sampling_rate=rate, disjoint=False
    )
    assert more == pytest.approx(values + at)


@settings(max_examples=15)
@given(
    first=st.floats(0.05, 1.5),
    second=st.floats(0.05, 1.5),
    rate=rates,
    disjoint=st.booleans(),
    search=st.sampled_from(["gaussian", "geometric", "poisson", "learning"]),
)
def test_the_published_bound_is_never_needed_but_never_ignored(
    first: float, second: float, rate: float, disjoint: bool, search: str
) -> None:
    parts: dict[str, Event] = {
        "gaussian": gaussian(first),
        "geometric": stopping(first),
        "poisson": stopping(first, 5, "poisson"),
        "learning": RandomStopping(trial=gaussian(first), expected_trials=5, density_ratio=1.2),
    }
    found = accounting.sealed_bound(both(parts[search], second, rate, disjoint), DELTA)
    assert found.epsilon <= found.published
    assert found.source == "Koskela & Kulkarni 2023"
    assert "dominating pair" in found.accountant


def test_a_search_is_as_private_as_either_bound_says() -> None:
    """Its profile and its epsilon, against the bounds of which they are the smaller."""
    for shape, ratio in ((1.0, None), (math.inf, None), (0.0, 1.1)):
        trials = TrialCount(mean=10, shape=shape)
        search = GaussianSearch(trials=trials, mu=0.2, density_ratio=ratio)
        for delta in (1e-3, 1e-5, 1e-8):
            epsilon = search.epsilon(delta)
            assert search.delta(epsilon) <= delta * (1 + 1e-6)
            assert search.delta(epsilon * 0.999) > delta
        orders = np.array([2.0, 3.0, 50.0])
        values = search.renyi(orders)
        assert np.all(values >= RenyiCurve.gaussian(0.2, also=orders).values.min())
        for order, value in zip(orders, values, strict=True):
            by_order = value + math.log1p(-1 / order) - math.log(DELTA * order) / (order - 1)
            assert search.epsilon(DELTA) <= by_order


# --- Events, ledgers and statements -----------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        both(0.1, 0.2, 0.1),
        both(stopping(0.1), Composition(parts=(gaussian(0.1), NoisyCount(noise=50.0))), 0.5, False),
        both(
            RandomStopping(
                trial=Composition(parts=(gaussian(0.1), NoisyCount(noise=50.0))),
                expected_trials=4.5,
                distribution="negative-binomial",
                shape=0.5,
                density_ratio=1.1,
            ),
            PrivateMean(noise_multiplier=9.0),
            0.25,
        ),
    ],
)
def test_subset_searches_survive_json_and_a_ledger(event: SubsetSearch, tmp_path: Path) -> None:
    plain = json.loads(json.dumps(event_to_dict(event)))
    assert next(iter(plain)) == "kind"
    assert event_from_dict(plain) == event
    assert accounting.price(event_from_dict(plain), slack=1e-8) == accounting.price(
        event, slack=1e-8
    )
    address = str(tmp_path / "ledger.db")
    receipt = new_ledger(address, Budget(3.0, DELTA)).reserve(
        event, purpose="search and final run", fingerprint=ROWS
    )
    again = Ledger.open(address)
    assert again.receipt(receipt.payment) == receipt
    assert again.state().spent_epsilon == epsilon_of(event)


@pytest.mark.parametrize(
    "make",
    [
        lambda: both(0.1, 0.1, 0.0),
        lambda: both(0.1, 0.1, 1.0),
        lambda: both(0.1, 0.1, math.nan),
        lambda: both("a search", 0.1, 0.5),  # type: ignore[arg-type]
        lambda: both(0.1, "a run", 0.5),  # type: ignore[arg-type]
        lambda: both(0.1, 0.1, 0.5, "True"),  # type: ignore[arg-type]
    ],
)
def test_invalid_subset_searches_are_refused(make: Callable[[], SubsetSearch]) -> None:
    with pytest.raises(InvalidInput, match=r"must|made of"):
        make()


def test_a_record_that_lacks_a_field_is_refused() -> None:
    plain = event_to_dict(both(0.1, 0.1, 0.5))
    for name in ("search", "final", "sampling_rate", "disjoint"):
        with pytest.raises(UnpricedEvent, match="does not have these fields"):
            event_from_dict({key: value for key, value in plain.items() if key != name})


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (both(SAMPLED, 0.1, 0.1), "got a sampled-run"),
        (both(0.1, SAMPLED, 0.1), "got a sampled-run"),
        (both(RandomStopping(trial=SAMPLED, expected_trials=3), 0.1, 0.1), "got a sampled-run"),
        (both(0.1, stopping(0.1), 0.1), "got a random-stopping"),
        (both(Composition(parts=(stopping(0.1), gaussian(0.1))), 0.1, 0.1), "a random-stopping"),
        (both(both(0.1, 0.1, 0.1), 0.1, 0.1), "got a subset-search"),
        (both(RandomStopping(trial=stopping(0.1), expected_trials=3), 0.1, 0.1), "not contain"),
    ],
)
def test_subset_search_refuses_sampled_and_nested_parts(event: SubsetSearch, words: str) -> None:
    for price in (
        lambda: accounting.price(event, slack=1e-8),
        lambda: accounting.sealed_bound(event, DELTA),
        lambda: accounting.rdp_epsilon([event], DELTA),
    ):
        with pytest.raises(UnpricedEvent):
            price()
    with pytest.raises(UnpricedEvent, match=words):
        accounting.sealed_bound(event, DELTA)


def test_other_accountants_do_not_take_a_subset_search() -> None:
    event = both(0.1, 0.1, 0.1)
    with pytest.raises(UnpricedEvent, match="Use sealed_bound"):
        accounting.rdp_epsilon([event], DELTA)
    with pytest.raises(UnpricedEvent, match="no accountant"):
        accounting.direct_epsilon([event], DELTA)
    with pytest.raises(UnpricedEvent, match="may not contain a subset-search"):
        accounting.sealed_bound(RandomStopping(trial=event, expected_trials=3), DELTA)
    with pytest.raises(InvalidInput, match="slack above 0"):
        accounting.price(event)
    assert accounting.needs_slack(Composition(parts=(event, gaussian(0.1), event))) == 2


def test_parts_may_be_several_gaussian_events() -> None:
    several = Composition(parts=(gaussian(0.06), PrivateMean(noise_multiplier=1 / 0.08)))
    whole = epsilon_of(both(several, several, 0.3))
    assert whole == pytest.approx(epsilon_of(both(0.1, 0.1, 0.3)), rel=1e-9)
    once = both(Composition(parts=(stopping(0.1),)), 0.1, 0.3)
    assert epsilon_of(once) == epsilon_of(both(stopping(0.1), 0.1, 0.3))


def test_a_subset_search_alone_counts_by_its_own_bound(tmp_path: Path) -> None:
    ledger = new_ledger(str(tmp_path / "ledger.db"), Budget(1.0, DELTA))
    event = both(0.5361, 0.26805, 0.1)
    paid = ledger.reserve(event, purpose="search and final run", fingerprint=ROWS).price
    assert ledger.state().spent_epsilon == epsilon_of(event)
    assert epsilon_of(event) < accounting.epsilon(paid, DELTA) < 1.01 * epsilon_of(event)
    assert accounting.fits([event], paid, Budget(0.934, DELTA), paid.slack)
    assert not accounting.fits([event], paid, Budget(0.933, DELTA), paid.slack)
    ledger.reserve(gaussian(0.01), purpose="one more", fingerprint=ROWS)
    with pytest.raises(BudgetExceeded):
        ledger.reserve(gaussian(0.2), purpose="too much", fingerprint=ROWS)
    # In company a Gaussian stands for it, above every point of its own profile.
    for delta in np.geomspace(paid.slack, 1e-3, 20):
        epsilon = epsilon_of(event, float(delta))
        covered = paid.slack + (1 - paid.slack) * gdp.delta_from_mu(paid.mu, epsilon)
        assert delta <= covered * (1 + 1e-9)


def test_guarantee_of_subset_search_names_secrets() -> None:
    def say(*events: Event) -> Guarantee:
        return accounting.guarantee(
            events, DELTA, covers_search=True, covers_selection=True, releases=("a model",)
        )

    plain = say(both(0.5361, 0.26805, 0.1))
    notes = " ".join(plain.caveats)
    assert plain.epsilon == epsilon_of(both(0.5361, 0.26805, 0.1))
    assert plain.accountant.endswith("a final run on the other rows")
    assert "rate 0.1" in plain.sampler and "all the others in every step" in plain.sampler
    assert "its size stay secret" in notes and "number of trials" not in notes
    assert "(Renyi DP, Koskela & Kulkarni 2023) is epsilon 1.0441" in notes

    event = both(stopping(0.2), 0.2, 0.1, False)
    sealed = say(event)
    notes = " ".join(sealed.caveats)
    assert sealed.accountant.endswith("a final run on all rows")
    assert "its size stay secret" in notes and "the losing trials" in notes

    company = say(event, gaussian(0.01))
    assert "each sealed search" in company.accountant
    assert any("loose" in note for note in company.caveats)
    assert company.epsilon > sealed.epsilon
    assert "all rows in every step (full batch)" in company.sampler


@pytest.mark.parametrize("disjoint", [True, False])
def test_replace_one_covers_two_rows_of_any_effect(disjoint: bool) -> None:
    """The row and the one in its place push either part in opposite directions."""
    first, second, rate, delta = 0.5, 0.3, 0.3, 1e-4
    event = both(first, second, rate, disjoint)
    stated = accounting.guarantee(
        [event], delta, covers_search=True, covers_selection=True, releases=("a model",)
    ).replace_one_epsilon

    ends = np.concatenate([[-np.inf], np.linspace(-8, 8, 599), [np.inf]])

    def law(shift: float) -> np.ndarray:
        return np.diff(norm.cdf(ends - shift))

    laws = [
        released(rate, disjoint, (law(0), law(sign * first)), (law(0), law(sign * second)))[1]
        for sign in (1, -1)
    ]
    assert worse_epsilon(*laws, delta) <= stated
    assert stated <= 2.5 * epsilon_of(event, delta)


# --- Calibration ------------------------------------------------------------------------------


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize("disjoint", [True, False])
def test_a_subset_search_is_calibrated_to_its_budget(published: bool, disjoint: bool) -> None:
    def at(mu: float) -> SubsetSearch:
        return both(stopping(mu, 8, "logarithmic"), mu, 0.2, disjoint)

    mu = accounting.calibrate_sealed(at, Budget(1.0, DELTA), published=published)

    def cost(mu: float) -> float:
        found = accounting.sealed_bound(at(mu), DELTA)
        return found.published if published else found.epsilon

    assert cost(mu) <= 1.0 < cost(mu * (1 + 1e-4))
