"""One smooth curve through all noisy scores of a search, with a prior for where its top is.

Over the logarithm of the noise c, accuracy is a tent: both sides fall about linearly, the top is
round. The curve is

    score(x) = level - height * (sqrt(1 + (x - top)^2) - 1)

with x measured from the law's guess. Its level is free; height and top have priors measured over
many data sets. What the search uses is the mean of `top` given the scores: without scores that is
the law, and the noisier they are, the closer it stays.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_TOPS = np.linspace(-3.0, 3.0, 241)
_HEIGHTS = np.geomspace(0.1, 60.0, 129)  # in points of accuracy per unit of log c
_TYPICAL_HEIGHT, _SPREAD_OF_HEIGHTS = 4.0, 0.7


@dataclass(frozen=True)
class Curve:
    """What the scores say, in points of accuracy; `top_error` is a standard deviation."""

    top: float
    top_error: float
    level: float
    height: float

    def at(self, x: float) -> float:
        return self.level - self.height * float(_fall(np.float64(x - self.top)))


def fit(x: Sequence[float], points: Sequence[float], noise: float, prior_error: float) -> Curve:
    """The curve through `points` at `x`, each with Gaussian noise, given a top at 0 up to
    `prior_error`."""
    places, scores = np.asarray(x, dtype=float), np.asarray(points, dtype=float)
    log_prior = (
        -0.5 * (_TOPS[:, None] / prior_error) ** 2
        - 0.5 * (np.log(_HEIGHTS / _TYPICAL_HEIGHT) / _SPREAD_OF_HEIGHTS) ** 2
    )
    shapes = -_HEIGHTS[:, None] * _fall(places - _TOPS[:, None, None])  # (tops, heights, scores)
    if len(scores):
        misfit = (scores - scores.mean()) - (shapes - shapes.mean(-1, keepdims=True))
        log_posterior = log_prior - 0.5 * (misfit**2).sum(-1) / noise**2
    else:
        log_posterior = log_prior
    weights = np.exp(log_posterior - log_posterior.max())
    weights /= weights.sum()
    top = float((weights.sum(1) * _TOPS).sum())
    top_error = math.sqrt(float((weights.sum(1) * (_TOPS - top) ** 2).sum()))
    height = float(np.exp((weights.sum(0) * np.log(_HEIGHTS)).sum()))
    level = float((scores + height * _fall(places - top)).mean()) if len(scores) else 0.0
    return Curve(top, top_error, level, height)


def _fall(x: NDArray[np.float64] | np.float64) -> NDArray[np.float64] | np.float64:
    return np.sqrt(1 + x * x) - 1
