"""The default search: the unit-noise law, corrected by a few very cheap trials.

The linear scaling paper locates the best total step size with cheap trials and scales it up with
the budget. Here the law already says where it is up to a factor of two or so, so three trials at
half a percent of the budget each, spread around it, suffice to notice where the law is off; one
curve through their paid scores moves the final run. Numbers and choices: docs/law.md.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from dptune.privacy import Budget
from dptune.search import curve
from dptune.search.base import Facts, Situation, Stage
from dptune.search.law import best_noise, displacement
from dptune.search.space import Setting
from dptune.trial import Trial

OFFSETS = (-1.4, 0.0, 1.4)  # of log c from the law
TRIAL_SHARE = 0.005  # of mu^2, each
# How far, in log c, the law is off: rows of unknown length are clipped, which moves the best c.
ERROR_ON_UNIT_ROWS, ERROR_ON_OTHER_ROWS = 0.45, 0.7


@dataclass(frozen=True)
class LinearScaling:
    """The law's guess, three cheap trials around it, one smooth curve, one final run."""

    name: ClassVar[str] = "linear-scaling"
    wants_census: ClassVar[bool] = True

    def sweeps(self, budget: Budget, facts: Facts) -> tuple[Stage, ...]:
        return (Stage("sweep", len(OFFSETS), TRIAL_SHARE * budget.mu_squared()),)

    def suggest(self, stage: Stage, situation: Situation) -> list[Setting]:
        if stage.trials > 1:
            return [_setting(offset, stage.mu, situation) for offset in OFFSETS]
        return [_setting(fitted(situation).top, stage.mu, situation)]


def fitted(situation: Situation) -> curve.Curve:
    """The curve through all scored trials, over log c from the law at each trial's price."""
    scored = [trial for trial in situation.history if trial.score is not None]
    error = ERROR_ON_UNIT_ROWS if situation.facts.unit_rows else ERROR_ON_OTHER_ROWS
    offsets = [offset_of(trial, situation) for trial in scored]
    points = [100 * (trial.score or 0.0) for trial in scored]
    noise = max((score_error(trial, situation) for trial in scored), default=1.0)
    return curve.fit(offsets, points, noise, error)


def offset_of(trial: Trial, situation: Situation) -> float:
    """How far from the law the trial was, in log c."""
    guess = best_noise(trial.mu, situation.recipe, situation.facts, situation.census)
    return math.log(trial.noise / guess)


def score_error(trial: Trial, situation: Situation) -> float:
    """Of a score, in points: the paid noise, and how much two equal trials differ, which is larger
    the less signal there is."""
    of_training = min(max(60 / math.sqrt(trial.mu * situation.recipe.rows), 0.3), 4.0)
    return math.hypot(100 * (trial.score_noise or 0.0), of_training)


def _setting(offset: float, mu: float, situation: Situation) -> Setting:
    guess = best_noise(mu, situation.recipe, situation.facts, situation.census)
    noise = guess * math.exp(offset)
    moved = displacement(noise, mu, situation.recipe)
    space = situation.space
    if situation.census is not None and situation.census.imbalance > 1.0:
        # Measured: fewer, larger steps learn rare classes better, at no cost for the others.
        least, most = space.steps
        space = replace(space, steps=(least, max(least, most // 3)))
    return space.spread(moved, situation.recipe)
