"""DP-HyPO (Wang et al. 2023): a sealed search whose proposals learn from its own earlier trials.

A Gaussian process over a grid of settings predicts promising trials. Its preference is bounded: the
probability of each setting differs from a public distribution by at most a factor, and that factor
has a price.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.errors import InvalidInput
from dptune.search.base import Situation, Stage
from dptune.search.private_selection import RandomlyStopped
from dptune.search.sealing import Sealing
from dptune.search.space import Setting, Space
from dptune.search.trial import Trial, scored_trials

_RATES, _STEPS = 16, 10  # of the grid
_CURIOSITY, _EAGERNESS = 0.1, 1.0  # tau and beta of the paper
_REACH, _NOISE = 0.3, 0.1  # length scale as a share of the space; noise relative to the scores

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Hypo(RandomlyStopped):
    """`density_ratio` bounds the ratio of two settings' probabilities. The authors' ratio, 2.67,
    costs more than epsilon 1 even without any trial."""

    name: ClassVar[str] = "hypo"
    density_ratio: float = 1.1

    def __post_init__(self) -> None:
        ratio = validate.positive(density_ratio=self.density_ratio)
        if ratio < 1:
            raise InvalidInput(
                "density_ratio bounds the ratio of two settings' probabilities and must be at "
                f"least 1; got {ratio:g}."
            )
        validate.store(self, density_ratio=ratio)
        super().__post_init__()

    @property
    def sealing(self) -> Sealing:
        return replace(super().sealing, density_ratio=self.density_ratio)

    def suggest(self, stage: Stage, situation: Situation) -> list[Setting]:
        cells = situation.space.grid(_RATES, _STEPS)
        preferred = preferred_odds(cells, situation.history, situation.space)
        odds = limit_odds(preferred, self.density_ratio)
        chosen = situation.choices.choice(len(cells), size=stage.trials, p=odds)
        return [cells[index] for index in chosen]


def preferred_odds(cells: Sequence[Setting], history: Sequence[Trial], space: Space) -> Array:
    """Probabilities of the cells, by the mean and the uncertainty of the process."""
    trials = scored_trials(history)
    if len(trials) < 2:
        return np.full(len(cells), 1 / len(cells))
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF

    scores = np.array([trial.score for trial in trials], dtype=float)
    spread = float(scores.std()) or 1.0
    process = GaussianProcessRegressor(RBF(_REACH, "fixed"), alpha=_NOISE, optimizer=None)
    places = [_place(trial.plan.learning_rate, trial.plan.steps, space) for trial in trials]
    process.fit(places, (scores - scores.mean()) / spread)
    where = [_place(cell.learning_rate, cell.steps, space) for cell in cells]
    mean, deviation = process.predict(where, return_std=True)
    worth = _EAGERNESS * (mean + _CURIOSITY * deviation)
    weights = np.exp(worth - worth.max())
    odds: Array = weights / weights.sum()
    return odds


def limit_odds(preferred: Array, density_ratio: float) -> Array:
    """The nearest probabilities with ratios of at most `density_ratio`, each within a factor of its
    square root of the uniform distribution.

    Guarantees: the bound holds for the returned numbers, with a margin for the rounding of draws.
    """
    root = math.sqrt(density_ratio) ** (1 - 1e-6)
    least, most = 1 / (root * len(preferred)), root / len(preferred)
    low, high = least - float(preferred.max()), most - float(preferred.min())
    for _ in range(200):  # bisection: the sum grows with the offset
        middle = (low + high) / 2
        total = float(np.clip(preferred + middle, least, most).sum())
        low, high = (middle, high) if total < 1 else (low, middle)
    clipped = np.clip(preferred + high, least, most)
    odds: Array = clipped / clipped.sum()
    return odds


def _place(learning_rate: float, steps: int, space: Space) -> tuple[float, float]:
    """The setting in the unit square, on logarithmic scales."""
    rates, counts = space.learning_rate, space.steps
    return _between(learning_rate, *rates), _between(steps, *counts)


def _between(value: float, low: float, high: float) -> float:
    return math.log(value / low) / math.log(high / low) if high > low else 0.5
