"""Grid search, with the full price of all of its runs."""

from dataclasses import dataclass
from typing import ClassVar

from dptune import validate
from dptune.errors import InvalidInput
from dptune.search.base import SearchMethod, Situation, Stage
from dptune.search.space import Setting, Space


@dataclass(frozen=True)
class GridSearch(SearchMethod):
    """`rates` learning rates times `steps` numbers of steps, spaced evenly on logarithmic scales.
    All runs share the budget equally, and the best of them is released."""

    name: ClassVar[str] = "grid-search"
    rates: int = 5
    steps: int = 2

    def __post_init__(self) -> None:
        validate.store(
            self,
            rates=validate.whole(1, at_most=100, rates=self.rates),
            steps=validate.whole(1, at_most=100, steps=self.steps),
        )

    @property
    def finalists(self) -> int:
        return self.rates * self.steps

    def must_fit(self, space: Space) -> None:
        cells = space.grid(self.rates, self.steps)
        if len(set(cells)) < len(cells):
            raise InvalidInput(
                f"a grid of {self.rates} rates and {self.steps} numbers of steps has only "
                f"{len(set(cells))} different settings in this space, and duplicates would be paid "
                "for, too; use fewer, or a wider space."
            )

    def suggest(self, stage: Stage, situation: Situation) -> list[Setting]:
        return situation.space.grid(self.rates, self.steps)
