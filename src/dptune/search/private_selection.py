"""A random number of trials of which only the best is ever seen (Liu & Talwar 2019, whose number
is geometric; Papernot & Steinke 2022).

Losing trials and their number stay secret, so they cost much less than if all were paid for; in
return nothing but the winner may be learned from.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from dptune import validate
from dptune.search.base import SearchMethod, Situation, Stage
from dptune.search.sealing import Sealing, Subset
from dptune.search.space import Setting

ACCOUNTINGS = ("tightest", "published")


@dataclass(frozen=True)
class RandomlyStopped(SearchMethod):
    """`expected_trials` on average, by a `distribution`: geometric, logarithmic, poisson, or
    negative-binomial with a `shape` above -1."""

    expected_trials: float = 10.0
    distribution: str = "logarithmic"
    shape: float | None = None

    def __post_init__(self) -> None:
        self.sealing.count  # noqa: B018  # a senseless number of trials is refused here

    @property
    def sealing(self) -> Sealing:
        return Sealing(
            expected_trials=self.expected_trials, distribution=self.distribution, shape=self.shape
        )


@dataclass(frozen=True)
class PrivateSelection(RandomlyStopped):
    """The best of that many settings drawn at random.

    `accounting` "published" takes the noise that Papernot & Steinke's bound asks for; the tightest
    bound we know asks for less, at the same guarantee.
    """

    name: ClassVar[str] = "private-selection"
    accounting: str = "tightest"

    def __post_init__(self) -> None:
        validate.one_of(ACCOUNTINGS, accounting=self.accounting)
        super().__post_init__()

    @property
    def sealing(self) -> Sealing:
        return replace(super().sealing, published=self.accounting == "published")

    def suggest(self, stage: Stage, situation: Situation) -> list[Setting]:
        return [situation.space.draw(situation.choices) for _ in range(stage.trials)]


@dataclass(frozen=True)
class SubsetSelection(PrivateSelection):
    """The same on a secret sample of the rows (Koskela & Kulkarni 2023); the winner's setting then
    trains the final model, its rate scaled up as many times as there are more rows.

    Attributes:
        share: of the rows, that trials see.
        final_rows: of the final run: the "rest", which no trial saw, or "all".

    """

    name: ClassVar[str] = "subset"
    distribution: str = "poisson"
    share: float = 0.1
    final_rows: str = "rest"

    def __post_init__(self) -> None:
        validate.one_of(("rest", "all"), final_rows=self.final_rows)
        validate.store(self, share=validate.strictly_between(0, 1, share=self.share))
        super().__post_init__()

    @property
    def sealing(self) -> Sealing:
        return replace(
            super().sealing, subset=Subset(share=self.share, rest=self.final_rows == "rest")
        )
