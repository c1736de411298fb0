"""The baseline that tuning must beat: settings drawn from the space."""

from dataclasses import dataclass
from typing import ClassVar

from dptune.privacy import Budget
from dptune.search.base import Facts, Situation, Stage
from dptune.search.space import Setting, log_uniform


@dataclass(frozen=True)
class RandomSearch:
    """One setting drawn at random, trained with the whole budget: the rate log-uniformly, the steps
    uniformly."""

    name: ClassVar[str] = "random-search"
    wants_census: ClassVar[bool] = False

    def sweeps(self, budget: Budget, facts: Facts) -> tuple[Stage, ...]:
        return ()

    def suggest(self, stage: Stage, situation: Situation) -> list[Setting]:
        (rate,) = log_uniform(situation.space.learning_rate, situation.choices, 1)
        least, most = situation.space.steps
        return [Setting(float(rate), int(situation.choices.integers(least, most, endpoint=True)))]
