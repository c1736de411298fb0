"""What is written down of a run of a network, and of a whole study."""

from typing import Any

from dptune.data import Data, Preprocessing
from dptune.engines.base import Engine
from dptune.engines.modules.module_model import ModuleModel
from dptune.engines.randomness import Randomness
from dptune.plan import TrainPlan
from dptune.study.result import StudyResult
from experiments.lines import Figures

AS_GIVEN = Preprocessing(unit_rows=False)


def of_study(result: StudyResult) -> Figures:
    """What a study chose, and what it cost."""
    return {
        "spent_epsilon": result.guarantee.epsilon,
        **_of_plan(result.final.plan),
        "trials": [
            {"learning_rate": t.plan.learning_rate, "c": t.noise, "mu": t.mu, "score": t.score}
            for t in result.trials
        ],
        "notes": list(result.notes),  # where the search had to bend
    }


def one_run(
    engine: Engine[Any], plan: TrainPlan, data: Data, seed: int, device: str, **precision: str
) -> tuple[ModuleModel, Figures]:
    """On rows that are public anyway, at a setting that nobody paid for."""
    rows = data.unprotected_rows(AS_GIVEN, device=device, **precision)
    (model,) = engine.fit_many([plan], rows, [Randomness(seed=seed)])
    assert isinstance(model, ModuleModel)
    return model, {**_of_plan(plan), "parameters": engine.parameters(data.facts)}


def _of_plan(plan: TrainPlan) -> Figures:
    return {
        "learning_rate": plan.learning_rate,
        "r": plan.total_step_size,
        "noise_multiplier": plan.noise_multiplier,
        "weight_noise": plan.weight_noise,
    }
