"""The baseline that tuning must beat: settings drawn from the space."""

import math
from dataclasses import dataclass
from typing import ClassVar

from dptune.privacy import Budget
from dptune.search.base import Facts, Situation, Stage
from dptune.search.space import Setting


@dataclass(frozen=True)
class RandomSearch:
    """One setting drawn at random, trained with the whole budget: the rate log-uniformly, the steps
    uniformly."""

    name: ClassVar[str] = "random-search"
    wants_census: ClassVar[bool] = False

    def sweeps(self, budget: Budget, facts: Facts) -> tuple[Stage, ...]:
        return ()

    def suggest(self, stage: Stage, situation: Situation) -> list[Setting]:
        low, high = situation.space.learning_rate
        rate = math.exp(situation.choices.uniform(math.log(low), math.log(high)))
        rate = min(max(rate, low), high)  # exp(log(x)) may miss x by a rounding
        least, most = situation.space.steps
        return [Setting(rate, int(situation.choices.integers(least, most, endpoint=True)))]
