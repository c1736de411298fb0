"""What every search method is.

A method fixes the price of every trial before any result is seen; what it learns may change
learning rates and steps, never the bill. It sees public facts and released trials, never a row,
and keeps no state: the same history gives the same answer, so a killed study can be resumed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dptune import accounting, rounding
from dptune.accounting import Budget
from dptune.accounting.split import Stage as Stage
from dptune.accounting.split import price_stages
from dptune.plan import TrainPlan
from dptune.prior import LINEAR, Prior, signal
from dptune.privacy import FREE, NoisyCount, Price
from dptune.search.picture import Picture
from dptune.search.score import Score
from dptune.search.sealing import SealedSearch, Sealing
from dptune.search.space import Setting, Space
from dptune.search.trial import Trial


@dataclass(frozen=True)
class Facts:
    """What a method may know of the data without paying."""

    columns: int
    outputs: int
    unit_rows: bool  # every row has length 1, by construction, or lengths do not matter
    has_classes: bool = True
    prior: Prior = LINEAR  # where a search starts from; the engine's
    rows: int = 1
    weights: int = 1  # that are trained
    linear_in_rows: bool = True  # logits are, so that it is known which rates are stable

    def signal(self, mu: float) -> float:
        """How much rows and a price tell about every weight."""
        return signal(mu, self.rows, self.columns, self.outputs)


@dataclass(frozen=True)
class Census:
    """Paid facts: noisy counts of rows by class and, unless rows have length 1, a typical length.

    `noise` is the standard deviation on each count.
    """

    classes: tuple[float, ...]
    noise: float
    row_norm: float = 1.0

    @property
    def imbalance(self) -> float:
        """How many times fewer classes the rows really fill: 1 where the counts, given their
        noise, may as well be equal.

        The sum of squared counts is freed of the noise and lowered by two standard errors.
        """
        everything = math.fsum(self.classes)
        squares = math.fsum(count * count for count in self.classes)
        variance = self.noise**2
        excess = len(self.classes) * variance
        error = math.sqrt(4 * squares * variance + 2 * len(self.classes) * variance**2)
        sure = squares - excess - 2 * error
        if everything <= 0 or sure <= 0:
            return 1.0
        return min(max(len(self.classes) * sure / everything**2, 1.0), float(len(self.classes)))

    @property
    def weights(self) -> tuple[float, ...] | None:
        """What a row of each class counts, at most 1, so that classes matter alike; None where they
        are as good as balanced."""
        if self.imbalance == 1.0:
            return None
        least = max(min(self.classes), 2 * self.noise)
        return tuple(min(1.0, least / max(count, least)) for count in self.classes)

    @property
    def effective_share(self) -> float:
        """What part of the rows is left once each counts by its weight."""
        return 1.0 if self.weights is None else self.share(self.weights)

    def share(self, weights: Sequence[float]) -> float:
        """The same for these weights, one a class."""
        counts = [max(count, 0.0) for count in self.classes]
        kept = math.fsum(w * count for w, count in zip(weights, counts, strict=True))
        every = math.fsum(counts)
        return kept / every if every else 1.0

    @property
    def balanced(self) -> "Census":
        """The counts of rows that each count by their weight."""
        if self.weights is None:
            return self
        counts = tuple(w * count for w, count in zip(self.weights, self.classes, strict=True))
        return replace(self, classes=counts)


@dataclass(frozen=True)
class Schedule:
    """Everything a study will pay for. Together it fits in the budget.

    The final stage is one run, or several of which the best is released. Where the search is
    `sealed`, nothing else is paid for, and `final` says what the released run costs by itself.
    """

    census: NoisyCount | None
    sweeps: tuple[Stage, ...]
    final: Stage
    sealed: SealedSearch | None = None
    check: NoisyCount | None = None  # of the final model

    @property
    def compared(self) -> tuple[Stage, ...]:
        """All stages of several trials, which are shown and scored."""
        return self.sweeps + ((self.final,) if self.final.trials > 1 else ())


@dataclass(frozen=True)
class Situation:
    """All that a method may know when it is asked."""

    facts: Facts
    recipe: TrainPlan  # everything of a plan that is not searched
    space: Space
    history: Sequence[Trial]
    census: Census | None
    choices: np.random.Generator  # for public choices, the same after a resume
    delta: float  # of the budget, at which epsilons are meant
    # The largest eigenvalue of the rows' second moment, as far as one was paid for. No price may
    # depend on it, so schedules do not know it.
    curvature: float = 1.0


class SearchMethod:
    """How hyperparameters are found. A method says what it needs and answers `suggest`."""

    name: ClassVar[str]
    wants_census: ClassVar[bool] = False
    fixes: ClassVar[Mapping[str, Any]] = {}  # fields of every plan that the method itself decides
    usual_space: ClassVar[Space] = Space()  # where it looks unless told

    @property
    def finalists(self) -> int:
        """How many runs share what the sweeps leave; of several, the best is the final model."""
        return 1

    @property
    def sealing(self) -> Sealing | None:
        """How many trials a sealed search runs, of which only the winner is ever seen; None for
        methods whose trials are all paid for and may be shown."""
        return None

    @property
    def sampling_rates(self) -> tuple[float, float] | None:
        """The range from which runs draw sampling rates of their own; None where all of them keep
        to the recipe."""
        return None

    def fixed_steps(self, space: Space) -> int | None:
        """The one number of steps that all runs take, where the method can do with one; sampled
        runs are then priced together, and tighter."""
        least, most = space.steps
        return most if least == most else None

    def must_fit(self, space: Space) -> None:
        """Refuse a space in which the method makes no sense."""

    def sweeps(self, budget: Budget, facts: Facts) -> tuple[Stage, ...]:
        """The sweeps of trials before the final run, their scores left open."""
        return ()

    def suggest(self, stage: Stage, situation: Situation) -> list[Setting]:
        """One setting for every trial of `stage`: a sweep, the final run, or some sealed trials."""
        raise NotImplementedError

    def picture(self, situation: Situation, mu: float) -> Picture | None:
        """What the method sees in its scores when it chooses a final run of price `mu`. None shows
        the trials with their scores or, where none may be seen, what was chosen."""
        return None


def schedule(
    method: SearchMethod,
    budget: Budget,
    facts: Facts,
    score: Score,
    *,
    aside: Price = FREE,
    slack: float = 0.0,
    score_slack: float = 0.0,
    set_aside: float = 0.0,
    searched: bool = False,
    weighs_rows: bool = False,
    checks: int = 0,
) -> Schedule:
    """What each part of a study costs whose search is not sealed: fixed now, whatever the trials
    will show.

    `aside` is what something else costs that comes first (to prepare rows), `slack` the failure
    probability of every run, `score_slack` that of each sweep's scores where they count a sample
    of the rows, `set_aside` how much of delta a ledger keeps for such failures at
    least. `searched`: the search is done and paid for, only the final run is left. `weighs_rows`:
    whether rows are weighted by class, for which they are counted whatever the method wants.
    `checks`: how many counts check the final model.
    """
    counts = method.wants_census or weighs_rows
    counted = counts and not searched
    histograms = facts.has_classes + (not facts.unit_rows)  # of classes, and of lengths
    priced = price_stages(
        budget,
        () if searched else method.sweeps(budget, facts),
        score_share=score.share,
        held_out=score.rows == "held-out",
        finalists=method.finalists,
        histograms=histograms if counted else 0,
        checks=checks,
        aside=aside,
        slack=slack,
        score_rate=score.sampling_rate,
        score_slack=score_slack,
        set_aside=set_aside,
    )
    return Schedule(priced.census, priced.sweeps, priced.final, check=priced.check)


def draft(recipe: TrainPlan, setting: Setting) -> TrainPlan:
    """The plan of this setting, its noise still that of the recipe."""
    rate = setting.sampling_rate if setting.sampling_rate is not None else recipe.sampling_rate
    clip = setting.clip_norm if setting.clip_norm is not None else recipe.clip_norm
    return replace(
        recipe,
        learning_rate=setting.learning_rate,
        steps=setting.steps,
        sampling_rate=rate,
        clip_norm=clip,
    )


def calibrated(plan: TrainPlan, mu_squared: float, slack: float) -> TrainPlan:
    """The plan with the noise that makes it cost `mu_squared`, rounded toward privacy."""
    mu = rounding.below(math.sqrt(mu_squared))
    if plan.sampling_rate is not None:
        run = accounting.calibrate_sampled(
            mu=mu, slack=slack, steps=plan.steps, sampling_rate=plan.sampling_rate
        )
        return replace(plan, noise_multiplier=run.noise_multiplier)
    noise = accounting.calibrate_full_batch(mu=mu, steps=plan.steps).noise_multiplier
    return replace(plan, noise_multiplier=noise)
