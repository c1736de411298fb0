"""The interface of search methods.

A method fixes the price of every trial before it sees any result. Results may change learning rates
and steps, never prices. A method sees public facts and released trials, never a row. It keeps no
state: the same history gives the same answer, so a killed study can be resumed.
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
    """The public facts of the data, which a method may use without payment."""

    columns: int
    outputs: int
    unit_rows: bool  # every row has length 1 by construction, or lengths do not matter
    has_classes: bool = True
    prior: Prior = LINEAR  # the engine's prior of the search
    rows: int = 1
    weights: int = 1  # the number of trained weights
    linear_in_rows: bool = True  # logits are linear in rows, so stable rates have a known bound

    def signal(self, mu: float) -> float:
        """The information per weight from the rows at price `mu`."""
        return signal(mu, self.rows, self.columns, self.outputs)


@dataclass(frozen=True)
class Census:
    """Paid facts: noisy row counts of each class and, unless rows have length 1, a typical length.

    `noise` is the standard deviation on each count.
    """

    classes: tuple[float, ...]
    noise: float
    row_norm: float = 1.0

    @property
    def imbalance(self) -> float:
        """The number of classes over the effective number of classes; 1 where the counts may be
        equal given their noise.

        The sum of squared counts is corrected for the noise and lowered by two standard errors.
        """
        everything = math.fsum(self.classes)
        squares = math.fsum(count * count for count in self.classes)
        variance = self.noise**2
        excess = len(self.classes) * variance
        error = math.sqrt(4 * squares * variance + 2 * len(self.classes) * variance**2)
        lower_bound = squares - excess - 2 * error
        if everything <= 0 or lower_bound <= 0:
            return 1.0
        classes = len(self.classes)
        return min(max(classes * lower_bound / everything**2, 1.0), float(classes))

    @property
    def weights(self) -> tuple[float, ...] | None:
        """The weight of a row of each class, at most 1, which balances the classes; None where they
        are nearly balanced."""
        if self.imbalance == 1.0:
            return None
        least = max(min(self.classes), 2 * self.noise)
        return tuple(min(1.0, least / max(count, least)) for count in self.classes)

    @property
    def effective_share(self) -> float:
        """The weighted number of rows as a share of all rows."""
        return 1.0 if self.weights is None else self.share(self.weights)

    def share(self, weights: Sequence[float]) -> float:
        """The same for these weights, one for each class."""
        counts = [max(count, 0.0) for count in self.classes]
        weighted = math.fsum(w * count for w, count in zip(weights, counts, strict=True))
        everything = math.fsum(counts)
        return weighted / everything if everything else 1.0

    @property
    def balanced(self) -> "Census":
        """The census of weighted rows."""
        if self.weights is None:
            return self
        counts = tuple(w * count for w, count in zip(self.weights, self.classes, strict=True))
        return replace(self, classes=counts)


@dataclass(frozen=True)
class Schedule:
    """All payments of a study, which together fit in the budget.

    The final stage is one run, or several that compete to be released. A `sealed` search is the
    only payment, and `final` then has the price of the released run on its own.
    """

    census: NoisyCount | None
    sweeps: tuple[Stage, ...]
    final: Stage
    sealed: SealedSearch | None = None
    check: NoisyCount | None = None  # of the final model

    @property
    def compared(self) -> tuple[Stage, ...]:
        """All stages of several trials, whose trials are released and scored."""
        return self.sweeps + ((self.final,) if self.final.trials > 1 else ())


@dataclass(frozen=True)
class Situation:
    """All that a method may use when it suggests settings."""

    facts: Facts
    recipe: TrainPlan  # everything of a plan that is not searched
    space: Space
    history: Sequence[Trial]
    census: Census | None
    choices: np.random.Generator  # for public choices, the same after a resume
    delta: float  # of the budget; epsilons refer to it
    # The largest eigenvalue of the rows' second moment, if a private estimate was paid for. No
    # price may depend on it, so schedules do not have it.
    curvature: float = 1.0


class SearchMethod:
    """A search for hyperparameters. A method states its needs and implements `suggest`."""

    name: ClassVar[str]
    wants_census: ClassVar[bool] = False
    fixes: ClassVar[Mapping[str, Any]] = {}  # fields of every plan that the method itself decides
    usual_space: ClassVar[Space] = Space()  # the default space

    @property
    def finalists(self) -> int:
        """How many runs share what the sweeps leave; the best of them is the final model."""
        return 1

    @property
    def sealing(self) -> Sealing | None:
        """The distribution of the number of trials of a sealed search, which releases only the
        winner; None for methods whose trials are all paid for and may be released."""
        return None

    @property
    def sampling_rates(self) -> tuple[float, float] | None:
        """The range from which each run draws its sampling rate; None if all use the recipe's."""
        return None

    def fixed_steps(self, space: Space) -> int | None:
        """The number of steps of all runs, if it is the same for all. Sampled runs are then
        composed together, which is tighter."""
        least, most = space.steps
        return most if least == most else None

    def must_fit(self, space: Space) -> None:
        """Refuse a space that is invalid for the method."""

    def sweeps(self, budget: Budget, facts: Facts) -> tuple[Stage, ...]:
        """The sweeps of trials before the final run, without their scores."""
        return ()

    def suggest(self, stage: Stage, situation: Situation) -> list[Setting]:
        """One setting for every trial of `stage`: a sweep, the final run, or some sealed trials."""
        raise NotImplementedError

    def picture(self, situation: Situation, mu: float) -> Picture | None:
        """The data of a plot of the scores, for a final run of price `mu`. None plots the trials
        with their scores or, if none may be released, the chosen setting."""
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
    """The price of each part of a study whose search is not sealed, fixed before any trial runs.

    `aside` is the price of everything that comes before, such as the preparation of rows. `slack`
    is the failure probability of each run and `score_slack` that of each sweep's sampled scores.
    `set_aside` is the least part of delta that a ledger keeps for such failures. `searched`: the
    search is paid for, and only the final run is left. `weighs_rows`: rows are weighted by class,
    which needs a census. `checks`: how many counts check the final model.
    """
    takes_census = (method.wants_census or weighs_rows) and not searched
    histograms = facts.has_classes + (not facts.unit_rows)  # of classes, and of lengths
    priced = price_stages(
        budget,
        () if searched else method.sweeps(budget, facts),
        score_share=score.share,
        held_out=score.rows == "held-out",
        finalists=method.finalists,
        histograms=histograms if takes_census else 0,
        checks=checks,
        aside=aside,
        slack=slack,
        score_rate=score.sampling_rate,
        score_slack=score_slack,
        set_aside=set_aside,
    )
    return Schedule(priced.census, priced.sweeps, priced.final, check=priced.check)


def draft(recipe: TrainPlan, setting: Setting) -> TrainPlan:
    """The plan of this setting, still with the recipe's noise."""
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
    """The plan with the noise for the price `mu_squared`, rounded toward privacy."""
    mu = rounding.below(math.sqrt(mu_squared))
    if plan.sampling_rate is not None:
        run = accounting.calibrate_sampled(
            mu=mu, slack=slack, steps=plan.steps, sampling_rate=plan.sampling_rate
        )
        return replace(plan, noise_multiplier=run.noise_multiplier)
    noise = accounting.calibrate_full_batch(mu=mu, steps=plan.steps).noise_multiplier
    return replace(plan, noise_multiplier=noise)
