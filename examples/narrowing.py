"""A search method of one's own: look everywhere, then around the best, then train.

    python examples/narrowing.py

A method fixes what every trial costs before it sees any result (`sweeps`), and then answers one
question again and again: which settings next (`suggest`)? Noise, payments, scores, resuming,
the guarantee and the reports follow from that; the budget cannot be exceeded by a mistake here.
"""

from dataclasses import dataclass
from typing import ClassVar

import dptune
from dptune.search import (
    Facts,
    SearchMethod,
    Setting,
    Situation,
    Stage,
    displacement,
    register_method,
    scored_trials,
)


@register_method  # so that configurations, resume and `bench compare` know it by name
@dataclass(frozen=True)
class Narrowing(SearchMethod):
    """Two sweeps of `trials` runs, each run for `share` of the budget's mu squared."""

    name: ClassVar[str] = "narrowing"
    trials: int = 4
    share: float = 0.01

    def sweeps(self, budget: dptune.Budget, facts: Facts) -> tuple[Stage, ...]:
        each = self.share * budget.mu_squared()
        return Stage("everywhere", self.trials, each), Stage("nearby", self.trials, each)

    def suggest(self, stage: Stage, situation: Situation) -> list[Setting]:
        draws = situation.choices  # public, and the same after a resume
        if stage.name == "everywhere":
            return [situation.space.draw(draws) for _ in range(stage.trials)]
        # The noise that a run leaves on its weights is what carries over to another price.
        best = self._best_noise(situation)
        factors = [1.0] if stage.trials == 1 else 2.0 ** draws.uniform(-2, 2, stage.trials)
        return [self._setting(best * float(factor), stage, situation) for factor in factors]

    def _best_noise(self, situation: Situation) -> float:
        """Of the best trial in the last sweep that has scores: those of two sweeps do not
        compare."""
        scored = scored_trials(situation.history)
        if not scored:
            return 1.0  # all was lost in a crash: the unit-noise law
        last = [trial for trial in scored if trial.stage == scored[-1].stage]
        return max(last, key=lambda trial: trial.score or 0.0).noise

    def _setting(self, noise: float, stage: Stage, situation: Situation) -> Setting:
        moved = displacement(noise, stage.mu, situation.recipe)
        return situation.space.spread(moved, situation.recipe)


if __name__ == "__main__":
    result = dptune.tune(
        dptune.load_data("demo"),
        budget=dptune.Budget(1.0, 1e-5),
        search=Narrowing(),
        watch=lambda progress: print(progress.doing),
    )
    for trial in result.trials:
        print(f"{trial.stage:10}  r {trial.plan.total_step_size:9.4g}  {trial.score:+.4f}")
    print(f"test accuracy {result.test_accuracy:.4f}, epsilon {result.guarantee.epsilon:.4f}")
