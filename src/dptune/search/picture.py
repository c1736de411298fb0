"""The data of a search method's plot, as plain numbers."""

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
    """Scores over the total step size r at the price of the final run, so that cheap trials and the
    final run share one axis.

    `points` are the scored trials. `curve` is the fit as (r, points), and `top` its maximum. `law`
    is the r of the unit-noise law alone. `prior` and `posterior` are the ranges of the top before
    and after the scores, one standard deviation each way.
    """

    points: tuple[Point, ...]
    curve: tuple[tuple[float, float], ...]
    top: float
    law: float
    prior: tuple[float, float]
    posterior: tuple[float, float]


@dataclass(frozen=True)
class LinePicture:
    """The predicted r over the epsilon of a run, as (epsilon, r); empty if no sweep has scores."""

    line: tuple[tuple[float, float], ...]


Picture = CurvePicture | LinePicture
