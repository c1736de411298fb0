"""DPAdamWOSM, whose authors claim that it needs no tuning: one run with the whole budget.

Its learning rate is not that of gradient descent, so the space does not bound it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dptune import validate
from dptune.search.base import SearchMethod, Situation, Stage
from dptune.search.space import Setting, Space


@dataclass(frozen=True)
class Wosm(SearchMethod):
    """DPAdamWOSM (Mohapatra et al. 2022): Adam whose second moment is the known variance of the
    noise, with Adam's default rate. Only the number of steps can be chosen; None is 100, or the
    nearest number in the space."""

    name: ClassVar[str] = "wosm"
    fixes: ClassVar[Mapping[str, Any]] = {"optimizer": "wosm"}
    learning_rate: float = 0.001
    steps: int | None = None

    def __post_init__(self) -> None:
        validate.store(self, learning_rate=validate.positive(learning_rate=self.learning_rate))
        if self.steps is not None:
            validate.store(self, steps=validate.whole(1, steps=self.steps))

    def fixed_steps(self, space: Space) -> int:
        least, most = space.steps
        return self.steps or min(max(100, least), most)

    def suggest(self, stage: Stage, situation: Situation) -> list[Setting]:
        return [Setting(self.learning_rate, self.fixed_steps(situation.space))]
