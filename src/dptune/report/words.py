"""A search in a few words: what its scores decided, which is often little, and people should
know."""

import math
from collections.abc import Iterable, Sequence
from itertools import combinations, groupby

from dptune.search.picture import CurvePicture, Picture, Point
from dptune.search.trial import Trial, scored_trials


def readable(r: float) -> str:
    """A total step size, as long as its digits say something."""
    return f"{r:,.0f}" if r >= 1000 else f"{r:.4g}"


def verdict(picture: Picture | None, trials: Iterable[Trial]) -> str:
    """Said where the scores cannot tell trials apart; `picture` is what the method shows of
    them."""
    noisy = "the scores differ by no more than their noise"
    if isinstance(picture, CurvePicture):
        law = f"the unit-noise law alone says r = {readable(picture.law)}"
        if not picture.points:
            return f"no trial was scored; {law}"
        scores = [(point.score, point.error) for point in picture.points]
        if _are_alike(scores):
            return f"{noisy}, so they decided little; {law}"
        if _fall_and_rise(picture.points):
            return f"the scores fall and rise again, so the law was believed more; {law}"
        return ""
    sweeps = groupby(scored_trials(trials), lambda trial: trial.stage)
    alike = [_are_alike([_score(trial) for trial in sweep]) for _, sweep in sweeps]
    if alike and all(alike):
        return f"{noisy}, so which of them is the best is mostly chance"
    return ""


def _are_alike(scores: Sequence[tuple[float, float]]) -> bool:
    """Whether no two scores differ by more than one standard deviation of their difference."""
    return all(
        abs(one - other) <= math.hypot(error, other_error)
        for (one, error), (other, other_error) in combinations(scores, 2)
    )


def _fall_and_rise(points: Iterable[Point]) -> bool:
    """Whether some score is below one on either side of it by more than one standard deviation of
    their difference: no curve with one top is near such scores."""

    def above(one: Point, other: Point) -> bool:
        return one.score - other.score > math.hypot(one.error, other.error)

    by_r = sorted(points, key=lambda point: point.r)
    return any(
        above(left, middle) and above(right, middle)
        for left, middle, right in combinations(by_r, 3)
    )


def _score(trial: Trial) -> tuple[float, float]:
    """In points, and the noise that was paid for on it."""
    return 100 * (trial.score or 0.0), 100 * (trial.score_noise or 0.0)
