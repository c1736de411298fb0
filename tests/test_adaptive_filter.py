"""Whoever sees outputs may choose what to pay for next; whatever is chosen, the budget holds.

The adversary here runs something, looks, and goes on in one of two ways. The delta of the whole
strategy is integrated exactly: the privacy profile of the second part, at what the first output
leaves of epsilon, averaged over that output.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import ndtr

from dptune import Budget, Ledger, accounting
from dptune.errors import BudgetExceeded
from dptune.ledger import chain
from dptune.privacy import FullBatchRun, SampledRun
from support.ledgers import ROWS, new_ledger
from support.old_ledgers import write_old_ledger

Array = NDArray[np.float64]
Profile = Callable[[Array], Array]  # delta at every epsilon, negative ones included
BUDGET = Budget(1.0, 1e-5)


def gaussian(mu: float) -> Profile:
    if mu == 0:
        return lambda epsilon: np.maximum(0.0, -np.expm1(epsilon))
    return lambda epsilon: (
        ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
    )


@dataclass(frozen=True)
class SampledStep:
    """One Poisson-sampled step: with the row, its noise is a mixture; `added` swaps the two."""

    rate: float
    noise: float
    added: bool

    def then(self, after: Profile) -> Profile:
        """The profile of this step and, whatever it shows, of what comes after."""
        z = np.linspace(-9, 9 + 1 / self.noise, 601)
        weight = np.gradient(z) / math.sqrt(2 * math.pi)
        without = weight * np.exp(-z * z / 2)
        shifted = weight * np.exp(-((z - 1 / self.noise) ** 2) / 2)
        present = (1 - self.rate) * without + self.rate * shifted
        upper, lower = (without, present) if self.added else (present, without)
        loss = np.log(np.maximum(upper, 1e-300)) - np.log(np.maximum(lower, 1e-300))

        def profile(epsilon: Array) -> Array:
            found: Array = after(epsilon[:, None] - loss) @ upper
            return found

        return profile


def exact_delta(first_mu: float, split: float, low: Profile, high: Profile) -> float:
    """Of a Gaussian release that goes on as `low` or `high`, by which side of `split` it fell on;
    the row moves it up (first_mu > 0) or down."""
    z = np.linspace(-9 - abs(first_mu), 9 + abs(first_mu), 1201)
    weight = np.gradient(z) * np.exp(-((z - first_mu) ** 2) / 2) / math.sqrt(2 * math.pi)
    left = BUDGET.epsilon - (first_mu * z - first_mu**2 / 2)
    below = z < split
    return float(weight[below] @ low(left[below]) + weight[~below] @ high(left[~below]))


def worst(
    first_mu: float, split: float, mu: float, rate: float, noise: float, more: float
) -> float:
    """The larger delta of a row that leaves and one that joins: below the split a run of `mu`,
    above it a sampled step and a run of `more`."""
    return max(
        exact_delta(
            sign * first_mu,
            split,
            gaussian(mu),
            SampledStep(rate, noise, added).then(gaussian(more)),
        )
        for sign in (1, -1)
        for added in (False, True)
    )


def run_of(mu: float) -> FullBatchRun:
    return accounting.calibrate_full_batch(mu=mu, steps=1)


def pays(ledger: Ledger, *events: tuple[FullBatchRun | SampledRun, float | None]) -> None:
    for event, slack in events:
        ledger.reserve(event, purpose="run", fingerprint=ROWS, slack=slack)


SEEN, IF_HIGH, ELSE = (
    0.23670,
    0.12579,
    SampledRun(steps=1, noise_multiplier=0.1, sampling_rate=8.73e-6),
)


def test_the_strategy_that_broke_the_budget_is_worth_nearly_twice_its_delta() -> None:
    """Also a check of this file's integration: the figure was found independently."""
    splits = np.linspace(-4, 6, 41)
    found = max(
        worst(SEEN, split, IF_HIGH, ELSE.sampling_rate, ELSE.noise_multiplier, 0.0)
        for split in splits
    )
    assert found == pytest.approx(1.857e-5, rel=2e-2)
    assert found <= 2 * BUDGET.delta


def test_what_one_branch_spends_in_mu_the_other_cannot_spend_in_slack(tmp_path: Path) -> None:
    ledgers = [new_ledger(str(tmp_path / name), BUDGET) for name in ("high.db", "else.db")]
    for ledger in ledgers:
        pays(ledger, (run_of(SEEN), None))
    pays(ledgers[0], (run_of(0.99 * IF_HIGH), None))
    with pytest.raises(BudgetExceeded, match="fixed when a ledger is opened"):
        pays(ledgers[1], (ELSE, 9e-6))


@settings(max_examples=12)
@given(
    first=st.floats(0.05, 0.95),
    split=st.floats(-3, 4),
    slack=st.sampled_from([2e-7, 1e-6, 5e-6]),
    noise=st.sampled_from([0.1, 0.3]),
)
def test_no_strategy_that_a_ledger_admits_exceeds_its_budget(
    first: float, split: float, slack: float, noise: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Both branches use up all that is left of either limit."""
    folder = tmp_path_factory.mktemp("filter")
    ledgers = []
    for name in ("low.db", "high.db"):
        ledger = Ledger.create(
            str(folder / name), BUDGET, dataset="patients", fingerprint=ROWS, slack=slack
        )
        ledgers.append(ledger)
    seen = first * ledgers[0].remaining().mu
    for ledger in ledgers:
        pays(ledger, (run_of(seen), None))
    low, high = ledgers
    only = low.remaining().mu * (1 - 1e-12)
    pays(low, (run_of(only), None))
    sampled = SampledRun(steps=1, noise_multiplier=noise, sampling_rate=0.97 * slack)
    pays(high, (sampled, slack))
    more = high.remaining().mu * (1 - 1e-12)
    pays(high, (run_of(more), None))
    found = worst(seen, split, only, sampled.sampling_rate, noise, more)
    assert found <= BUDGET.delta * (1 + 1e-6)
    assert found > 0.2 * BUDGET.delta  # no strategy of straw


def test_ledger_of_format_1_states_doubled_delta(tmp_path: Path) -> None:
    """Opened without a sum of failure probabilities, as ledgers once were, it takes no more of
    them, and what it promises for adaptive use is twice its delta."""
    sampled = SampledRun(steps=100, noise_multiplier=8.0, sampling_rate=0.01)
    write_old_ledger(
        str(tmp_path / "l.db"),
        format=1,
        budget=BUDGET,
        fingerprint=ROWS,
        payments=[("run", sampled, accounting.price(sampled, slack=1e-8))],
    )
    ledger = Ledger.open(str(tmp_path / "l.db"))
    state = ledger.state()
    assert state.opened_slack is None and state.slack == 1e-8
    with pytest.raises(BudgetExceeded, match=r"failure probability of 1\.00e-8"):
        pays(ledger, (sampled, 1e-8))
    pays(ledger, (run_of(0.1), None))
    receipt = ledger.exchange(ledger.receipt(1), sampled)  # what it has, it keeps
    assert receipt.price.slack == 1e-8
    assert "promise the budget instead: (1, 2e-05)" in ledger.state().guarantee().in_words()
    with pytest.raises(BudgetExceeded, match=r"failure probability of 1\.00e-8"):
        ledger.change_budget(Budget(1.0, 1e-8), reason="a delta that its slack uses up")


def test_a_budget_lowered_to_what_was_spent_is_no_promise(tmp_path: Path) -> None:
    """Whoever stops when the loss is bad, and then lowers the budget, has fixed nothing."""
    ledger = new_ledger(str(tmp_path / "l.db"), Budget(8.0, 1e-5))
    pays(ledger, (run_of(0.03), None))
    ledger.change_budget(Budget(0.1, 1e-5), reason="enough")
    assert "promise the budget instead: (8, 1e-05)" in ledger.state().guarantee().in_words()


def test_older_versions_do_not_open_a_ledger_whose_rule_they_do_not_know(ledger: Ledger) -> None:
    """They knew formats 1 and 2 alone, and the entry that says so they could read."""
    with ledger._store.reading() as connection:
        (first,) = connection.execute(sa.select(chain.entries.c.event).limit(1)).one()
    assert json.loads(first)["format"] == 3
