"""The default search: the unit-noise law, corrected by a few cheap trials.

The linear scaling paper locates the best total step size with cheap trials and scales it up with
the budget. Here the law already predicts it up to a factor of about two. So three trials around the
prediction suffice to correct it, by one curve through their paid scores. Numbers and choices:
docs/design/law.md.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dptune.accounting import Budget
from dptune.search import curve
from dptune.search.base import Facts, SearchMethod, Situation, Stage
from dptune.search.law import best_noise, setting_at
from dptune.search.picture import CurvePicture, Point
from dptune.search.space import MANY_STEPS, Setting, Space
from dptune.search.trial import Trial, scored_trials

OFFSETS = (-1.4, 0.0, 1.4)  # of log c from the law
# The share of mu^2 for each trial: the least at low signal, more at high signal.
_LEAST_SHARE, _MOST_SHARE, _SIGNAL_OF_LEAST = 0.005, 0.05, 5.0
# Only a part of the law's error at a cheap trial carries over to a more expensive run: half of it
# at a hundredfold price, as measured.
_CARRY_OVER_POWER = 0.14


@dataclass(frozen=True)
class LinearScaling(SearchMethod):
    """Three cheap trials around the law's prediction, one smooth curve, one final run."""

    name: ClassVar[str] = "linear-scaling"
    wants_census: ClassVar[bool] = True
    usual_space: ClassVar[Space] = MANY_STEPS

    def fixed_steps(self, space: Space) -> int:
        return space.usual_steps

    def sweeps(self, budget: Budget, facts: Facts) -> tuple[Stage, ...]:
        growth = math.sqrt(facts.signal(budget.mu) / _SIGNAL_OF_LEAST)
        share = min(max(_LEAST_SHARE * growth, _LEAST_SHARE), _MOST_SHARE)
        return (Stage("sweep", len(OFFSETS), share * budget.mu_squared()),)

    def suggest(self, stage: Stage, situation: Situation) -> list[Setting]:
        if stage.trials > 1:
            noises = [noise_at(offset, stage.mu, situation) for offset in OFFSETS]
        else:
            noises = [noise_at(top_for(stage.mu, situation), stage.mu, situation)]
        return [run_at(noise, stage.mu, situation) for noise in noises]

    def picture(self, situation: Situation, mu: float) -> CurvePicture:
        fit, share = fit_scores(situation), carry_over_share(mu, situation)

        def r_from(offset: float) -> float:
            """The r of a run of price `mu` that corresponds to this offset of the trials."""
            return r_at(share * offset, mu, situation)

        trials = scored_trials(situation.history)
        offsets = [offset_of(trial, situation) for trial in trials]
        points = tuple(
            Point(
                trial.number,
                r_from(offset),
                100 * (trial.score or 0.0),
                score_error(trial, situation),
            )
            for trial, offset in zip(trials, offsets, strict=True)
        )
        ends = [*offsets, fit.top - 0.5, fit.top + 0.5]
        drawn = np.linspace(min(ends) - 0.3, max(ends) + 0.3, 121)
        return CurvePicture(
            points=points,
            curve=tuple((r_from(x), fit.at(x)) for x in map(float, drawn)),
            top=r_from(fit.top),
            law=r_at(0.0, mu, situation),
            prior=law_range(mu, situation),
            posterior=(r_from(fit.top - fit.top_error), r_from(fit.top + fit.top_error)),
        )


def fit_scores(situation: Situation) -> curve.Curve:
    """Fit the curve to all scored trials, over log c relative to the law at each trial's price."""
    trials = scored_trials(situation.history)
    offsets = [offset_of(trial, situation) for trial in trials]
    points = [100 * (trial.score or 0.0) for trial in trials]
    noise = max((score_error(trial, situation) for trial in trials), default=1.0)
    return curve.fit(offsets, points, noise, law_error(situation.facts))


def top_for(mu: float, situation: Situation) -> float:
    """The offset from the law, in log c, at which trials predict the best run of price `mu`."""
    return carry_over_share(mu, situation) * fit_scores(situation).top


def carry_over_share(mu: float, situation: Situation) -> float:
    """The share of the trials' offset from the law that carries over to a run of price `mu`."""
    largest = max((trial.mu for trial in scored_trials(situation.history)), default=mu)
    return float(min(1.0, (largest / mu) ** (2 * _CARRY_OVER_POWER)))


def law_error(facts: Facts) -> float:
    """The standard deviation, in log c, of the best c around the law."""
    return facts.prior.error if facts.unit_rows else facts.prior.error_off_unit_rows


def offset_of(trial: Trial, situation: Situation) -> float:
    """The trial's offset from the law, in log c."""
    return math.log(trial.noise / noise_at(0.0, trial.mu, situation))


def noise_at(offset: float, mu: float, situation: Situation) -> float:
    """The c at this `offset` from the law, in log c, for a run of price `mu`."""
    guess = best_noise(mu, situation.recipe, situation.facts, situation.census)
    return guess * math.exp(offset)


def score_error(trial: Trial, situation: Situation) -> float:
    """The standard error of a score in points: its noise, and the variation of training, which is
    larger at low signal."""
    of_training = min(max(60 / math.sqrt(trial.mu * situation.recipe.rows), 0.3), 4.0)
    return math.hypot(100 * (trial.score_noise or 0.0), of_training)


def run_at(noise: float, mu: float, situation: Situation) -> Setting:
    """The run of price `mu` that leaves this noise on its weights."""
    length = 1.0 if situation.census is None else situation.census.row_norm
    return setting_at(noise, mu, situation, length)


def r_at(offset: float, mu: float, situation: Situation) -> float:
    """The r of a run of price `mu` at this `offset` from the law, in log c."""
    return r_of(noise_at(offset, mu, situation), mu, situation)


def r_of(noise: float, mu: float, situation: Situation) -> float:
    """The r of a run of price `mu` that leaves this noise on its weights."""
    return run_at(noise, mu, situation).total_step_size


def law_range(mu: float, situation: Situation) -> tuple[float, float]:
    """The law's range for the best r of a run of price `mu`, one standard deviation each way."""
    error = law_error(situation.facts)
    return r_at(-error, mu, situation), r_at(error, mu, situation)
