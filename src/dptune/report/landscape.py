"""The scores of a search as one landscape: over the total step size r that a run would have at the
price of the final run, so that cheap trials and the final run stand on one axis."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dptune.search.base import Situation
from dptune.search.linear_scaling import (
    fitted,
    law_error,
    noise_at,
    offset_of,
    score_error,
    setting_at,
)
from dptune.search.trial import Trial


@dataclass(frozen=True)
class Point:
    """One trial; score and error in points."""

    number: int
    r: float
    score: float
    error: float


@dataclass(frozen=True)
class Landscape:
    """Trials with scores, the curve through them as (r, points), its `top`, and where the top was
    expected before (`prior`) and after (`posterior`) the scores, by one standard deviation."""

    points: tuple[Point, ...]
    curve: tuple[tuple[float, float], ...]
    top: float
    prior: tuple[float, float]
    posterior: tuple[float, float]


def readable(r: float) -> str:
    return f"{r:,.0f}" if r >= 1000 else f"{r:.4g}"


def scored(trials: Sequence[Trial]) -> list[Trial]:
    return [trial for trial in trials if trial.score is not None]


def landscape(situation: Situation, mu: float) -> Landscape:
    """What the linear scaling search sees when it chooses a final run of price `mu`."""
    curve = fitted(situation)
    trials = scored(situation.history)
    offsets = [offset_of(trial, situation) for trial in trials]
    points = tuple(
        Point(
            trial.number,
            r_at(offset, situation, mu),
            100 * (trial.score or 0.0),
            score_error(trial, situation),
        )
        for trial, offset in zip(trials, offsets, strict=True)
    )
    ends = [*offsets, curve.top - 0.5, curve.top + 0.5]
    drawn = np.linspace(min(ends) - 0.3, max(ends) + 0.3, 121)
    return Landscape(
        points=points,
        curve=tuple((r_at(x, situation, mu), curve.at(x)) for x in map(float, drawn)),
        top=r_at(curve.top, situation, mu),
        prior=expected(situation, mu),
        posterior=(
            r_at(curve.top - curve.top_error, situation, mu),
            r_at(curve.top + curve.top_error, situation, mu),
        ),
    )


def expected(situation: Situation, mu: float) -> tuple[float, float]:
    """Where the law expects the best r of a run of price `mu`, by one standard deviation."""
    error = law_error(situation.facts)
    return r_at(-error, situation, mu), r_at(error, situation, mu)


def r_at(offset: float, situation: Situation, mu: float) -> float:
    """The r of a run of price `mu` that lies `offset` from the law, in log c."""
    return r_of(noise_at(offset, mu, situation), situation, mu)


def r_of(noise: float, situation: Situation, mu: float) -> float:
    """The r of a run of price `mu` that leaves this noise on its weights."""
    return setting_at(noise, mu, situation).total_step_size
