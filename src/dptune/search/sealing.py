"""What a sealed search does to private rows, and the noise that makes it fit in a budget.

A random number of trials is run and only the winner leaves. The bound holds because trials are
alike: each draws its settings from a public distribution, costs the same whatever it drew, and
carries its score. So settings come from secret draws (a public list of settings would tell from the
winner's place how many trials there were), and runs of sampled rows, whose curves depend on the
number of steps, all take the same number of them.
"""

import math
from dataclasses import dataclass

from dptune import accounting, validate
from dptune.accounting import Budget
from dptune.accounting.trial_count import TrialCount
from dptune.errors import InvalidInput
from dptune.plan import Run, TrainPlan
from dptune.privacy import (
    STOPPING_DISTRIBUTIONS,
    Composition,
    Event,
    NoisyCount,
    RandomStopping,
    SubsetSearch,
)
from dptune.search.score import Score


@dataclass(frozen=True, kw_only=True)
class Subset:
    """Trials see a secret sample of `share` of the rows; the final run the `rest` of them, or
    all."""

    share: float
    rest: bool

    @property
    def growth(self) -> float:
        """How many times as many rows the final run sees as a trial."""
        return (1 - self.share if self.rest else 1.0) / self.share


@dataclass(frozen=True, kw_only=True)
class Sealing:
    """The law of the number of trials. `density_ratio`: how much, at most, proposals that learn
    from earlier trials favour one setting over another. `published`: calibrated by the published
    bound instead of the tightest we know."""

    expected_trials: float
    distribution: str
    shape: float | None = None
    density_ratio: float | None = None
    subset: Subset | None = None
    published: bool = False

    def __post_init__(self) -> None:
        validate.one_of(STOPPING_DISTRIBUTIONS, distribution=self.distribution)
        validate.strictly_between(1, 1e9, expected_trials=self.expected_trials)
        if self.density_ratio is not None and self.distribution == "poisson":
            raise InvalidInput(
                "trials that learn from each other are accounted for with a geometric, logarithmic "
                "or negative-binomial number of them; got poisson."
            )

    @property
    def count(self) -> TrialCount:
        return TrialCount.named(self.distribution, self.expected_trials, self.shape)


@dataclass(frozen=True)
class SealedSearch:
    """One payment for everything: any number of trials of `run`, each with its `score`; where it
    searches on a sample of the rows, also the final run."""

    sealing: Sealing
    event: RandomStopping | SubsetSearch
    run: Run  # of every trial, at the most steps
    score: NoisyCount | None

    @property
    def name(self) -> str:
        return "sealed search and final run" if self.sealing.subset else "sealed search"


def seal(
    sealing: Sealing, budget: Budget, score: Score, recipe: TrainPlan, steps: int
) -> SealedSearch:
    """The sealed search with the least noise that fits in `budget`; trials take at most `steps`."""
    if score.rows == "held-out":
        raise InvalidInput(
            "a sealed search scores every trial on the rows it was trained on, or on public ones, "
            "and held-out scores were asked for; use noisy or public scores."
        )
    if score.sampling_rate is not None:
        raise InvalidInput(
            "a sealed search counts all rows for every score, and a sample of them was asked for "
            f"(rate {score.sampling_rate:g}); leave the score's sampling_rate out."
        )
    if sealing.subset and recipe.sampling_rate is not None:
        raise InvalidInput(
            "tuning on a sample of the rows goes with full-batch runs, and this study samples rows "
            f"in every step (rate {recipe.sampling_rate:g}); leave the sampling rate out."
        )

    def at(mu: float) -> SealedSearch:
        run = _run(mu * math.sqrt(1 - score.share), recipe, steps)
        count = NoisyCount(noise=1 / (mu * math.sqrt(score.share))) if score.share else None
        trial: Event = run if count is None else Composition(parts=(run, count))
        search = RandomStopping(
            trial=trial,
            expected_trials=sealing.expected_trials,
            distribution=sealing.distribution,
            shape=sealing.shape,
            density_ratio=sealing.density_ratio,
        )
        if sealing.subset is None:
            return SealedSearch(sealing, search, run, count)
        event = SubsetSearch(
            search=search,
            final=_run(mu, recipe, steps),
            sampling_rate=sealing.subset.share,
            disjoint=sealing.subset.rest,
        )
        return SealedSearch(sealing, event, run, count)

    mu = accounting.calibrate_sealed(lambda mu: at(mu).event, budget, published=sealing.published)
    return at(mu)


def _run(mu: float, recipe: TrainPlan, steps: int) -> Run:
    rate = recipe.sampling_rate
    if rate is None:
        noise = accounting.calibrate_full_batch(mu=mu, steps=steps).noise_multiplier
    else:
        noise = accounting.central_limit_noise(mu, steps, rate)
    return recipe.event_of(steps, noise)
