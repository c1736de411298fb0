"""Events composed: what Gaussian ones come to, and epsilon of events none of which was chosen from
the output of another."""

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
    """Epsilon of all events through one privacy loss distribution.

    Guarantees: an upper bound, provided no event was chosen from the output of another; steps,
    rates and noise of all of them were fixed before the first one ran.
    """
    delta = validate.strictly_between(0, 1, delta=delta)
    parts = flatten(events)
    thresholded = [part for part in parts if isinstance(part, ThresholdedCount)]
    failures = math.fsum(map(slack_of_threshold, thresholded))
    if failures:  # outside them, names above a threshold are noisy counts
        delta = delta_beside(failures, delta)
        if delta <= 0:
            raise InvalidInput(
                f"failure probabilities of {failures:.3g} of counts with a threshold already use "
                "up delta; raise the threshold, or take a larger delta."
            )
    steps, gaussian_mu = sampled_and_gaussian(map(_without_threshold, parts))
    if not steps:
        return gdp.epsilon_from_mu(gaussian_mu, delta)
    return _sampled_epsilon(tuple(steps), gaussian_mu, delta)


@lru_cache(maxsize=1024)  # a study asks again when it is planned, paid and reported
def _sampled_epsilon(steps: tuple[sampled.Step, ...], gaussian_mu: float, delta: float) -> float:
    return sampled.trade_off(steps, gaussian_mu=gaussian_mu, failure=delta).epsilon(delta)


def slack_of_threshold(event: ThresholdedCount) -> float:
    """How likely it is that a name is released that one row alone has, in any of the counts:
    counts * Phi(-(threshold - 1) / noise), rounded up."""
    beyond = rounding.below((event.threshold - 1.0) / event.noise)
    chance = math.exp(float(log_ndtr(-beyond)) + gdp.LOG_MARGIN)
    # Never quite zero, and never more than certain.
    return min(max(rounding.above(event.counts * chance), sys.float_info.min), 1.0)


def _without_threshold(event: Event) -> Event:
    """The noisy counts of which a threshold hides some."""
    if isinstance(event, ThresholdedCount):
        return NoisyCount(counts=event.counts, noise=event.noise)
    return event


def sampled_and_gaussian(events: Iterable[Event]) -> tuple[list[sampled.Step], float]:
    """The sampled steps among `events`, and the mu of all the others together, rounded up."""
    alike: dict[SampledRun, int] = {}  # runs of the same step are one run of more
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
    """A name that two or more rows have moves its count by 1, and the threshold only hides; one
    that a single row has is released with the probability of the slack, or else not missed."""
    return Price(gaussian_mu_squared(_without_threshold(event)), slack_of_threshold(event))


def gaussian_mu_squared(event: Event) -> float:
    """The price of an event that is neither sampled nor sealed nor a composition, nor hides counts
    below a threshold, rounded up."""
    match event:
        case FullBatchRun(steps=steps, noise_multiplier=noise):
            return gdp.full_batch_mu_squared(steps, noise)
        case PrivateMean(noise_multiplier=noise) | PrivateSecondMoment(noise_multiplier=noise):
            # Both move by at most 1, in the norm in which their noise is the same everywhere.
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
    """The events with the parts of compositions in their place, and those that are priced like
    runs of gradients as such runs."""
    flat: list[Event] = []
    for event in events:
        flat += flatten(event.parts) if isinstance(event, Composition) else [_as_run(event)]
    return flat


def _as_run(event: Event) -> Event:
    """What a row adds is a vector of bounded norm, whatever it stands for, with the same noise in
    every direction: a gradient, the differences of some losses, or counts of a sample."""
    match event:
        case ZerothOrderRun(steps=steps, noise_multiplier=noise, sampling_rate=None):
            return FullBatchRun(steps=steps, noise_multiplier=noise)
        case ZerothOrderRun(steps=steps, noise_multiplier=noise, sampling_rate=float(rate)):
            return SampledRun(steps=steps, noise_multiplier=noise, sampling_rate=rate)
        case NoisyCount(noise=noise, sampling_rate=float(rate)):
            sensitivity = rounding.above(math.sqrt(_squared_sensitivity(event)))
            if sensitivity == 0:  # a count without another to differ from
                return replace(event, sampling_rate=None)
            noise = rounding.below(noise / sensitivity)
            return SampledRun(steps=1, noise_multiplier=noise, sampling_rate=rate)
    return event


def _squared_sensitivity(event: NoisyCount) -> float:
    """Of all counts together to one row."""
    counts = event.counts
    if not event.centered:
        return float(counts)
    # A row counted k times of n moves the centred counts by sqrt(k (n-k) / n); rows that add
    # something between 0 and 1 move them no further.
    return (counts // 2) * (counts - counts // 2) / counts
