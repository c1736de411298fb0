"""What is fixed before the first output is seen may be composed directly, which is tighter for
sampled runs; and only that."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import dp_accounting
import pytest
from dp_accounting import pld

from dptune import (
    Budget,
    Data,
    Ledger,
    LinearScaling,
    RandomSearch,
    Space,
    UnitNoise,
    accounting,
    resume,
    tune,
)
from dptune.data.rows import DataFacts
from dptune.errors import BudgetExceeded, InvalidInput
from dptune.privacy import Event, FullBatchRun, NoisyCount, SampledRun
from dptune.search.base import SearchMethod
from dptune.study.outline import Outline
from support.ledgers import ROWS, new_ledger
from support.rows import make_data
from support.studies import a_config

BUDGET = Budget(8.0, 1e-5)
RUN = SampledRun(steps=200, noise_multiplier=0.8, sampling_rate=0.02)
COUNT = NoisyCount(noise=20.0)


def planned(search: SearchMethod, ledger: str = "", **space: Any) -> Outline:
    config = a_config(
        budget=BUDGET,
        search=search,
        space=Space(**space),
        recipe={"sampling_rate": 0.02},
        ledger=ledger,
    )
    return Outline(config, DataFacts(5000, (16,), 1, 3, "softmax"), reused=False)


def epsilon_by_dp_accounting(events: list[Event]) -> float:
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    for event in events:
        accountant.compose(_theirs(event))
    return float(accountant.get_epsilon(BUDGET.delta))


def _theirs(event: Event) -> dp_accounting.DpEvent:
    if isinstance(event, SampledRun):
        step = dp_accounting.GaussianDpEvent(event.noise_multiplier)
        sampled = dp_accounting.PoissonSampledDpEvent(event.sampling_rate, step)
        return dp_accounting.SelfComposedDpEvent(sampled, event.steps)
    return dp_accounting.GaussianDpEvent(accounting.price(event).mu_squared ** -0.5)


@pytest.mark.parametrize("search", [LinearScaling(), UnitNoise(), RandomSearch(trials=2)], ids=str)
def test_a_study_that_knows_its_runs_uses_its_budget_and_no_more(search: SearchMethod) -> None:
    outline = planned(search, steps=(100, 100))
    events = [event for _, event in outline.payments]
    assert outline.fixed
    assert outline.epsilon <= BUDGET.epsilon
    assert epsilon_by_dp_accounting(events) == pytest.approx(BUDGET.epsilon, rel=2e-3)
    alone = planned(search, ledger="/elsewhere.db", steps=(100, 100))
    assert not alone.fixed
    last, other = (outline.payments[-1][1], alone.payments[-1][1])
    if isinstance(last, SampledRun) and isinstance(other, SampledRun):
        assert last.noise_multiplier < 0.99 * other.noise_multiplier
        assert replace(last, noise_multiplier=1) == replace(other, noise_multiplier=1)


def test_whose_steps_depend_on_outputs_is_not_fixed() -> None:
    assert not planned(RandomSearch(trials=2), steps=(5, 200)).fixed
    assert planned(LinearScaling(), steps=(5, 200)).fixed  # it takes the most
    assert planned(LinearScaling(), steps=(5, 200)).space.steps == (200, 200)


def study(folder: Path, data: Data, **asked: Any) -> Any:
    return tune(data, budget=BUDGET, recipe={"sampling_rate": 0.2}, out=folder, **asked)


def test_a_sampled_study_runs_exactly_what_it_fixed(tmp_path: Path) -> None:
    data = make_data()
    result = study(tmp_path / "run", data, space=Space(steps=(5, 20)))
    state = Ledger.open(str(tmp_path / "run" / "ledger.db")).state()
    assert state.fixed and not any(p.state == "exchanged" for p in state.payments)
    assert {payment.event.steps for payment in state.payments if _samples(payment.event)} == {20}
    assert state.spent.mu_squared > BUDGET.mu_squared()  # the sum of prices would not have fitted
    assert epsilon_by_dp_accounting(state.events) <= BUDGET.epsilon * 1.002
    assert result.guarantee.epsilon == BUDGET.epsilon
    assert result.final.plan.event == state.payments[-2].event  # before its check
    assert "composed directly" in result.guarantee.accountant
    assert "composed directly" in state.guarantee().accountant
    assert 0.99 * BUDGET.epsilon < state.spent_epsilon <= BUDGET.epsilon
    (tmp_path / "run" / "result.json").unlink()
    assert resume(tmp_path / "run", data).guarantee == result.guarantee


def _samples(event: Event) -> bool:
    return isinstance(event, SampledRun)


SCHEDULE = [("trial", RUN), ("scores", COUNT), ("final", RUN)]


def fixed_ledger(path: Path) -> tuple[Ledger, list[Any]]:
    """One whose schedule fits by direct composition only."""
    events: list[Event] = [event for _, event in SCHEDULE]
    prices = [accounting.price(e, slack=1e-8 if accounting.needs_slack(e) else 0.0) for e in events]
    direct = accounting.direct_epsilon(events, 1e-5)
    budget = Budget(direct * 1.001, 1e-5)
    assert math.fsum(price.mu_squared for price in prices) > budget.mu_squared(2e-7)
    ledger = new_ledger(str(path), budget)
    receipts = ledger.reserve_all(SCHEDULE, fingerprint=ROWS, slack=1e-8, fixed=True)
    return ledger, receipts


def test_a_schedule_is_admitted_as_a_whole_and_nothing_beside_it(tmp_path: Path) -> None:
    ledger, receipts = fixed_ledger(tmp_path / "l.db")
    assert ledger.state().fixed
    assert ledger.state().spent_epsilon <= ledger.state().budget.epsilon
    tiny = FullBatchRun(steps=1, noise_multiplier=1e4)
    with pytest.raises(BudgetExceeded):
        ledger.reserve(tiny, purpose="one more", fingerprint=ROWS)
    ledger.start(receipts[0])
    for leave in (
        lambda: ledger.void(receipts[2], reason="not needed"),
        lambda: ledger.exchange(receipts[2], replace(RUN, steps=100)),
    ):
        with pytest.raises(InvalidInput, match="has begun"):
            leave()
    assert [p.state for p in ledger.state().payments] == ["started", "reserved", "reserved"]
    with pytest.raises(BudgetExceeded):
        ledger.reserve(tiny, purpose="one more", fingerprint=ROWS)


def test_a_schedule_that_never_began_can_be_given_back(tmp_path: Path) -> None:
    ledger, receipts = fixed_ledger(tmp_path / "l.db")
    ledger.void_all(receipts, reason="never began")
    ledger.reserve(RUN, purpose="another", fingerprint=ROWS, slack=1e-8)
    state = ledger.state()
    assert not state.fixed
    assert state.spent == accounting.price(RUN, slack=1e-8)


def test_a_schedule_over_the_budget_writes_nothing(tmp_path: Path) -> None:
    ledger = new_ledger(str(tmp_path / "l.db"), Budget(1.0, 1e-5))
    with pytest.raises(BudgetExceeded, match="by direct composition"):
        ledger.reserve_all(SCHEDULE, fingerprint=ROWS, slack=1e-8, fixed=True)
    assert ledger.state().payments == () and ledger.state().scheduled == 0


def test_only_the_first_payments_can_be_a_schedule(ledger: Ledger) -> None:
    ledger.reserve(COUNT, purpose="count", fingerprint=ROWS)
    with pytest.raises(InvalidInput, match="before the first payment"):
        ledger.reserve_all(SCHEDULE, fingerprint=ROWS, slack=1e-8, fixed=True)
    assert json.loads(json.dumps(ledger.state().to_dict()))["payments"][0]["purpose"] == "count"


def test_a_schedule_needs_the_slack_that_was_set_aside(tmp_path: Path) -> None:
    """Else its price, which replace-one and company go by, would be too small."""
    opened = {"dataset": "patients", "fingerprint": ROWS, "slack": 0.0}
    ledger = Ledger.create(str(tmp_path / "l.db"), Budget(8.0, 1e-5), **opened)
    with pytest.raises(BudgetExceeded, match="failure probability"):
        ledger.reserve_all(SCHEDULE, fingerprint=ROWS, slack=0.4, fixed=True)
    assert ledger.state().payments == ()


def test_a_schedule_of_full_batches_costs_what_it_costs(tmp_path: Path) -> None:
    budget = Budget(1.0, 1e-5)
    ledger = new_ledger(str(tmp_path / "l.db"), budget)
    run = accounting.calibrate_full_batch(mu=budget.mu * (1 - 1e-9), steps=10)
    ledger.reserve_all([("run", run)], fingerprint=ROWS, fixed=True)
    state = ledger.state()
    assert state.spent_epsilon <= 1.0
    assert state.guarantee().epsilon == pytest.approx(state.spent_epsilon)
    ledger.change_budget(Budget(1.001, 1e-5), reason="a little more")
    with pytest.raises(BudgetExceeded, match=r"\(epsilon 1\.0000 at"):
        ledger.change_budget(Budget(0.9, 1e-5), reason="less")
