"""Scores that compare trials: paid noisy counts, public rows, or held-out private rows.

Choosing the best of several exact scores on private rows is itself a release, which the noise on
the models does not cover. So a score is a mechanism with an event and a price
(`dptune.accounting.split` calibrates it to a share of the budget). The paper's unpaid score only
exists to reproduce its results, and the guarantee then says so.

Every score states its `rows`, whether it is `paid` for, whether the guarantee `covers_selection` by
it, the `caveats` that the guarantee must name, and the `label` of a plot's axis.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.accounting.split import DEFAULT_SCORE_SHARE
from dptune.errors import InvalidInput
from dptune.noise import add_noise

MEASURES = ("correct", "loss")
Rows = Literal["training", "held-out", "public"]


@dataclass(frozen=True, kw_only=True)
class NoisyScore:
    """Counts of correct training rows with Gaussian noise, centred within a sweep.

    `share` is the price of all scores of a study as a share of its mu^2, fixed beforehand.
    `measure` "loss" sums losses clipped to `loss_bound` instead, which regression needs. With a
    `sampling_rate`, every sweep is scored on a secret Poisson sample of the rows, which is faster
    if a pass over all rows is slow.
    """

    kind: ClassVar[str] = "noisy"
    rows: ClassVar[Rows] = "training"
    paid: ClassVar[bool] = True
    covers_selection: ClassVar[bool] = True
    caveats: ClassVar[tuple[str, ...]] = ()
    label: ClassVar[str] = "noisy score\n(points above the mean of the sweep)"
    share: float = DEFAULT_SCORE_SHARE
    measure: str = "correct"
    loss_bound: float = 5.0
    sampling_rate: float | None = None

    def __post_init__(self) -> None:
        validate.one_of(MEASURES, measure=self.measure)
        validate.store(
            self,
            share=validate.strictly_between(0, 1, share=self.share),
            loss_bound=validate.positive(loss_bound=self.loss_bound),
        )
        if self.sampling_rate is not None:
            rate = validate.strictly_between(0.99e-9, 1, sampling_rate=self.sampling_rate)
            validate.store(self, sampling_rate=rate)

    @property
    def held_out_every(self) -> int | None:
        """Every how many rows one is held out for scores; None if all rows train the trials."""
        return None


@dataclass(frozen=True, kw_only=True)
class HeldOutScore(NoisyScore):
    """The same on held-out private rows that train no trial of the sweep: every `every`-th row.

    No row is used by both trials and scores, so a sweep costs the larger of both prices, and scores
    may cost as much as the trials at no additional price.
    """

    kind: ClassVar[str] = "held-out"
    rows: ClassVar[Rows] = "held-out"
    every: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.store(self, every=validate.whole(2, every=self.every))
        if self.sampling_rate is not None:
            raise InvalidInput(
                "held-out scores must count all held-out rows; got a sampling_rate of "
                f"{self.sampling_rate:g}. Hold out fewer rows, or use noisy scores."
            )

    @property
    def held_out_every(self) -> int:
        return self.every


@dataclass(frozen=True, kw_only=True)
class PublicScore:
    """Exact accuracy on public rows, at no privacy cost."""

    kind: ClassVar[str] = "public"
    rows: ClassVar[Rows] = "public"
    paid: ClassVar[bool] = False
    covers_selection: ClassVar[bool] = True
    caveats: ClassVar[tuple[str, ...]] = ()
    label: ClassVar[str] = "score on public rows (points)"
    held_out_every: ClassVar[None] = None
    sampling_rate: ClassVar[None] = None
    share: ClassVar[float] = 0.0
    measure: str = "correct"
    loss_bound: float = 5.0

    def __post_init__(self) -> None:
        validate.one_of(MEASURES, measure=self.measure)
        validate.store(self, loss_bound=validate.positive(loss_bound=self.loss_bound))


@dataclass(frozen=True, kw_only=True)
class UnpaidScore(PublicScore):
    """Exact accuracy on the private training rows, unpaid, as in the paper: for reproduction only.
    The guarantee then says that selection is not covered."""

    kind: ClassVar[str] = "unpaid"
    rows: ClassVar[Rows] = "training"
    covers_selection: ClassVar[bool] = False
    caveats: ClassVar[tuple[str, ...]] = (
        "trials were compared by exact unpaid scores on private rows, as in the paper: for "
        "reproduction, not for release",
    )
    label: ClassVar[str] = "score on private rows (points)"


Score = NoisyScore | PublicScore


def release_counts(
    exact: Sequence[float], noise: float, stream_normal: validate.Normal
) -> list[float]:
    """The counts of a sweep, safe to release: centred, with centred noise. `stream_normal` returns
    fresh standard normal numbers of a shape.

    Guarantees: this is the priced mechanism if each row adds a vector with entries from 0 to 1 to
    `exact`.
    """

    def centered(numbers: Sequence[float]) -> list[float]:
        mean = math.fsum(numbers) / len(numbers)
        return [number - mean for number in numbers]

    def normal(shape: tuple[int, ...]) -> NDArray[np.float64]:
        return np.array(centered(validate.drawn(stream_normal, *shape).tolist()))

    noisy: list[float] = add_noise(np.array(centered(exact)), noise, normal).tolist()
    return noisy
