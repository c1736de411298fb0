"""Zeroth-order runs and counts of sampled rows: their prices, each by two derivations."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import dp_event, pld
from scipy.special import ndtr

from dptune import Budget, Ledger, accounting
from dptune.accounting.split import score_counts
from dptune.errors import UnpricedEvent
from dptune.privacy import (
    Composition,
    Event,
    FullBatchRun,
    NoisyCount,
    Parallel,
    RandomStopping,
    SampledRun,
    SubsetSearch,
    ZerothOrderRun,
)
from support.ledgers import ROWS, new_ledger

DELTA, SLACK = 1e-5, 1e-8
FULL = ZerothOrderRun(steps=40, noise_multiplier=25.0, directions=3)
SAMPLED = ZerothOrderRun(steps=300, noise_multiplier=1.2, sampling_rate=0.02)
COUNTS = NoisyCount(counts=3, noise=4.0, centered=True, sampling_rate=0.1)


def by_pld(noise: float, rate: float | None, steps: int) -> float:
    """Epsilon of scalar Gaussians of sensitivity 1, by dp-accounting."""
    step: dp_event.DpEvent = dp_event.GaussianDpEvent(noise)
    if rate is not None:
        step = dp_event.PoissonSampledDpEvent(rate, step)
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    return float(accountant.compose(step, steps).get_epsilon(DELTA))


def test_a_zeroth_order_run_of_full_batches_is_a_gaussian_by_formula_and_by_pld() -> None:
    paid = accounting.price(FULL)
    assert paid.mu_squared == pytest.approx(40 / 25.0**2, rel=1e-14)
    assert paid.mu_squared >= 40 / 25.0**2 and paid.slack == 0
    assert accounting.epsilon(paid, DELTA) == pytest.approx(by_pld(25.0, None, 40), rel=1e-3)


def test_price_of_sampled_zeroth_order_run_matches_pld_of_scalar_gaussian() -> None:
    assert accounting.direct_epsilon([SAMPLED], DELTA) == pytest.approx(
        by_pld(1.2, 0.02, 300), rel=1e-3
    )
    # And what a run of sampled gradients does, which other tests derive.
    gradients = SampledRun(steps=300, noise_multiplier=1.2, sampling_rate=0.02)
    assert accounting.price(SAMPLED, slack=SLACK) == accounting.price(gradients, slack=SLACK)
    assert accounting.needs_slack(SAMPLED) == 1 and accounting.needs_slack(FULL) == 0


@pytest.mark.parametrize("directions", [1, 2, 50])
def test_directions_cost_nothing_because_they_are_clipped_together(directions: int) -> None:
    more = ZerothOrderRun(steps=40, noise_multiplier=25.0, directions=directions)
    assert accounting.price(more) == accounting.price(FULL)


def sensitivity(counts: int, centered: bool) -> float:
    """By trying everything that one row can add, at the corners and between them."""
    votes = np.array(list(itertools.product([0, 0.5, 1], repeat=counts)))
    moved = votes - votes.mean(axis=1, keepdims=True) if centered else votes
    return float(np.linalg.norm(moved, axis=1).max())


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize(("counts", "rate"), [(2, 0.3), (3, 0.1), (5, 0.01)])
def test_counts_of_a_sample_cost_one_sampled_step_of_their_sensitivity(
    counts: int, rate: float, centered: bool
) -> None:
    noise = 0.7 * sensitivity(counts, centered)
    event = NoisyCount(counts=counts, noise=noise, centered=centered, sampling_rate=rate)
    assert accounting.direct_epsilon([event], DELTA) == pytest.approx(
        by_pld(0.7, rate, 1), rel=1e-3
    )


def test_the_price_of_counts_of_a_sample_dominates_their_exact_curve() -> None:
    """One sampled step has a curve in closed form, N(0, 1) against a mixture, both ways."""
    rate, shift = 0.1, sensitivity(3, True) / 4.0
    paid = accounting.price(COUNTS, slack=SLACK)
    assert paid.slack == SLACK
    thresholds = np.linspace(-6, 8, 4001)
    null, shifted = ndtr(-thresholds), ndtr(shift - thresholds)
    mixture = (1 - rate) * null + rate * shifted
    closest = math.inf
    for epsilon in np.linspace(0, 0.6, 13):
        joins = (mixture - math.exp(epsilon) * null).max()
        leaves = ((1 - null) - math.exp(epsilon) * (1 - mixture)).max()
        allowed = SLACK + (1 - SLACK) * _gaussian_delta(paid.mu, epsilon)
        assert max(joins, leaves) <= allowed * (1 + 1e-9) + 1e-15
        closest = min(closest, allowed / max(joins, leaves, 1e-300))
    assert closest < 1.5  # and is not far above it somewhere


def _gaussian_delta(mu: float, epsilon: float) -> float:
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


def test_a_sample_of_the_rows_costs_less_than_all_of_them() -> None:
    whole = NoisyCount(counts=3, noise=4.0, centered=True)
    assert accounting.price(COUNTS, slack=SLACK).mu < 0.5 * accounting.price(whole).mu
    nearly = NoisyCount(counts=3, noise=4.0, centered=True, sampling_rate=1 - 1e-9)
    exact = accounting.price(whole).mu
    assert accounting.price(nearly, slack=SLACK).mu == pytest.approx(exact, rel=1e-3)


def test_a_centred_count_alone_says_nothing_of_a_sample_either() -> None:
    alone = NoisyCount(noise=1.0, centered=True, sampling_rate=0.1)
    assert accounting.price(alone).mu_squared == 0


@pytest.mark.parametrize("rate", [0.5, 0.1, 0.01])
@pytest.mark.parametrize("mu", [0.02, 0.3])
def test_sampled_scores_cost_at_most_their_share(rate: float, mu: float) -> None:
    event = score_counts(3, mu * mu, rate, SLACK)
    assert event is not None and event.sampling_rate == rate and event.centered
    paid = accounting.price(event, slack=SLACK)
    assert paid.mu_squared <= mu * mu
    if event.noise > 0.11:  # less than a tenth is never taken
        assert paid.mu == pytest.approx(mu, rel=2e-4)
    # What noise does to a score, which is divided by the rate, is not much more than it was.
    whole = score_counts(3, mu * mu)
    assert whole is not None and event.noise < whole.noise


def test_other_accountants_see_the_same_run() -> None:
    """Compositions, Renyi DP, company and words."""
    pairs: list[tuple[Event, Event]] = [
        (FULL, FullBatchRun(steps=40, noise_multiplier=25.0)),
        (SAMPLED, SampledRun(steps=300, noise_multiplier=1.2, sampling_rate=0.02)),
    ]
    for ours, gradients in pairs:
        both, plain = (Composition(parts=(one, FULL)) for one in (ours, gradients))
        assert accounting.rdp_epsilon([both], DELTA) == pytest.approx(
            accounting.rdp_epsilon([plain], DELTA), rel=1e-12
        )
        assert accounting.direct_epsilon([both], DELTA) == accounting.direct_epsilon([plain], DELTA)
        search, same = (RandomStopping(trial=one, expected_trials=5.0) for one in (ours, gradients))
        bounds = [accounting.sealed_bound(one, DELTA).epsilon for one in (search, same)]
        assert bounds[0] == bounds[1]
        said = accounting.guarantee(
            [ours], DELTA, covers_search=None, covers_selection=None, releases=()
        )
        alike = accounting.guarantee(
            [gradients], DELTA, covers_search=None, covers_selection=None, releases=()
        )
        assert said == alike
    subset = SubsetSearch(search=FULL, final=FULL, sampling_rate=0.1, disjoint=True)
    assert accounting.sealed_bound(subset, DELTA).epsilon > 0
    beside = accounting.price(Parallel(parts=(FULL, FullBatchRun(steps=1, noise_multiplier=99.0))))
    assert beside.mu_squared == pytest.approx(accounting.price(FULL).mu_squared, rel=1e-12)


def test_rows_enter_a_sampled_count_by_a_sample() -> None:
    said = accounting.guarantee(
        [COUNTS], DELTA, covers_search=None, covers_selection=None, releases=()
    )
    assert said.sampler == "Poisson sampling at rate 0.1"


def test_parallel_event_refuses_sampled_parts() -> None:
    for part in (SAMPLED, COUNTS):
        with pytest.raises(UnpricedEvent):
            accounting.price(Parallel(parts=(FULL, part)), slack=SLACK)


@pytest.mark.parametrize("event", [FULL, SAMPLED, COUNTS], ids=repr)
def test_ledger_stores_sampled_counts(event: Event, tmp_path: object) -> None:
    address = f"{tmp_path}/l.db"
    ledger = new_ledger(address, Budget(8.0, DELTA))
    slack = SLACK if accounting.needs_slack(event) else None
    receipt = ledger.reserve(event, purpose="run", fingerprint=ROWS, slack=slack)
    ledger.start(receipt)
    ledger.settle_all([receipt])
    state = Ledger.open(address).state()
    assert [payment.event for payment in state.payments] == [event]
    assert state.spent == accounting.price(event, slack=slack or 0.0)
