"""The default search: the unit-noise law, corrected by a few cheap trials.

The linear scaling paper locates the best total step size with cheap trials and scales it up with
the budget. Here the law already says where it is up to a factor of two or so, so three trials,
spread around it, suffice to notice where the law is off; one curve through their paid scores moves
the final run. Numbers and choices: docs/design/law.md.
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
# Of mu^2, each trial: little where signal is dear, more where there is plenty of it.
_LEAST_SHARE, _MOST_SHARE, _SIGNAL_OF_LEAST = 0.005, 0.05, 5.0
# How far the law is off for a cheap trial tells less about a dearer run: over a hundredfold price
# half of it, by measurement.
_TOLD_BY_PRICE = 0.14


@dataclass(frozen=True)
class LinearScaling(SearchMethod):
    """The law's guess, three cheap trials around it, one smooth curve, one final run."""

    name: ClassVar[str] = "linear-scaling"
    wants_census: ClassVar[bool] = True
    usual_space: ClassVar[Space] = MANY_STEPS

    def fixed_steps(self, space: Space) -> int:
        return space.usual_steps

    def sweeps(self, budget: Budget, facts: Facts) -> tuple[Stage, ...]:
        plenty = math.sqrt(facts.signal(budget.mu) / _SIGNAL_OF_LEAST)
        share = min(max(_LEAST_SHARE * plenty, _LEAST_SHARE), _MOST_SHARE)
        return (Stage("sweep", len(OFFSETS), share * budget.mu_squared()),)

    def suggest(self, stage: Stage, situation: Situation) -> list[Setting]:
        if stage.trials > 1:
            noises = [noise_at(offset, stage.mu, situation) for offset in OFFSETS]
        else:
            noises = [noise_at(top_for(stage.mu, situation), stage.mu, situation)]
        return [run_at(noise, stage.mu, situation) for noise in noises]

    def picture(self, situation: Situation, mu: float) -> CurvePicture:
        fit, told = fit_scores(situation), told_about(mu, situation)

        def r_from(offset: float) -> float:
            """Of a run of price `mu`, where trials were best so far from the law."""
            return r_at(told * offset, mu, situation)

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
    """The curve through all scored trials, over log c from the law at each trial's price."""
    trials = scored_trials(situation.history)
    offsets = [offset_of(trial, situation) for trial in trials]
    points = [100 * (trial.score or 0.0) for trial in trials]
    noise = max((score_error(trial, situation) for trial in trials), default=1.0)
    return curve.fit(offsets, points, noise, law_error(situation.facts))


def top_for(mu: float, situation: Situation) -> float:
    """How far from the law a run of price `mu` is best, in log c, as far as trials tell."""
    return told_about(mu, situation) * fit_scores(situation).top


def told_about(mu: float, situation: Situation) -> float:
    """What part of that which trials were off by a run of price `mu` will be off by, too."""
    dearest = max((trial.mu for trial in scored_trials(situation.history)), default=mu)
    return float(min(1.0, (dearest / mu) ** (2 * _TOLD_BY_PRICE)))


def law_error(facts: Facts) -> float:
    """How far the best c lies from the law: one standard deviation, in log c."""
    return facts.prior.error if facts.unit_rows else facts.prior.error_off_unit_rows


def offset_of(trial: Trial, situation: Situation) -> float:
    """How far from the law the trial was, in log c."""
    return math.log(trial.noise / noise_at(0.0, trial.mu, situation))


def noise_at(offset: float, mu: float, situation: Situation) -> float:
    """The c that lies `offset` from the law, in log c, for a run of price `mu`."""
    guess = best_noise(mu, situation.recipe, situation.facts, situation.census)
    return guess * math.exp(offset)


def score_error(trial: Trial, situation: Situation) -> float:
    """Of a score, in points: the paid noise, and how much two equal trials differ, which is larger
    the less signal there is."""
    of_training = min(max(60 / math.sqrt(trial.mu * situation.recipe.rows), 0.3), 4.0)
    return math.hypot(100 * (trial.score_noise or 0.0), of_training)


def run_at(noise: float, mu: float, situation: Situation) -> Setting:
    """The run of price `mu` that leaves this noise on its weights."""
    length = 1.0 if situation.census is None else situation.census.row_norm
    return setting_at(noise, mu, situation, length)


def r_at(offset: float, mu: float, situation: Situation) -> float:
    """The r of a run of price `mu` that lies `offset` from the law, in log c."""
    return r_of(noise_at(offset, mu, situation), mu, situation)


def r_of(noise: float, mu: float, situation: Situation) -> float:
    """The r of a run of price `mu` that leaves this noise on its weights."""
    return run_at(noise, mu, situation).total_step_size


def law_range(mu: float, situation: Situation) -> tuple[float, float]:
    """Where the law expects the best r of a run of price `mu`, by one standard deviation."""
    error = law_error(situation.facts)
    return r_at(-error, mu, situation), r_at(error, mu, situation)
