"""What a method has to show of its search beside the trials: plain numbers, for whoever draws."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """One trial at the price of the final run; score and error in points."""

    number: int
    r: float
    score: float
    error: float


@dataclass(frozen=True)
class CurvePicture:
    """Scores over the total step size r that a run would have at the price of the final run, so
    that cheap trials and the final run stand on one axis.

    `points` are the trials with scores, `curve` goes through them as (r, points), with its `top`.
    `law` is the r of the unit-noise law alone; `prior` and `posterior` are where the top was
    expected before and after the scores, by one standard deviation.
    """

    points: tuple[Point, ...]
    curve: tuple[tuple[float, float], ...]
    top: float
    law: float
    prior: tuple[float, float]
    posterior: tuple[float, float]


@dataclass(frozen=True)
class LinePicture:
    """The r that is predicted over the epsilon of a run, as (epsilon, r); empty where no sweep has
    scores to predict from."""

    line: tuple[tuple[float, float], ...]


Picture = CurvePicture | LinePicture
