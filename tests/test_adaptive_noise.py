"""What adaptive optimizers leave on weights under noise is what plans say, and searches go by."""

import numpy as np
import pytest
import torch

from dptune import Budget, Data, Space, tune
from dptune.engines.optimizers import KINDS
from dptune.plan import SCHEDULES, TrainPlan
from dptune.search.space import ADAPTIVE_RATES
from support.rows import make_data, make_rows


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "wosm"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("size", [1e-4, 30.0])
def test_noise_is_walked_one_rate_a_step(optimizer: str, schedule: str, size: float) -> None:
    """Gradients of nothing but noise, however large it is: 5,000 weights, 200 steps."""
    plan = TrainPlan(
        rows=1,
        steps=200,
        learning_rate=0.01,
        noise_multiplier=size,
        optimizer=optimizer,
        schedule=schedule,
    )
    weights = torch.zeros(1, 1, 5000, dtype=torch.float64)
    rule = KINDS[optimizer]([plan], weights)
    stream = torch.Generator().manual_seed(0)
    for step in range(plan.steps):
        noise = torch.randn(weights.shape, generator=stream, dtype=torch.float64)
        rule.update_(weights, plan.noise * noise, step)
    assert float(weights.std()) == pytest.approx(plan.weight_noise, rel=0.12)


@pytest.mark.usefixtures("same_noise")
@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_default_search_tunes_rate_of_adaptive_optimizers(optimizer: str) -> None:
    data = make_data(2000)
    result = tune(data, budget=Budget(4.0, 1e-5), recipe={"optimizer": optimizer})
    noises = [trial.noise for trial in result.trials]
    assert np.diff(np.log(noises)) == pytest.approx([1.4, 1.4], abs=1e-6)
    plans = [trial.plan for trial in result.trials] + [result.final.plan]
    low, high = ADAPTIVE_RATES
    assert all(low < plan.learning_rate < high and plan.steps == 200 for plan in plans)
    assert result.test_accuracy is not None and result.test_accuracy > 0.8


def test_given_rates_of_adaptive_optimizers_are_kept() -> None:
    features, labels = make_rows(300)
    named = Space(learning_rate=(0.5, 0.6), steps=(5, 5))
    result = tune(
        Data(features, labels),
        budget=Budget(4.0, 1e-5),
        recipe={"optimizer": "adam"},
        space=named,
    )
    assert 0.5 <= result.final.plan.learning_rate <= 0.6
