"""The event of a sealed search, and the noise with which it fits in a budget.

A sealed search runs a random number of trials and releases only the winner. Its bound assumes equal
trials: each draws its settings from a public distribution, has the same price for every setting,
and includes its score. So settings are drawn secretly, since the winner's place in a public list
would reveal the number of trials. Runs of sampled rows, whose curves depend on the number of steps,
all take the same number of steps.
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
    """Trials use a secret sample of `share` of the rows; the final run uses the `rest`, or all."""

    share: float
    rest: bool

    @property
    def growth(self) -> float:
        """The ratio of the final run's number of rows to a trial's."""
        return (1 - self.share if self.rest else 1.0) / self.share


@dataclass(frozen=True, kw_only=True)
class Sealing:
    """The distribution of the number of trials.

    `density_ratio`: the largest ratio of two settings' probabilities if proposals learn from
    earlier trials. `published`: calibrate by the published bound instead of the tightest we know.
    """

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
                "trials that learn from each other need a geometric, logarithmic or "
                "negative-binomial number of trials; got poisson. Choose another distribution."
            )

    @property
    def count(self) -> TrialCount:
        return TrialCount.named(self.distribution, self.expected_trials, self.shape)


@dataclass(frozen=True)
class SealedSearch:
    """One payment for the whole search: any number of trials of `run`, each with its `score`. A
    search on a sample of the rows includes the final run."""

    sealing: Sealing
    event: RandomStopping | SubsetSearch
    run: Run  # of every trial, with the largest number of steps
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
            "a sealed search scores every trial on its training rows or on public rows; got "
            "held-out scores. Use noisy or public scores."
        )
    if score.sampling_rate is not None:
        raise InvalidInput(
            "a sealed search counts all rows for every score; got a sampling_rate of "
            f"{score.sampling_rate:g} for scores. Leave it out."
        )
    if sealing.subset and recipe.sampling_rate is not None:
        raise InvalidInput(
            "tuning on a sample of the rows needs full-batch runs, but this study samples rows in "
            f"every step (rate {recipe.sampling_rate:g}); leave the sampling rate out."
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
