"""Single runs at multiples of the noise that the law says, on rows prepared as a study prepares
them."""

from dataclasses import dataclass
from typing import Any

from dptune.accounting import Budget
from dptune.bench.harness import outline_of, prepared
from dptune.bench.tasks import Task
from dptune.engines.base import Engine
from dptune.plan import TrainPlan
from dptune.search.base import Situation, Stage, calibrated, draft
from dptune.search.law import best_noise, setting_at
from dptune.search.space import Setting
from dptune.search.unit_noise import UnitNoise


@dataclass(frozen=True)
class Prepared:
    """Rows that were prepared once, and a run of all of the budget that this leaves."""

    rows: Task
    engine: Engine[Any]
    stage: Stage
    situation: Situation

    @staticmethod
    def of(task: Task, budget: Budget, seed: int) -> "Prepared":
        rows, known = prepared(task, outline_of(task, UnitNoise(), budget, seed))
        final = known.schedule.final
        return Prepared(rows, known.engine, final, known.situation(final, [], None))

    @property
    def law(self) -> float:
        return best_noise(self.stage.mu, self.situation.recipe, self.situation.facts, None)

    @property
    def averaged(self) -> bool:
        return self.situation.recipe.averaging == "swa"

    def at(self, noise: float) -> TrainPlan:
        """A run that ends at this noise on its weights."""
        return self.plan(setting_at(noise, self.stage.mu, self.situation))

    def plan(self, setting: Setting) -> TrainPlan:
        return calibrated(draft(self.situation.recipe, setting), self.stage.mu_squared, 0.0)
