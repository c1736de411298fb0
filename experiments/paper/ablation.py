"""A part of the recipe changed, compared in two ways.

As the paper did: learning rate and steps are the best of its grid for the whole recipe, and stay.
Re-tuned: the same steps, and the learning rate that is best for the variant. The first says what a
change does to people who change nothing else, the second what it is worth.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dptune.accounting import Budget
from dptune.bench.outcome import Runs
from dptune.bench.tasks import Task
from dptune.engines.linear import LinearEngine
from dptune.plan import TrainPlan
from experiments.charts import Dots, Panel, Picture, dots_of
from experiments.paper.lab import DELTA, Lab, priced
from experiments.paper.setting import RECIPE, natural

_ENGINE = LinearEngine()
EPSILON = 0.1  # of Table 1 and Figure 12
KEPT, TUNED = "as the paper did", "re-tuned"
COLUMNS = {
    KEPT: ".2f",
    "spread": ".2f",
    TUNED: ".2f",
    "spread of re-tuned": ".2f",
    "steps": "d",
    "noise multiplier": ".5g",
    "learning rate": ".4g",
    "re-tuned rate": ".4g",
}


@dataclass(frozen=True)
class Both:
    """One variant, both ways."""

    kept_plan: TrainPlan
    kept: Runs
    tuned_plan: TrainPlan
    tuned: Runs

    @property
    def cells(self) -> list[object]:
        """What `COLUMNS` shows."""
        return [
            self.kept.mean,
            self.kept.spread,
            self.tuned.mean,
            self.tuned.spread,
            self.kept_plan.steps,
            self.kept_plan.noise_multiplier,
            self.kept_plan.learning_rate,
            self.tuned_plan.learning_rate,
        ]


@dataclass(frozen=True)
class Ablation:
    """The whole recipe at its best setting, from which variants depart."""

    lab: Lab
    source: str
    budget: Budget
    best: TrainPlan

    @property
    def name(self) -> str:
        """What titles call the data."""
        return self.lab.task(self.lab.source).name

    @property
    def task(self) -> Task:
        return self.lab.task(self.source)

    def picture(self, title: str, *panels: Panel) -> Picture:
        return Picture(f"{self.name}: {title}, epsilon {EPSILON:g}", panels)

    def both(
        self,
        engine: LinearEngine = _ENGINE,
        *,
        steps: int | None = None,
        mu: float | None = None,
        **changes: Any,
    ) -> Both:
        """A variant of the recipe."""
        changed = RECIPE | changes
        plan = priced(self.task, self.budget, steps or self.best.steps, mu=mu, **changed)
        kept = replace(plan, learning_rate=self.best.learning_rate)
        (runs,) = self.lab.runs(self.source, [kept], engine)
        return Both(kept, runs, *self.lab.tuned(self.source, plan, engine))


def ablation(lab: Lab, source: str | None = None, epsilon: float = EPSILON) -> Ablation:
    """Of the lab's source, its rows of natural length, where no other is given."""
    source = source or natural(lab.source)
    task, budget = lab.task(source), Budget(epsilon, DELTA)
    grid = [
        replace(priced(task, budget, steps, **RECIPE), learning_rate=rate)
        for steps in lab.effort.step_counts
        for rate in lab.effort.rates
    ]
    best, _ = lab.best(source, grid)
    return Ablation(lab, source, budget, best)


def dots(labels: Sequence[str], found: Sequence[Both]) -> Dots:
    """Both ways beside each other."""
    return Dots(
        "mean and standard deviation over repeats",
        "test accuracy (%)",
        labels,
        [dots_of(KEPT, [one.kept for one in found]), dots_of(TUNED, [one.tuned for one in found])],
    )
