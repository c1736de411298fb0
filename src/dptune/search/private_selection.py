"""Private selection: a random number of trials, of which only the best is released (Liu & Talwar
2019, whose number is geometric; Papernot & Steinke 2022).

Losing trials and their number stay secret, so the search costs much less than if all trials were
paid for. In return only the winner is released.
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
        self.sealing.count  # noqa: B018  # this refuses an invalid number of trials

    @property
    def sealing(self) -> Sealing:
        return Sealing(
            expected_trials=self.expected_trials, distribution=self.distribution, shape=self.shape
        )


@dataclass(frozen=True)
class PrivateSelection(RandomlyStopped):
    """The best of that many random settings.

    `accounting` "published" uses the noise of Papernot & Steinke's bound; the tightest bound we
    know needs less noise for the same guarantee.
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
    """The same on a secret sample of the rows (Koskela & Kulkarni 2023). The winner's setting then
    trains the final model, with a rate scaled by the ratio of the numbers of rows.

    Attributes:
        share: the share of the rows in the sample of the trials.
        final_rows: the rows of the final run: the "rest" outside the sample, or "all".

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
