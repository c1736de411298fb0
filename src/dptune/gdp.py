"""Exact Gaussian differential privacy: mu to (epsilon, delta) and back.

A mechanism is mu-GDP when distinguishing a data set from its neighbour is at least as hard as
distinguishing N(0, 1) from N(mu, 1). Its privacy profile is (Balle & Wang 2018, Eq. 6; Dong, Roth &
Su 2022)

    delta(epsilon) = Phi(-t) - exp(epsilon) * Phi(-t - mu),     t = epsilon/mu - mu/2.

For small mu both terms underflow and cancel, so we compute in logarithms. Results are rounded
toward privacy: an epsilon or delta is never below the true value, and a mu from a budget is never
above it.

>>> round(mu_from_epsilon(1.0, 1e-5), 6)
0.268051
>>> round(epsilon_from_mu(0.5, 1e-5), 6)
1.993091
"""

import math
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr, ndtri

from dptune import rounding, validate
from dptune.roots import root

# Added to log(delta) on the private side. The evaluation error of `log_delta` is below 1e-12 in
# the range we accept (tests/test_gdp.py measures it against 50-digit arithmetic).
LOG_MARGIN = 1e-11
# Outside these limits no guarantee is useful, and rounding would need another analysis.
LARGEST_MU = 1e4
LARGEST_EPSILON = 1e6
SMALLEST_DELTA = 1e-100
_MOST_ROUNDS = 10_000  # of the iteration in `largest_exceedance`; its bound holds after each one

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_SQRT_2 = math.sqrt(2.0)
_SQRT_HALF_PI = math.sqrt(math.pi / 2.0)
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


def log_delta(mu: float, epsilon: float) -> float:
    """Log of the exact delta of a mu-GDP mechanism at `epsilon`, to about 12 digits.

    With the Mills ratio R(t) = Phi(-t)/phi(t) the profile is phi(t) * (R(t) - R(t + mu)). For
    mu < 1 that difference cancels, so it is taken as the integral of -R' = 1 - t R(t), whose
    integrand is positive and smooth.
    """
    if mu == 0.0:
        return -math.inf
    t = epsilon / mu - mu / 2.0
    if mu >= 1.0 and t <= 0.0:  # R overflows far to the left, where nothing cancels
        first = float(log_ndtr(-t))
        second = epsilon + float(log_ndtr(-t - mu))
        return first + math.log(-math.expm1(second - first))
    log_phi = -0.5 * t * t - _LOG_SQRT_2PI
    if mu >= 1.0:
        return log_phi + math.log(float(_mills(t) - _mills(t + mu)))
    if t > 40.0:  # delta is below 1e-340; 1 - t R(t) <= 1/t^2 bounds the integral from above
        return log_phi + math.log(mu) - math.log(t) - math.log(t + mu)
    points = t + (0.5 * mu) * (_NODES + 1.0)
    return log_phi + math.log(0.5 * mu * float(_WEIGHTS @ (1.0 - points * _mills(points))))


def _mills(t: Any) -> Any:
    return _SQRT_HALF_PI * erfcx(t / _SQRT_2)


def delta_from_mu(mu: float, epsilon: float) -> float:
    """Smallest delta for which a mu-GDP mechanism is (epsilon, delta)-DP, rounded up."""
    mu = validate.non_negative(mu=mu, at_most=LARGEST_MU)
    epsilon = validate.non_negative(epsilon=epsilon, at_most=LARGEST_EPSILON)
    if mu == 0.0:
        return 0.0
    # A delta that underflows is still above zero.
    return min(1.0, max(math.exp(log_delta(mu, epsilon) + LOG_MARGIN), sys.float_info.min))


def epsilon_from_mu(mu: float, delta: float) -> float:
    """Smallest epsilon for which a mu-GDP mechanism is (epsilon, delta)-DP, rounded up."""
    mu = validate.non_negative(mu=mu, at_most=LARGEST_MU)
    delta = validate.strictly_between(SMALLEST_DELTA, 1, delta=delta)
    target = math.log(delta) - LOG_MARGIN
    if mu == 0.0 or log_delta(mu, 0.0) <= target:
        return 0.0
    # delta(epsilon) < Phi(-t), so the epsilon at which Phi(-t) meets the target is too large.
    high = mu * (mu / 2.0 - float(ndtri(math.exp(target)))) * (1.0 + 1e-9)
    epsilon = root(lambda e: log_delta(mu, e) - target, 0.0, high, relative=1e-15)
    while log_delta(mu, epsilon) > target:
        epsilon = rounding.above(epsilon)
    return epsilon


def mu_from_epsilon(epsilon: float, delta: float) -> float:
    """Largest mu for which every mu-GDP mechanism is (epsilon, delta)-DP, rounded down."""
    epsilon = validate.non_negative(epsilon=epsilon, at_most=LARGEST_EPSILON)
    delta = validate.strictly_between(SMALLEST_DELTA, 1, delta=delta)
    target = math.log(delta) - LOG_MARGIN
    # delta < Phi(mu/2 - epsilon/mu) and delta < mu/sqrt(2 pi) bound mu from below.
    quantile = float(ndtri(math.exp(target)))
    length = math.hypot(quantile, math.sqrt(2.0 * epsilon))
    low = quantile + length if quantile > 0 else 2.0 * epsilon / (length - quantile)
    low = max(low, delta) * (1.0 - 1e-9)
    high = 2.0 * low
    while log_delta(high, epsilon) <= target:
        low, high = high, 2.0 * high
    mu = root(lambda m: log_delta(m, epsilon) - target, low, high, relative=1e-15)
    while log_delta(mu, epsilon) > target:
        mu = rounding.below(mu)
    return mu


def gaussian_exceedance(mu: float, epsilon: float) -> float:
    """The probability, rounded up, that one Gaussian release with this mu moves the odds on a row
    towards the truth by more than exp(epsilon).

    Its privacy loss is N(mu^2/2, mu^2). The result is far larger than delta(epsilon), which counts
    such outputs only by the excess of their probability.
    """
    if mu == 0.0:
        return 0.0
    chance = math.exp(float(log_ndtr(mu / 2.0 - epsilon / mu)) + LOG_MARGIN)
    return min(1.0, max(chance, sys.float_info.min))


def largest_exceedance(mu: float, epsilon: float, slack: float = 0.0) -> float:
    """The same for every mechanism that is mu-GDP with failure probability `slack`.

    The outputs that move the odds so far have a probability p with the row and q < p / exp(epsilon)
    without it. They define a test, so p <= slack + (1 - slack) Phi(PhiInv(q / (1 - slack)) + mu).
    The right side grows with q, so each bound on p gives a new one, starting from p <= 1. The limit
    is the largest p that a mechanism can have.
    """
    bound = 1.0
    for _ in range(_MOST_ROUNDS):
        previous = bound
        alarm = min(1.0, bound * math.exp(-epsilon) / (1.0 - slack))
        alarm = max(alarm, sys.float_info.min)  # a number that underflows is still above zero
        bound = slack + (1.0 - slack) * float(ndtr(ndtri(alarm) + mu)) * (1.0 + 1e-9)
        if not bound < previous * (1.0 - 1e-6):
            break
    return min(bound, 1.0)


def compose(mus: Iterable[float]) -> float:
    """The mu of their adaptive composition: the root of the sum of squares (Dong, Roth & Su 2022,
    Cor. 3.3), rounded up."""
    return rounding.above(math.hypot(*mus))


def full_batch_mu_squared(steps: int, noise_multiplier: float) -> float:
    """Price of `steps` full-batch steps: each releases a sum with noise `noise_multiplier` times
    its sensitivity, so mu^2 = steps / noise_multiplier^2, rounded up."""
    mu_squared = rounding.above(steps / noise_multiplier / noise_multiplier)
    return max(mu_squared, sys.float_info.min)  # a price that underflows is still above zero


def noise_multiplier(mu: float, steps: int) -> float:
    """Smallest noise for which `steps` full-batch steps together are mu-GDP, rounded up."""
    mu = validate.strictly_between(1e-120, LARGEST_MU, mu=mu)
    steps = validate.whole(1, steps=steps)
    noise = math.sqrt(steps) / mu
    while full_batch_mu_squared(steps, noise) > mu * mu:
        noise = rounding.above(noise)
    return noise
