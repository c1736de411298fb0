"""Random search, the baseline of every tuning method: settings drawn from the space."""

from dataclasses import dataclass
from typing import ClassVar

from dptune import validate
from dptune.search.base import SearchMethod, Situation, Stage
from dptune.search.space import Setting


@dataclass(frozen=True)
class RandomSearch(SearchMethod):
    """`trials` random settings that share the budget equally; the best is released."""

    name: ClassVar[str] = "random-search"
    trials: int = 1

    def __post_init__(self) -> None:
        validate.store(self, trials=validate.whole(1, at_most=10_000, trials=self.trials))

    @property
    def finalists(self) -> int:
        return self.trials

    def suggest(self, stage: Stage, situation: Situation) -> list[Setting]:
        return [situation.space.draw(situation.choices) for _ in range(stage.trials)]
