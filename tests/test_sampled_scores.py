"""Trials compared on a secret sample of the rows: what is drawn, divided by, paid and said."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from module_engine import SmallNetwork

from dptune import (
    Data,
    HeldOutScore,
    Ledger,
    NoisyScore,
    PrivateSelection,
    RandomSearch,
    accounting,
    resume,
)
from dptune.data.rows import MemoryRows
from dptune.engines import LinearEngine, Randomness
from dptune.engines.linear import LinearModel
from dptune.errors import InvalidInput
from dptune.plan import TrainPlan
from dptune.privacy import NoisyCount
from dptune.study.measure import compare
from dptune.study.planning import foresee, read_config
from dptune.study.run_folder import RunFolder
from dptune.study.split import slots
from support.rows import make_data, make_rows
from support.studies import BUDGET, stop_after, study

RATE = 0.3
SAMPLED = NoisyScore(share=0.05, sampling_rate=RATE)
QUIET = NoisyCount(counts=2, noise=1e-6, centered=True, sampling_rate=RATE)


def one_sided(count: int) -> tuple[MemoryRows, LinearEngine, list[Any]]:
    """Rows that the first of two models gets right, all of them, and the second gets wrong."""
    rows = MemoryRows(np.ones((count, 1)), np.ones(count, dtype=int))
    right, wrong = (torch.tensor([[-side], [side]]) for side in (5.0, -5.0))
    models = [LinearModel(weights, None, "softmax") for weights in (right, wrong)]
    return rows, LinearEngine(outputs=2), models


def test_a_fresh_sample_of_the_rate_is_counted_and_divided_by_a_public_number() -> None:
    """The difference of both scores is the size of the sample over rate times rows: 1 on average,
    with the spread of a binomial, and never the same for long."""
    count, times = 2000, 60
    rows, engine, models = one_sided(count)
    found = []
    for _ in range(times):
        (right, wrong), _ = compare(engine, models, rows, SAMPLED, QUIET, None, count)
        assert right == pytest.approx(-wrong, abs=1e-12)
        found.append(right - wrong)
    spread = math.sqrt((1 - RATE) / (RATE * count))
    assert abs(np.mean(found) - 1) < 5 * spread / math.sqrt(times)  # 6e-7
    assert 0.5 * spread < np.std(found) < 1.6 * spread
    sizes = np.array(found) * RATE * count
    assert sizes == pytest.approx(np.rint(sizes), abs=1e-3)


def test_the_error_of_a_score_knows_of_the_sample() -> None:
    rows, engine, models = one_sided(2000)
    loud = NoisyCount(counts=2, noise=9.0, centered=True, sampling_rate=RATE)
    _, error = compare(engine, models, rows, SAMPLED, loud, None, 2000)
    drawn = 0.5 * math.sqrt((1 - RATE) / (RATE * 2000))
    assert error == pytest.approx(math.hypot(9 / (RATE * 2000), drawn), rel=1e-12)


def test_losses_of_a_sample_are_clipped_and_summed_for_any_engine() -> None:
    features, labels = make_rows(4000)
    rows = MemoryRows(features, labels, augmented=False)
    data = Data(features, labels)
    for made in (SmallNetwork(hidden=4).for_data(data.facts), LinearEngine().for_data(data.facts)):
        plans = [
            TrainPlan(rows=4000, steps=steps, learning_rate=1.0, noise_multiplier=0.0)
            for steps in (1, 30)
        ]
        models = made.fit_many(plans, rows, [Randomness(), Randomness()])
        score = NoisyScore(measure="loss", loss_bound=2.0, sampling_rate=0.5)
        event = NoisyCount(counts=2, noise=1e-6, centered=True, sampling_rate=0.5)
        (short, long), error = compare(made, models, rows, score, event, None, 4000)
        exact = [one.loss for one in made.evaluate_many(models, rows, loss_bound=2.0)]
        wanted = (exact[0] - exact[1]) / 2.0
        assert wanted > 0.02  # or nothing was learned
        assert long - short == pytest.approx(wanted, abs=6 * error)


def test_a_study_pays_for_sampled_scores_says_so_and_goes_on(tmp_path: Path) -> None:
    data, out = make_data(), tmp_path / "run"
    stop_after(out, data, "final run", score=SAMPLED)
    assert "sampling_rate = 0.3" in (out / "run.toml").read_text()
    result = resume(out, data)
    assert all(trial.score is not None for trial in result.trials)
    state = Ledger.open(str(out / "ledger.db")).state()
    (scores,) = [p for p in state.counted if getattr(p.event, "sampling_rate", None)]
    assert isinstance(scores.event, NoisyCount) and scores.event.centered
    assert scores.price.slack == pytest.approx(1e-3 * BUDGET.delta)
    assert scores.price.mu_squared == pytest.approx(0.05 * BUDGET.mu_squared(), rel=1e-3)
    assert state.spent_epsilon <= BUDGET.epsilon and result.guarantee.epsilon <= BUDGET.epsilon
    assert len([p for p in state.counted if "leg" in p.purpose]) == 5  # full batches, as before
    assert any("on a secret sample of the rows" in one for one in result.guarantee.releases)
    assert "Poisson sampling at rate 0.3" in result.guarantee.sampler
    assert result.guarantee.slack == pytest.approx(1e-3 * BUDGET.delta)


@pytest.mark.parametrize("search", [RandomSearch(trials=3), None], ids=repr)
def test_sampled_runs_and_sampled_scores_fit_together(
    tmp_path: Path, search: RandomSearch | None
) -> None:
    result = study(tmp_path / "run", score=SAMPLED, recipe={"sampling_rate": 0.2}, search=search)
    state = Ledger.open(str(tmp_path / "run" / "ledger.db")).state()
    assert state.spent_epsilon <= BUDGET.epsilon
    if search is None:  # all was fixed, so it is composed as one, scores included
        assert state.fixed
        assert accounting.direct_epsilon(state.events, BUDGET.delta) <= BUDGET.epsilon
    assert result.guarantee.epsilon <= BUDGET.epsilon


def test_the_split_of_a_plan_names_what_sampled_scores_cost(tmp_path: Path) -> None:
    data = make_data()
    study(tmp_path / "run", data, score=SAMPLED)
    planned, promise = foresee(data, read_config(RunFolder.open(tmp_path / "run")))
    named = {slot.purpose: slot for slot in slots(planned)}
    assert named["scores of sweep"].mu_squared == pytest.approx(
        0.05 * BUDGET.mu_squared(), rel=1e-3
    )
    assert promise.epsilon <= BUDGET.epsilon


def test_where_samples_make_no_sense_they_are_refused() -> None:
    with pytest.raises(InvalidInput, match="held-out scores must count all"):
        HeldOutScore(sampling_rate=0.1)
    for rate in (0.0, 1.0, -1.0):
        with pytest.raises(InvalidInput, match="sampling_rate must"):
            NoisyScore(sampling_rate=rate)
    with pytest.raises(InvalidInput, match="sealed search counts all rows"):
        study(None, search=PrivateSelection(), score=SAMPLED)
