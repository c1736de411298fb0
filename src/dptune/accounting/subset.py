"""A search on a secret sample of the rows, then a final run on the others or on all of them.

Every row joins the sample with probability q. Neighbours differ in one row, which is present or
empty. Give the attacker the sample membership of all other rows: that can only help, and it is the
same for both neighbours. Let the search's output follow P1 if the row is present and in the sample,
else Q1. Let the final run's output, given the search's, follow P2 if it uses the row, else Q2. Then
all outputs together follow

    with the row     q P1 Q2 + (1 - q) Q1 P2   (on the others)    (q P1 + (1 - q) Q1) P2   (on all)
    without it       Q1 Q2

An empty row adds nothing in either place, so without the row there is no mixture. All that sampling
gains rests on the secrecy of where the row is. So nothing may be computed from the sample's size,
which counts empty rows: with the other rows known, it reveals where the row is. Use the public
expected size instead.

By Blackwell's theorem, a pair of distributions whose trade-off curve lies below that of (P1, Q1)
can be mapped to (P1, Q1) by one random map, the same for both distributions. Likewise a map for
each output of the search takes N(mu, 1), N(0, 1) to (P2, Q2): the final run may be chosen from that
output, if its mu was fixed before. Both maps in turn take mixtures to mixtures. Hence the outputs
reveal no more than a draw of the likelihood ratio l and an independent number y, which is standard
normal without the row, with a joint ratio of

    q l + (1 - q) e^(mu y - mu^2/2)   (on the others)    (q l + 1 - q) e^(mu y - mu^2/2)   (on all)

The search's curve is bounded from below by one tangent for each of many epsilons; its profile gives
their heights. Their maximum is piecewise linear: each piece is an atom, and delta is a sum of
closed forms. The two neighbours are not symmetric here, so we compute both directions and take the
worse.

>>> search = discretize(lambda epsilon: gdp.delta_from_mu(0.5361, epsilon), largest=5.0)
>>> both = DominatingPair.of(search, 0.26805, sampling_rate=0.1, disjoint=True)
>>> round(both.epsilon(1e-5), 4)
0.9337
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp, ndtr

from dptune import gdp, validate
from dptune.accounting.sampled import TradeOff
from dptune.roots import root

Array = NDArray[np.float64]

# Tangents to a profile: over seven deviations of the loss they lie 0.007 apart, which inflates mu
# by 0.007^2 / 12.
_TANGENTS = 1000
# Products of two exponentials stay within double precision.
_LARGEST_LOSS = 300.0
# Relative margin for every term of a sum; terms are exact to 1e-13 (tests: 40 digits).
_MARGIN = 1e-12
# A smaller mu is replaced by this one.
_SMALLEST_MU = 1e-12
# The best order of a budget of epsilon 0.01 is near this; sums of smaller ones are cheap.
LARGEST_ORDER = 2048


@dataclass(frozen=True)
class LikelihoodRatios:
    """A search's outputs as finitely many atoms: the log likelihood ratio of each (row present
    against empty) and its probability without the row. `proof` is the probability, with the row,
    of outputs that are impossible without it."""

    log_ratio: Array
    mass: Array
    proof: float

    def curve(self) -> TradeOff:
        """Their trade-off curve, rounded up; the same in both directions."""
        order = np.argsort(-self.log_ratio, kind="stable")
        mass, ratio = self.mass[order], np.exp(self.log_ratio[order])
        hit = (self.proof + np.cumsum(ratio * mass)) * (1 + _MARGIN)
        return TradeOff(hit=hit, false_alarm=np.cumsum(mass) * (1 - _MARGIN))


def discretize(profile: Callable[[float], float], largest: float) -> LikelihoodRatios:
    """The atoms of a mechanism with this privacy profile, which must hold in both directions.
    Losses above `largest` count as proof that the row is present.

    Guarantees: their trade-off curve lies below the mechanism's.
    """
    epsilons = np.unique(np.linspace(0.0, min(largest, _LARGEST_LOSS), _TANGENTS))
    deltas = np.minimum.accumulate([min(1.0, profile(float(at))) for at in epsilons])
    # Tangents: miss >= 1 - delta - e^epsilon * false_alarm, and mirrored. Above the diagonal (miss
    # equals false alarm) only tangents count that are steeper than the one with the highest
    # crossing.
    diagonal = (1.0 - deltas) / (1.0 + np.exp(epsilons))
    first = int(np.argmax(diagonal))
    touching, corners = _envelope(epsilons[first:], deltas[first:])
    ends = np.array([diagonal[first], *corners, 0.0])
    above, width = epsilons[first:][touching], np.maximum(ends[:-1] - ends[1:], 0.0)
    proof = float(deltas[first:][touching[-1]])
    return LikelihoodRatios(
        log_ratio=np.concatenate([above, -above, [-math.inf]]),
        mass=np.concatenate([width, np.exp(above) * width, [proof]]),
        proof=proof,
    )


def _envelope(epsilons: Array, deltas: Array) -> tuple[list[int], list[float]]:
    """The tangents that touch their maximum, and the false alarms at which the next one begins."""
    touching, corners = [0], list[float]()
    for new in range(1, epsilons.size):
        while True:
            last = touching[-1]
            gap = math.exp(epsilons[last]) * math.expm1(epsilons[new] - epsilons[last])
            corner = float(deltas[last] - deltas[new]) / gap
            if not corners or corner < corners[-1]:
                break
            touching.pop()
            corners.pop()
        if corner > 0:
            touching.append(new)
            corners.append(corner)
    return touching, corners


@dataclass(frozen=True)
class DominatingPair:
    """Search and final run together. Given an atom of the search, the joint likelihood ratio is
    flat + steep * e^(mu y - mu^2/2)."""

    mass: Array
    flat: Array
    steep: Array
    tilt: Array  # flat + steep - 1, to more digits
    proof: float
    mu: float

    @staticmethod
    def of(
        search: LikelihoodRatios, final_mu: float, *, sampling_rate: float, disjoint: bool
    ) -> "DominatingPair":
        """With `disjoint`, the final run uses only the rows outside the sample."""
        final_mu = validate.non_negative(final_mu=final_mu, at_most=gdp.LARGEST_MU)
        rate = validate.strictly_between(0, 1, sampling_rate=sampling_rate)
        tilt = rate * np.expm1(search.log_ratio)
        flat = rate * np.exp(search.log_ratio) if disjoint else np.zeros_like(tilt)
        steep = np.full_like(tilt, 1.0 - rate) if disjoint else 1.0 + tilt
        mu = max(final_mu, _SMALLEST_MU)
        return DominatingPair(search.mass, flat, steep, tilt, rate * search.proof, mu)

    def delta(self, epsilon: float) -> float:
        """The delta at `epsilon` in the worse direction.

        Guarantees: an upper bound for every mechanism whose parts have these curves.
        """
        epsilon = validate.non_negative(epsilon=epsilon, at_most=_LARGEST_LOSS)
        factor, mu, flat, steep = math.exp(epsilon), self.mu, self.flat, self.steep
        least = self._points_of_ratio(epsilon)  # above it the ratio exceeds e^epsilon
        with_row = steep * ndtr(mu - least) + flat * ndtr(-least)
        there = self.proof + self._excess(with_row, factor * ndtr(-least))
        most = self._points_of_ratio(-epsilon)  # below it the ratio is less than e^-epsilon
        with_row = steep * ndtr(most - mu) + flat * ndtr(most)
        gone = self._excess(ndtr(most), factor * with_row)
        return min(1.0, max(there, gone))

    def epsilon(self, delta: float) -> float:
        """The least epsilon with at most this delta, rounded up; infinite if there is none."""
        target = math.log(validate.strictly_between(0, 1, delta=delta))

        def excess(epsilon: float) -> float:
            return math.log(max(self.delta(epsilon), sys.float_info.min)) - target

        if excess(0.0) <= 0:
            return 0.0
        low, high = 0.0, 1e-3
        while excess(high) > 0:
            low, high = high, 2 * high
            if high > _LARGEST_LOSS:
                return math.inf
        epsilon = root(excess, low, high, relative=1e-12)
        while excess(epsilon) > 0:
            epsilon *= 1 + 1e-12
        return epsilon

    def _points_of_ratio(self, log_ratio: float) -> Array:
        """The y at which the joint log ratio is this; -inf where it is larger for every y."""
        relative = np.maximum((math.expm1(log_ratio) - self.tilt) / self.steep, -1.0)
        with np.errstate(divide="ignore"):
            points: Array = np.log1p(relative) / self.mu + self.mu / 2
        return points

    def _excess(self, one: Array, other: Array) -> float:
        return float(self.mass @ ((one - other) + _MARGIN * (one + other)))


def renyi_divergences(
    first: Array, second: Array, *, sampling_rate: float, disjoint: bool
) -> tuple[Array, Array]:
    """Orders and the Renyi DP of search and final run at them: the published bound (Koskela &
    Kulkarni 2023). `first` and `second` are the divergences of the parts at the orders 2, 3, ...

    Guarantees: an upper bound in both directions. For a final run on the other rows, these are
    moments of the mixture and, in the other direction, of a mean of inverses. For a final run on
    all rows, the sampled search follows Zhu & Wang 2019, Theorem 6, valid for every mechanism.
    """
    rate = validate.strictly_between(0, 1, sampling_rate=sampling_rate)
    inside, outside = math.log(rate), math.log1p(-rate)
    count = first.size + 2
    # Log moments of the ratios: (k - 1) times the divergence of order k.
    one, two = (
        np.concatenate([[0.0, 0.0], np.arange(1, count - 1) * values]) for values in (first, second)
    )
    orders = np.unique(np.geomspace(2, count - 1, 200).round().astype(int))
    log_factorial = gammaln(np.arange(count) + 1.0)

    def mean(power: int, sampled: Array, rest: Array) -> float:
        """Log of E[X^power] of a mixture, from the log moments of its parts."""
        k = np.arange(power + 1)
        weights = log_factorial[power] - log_factorial[k] - log_factorial[power - k]
        weights += k * inside + (power - k) * outside
        return float(logsumexp(weights + sampled[k] + rest[power - k]))

    if disjoint:
        logs = [max(mean(a, one, two), mean(a - 1, one[1:], two[1:])) for a in orders]
        return orders.astype(float), np.array(logs) / (orders - 1)
    three, still = one + np.log(3.0) * (np.arange(count) >= 3), np.zeros(count)
    amplified = np.array([mean(a, three, still) for a in orders]) / (orders - 1)
    return orders.astype(float), amplified + second[orders - 2]
