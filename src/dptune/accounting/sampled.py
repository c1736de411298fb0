"""The trade-off curve of a Poisson-sampled Gaussian run.

One step includes every row with probability q and adds noise sigma to the sum. In units of the
noise its two dominating pairs are N(0,1) against (1-q) N(0,1) + q N(1/sigma,1), in both orders
("remove" and "add"; Zhu, Dong & Wang 2022). We put each pair's privacy loss on a grid, compose the
grids by a truncated Fourier convolution, as dp-accounting does, and read off the vertices of the
trade-off curve: pairs (hit, false_alarm), the probability that a test says "the row is present"
under either hypothesis. Epsilon, delta and mu are maxima over these vertices, in closed form.

We discretise ourselves because dp-accounting takes second differences of deltas. At the fine
intervals that small budgets need, their rounding errors, divided by the interval, no longer cancel
(at q=0.01, sigma=1000 and 10,000 steps the masses sum to 1.0005). Quadrature of positive integrands
has no such errors and is mostly faster. The tests compare both with prv-accountant.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dptune.errors import UnpricedEvent

Array = NDArray[np.float64]

# Grid spacing in standard deviations of a typical step's loss. Connecting the dots inflates mu by
# spacing^2/12 for equal steps, here 3e-5, and by no more than three times that for a mixture.
_SPACING = 0.02
_MOST_BINS = 2**19
# Share of the caller's failure probability that covers truncated tails and rounding.
_LOST_SHARE = 1e-3
# Fourier coefficients near one, raised to the power T, err by at most this much per step.
_ROUNDOFF_PER_STEP = 1e-14
# Outside these limits, grids and densities exceed double precision or memory.
_LEAST_NOISE, _MOST_NOISE, _LEAST_RATE, _MOST_STEPS = 1e-3, 1e9, 1e-12, 2_000_000
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)


@dataclass(frozen=True, kw_only=True)
class Step:
    """`count` identical sampled steps."""

    sampling_rate: float
    noise_multiplier: float
    count: int

    @property
    def loss_deviation(self) -> float:
        """Standard deviation of one step's privacy loss, to first order."""
        shift = 1 / self.noise_multiplier
        return min(self.sampling_rate * math.sqrt(math.expm1(min(shift * shift, 700.0))), shift)


@dataclass(frozen=True)
class _Losses:
    """Masses of a privacy loss at `lowest * interval`, `(lowest + 1) * interval`, ..., infinity."""

    lowest: int
    masses: Array
    infinite: float


@dataclass(frozen=True)
class TradeOff:
    """Vertices of the curve of attainable (hit, false alarm) in both directions, rounded up.

    Guarantees: for every epsilon >= 0 and either order of the neighbours, the run's delta is at
    most the largest `hit - exp(epsilon) * false_alarm`, because that supremum over tests is
    attained at a threshold test, and the threshold tests are the vertices.
    """

    hit: Array
    false_alarm: Array

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon with hit - exp(epsilon) * false_alarm <= delta at every vertex."""
        hit, false_alarm = self._unexplained(delta, certain=math.inf)
        with np.errstate(over="ignore"):
            return _largest(np.log((hit - delta) / false_alarm))

    def mu(self, slack: float) -> float:
        """Smallest mu such that G_mu together with a failure probability `slack` dominates.

        That pair's curve is miss = (1-slack) * G_mu(false_alarm/(1-slack)), and zero beyond
        1-slack; solving it for mu at each vertex and taking the largest keeps every vertex on the
        safe side.
        """
        hit, false_alarm = self._unexplained(slack, certain=1 - slack)
        return _largest(ndtri((hit - slack) / (1 - slack)) - ndtri(false_alarm / (1 - slack)))

    def _unexplained(self, failure: float, certain: float) -> tuple[Array, Array]:
        """The vertices that a failure of this probability does not explain."""
        explained = (self.hit <= failure) | (self.false_alarm >= certain)
        hit, false_alarm = np.minimum(self.hit, 1.0)[~explained], self.false_alarm[~explained]
        if not np.all(false_alarm >= np.finfo(float).tiny):  # a test without (enough) errors
            raise TooLittleNoise
        return hit, false_alarm


def _largest(bounds: Array) -> float:
    largest = float(np.max(bounds, initial=0.0))
    if not math.isfinite(largest):
        raise TooLittleNoise
    return largest


class TooLittleNoise(UnpricedEvent):
    """Neighbours can be distinguished almost surely, beyond what double precision can bound."""

    def __init__(self) -> None:
        super().__init__(
            "this sampled run has too little noise: neighbours can be distinguished almost surely, "
            "so it has no useful bound. Use more noise, fewer steps or a lower sampling rate."
        )


def trade_off(steps: Sequence[Step], *, gaussian_mu: float = 0.0, failure: float) -> TradeOff:
    """The curve of all `steps` composed with one Gaussian release of `gaussian_mu`.

    Nothing about the steps may be chosen from earlier outputs. `failure` is the delta or slack at
    which the caller evaluates the curve; a small share of it covers truncated tails and rounding.
    """
    count = sum(step.count for step in steps)
    for step in steps:
        if step.noise_multiplier < _LEAST_NOISE:
            raise TooLittleNoise
        if step.noise_multiplier > _MOST_NOISE or step.sampling_rate < _LEAST_RATE:
            raise UnpricedEvent(
                f"sampled runs are priced for noise up to {_MOST_NOISE:g} and rates from "
                f"{_LEAST_RATE:g}; got {step.noise_multiplier:g} and {step.sampling_rate:g}."
            )
    if count > _MOST_STEPS:
        raise UnpricedEvent(f"at most {_MOST_STEPS:,} sampled steps are priced; got {count:,}.")
    lost = max(_LOST_SHARE * failure, _ROUNDOFF_PER_STEP * count)
    if lost > failure / 4:
        raise UnpricedEvent(
            f"{count} sampled steps cannot be priced at a failure probability of {failure:.1e}: "
            f"double precision needs at least {4 * _ROUNDOFF_PER_STEP * count:.1e}. Use fewer "
            "steps, or a larger delta or slack."
        )
    parts = list(steps)
    if gaussian_mu > 0:
        parts.append(Step(sampling_rate=1.0, noise_multiplier=1 / gaussian_mu, count=1))
    # Half of `lost` is for truncation, which happens twice per part, and half for rounding.
    cut = lost / (4 * len(parts))
    widest = max(_loss_width(part, cut / part.count) for part in parts)
    deviation = math.hypot(*(math.sqrt(part.count) * part.loss_deviation for part in parts))
    typical = deviation / math.sqrt(sum(part.count for part in parts))
    interval = max(_SPACING * typical, widest / _MOST_BINS)
    hits, false_alarms = [], []
    with np.errstate(all="ignore"):  # the check of the masses finds NaNs
        for removed in (True, False):
            losses = [
                _repeat(_one_step_losses(part, removed, interval, cut), part, cut) for part in parts
            ]
            hit, false_alarm = _vertices(_convolve(losses, lost / 2), interval)
            hits.append(hit)
            false_alarms.append(false_alarm)
    return TradeOff(hit=np.concatenate(hits), false_alarm=np.concatenate(false_alarms))


def _log_ratio(z: Array, step: Step) -> Array:
    """Log density ratio of the mixture to N(0,1) at z."""
    shift = 1 / step.noise_multiplier
    exponent = shift * z - shift * shift / 2
    if step.sampling_rate == 1.0:
        return exponent
    # log(1 - q + q e^x), written for small x and for x that would overflow
    small = np.log1p(step.sampling_rate * np.expm1(np.minimum(exponent, 1.0)))
    large = np.logaddexp(math.log1p(-step.sampling_rate), math.log(step.sampling_rate) + exponent)
    return np.where(exponent < 1.0, small, large)


def _points_of_log_ratio(loss: Array, step: Step) -> Array:
    """Inverse of `_log_ratio`, for losses above log(1 - q)."""
    shift = 1 / step.noise_multiplier
    if step.sampling_rate == 1.0:
        return loss / shift + shift / 2
    small = np.log1p(np.expm1(np.minimum(loss, 1.0)) / step.sampling_rate)
    large = loss + np.log1p(-np.exp(-np.maximum(loss, 1.0)) * (1 - step.sampling_rate))
    exponent = np.where(loss < 1.0, small, large - math.log(step.sampling_rate))
    return exponent / shift + shift / 2


def _likely_interval(step: Step, tail: float) -> tuple[float, float]:
    """An interval of z; under either hypothesis each side of it has probability at most `tail`."""
    z = -float(ndtri(tail))
    return -z, z + 1 / step.noise_multiplier


def _loss_width(step: Step, tail: float) -> float:
    low, high = _log_ratio(np.array(_likely_interval(step, tail)), step)
    return float(high - low)


def _one_step_losses(step: Step, removed: bool, interval: float, cut: float) -> _Losses:
    """One step's loss, each mass split between its two grid neighbours so that its probability
    under both hypotheses is kept (Doroshenko et al. 2022, "connect the dots")."""
    tail = cut / step.count
    low, high = _likely_interval(step, tail)
    first, last = _log_ratio(np.array([low, high]), step) / interval
    knots = _points_of_log_ratio(np.arange(math.ceil(first), math.floor(last) + 1) * interval, step)
    # Panels end at every grid loss and are short enough for six-point quadrature.
    panels = np.unique(np.concatenate([np.linspace(low, high, 200), np.clip(knots, low, high)]))
    width = np.diff(panels)
    z = panels[:-1, None] + width[:, None] * (_NODES + 1) / 2
    weight = width[:, None] * _WEIGHTS / math.sqrt(8 * math.pi)
    loss = _log_ratio(z, step)
    middle = _log_ratio((panels[:-1] + panels[1:]) / 2, step)
    mass = weight * np.exp(-z * z / 2)
    if removed:  # the upper hypothesis is the mixture, else N(0,1)
        shifted = z - 1 / step.noise_multiplier
        mass = (1 - step.sampling_rate) * mass
        mass += step.sampling_rate * weight * np.exp(-shifted * shifted / 2)
    else:
        loss, middle = -loss, -middle
    below = np.floor(middle / interval).astype(np.int64)
    up = np.expm1(below[:, None] * interval - loss) / math.expm1(-interval)
    up = np.clip(up, 0.0, 1.0)  # a node on a knot may be off by one rounding
    lowest = int(below.min())
    masses: Array = np.zeros(int(np.ptp(below)) + 2)
    np.add.at(masses, below - lowest, (mass * (1 - up)).sum(axis=1))
    np.add.at(masses, below - lowest + 1, (mass * up).sum(axis=1))
    if not abs(masses.sum() - 1) < 2 * tail + 1e-9:  # also true of NaN
        raise TooLittleNoise
    # Outside the panels, high losses count as infinite and low ones are rounded up to the lowest.
    masses[0] += tail
    return _Losses(lowest, masses, tail)


def _repeat(losses: _Losses, step: Step, cut: float) -> _Losses:
    """The sum of `step.count` independent copies, without tails of probability `cut`."""
    if step.count == 1:
        return losses
    from scipy import fft  # slow to import

    first, last = _likely_sums(losses.masses, step.count, cut)
    size = last - first + 1
    length = fft.next_fast_len(max(size, losses.masses.size))
    around = np.real(fft.ifft(fft.fft(losses.masses, length) ** step.count))
    masses = np.maximum(np.roll(around, -first)[:size], 0.0)
    return _Losses(losses.lowest * step.count + first, masses, losses.infinite * step.count + cut)


def _likely_sums(masses: Array, count: int, tails: float) -> tuple[int, int]:
    """The least and largest index of a sum of `count` draws, apart from tails of probability
    `tails` by Chernoff's inequality, with the orders and indices of dp-accounting."""
    least, largest = 0, (masses.size - 1) * count
    growth = np.exp(np.arange(masses.size) / masses.size)
    high = low = masses
    for tilt in range(1, 21):
        high, low = high * growth, low / growth
        above, below = (
            (count * math.log(float(tilted.sum())) + math.log(2 / tails)) * masses.size / tilt
            for tilted in (high, low)
        )
        largest, least = min(largest, math.ceil(above)), max(least, math.floor(-below))
    return least, largest


def _convolve(parts: list[_Losses], for_rounding: float) -> _Losses:
    from scipy.signal import fftconvolve  # slow to import

    lowest, masses, infinite = parts[0].lowest, parts[0].masses, for_rounding + parts[0].infinite
    for part in parts[1:]:
        lowest += part.lowest
        masses = np.maximum(fftconvolve(masses, part.masses), 0.0)
        infinite += part.infinite
    return _Losses(lowest, masses, infinite)


def _vertices(losses: _Losses, interval: float) -> tuple[Array, Array]:
    """(hit, false alarm) of the tests "loss > l" for every grid loss l >= 0.

    Losses below zero belong to the other direction: delta(-epsilon) of one order is an increasing
    function of delta(epsilon) of the other.
    """
    loss = (losses.lowest + np.arange(losses.masses.size)) * interval
    above_zero = loss > 0
    mass = losses.masses[above_zero]
    # Thresholds 0 = l_0 < l_1 < ...: sums from each positive loss upward, smallest terms first.
    hit = np.cumsum(mass[::-1])[::-1] + losses.infinite
    false_alarm = np.cumsum((mass * np.exp(-loss[above_zero]))[::-1])[::-1]
    return np.append(hit, losses.infinite), np.append(false_alarm, 0.0)
