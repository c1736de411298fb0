"""How trials are compared: by paid noisy counts, on public rows, or on held-out private rows.

Choosing the best of several exact scores on private rows is a release of its own that no noise on
the models covers. So a score is a mechanism with an event and a price like everything else
(`dptune.accounting.split` says which for the share of a budget that a score may cost); the
paper's unpaid score exists only to reproduce its figures, and the guarantee then says so.

Every score says on which `rows` it looks, whether it is `paid` for, whether the guarantee
`covers_selection` by it and which `caveats` the guarantee must name, and what the axis of a picture
calls it (`label`).
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

    `share` is what all scores of a study cost, as a share of its mu^2, fixed beforehand.
    `measure` "loss" sums losses clipped to `loss_bound` instead, which regression needs. With a
    `sampling_rate` every sweep is scored on a secret Poisson sample of the rows, for where a pass
    over all of them is dear.
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
        """One in how many rows only scores trials; None where all rows train them."""
        return None


@dataclass(frozen=True, kw_only=True)
class HeldOutScore(NoisyScore):
    """The same on private rows that no trial of the sweep is trained on: every `every`-th row.

    Trials and scores never meet in one row, so a sweep costs the dearer of the two, and the scores
    may cost as much as the trials for nothing more.
    """

    kind: ClassVar[str] = "held-out"
    rows: ClassVar[Rows] = "held-out"
    every: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        validate.store(self, every=validate.whole(2, every=self.every))
        if self.sampling_rate is not None:
            raise InvalidInput(
                "held-out scores must count all the rows that are held out, and a sample of them "
                f"was asked for (rate {self.sampling_rate:g}); hold out fewer rows, or pay for "
                "noisy scores."
            )

    @property
    def held_out_every(self) -> int:
        return self.every


@dataclass(frozen=True, kw_only=True)
class PublicScore:
    """Accuracy on public rows: free, and exact."""

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
        "trials were compared by exact scores on private rows that nobody paid for, as in the "
        "paper: for reproduction, not for release",
    )
    label: ClassVar[str] = "score on private rows (points)"


Score = NoisyScore | PublicScore


def release_counts(
    exact: Sequence[float], noise: float, stream_normal: validate.Normal
) -> list[float]:
    """The counts of a sweep as they may be seen: centred, with centred noise; `stream_normal` gives
    fresh standard normal numbers of a shape.

    Guarantees: the priced mechanism. Each row moves `exact` by a vector with entries from 0 to 1.
    """

    def centered(numbers: Sequence[float]) -> list[float]:
        mean = math.fsum(numbers) / len(numbers)
        return [number - mean for number in numbers]

    def normal(shape: tuple[int, ...]) -> NDArray[np.float64]:
        return np.array(centered(validate.drawn(stream_normal, *shape).tolist()))

    noisy: list[float] = add_noise(np.array(centered(exact)), noise, normal).tolist()
    return noisy
