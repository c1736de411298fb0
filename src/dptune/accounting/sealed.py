"""A sealed search: it runs a random number of trials and releases only the best one.

Let u and v be the probabilities, with and without a row, that a trial scores above the winner. The
winner has the density of one trial times f'(1 - u), where f(x) = E[x^K] generates the number of
trials K, and f' <= f'(1) = E[K]. A bound R on f'(1 - u) / f'(1 - v) therefore gives

    delta(epsilon + log R) <= E[K] * delta_trial(epsilon).

The ratio bound is ours. A trial's profile says v <= e^h u + delta_trial(h). With odds =
gamma / (1 - gamma) the ratio is ((odds + v) / (odds + u))^(shape + 1), so it is at most
e^(h (shape + 1)) for every h at which delta_trial(h) <= odds * (e^h - 1): then odds + v <=
e^h (odds + u). The least such h touches the trade-off curve, so the bound equals a maximum over all
u. For a Poisson number of trials the ratio is exp(E[K] (v - u)), and v - u is at most
delta_trial(0). Every larger h is valid too, so an inexact root only makes the bound looser.

This module also has the published bounds: Renyi DP (Papernot & Steinke 2022), profiles (Koskela,
Redberg & Wang 2024, which the ratio bound never exceeds) and DP-HyPO's (Wang et al. 2023).

>>> ten, trial = TrialCount(mean=10, shape=1.0), GaussianMechanism(0.1)
>>> round(log_ratio(ten, trial), 6), round(ratio_epsilon(ten, trial, 1e-5), 6)
(0.180217, 0.577075)
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dptune import gdp, validate
from dptune.accounting import sampled
from dptune.accounting.renyi import RenyiCurve
from dptune.accounting.trial_count import TrialCount
from dptune.errors import InvalidInput
from dptune.roots import root

Array = NDArray[np.float64]

# Covers the rounding of means, odds and sums, which stays below 1e-13 (tests: 50 digits).
_MARGIN = 1e-12


class Mechanism(Protocol):
    """The privacy profile of a mechanism, such as one trial with its score. Both values are
    rounded up."""

    def delta(self, epsilon: float) -> float: ...
    def epsilon(self, delta: float) -> float: ...


@dataclass(frozen=True)
class GaussianMechanism:
    """A mechanism that is mu-GDP."""

    mu: float

    def delta(self, epsilon: float) -> float:
        return gdp.delta_from_mu(self.mu, epsilon)

    def epsilon(self, delta: float) -> float:
        return gdp.epsilon_from_mu(self.mu, delta)

    def renyi(self, orders: Array) -> Array:
        return orders * (self.mu * self.mu / 2)


@dataclass(frozen=True)
class SampledMechanism:
    """A mechanism with sampled steps, given by the vertices of its trade-off curve."""

    curve: sampled.TradeOff

    def delta(self, epsilon: float) -> float:
        above = self.curve.hit - math.exp(epsilon) * self.curve.false_alarm
        return min(1.0, max(0.0, float(np.max(above)) * (1 + _MARGIN)))

    def epsilon(self, delta: float) -> float:
        return self.curve.epsilon(delta)


def log_ratio(trials: TrialCount, trial: Mechanism) -> float:
    """The log of the largest ratio of a trial's probabilities of winning on two neighbours.

    Guarantees: never below the maximum over all scores.
    """
    if trials.is_poisson:
        return trials.mean * trial.delta(0.0) * (1 + _MARGIN)
    return (trials.shape + 1.0) * _least_exponent(trials, trial) * (1 + _MARGIN)


def _least_exponent(trials: TrialCount, trial: Mechanism) -> float:
    """The least h with delta(h) <= odds * (e^h - 1), approximated from above."""
    odds = trials.odds * (1 - _MARGIN)

    def excess(exponent: float) -> float:
        return trial.delta(exponent) - odds * math.expm1(exponent)

    if excess(0.0) <= 0:
        return 0.0
    high = math.log1p(1.0 / odds)  # here the right side is 1; no trial has a larger ratio
    if excess(high) >= 0:
        return high
    exponent = root(excess, 0.0, high, relative=1e-14)
    while excess(exponent) > 0:
        exponent *= 1 + 1e-14
    return exponent


def ratio_epsilon(trials: TrialCount, trial: Mechanism, delta: float) -> float:
    """Epsilon of the search at `delta` by the ratio bound.

    Guarantees: an upper bound for every score and every way to break ties.
    """
    return _one_trial_epsilon(trials, trial, delta) + log_ratio(trials, trial)


def profile_epsilon(trials: TrialCount, trial: Mechanism, delta: float) -> float:
    """Epsilon by privacy profiles (Koskela, Redberg & Wang 2024): every h is valid, and
    log(e^h + delta(h) / odds) replaces h. A Poisson number of trials uses the ratio bound."""
    if trials.is_poisson:
        return ratio_epsilon(trials, trial, delta)
    from scipy.optimize import minimize_scalar  # slow to import

    odds = trials.odds * (1 - _MARGIN)

    def cost(exponent: float) -> float:
        return math.log1p(math.expm1(exponent) + trial.delta(exponent) / odds)

    # Convex in e^h. The minimum lies below twice the exponent of the ratio: there e^h alone is
    # larger than the cost at that exponent.
    start = exponent = _least_exponent(trials, trial)
    if start > 0:
        search = {"bounds": (0.0, 2 * start), "method": "bounded"}
        exponent = float(minimize_scalar(cost, options={"xatol": 1e-7 * start}, **search).x)
    extra = (trials.shape + 1.0) * min(cost(exponent), cost(start)) * (1 + _MARGIN)
    return _one_trial_epsilon(trials, trial, delta) + extra


def _one_trial_epsilon(trials: TrialCount, trial: Mechanism, delta: float) -> float:
    """Epsilon of one trial at delta / E[K]."""
    delta = validate.strictly_between(0, 1, delta=delta)
    return trial.epsilon(delta / trials.mean * (1 - _MARGIN)) * (1 + _MARGIN)


def search_curve(
    trials: TrialCount,
    curve: RenyiCurve,
    *,
    trial: Mechanism | None = None,
    density_ratio: float | None = None,
) -> RenyiCurve:
    """Renyi DP of a search from that of one trial (Papernot & Steinke 2022, Theorems 2 and 6).

    A Poisson number of trials also needs the profile of a `trial`. With a `density_ratio` C/c, a
    trial may choose its settings from earlier outputs, by a density between c and C times a public
    one (DP-HyPO, Wang et al. 2023).
    """
    orders = curve.orders
    values = curve.values + math.log(trials.mean) / (orders - 1.0)
    if density_ratio is not None:
        ratio = _checked_ratio(trials, density_ratio)
        values += (orders / (orders - 1.0) + 1.0 + trials.shape) * math.log(ratio)
    if trials.is_poisson:
        if trial is None:
            raise InvalidInput(
                "a Poisson number of trials needs the profile of a trial; got none. Pass `trial`."
            )
        at = np.log1p(1.0 / (orders - 1.0))
        values += trials.mean * np.array([trial.delta(float(epsilon)) for epsilon in at])
    else:
        values += _log_ratio_by_renyi(trials, curve)
    # Divergences grow with the order, so a bound at a larger order also holds at a smaller one.
    return RenyiCurve(orders, np.minimum.accumulate(values[::-1])[::-1])


def renyi_epsilon(
    trials: TrialCount, curve: RenyiCurve, delta: float, *, trial: Mechanism | None = None
) -> float:
    """Epsilon by Renyi DP: the published bound."""
    return search_curve(trials, curve, trial=trial).epsilon(delta)


def adaptive_epsilon(
    trials: TrialCount, curve: RenyiCurve, delta: float, *, density_ratio: float
) -> float:
    """Epsilon of DP-HyPO, whose trials choose their settings from earlier ones."""
    return search_curve(trials, curve, density_ratio=density_ratio).epsilon(delta)


def _checked_ratio(trials: TrialCount, density_ratio: float) -> float:
    ratio = validate.positive(density_ratio=density_ratio)
    if ratio < 1 or trials.is_poisson:
        raise InvalidInput(
            f"DP-HyPO needs a density_ratio of at least 1 and a negative binomial number of "
            f"trials; got {ratio:g} and shape {trials.shape:g}. Change one of them."
        )
    return ratio


def _log_ratio_by_renyi(trials: TrialCount, curve: RenyiCurve) -> float:
    """The Renyi bound's counterpart of `log_ratio`; at order 1 it is log(1/gamma)."""
    log_inverse, orders = trials.log_inverse_gamma, curve.orders
    bounds = (1.0 - 1.0 / orders) * curve.values + log_inverse / orders
    return (1.0 + trials.shape) * min(log_inverse, float(np.min(bounds)))


@dataclass(frozen=True, kw_only=True)
class GaussianSearch:
    """A whole search with mu-GDP trials, as one mechanism with a privacy profile.

    Guarantees: both values are upper bounds, by the smaller of ratio bound and Renyi DP or, with a
    `density_ratio`, by Renyi DP alone.
    """

    trials: TrialCount
    mu: float
    density_ratio: float | None = None

    def delta(self, epsilon: float) -> float:
        by_renyi = self._curve.delta(epsilon)
        if self.density_ratio is not None or epsilon < self._log_ratio:
            return by_renyi
        # The subtraction's rounding error is smaller than this times the larger number.
        past = max(0.0, (epsilon - self._log_ratio) - 1e-15 * epsilon)
        one = gdp.delta_from_mu(self.mu, past)
        return min(1.0, by_renyi, self.trials.mean * one * (1 + _MARGIN))

    def epsilon(self, delta: float) -> float:
        by_renyi = self._curve.epsilon(delta)
        if self.density_ratio is not None:
            return by_renyi
        return min(by_renyi, ratio_epsilon(self.trials, GaussianMechanism(self.mu), delta))

    def renyi(self, orders: Array) -> Array:
        curve = self._curve_at(orders)
        divergences: Array = curve.values[np.searchsorted(curve.orders, orders)]
        return divergences

    @cached_property
    def _curve(self) -> RenyiCurve:
        return self._curve_at()

    def _curve_at(self, also: Array | None = None) -> RenyiCurve:
        return search_curve(
            self.trials,
            RenyiCurve.gaussian(self.mu, also=also),
            trial=GaussianMechanism(self.mu),
            density_ratio=self.density_ratio,
        )

    @cached_property
    def _log_ratio(self) -> float:
        return log_ratio(self.trials, GaussianMechanism(self.mu))


BOUNDS = ("ratio", "profile", "renyi")


def gaussian_epsilon(trials: TrialCount, mu: float, delta: float, bound: str = "ratio") -> float:
    """Epsilon at `delta` of a search whose trials are mu-GDP, by one of `BOUNDS`."""
    validate.one_of(BOUNDS, bound=bound)
    trial = GaussianMechanism(validate.non_negative(mu=mu, at_most=gdp.LARGEST_MU))
    if mu == 0:
        return 0.0
    if bound == "renyi":
        return renyi_epsilon(trials, RenyiCurve.gaussian(mu), delta, trial=trial)
    bound_epsilon = ratio_epsilon if bound == "ratio" else profile_epsilon
    return bound_epsilon(trials, trial, delta)
