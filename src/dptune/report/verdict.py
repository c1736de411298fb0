"""What the scores of a search decided, in a few words: often little, and people should know."""

import math
from collections.abc import Sequence
from itertools import combinations, groupby

from dptune.report.landscape import r_at, readable, scored
from dptune.search.base import SearchMethod, Situation
from dptune.search.linear_scaling import LinearScaling, score_error
from dptune.search.trial import Trial


def verdict(search: SearchMethod, situation: Situation, mu: float) -> str:
    """Said where the scores cannot tell trials apart; `mu` is the price of the final run."""
    trials = scored(situation.history)
    noisy = "the scores differ by no more than their noise"
    if isinstance(search, LinearScaling):
        law = f"the unit-noise law alone says r = {readable(r_at(0.0, situation, mu))}"
        if not trials:
            return f"no trial was scored; {law}"
        errors = [score_error(trial, situation) for trial in trials]
        return f"{noisy}, so they decided little; {law}" if _are_alike(trials, errors) else ""
    sweeps = [list(sweep) for _, sweep in groupby(trials, lambda trial: trial.stage)]
    if sweeps and all(_are_alike(sweep, [_paid_noise(t) for t in sweep]) for sweep in sweeps):
        return f"{noisy}, so which of them is the best is mostly chance"
    return ""


def _are_alike(trials: Sequence[Trial], errors: Sequence[float]) -> bool:
    """Whether no two scores differ by more than one standard deviation of their difference."""
    points = [(100 * (trial.score or 0.0), e) for trial, e in zip(trials, errors, strict=True)]
    return all(
        abs(one - other) <= math.hypot(error, other_error)
        for (one, error), (other, other_error) in combinations(points, 2)
    )


def _paid_noise(trial: Trial) -> float:
    return 100 * (trial.score_noise or 0.0)
