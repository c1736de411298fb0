"""One smooth curve through all noisy scores of a search, with a prior on the place of its maximum.

Over the logarithm of the noise c, accuracy falls about linearly on both sides of a round maximum.
The curve is

    score(x) = level - height * (sqrt(1 + (x - top)^2) - 1)

with x measured from the law's prediction. The level has no prior; height and top have priors
measured over many data sets. The search uses the posterior mean of `top`. Without scores that is
the law, and noisier scores move it less.
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
    """The curve in points of accuracy; `top_error` is a standard deviation."""

    top: float
    top_error: float
    level: float
    height: float

    def at(self, x: float) -> float:
        return self.level - self.height * float(_fall(np.float64(x - self.top)))


def fit(x: Sequence[float], points: Sequence[float], noise: float, prior_error: float) -> Curve:
    """Fit the curve to `points` at `x` with Gaussian noise `noise`; the top has the prior
    N(0, prior_error^2)."""
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
