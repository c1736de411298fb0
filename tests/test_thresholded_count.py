"""Counts of secret names with a threshold: their price, by formula and by the exact curve."""

import math

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from dptune import Budget, accounting, gdp
from dptune.accounting.composition import slack_of_threshold
from dptune.cli.ledger_screen import _event as in_words
from dptune.errors import BudgetExceeded, InvalidInput, UnpricedEvent
from dptune.ledger import Ledger
from dptune.privacy import (
    Composition,
    FullBatchRun,
    NoisyCount,
    NoisyRanks,
    Parallel,
    RandomStopping,
    SampledRun,
    SubsetSearch,
    ThresholdedCount,
)

RUN = FullBatchRun(steps=1, noise_multiplier=9.0)
NAMES = ThresholdedCount(counts=3, noise=40.0, threshold=250.0)
EPSILONS = [0.0, 0.01, 0.1, 0.5, 1.0, 3.0]


def exact_delta(event: ThresholdedCount, rows: int, epsilon: float, *, leaves: bool) -> float:
    """Of one histogram, where a name is shared by `rows` rows and one of them leaves (or joins):
    P is everything above the threshold with its density, and one lump for "not released"."""
    noise, threshold = event.noise, event.threshold

    def shown(count: int) -> float:
        return float(norm.sf(threshold, count, noise)) if count else 0.0

    def density(count: int, value: float) -> float:
        return float(norm.pdf(value, count, noise)) if count else 0.0

    one, other = (rows, rows - 1) if leaves else (rows - 1, rows)
    factor = math.exp(epsilon)
    lump = max(0.0, (1 - shown(one)) - factor * (1 - shown(other)))
    # With which sign the densities differ changes at one point.
    middle = (one + other) / 2 + epsilon * noise**2 * (1 if leaves else -1)
    ends = (max(threshold, middle), math.inf) if leaves else (threshold, max(threshold, middle))
    if rows == 1:
        ends = (threshold, math.inf)
    beyond, _ = quad(
        lambda v: max(0.0, density(one, v) - factor * density(other, v)),
        ends[0],
        min(ends[1], rows + 40 * noise + threshold),
        epsabs=1e-15,
        limit=400,
    )
    return lump + float(beyond)


@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize("rows", [1, 2, 3, 10, 40])
def test_the_price_bounds_the_exact_curve_whatever_the_name_counts(rows: int, leaves: bool) -> None:
    event = ThresholdedCount(noise=4.0, threshold=12.0)
    price = accounting.price(event)
    for epsilon in EPSILONS:
        exact = exact_delta(event, rows, epsilon, leaves=leaves)
        bound = price.slack + (1 - price.slack) * gdp.delta_from_mu(price.mu, epsilon)
        assert exact <= bound + 1e-12
    if rows == 1 and leaves:  # nothing but the slack is missing, at every epsilon
        exact = exact_delta(event, 1, 3.0, leaves=True)
        assert exact == pytest.approx(price.slack, rel=1e-6)
    if rows == 40:  # far above the threshold all is seen: the Gaussian is what it costs
        exact = exact_delta(event, rows, 0.1, leaves=leaves)
        assert exact == pytest.approx(gdp.delta_from_mu(price.mu, 0.1), rel=1e-6)


@pytest.mark.parametrize("alone", [0, 1, 2, 3])
def test_several_histograms_add_up_however_many_names_are_alone(alone: int) -> None:
    """A row with `alone` names of its own and others that many rows have: the exact curve of all
    three histograms together is below the price."""
    event = ThresholdedCount(counts=3, noise=40.0, threshold=200.0)
    price = accounting.price(event)
    shown = float(norm.sf((event.threshold - 1) / event.noise))
    failure = 1 - (1 - shown) ** alone
    mu = math.sqrt(3 - alone) / event.noise
    for epsilon in EPSILONS:
        exact = failure + (1 - failure) * (gdp.delta_from_mu(mu, epsilon) if mu else 0.0)
        assert exact <= price.slack + (1 - price.slack) * gdp.delta_from_mu(price.mu, epsilon)


@pytest.mark.parametrize(
    ("counts", "noise", "threshold"),
    [(1, 40.0, 250.0), (7, 3.7, 20.1), (1, 0.3, 11.0), (1000, 83.0, 1.5), (1, 1e-3, 2.0)],
)
def test_the_slack_is_the_tail_with_fifty_digits_and_never_below(
    counts: int, noise: float, threshold: float
) -> None:
    event = ThresholdedCount(counts=counts, noise=noise, threshold=threshold)
    with mpmath.workdps(50):
        beyond = (mpmath.mpf(threshold) - 1) / mpmath.mpf(noise)
        tail = counts * mpmath.erfc(beyond / mpmath.sqrt(2)) / 2
        assert slack_of_threshold(event) >= min(tail, 1)
    if 1e-300 < tail < 1:
        assert slack_of_threshold(event) == pytest.approx(float(tail), rel=1e-9)


def test_mu_squared_is_that_of_noisy_counts_and_ranks() -> None:
    mu_squared = accounting.price(NoisyCount(counts=3, noise=40.0)).mu_squared
    assert mu_squared == pytest.approx(3 / 1600, rel=1e-14) and mu_squared >= 3 / 1600
    assert accounting.price(NAMES).mu_squared == mu_squared
    assert accounting.price(NoisyRanks(columns=3, noise=40.0)).mu_squared == mu_squared
    assert accounting.price(NoisyRanks(columns=3, noise=40.0)).slack == 0


def test_prices_of_parts_add_and_slack_given_for_runs_is_theirs_alone() -> None:
    sampled = SampledRun(steps=3, noise_multiplier=9.0, sampling_rate=0.1)
    both = accounting.price(Composition(parts=(NAMES, sampled)), slack=1e-8)
    assert both.slack == pytest.approx(1e-8 + slack_of_threshold(NAMES), rel=1e-12)
    alone = accounting.price(sampled, slack=1e-8)
    expected = alone.mu_squared + accounting.price(NAMES).mu_squared
    assert both.mu_squared == pytest.approx(expected, rel=1e-12)


def test_direct_composition_takes_the_slack_off_delta() -> None:
    delta, slack = 1e-5, slack_of_threshold(NAMES)
    counts = NoisyCount(counts=3, noise=40.0)
    for beside in (RUN, SampledRun(steps=3, noise_multiplier=9.0, sampling_rate=0.1)):
        left = (delta - slack) / (1 - slack)
        expected = accounting.direct_epsilon([counts, beside], left)
        found = accounting.direct_epsilon([Composition(parts=(NAMES,)), beside], delta)
        assert found == pytest.approx(expected, rel=1e-9)
        assert found > accounting.direct_epsilon([counts, beside], delta)
    with pytest.raises(InvalidInput, match="uses up delta"):
        accounting.direct_epsilon([NAMES], slack / 2)


@pytest.mark.parametrize(
    "event",
    [
        RandomStopping(trial=NAMES, expected_trials=5.0),
        SubsetSearch(search=NAMES, final=RUN, sampling_rate=0.1, disjoint=True),
        SubsetSearch(search=RUN, final=NAMES, sampling_rate=0.1, disjoint=True),
        Parallel(parts=(NAMES, RUN)),
    ],
)
def test_thresholded_count_in_other_events_has_no_price(event: object) -> None:
    with pytest.raises(UnpricedEvent):
        accounting.price(event, slack=1e-8)  # type: ignore[arg-type]
    with pytest.raises(UnpricedEvent):
        accounting.rdp_epsilon([NAMES], 1e-5)


@pytest.mark.parametrize("counts", [1, 7])
@pytest.mark.parametrize("mu", [0.01, 0.3])
def test_calibration_spends_what_it_may_and_no_more(mu: float, counts: int) -> None:
    event = accounting.calibrate_thresholded(mu=mu, slack=1e-8, counts=counts)
    price = accounting.price(event)
    assert mu**2 * (1 - 1e-9) < price.mu_squared <= mu**2
    assert 0.999 * 1e-8 < price.slack <= 1e-8


def test_a_ledger_takes_the_slack_from_what_it_set_aside(tmp_path: object) -> None:
    ledger = Ledger.create(
        f"{tmp_path}/ledger.db", Budget(1.0, 1e-5), dataset="d", fingerprint="f", slack=2e-7
    )
    event = accounting.calibrate_thresholded(mu=0.05, slack=1.5e-7, counts=2)
    paid = ledger.reserve(event, purpose="names", fingerprint="f")
    assert paid.price == accounting.price(event)
    assert ledger.remaining().slack == pytest.approx(2e-7 - paid.price.slack)
    with pytest.raises(BudgetExceeded, match="failure probability"):
        ledger.reserve(event, purpose="more names", fingerprint="f")
    (payment,) = Ledger.open(f"{tmp_path}/ledger.db").state().payments
    assert payment.event == event
    ranks = NoisyRanks(columns=2, noise=50.0)
    words = in_words(Composition(parts=(payment.event, ranks)))
    assert "2 noisy counts of names" in words and "noisy ranks in 2 columns" in words


def test_the_statement_names_the_failure() -> None:
    promise = accounting.guarantee(
        [NAMES, RUN], 1e-5, covers_search=None, covers_selection=None, releases=()
    )
    assert promise.slack == slack_of_threshold(NAMES)
    assert "threshold" in promise.accountant
    without = accounting.guarantee(
        [NoisyCount(counts=3, noise=40.0), RUN],
        1e-5,
        covers_search=None,
        covers_selection=None,
        releases=(),
    )
    assert promise.epsilon > without.epsilon and "threshold" not in without.accountant


@pytest.mark.parametrize(
    "wrong",
    [
        {"counts": 0, "noise": 1.0, "threshold": 5.0},
        {"noise": 0.0, "threshold": 5.0},
        {"noise": 1.0, "threshold": 1.0},
        {"noise": 1.0, "threshold": math.inf},
        {"noise": np.nan, "threshold": 5.0},
    ],
)
def test_invalid_counts_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match="must be"):
        ThresholdedCount(**wrong)  # type: ignore[arg-type]
