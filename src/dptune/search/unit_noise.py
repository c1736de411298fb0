"""One run without a search: train until every logit has noise of standard deviation one."""

from dataclasses import dataclass
from typing import ClassVar

from dptune import validate
from dptune.search.base import SearchMethod, Situation, Stage
from dptune.search.law import setting_at
from dptune.search.space import MANY_STEPS, Setting, Space


@dataclass(frozen=True)
class UnitNoise(SearchMethod):
    """One run with the whole budget that ends at weight noise `noise`."""

    name: ClassVar[str] = "unit-noise"
    usual_space: ClassVar[Space] = MANY_STEPS
    noise: float = 1.0

    def __post_init__(self) -> None:
        validate.store(self, noise=validate.positive(noise=self.noise))

    def fixed_steps(self, space: Space) -> int:
        return space.usual_steps

    def suggest(self, stage: Stage, situation: Situation) -> list[Setting]:
        return [setting_at(self.noise, stage.mu, situation)]
