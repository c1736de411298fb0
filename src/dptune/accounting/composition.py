"""Composition: the mu of Gaussian events together, and the epsilon of non-adaptive events."""

import math
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from scipy.special import log_ndtr

from dptune import gdp, rounding, validate
from dptune.accounting import sampled
from dptune.accounting.budget import delta_beside
from dptune.errors import InvalidInput, UnpricedEvent
from dptune.privacy import (
    Composition,
    Event,
    FullBatchRun,
    NoisyCount,
    NoisyRanks,
    Parallel,
    Price,
    PrivateMean,
    PrivateSecondMoment,
    SampledRun,
    ThresholdedCount,
    ZerothOrderRun,
)


def direct_epsilon(events: Iterable[Event], delta: float) -> float:
    """Epsilon of all events by one privacy loss distribution.

    Guarantees: an upper bound, provided no event was chosen from the output of another; steps,
    rates and noise of all of them were fixed before the first one ran.
    """
    delta = validate.strictly_between(0, 1, delta=delta)
    parts = flatten(events)
    thresholded = [part for part in parts if isinstance(part, ThresholdedCount)]
    failures = math.fsum(map(slack_of_threshold, thresholded))
    if failures:  # apart from failures, names above a threshold are noisy counts
        delta = delta_beside(failures, delta)
        if delta <= 0:
            raise InvalidInput(
                f"counts with a threshold fail with probability {failures:.3g}, which already uses "
                "up delta; raise the threshold, or use a larger delta."
            )
    steps, gaussian_mu = sampled_and_gaussian(map(_without_threshold, parts))
    if not steps:
        return gdp.epsilon_from_mu(gaussian_mu, delta)
    return _sampled_epsilon(tuple(steps), gaussian_mu, delta)


@lru_cache(maxsize=1024)  # a study needs it for its plan, its payment and its report
def _sampled_epsilon(steps: tuple[sampled.Step, ...], gaussian_mu: float, delta: float) -> float:
    return sampled.trade_off(steps, gaussian_mu=gaussian_mu, failure=delta).epsilon(delta)


def slack_of_threshold(event: ThresholdedCount) -> float:
    """The probability that any of the counts releases a name that only one row has:
    counts * Phi(-(threshold - 1) / noise), rounded up."""
    beyond = rounding.below((event.threshold - 1.0) / event.noise)
    chance = math.exp(float(log_ndtr(-beyond)) + gdp.LOG_MARGIN)
    # Above 0, and at most 1.
    return min(max(rounding.above(event.counts * chance), sys.float_info.min), 1.0)


def _without_threshold(event: Event) -> Event:
    """The same event; a thresholded count becomes the noisy count before its threshold."""
    if isinstance(event, ThresholdedCount):
        return NoisyCount(counts=event.counts, noise=event.noise)
    return event


def sampled_and_gaussian(events: Iterable[Event]) -> tuple[list[sampled.Step], float]:
    """The sampled steps among `events`, and the mu of all other events together, rounded up."""
    alike: dict[SampledRun, int] = {}  # runs of identical steps become one longer run
    squares = []
    for part in flatten(events):
        if isinstance(part, SampledRun):
            step = replace(part, steps=1)
            alike[step] = alike.get(step, 0) + part.steps
        else:
            squares.append(gaussian_mu_squared(part))
    steps = [_step(replace(step, steps=count)) for step, count in alike.items()]
    return steps, rounding.above(math.sqrt(math.fsum(squares)))


def _step(run: SampledRun) -> sampled.Step:
    return sampled.Step(
        sampling_rate=run.sampling_rate, noise_multiplier=run.noise_multiplier, count=run.steps
    )


def thresholded_price(event: ThresholdedCount) -> Price:
    """The price of counts with a threshold.

    For a name that two or more rows have, one row changes the count by 1, and the threshold is
    postprocessing. A name that only one row has is released with at most the slack's probability.
    """
    return Price(gaussian_mu_squared(_without_threshold(event)), slack_of_threshold(event))


def gaussian_mu_squared(event: Event) -> float:
    """The price of an event without sampling, sealing, composition or threshold, rounded up."""
    match event:
        case FullBatchRun(steps=steps, noise_multiplier=noise):
            return gdp.full_batch_mu_squared(steps, noise)
        case PrivateMean(noise_multiplier=noise) | PrivateSecondMoment(noise_multiplier=noise):
            # Both have sensitivity 1 in the norm in which their noise is isotropic.
            return gdp.full_batch_mu_squared(1, noise)
        case NoisyCount(counts=counts, noise=noise, centered=False, sampling_rate=None):
            return gdp.full_batch_mu_squared(counts, noise)
        case NoisyRanks(columns=columns, noise=noise):
            return gdp.full_batch_mu_squared(columns, noise)
        case NoisyCount(noise=noise, centered=True, sampling_rate=None):
            return _squared_sensitivity(event) * gdp.full_batch_mu_squared(1, noise)
        case Parallel(parts=parts):
            return max(
                rounding.above(math.fsum(map(gaussian_mu_squared, flatten([part]))))
                for part in parts
            )
    raise UnpricedEvent(
        f"no accountant here can price {event!r}; describe the mechanism as one of dptune's events."
    )


def flatten(events: Iterable[Event]) -> list[Event]:
    """The events with compositions replaced by their parts, and events that are priced like
    gradient runs replaced by such runs."""
    flat: list[Event] = []
    for event in events:
        flat += flatten(event.parts) if isinstance(event, Composition) else [_as_run(event)]
    return flat


def _as_run(event: Event) -> Event:
    """The gradient run with the same price: in all of these events a row adds a vector of bounded
    norm (a gradient, differences of losses, counts of a sample) to a sum with isotropic noise."""
    match event:
        case ZerothOrderRun(steps=steps, noise_multiplier=noise, sampling_rate=None):
            return FullBatchRun(steps=steps, noise_multiplier=noise)
        case ZerothOrderRun(steps=steps, noise_multiplier=noise, sampling_rate=float(rate)):
            return SampledRun(steps=steps, noise_multiplier=noise, sampling_rate=rate)
        case NoisyCount(noise=noise, sampling_rate=float(rate)):
            sensitivity = rounding.above(math.sqrt(_squared_sensitivity(event)))
            if sensitivity == 0:  # a single centred count is always zero
                return replace(event, sampling_rate=None)
            noise = rounding.below(noise / sensitivity)
            return SampledRun(steps=1, noise_multiplier=noise, sampling_rate=rate)
    return event


def _squared_sensitivity(event: NoisyCount) -> float:
    """The squared sensitivity of all counts together to one row."""
    counts = event.counts
    if not event.centered:
        return float(counts)
    # A row that counts in k of n moves the centred counts by sqrt(k (n-k) / n); rows that add
    # values between 0 and 1 move them no further.
    return (counts // 2) * (counts - counts // 2) / counts
