"""A study in a few words: what it promises, and what the scores of its search decided."""

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import combinations, groupby

from dptune.accounting import Guarantee
from dptune.accounting.guarantees import (
    LARGEST_MEANINGFUL_EPSILON,
    ONE_PERSON,
    ONE_PICTURE,
    ONE_ROW,
    ONE_TEXT,
)
from dptune.rounding import cost, probability
from dptune.search.picture import CurvePicture, Picture, Point
from dptune.search.trial import Trial, scored_trials

# What neighbours differ in: zero-out keeps the number of rows, which is public.
_PROTECTED = {
    ONE_ROW: "any one row by an empty one",
    ONE_PICTURE: "any one picture by an empty row",
    ONE_TEXT: "any one text by an empty one",
    ONE_PERSON: "all texts of any one person by empty ones",
}


def sentence(words: str) -> str:
    """`words` with a capital and a full stop."""
    return f"{words[0].upper()}{words[1:]}."


def promise(guarantee: Guarantee) -> str:
    """The definition of (epsilon, delta)-differential privacy in numbers, or why there is none."""
    if guarantee.covers_selection is False:
        return "No privacy is promised: trials were chosen by scores that were not paid for."
    epsilon, delta = Decimal(cost(guarantee.epsilon)), probability(guarantee.delta)
    stated = f"epsilon = {epsilon.normalize():f} and delta = {delta} for {guarantee.unit}"
    if guarantee.epsilon > LARGEST_MEANINGFUL_EPSILON:
        return f"{sentence(stated)} So large an epsilon protects nobody in any provable way."
    search = ", the search included" * bool(guarantee.covers_search)
    factor = cost(math.exp(guarantee.epsilon), 2)
    return (
        f"Differential privacy with {stated}{search}. Replacing "
        f"{_PROTECTED[guarantee.unit]}, or back, changes the probability of any outcome of this "
        f"study by at most a factor of {factor}, plus {Decimal(delta):f}. Facts taken as public "
        "are not protected."
    )


def readable(r: float) -> str:
    """A total step size with as many digits as matter."""
    return f"{r:,.0f}" if r >= 1000 else f"{r:.4g}"


def verdict(picture: Picture | None, trials: Iterable[Trial]) -> str:
    """A warning where the scores cannot tell trials apart; `picture` is what the method shows of
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
    """The score in points, and the noise on it."""
    return 100 * (trial.score or 0.0), 100 * (trial.score_noise or 0.0)
