"""Noise calibration: the least noise that fits a budget."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from scipy.special import ndtri

from dptune import gdp, rounding, validate
from dptune.accounting import sampled
from dptune.accounting.bounds import Sealed, SearchTooRevealing, quick_epsilon, sealed_bound
from dptune.accounting.budget import Budget
from dptune.accounting.composition import direct_epsilon, slack_of_threshold
from dptune.accounting.pricing import price
from dptune.errors import InvalidInput
from dptune.privacy import Event, FullBatchRun, SampledRun, ThresholdedCount
from dptune.roots import root

# A calibrated price is below its target by at most this share.
_CALIBRATION_TOLERANCE = 1e-4
# Less noise than this gives no meaningful protection, even where the budget would allow it.
_LEAST_NOISE = 0.1
# The search for noise stops at this multiple of the first guess.
_MOST_NOISE = 1e9


def calibrate_full_batch(*, mu: float, steps: int) -> FullBatchRun:
    """The run of `steps` full-batch steps with the least noise whose price is at most mu."""
    return FullBatchRun(steps=steps, noise_multiplier=gdp.noise_multiplier(mu, steps))


def calibrate_sampled(*, mu: float, slack: float, steps: int, sampling_rate: float) -> SampledRun:
    """The sampled run with the least noise whose price is at most (mu^2, slack)."""
    mu = validate.positive(mu=mu, at_most=gdp.LARGEST_MU)
    run = _run_with_noise(steps, sampling_rate)
    guess = central_limit_noise(mu, steps, sampling_rate)
    return run(_least_noise(lambda noise: price(run(noise), slack=slack).mu, mu, guess))


def calibrate_thresholded(*, mu: float, slack: float, counts: int) -> ThresholdedCount:
    """The `counts` histograms over secret names whose price is at most (mu^2, slack), with the
    least noise and, given that noise, the lowest threshold."""
    slack = validate.strictly_between(0, 0.5, slack=slack)
    noise = gdp.noise_multiplier(mu, counts)
    threshold = 1.0 - noise * float(ndtri(slack / counts))
    event = ThresholdedCount(counts=counts, noise=noise, threshold=threshold)
    while slack_of_threshold(event) > slack:  # rounding must not exceed the slack
        event = replace(event, threshold=rounding.above(event.threshold) * (1 + 1e-12))
    return event


def calibrate_direct(
    *,
    epsilon: float,
    delta: float,
    steps: int,
    sampling_rate: float,
    beside: Sequence[Event] = (),
    runs: int = 1,
) -> SampledRun:
    """The sampled run with the least noise such that `runs` copies of it, composed directly with
    the events `beside` them, fit in (epsilon, delta)."""
    epsilon = validate.positive(epsilon=epsilon, at_most=gdp.LARGEST_EPSILON)
    run = _run_with_noise(steps, sampling_rate)
    others = direct_epsilon(beside, delta) if beside else 0.0
    if others >= epsilon:
        raise InvalidInput(
            f"the other events alone cost epsilon {others:.4f} of {epsilon:g}, so nothing is left "
            "for this run; use a larger epsilon, or add noise to the other events."
        )
    guess = central_limit_noise(gdp.mu_from_epsilon(epsilon, delta), runs * steps, sampling_rate)

    def cost(noise: float) -> float:
        return direct_epsilon([*beside, *[run(noise)] * runs], delta)

    return run(_least_noise(cost, epsilon, guess))


def calibrate_sealed(
    search_at: Callable[[float], Sealed], budget: Budget, *, published: bool = False
) -> float:
    """The largest mu for which `search_at(mu)`, as the only event, fits in `budget`.

    The price of `search_at(mu)` must grow with mu. The bound is the tightest one we know or, with
    `published`, the published one.
    """

    def tightest(search: Sealed) -> float:
        return sealed_bound(search, budget.delta).epsilon

    def by_renyi(search: Sealed) -> float:
        return sealed_bound(search, budget.delta).published

    def quick(search: Sealed) -> float:
        return quick_epsilon(search, budget.delta)

    def largest(cost: Callable[[Sealed], float]) -> float:
        return 1 / _least_noise(
            lambda noise: cost(search_at(1 / noise)),
            budget.epsilon,
            guess=1 / budget.mu,
            least=1 / gdp.LARGEST_MU,
        )

    if not published:
        mu = largest(quick)
        if mu > 0 and quick(search_at(mu)) == tightest(search_at(mu)):
            return mu
    mu = largest(by_renyi if published else tightest)
    if mu > 0:
        return mu
    tiny = search_at(budget.mu / _MOST_NOISE)
    raise InvalidInput(
        f"the sealed search does not fit in epsilon {budget.epsilon:g} at delta {budget.delta:g}: "
        f"it costs epsilon {tightest(tiny):.4f} even with extremely noisy trials. Let trials learn "
        "less from each other (a density_ratio nearer to 1), or allow a larger epsilon."
    )


def central_limit_noise(mu: float, steps: int, sampling_rate: float) -> float:
    """Noise at which the central limit of the sampled run is mu: an approximation, not a bound."""
    strength = min(mu / sampling_rate, 1e100)
    return 1 / math.sqrt(math.log1p(strength**2 / steps))


def _run_with_noise(steps: int, sampling_rate: float) -> Callable[[float], SampledRun]:
    """A function from noise to the sampled run. Invalid steps and rates raise at once."""
    run = SampledRun(steps=steps, noise_multiplier=1.0, sampling_rate=sampling_rate)
    return lambda noise: replace(run, noise_multiplier=noise)


def _least_noise(
    cost: Callable[[float], float], target: float, guess: float, least: float = _LEAST_NOISE
) -> float:
    """The least noise with cost(noise) <= target; cost falls as noise grows.

    The result always meets the target, and lies below it by less than the calibration tolerance
    unless even the `least` noise meets it. It is infinite where no noise does.
    """

    def excess(log_noise: float) -> float:
        try:
            spent = cost(math.exp(log_noise))
        except (sampled.TooLittleNoise, SearchTooRevealing):
            return 1e3
        return min(math.log(spent / target), 1e3) if spent > 0 else -1e3

    floor, ceiling = math.log(least), math.log(guess * _MOST_NOISE)
    low = high = max(math.log(guess), floor)
    step = 0.05
    while excess(low) <= 0:
        if low == floor:
            return math.exp(low)
        low, step = max(low - step, floor), 2 * step
    step = 0.05
    while excess(high) > 0:
        if high >= ceiling:
            return math.inf
        high, step = min(high + step, ceiling), 2 * step
    log_noise = root(excess, low, high, absolute=_CALIBRATION_TOLERANCE / 20)
    while excess(log_noise) > 0:
        log_noise += _CALIBRATION_TOLERANCE / 10
    return math.exp(log_noise)
