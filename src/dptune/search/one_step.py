"""One single step with the whole budget, without a search.

Its learning rate is not that of gradient descent, so the space does not bound it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dptune import validate
from dptune.search.base import SearchMethod, Situation, Stage
from dptune.search.space import Setting, Space


@dataclass(frozen=True)
class OneStep(SearchMethod):
    """One full-batch step of Adam from zero weights (Mehta et al. 2023). It moves every weight by
    the rate against the sign of its noisy gradient, so without a bias the rate has no effect."""

    name: ClassVar[str] = "one-step"
    fixes: ClassVar[Mapping[str, Any]] = {"optimizer": "adam"}
    learning_rate: float = 0.001

    def __post_init__(self) -> None:
        validate.store(self, learning_rate=validate.positive(learning_rate=self.learning_rate))

    def fixed_steps(self, space: Space) -> int:
        return 1

    def suggest(self, stage: Stage, situation: Situation) -> list[Setting]:
        return [Setting(self.learning_rate, self.fixed_steps(situation.space))]
