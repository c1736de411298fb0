"""Epsilon for replace-one neighbours: a row is exchanged for another one, not just emptied."""

import math
from collections.abc import Callable, Iterable

from scipy.special import ndtr, ndtri

from dptune import gdp
from dptune.accounting.bounds import Sealed, gaussian_bound, sealed_bound, trial_steps_and_mu
from dptune.accounting.composition import direct_epsilon, flatten
from dptune.accounting.pricing import price
from dptune.errors import InvalidInput, UnpricedEvent
from dptune.privacy import Event, FullBatchRun, Price, RandomStopping, SampledRun, total

_GUESSES, _LARGEST_GUESS = 4, 100.0


def replace_one_epsilon(spent: Price, delta: float) -> float:
    """An epsilon for replace-one neighbours.

    Two zero-out steps lead from one neighbour to the other, so mu doubles (Dong, Roth & Su 2022,
    Thm 2.14). The failure counts twice, the second time through a mu-GDP test: with h(a) = (1-s)
    Phi(PhiInv(a/(1-s)) + mu), concave and so subadditive, the failures add up to s + h(s).
    """
    s = spent.slack
    failures = s + (1 - s) * float(ndtr(ndtri(s / (1 - s)) + spent.mu)) if 0 < s < 0.5 else 2 * s
    left = delta - failures
    if left <= gdp.SMALLEST_DELTA or 2 * spent.mu > gdp.LARGEST_MU:
        return math.inf
    return gdp.epsilon_from_mu(2 * spent.mu, left)


def replace_one_sealed_epsilon(search: Sealed, delta: float) -> float:
    """The same for a sealed search that is the only event.

    Trials that are mu-GDP for zero-out are 2 mu-GDP for replace-one, and that bounds the search;
    the densities of their settings depend only on outputs. Otherwise this is group privacy.
    """
    if isinstance(search, RandomStopping):
        steps, mu = trial_steps_and_mu(search)
        if not steps:
            over = 2 * mu > gdp.LARGEST_MU
            return math.inf if over else gaussian_bound(search, 2 * mu, delta).epsilon
    return _in_two_steps(lambda delta1: sealed_bound(search, delta1).epsilon, delta)


def replace_one_direct_epsilon(events: Iterable[Event], delta: float) -> float:
    """The same for non-adaptive events.

    It is the smaller of two bounds: group privacy of all events together, and the price if every
    sample contained the row, since a sample without a row reveals nothing about it.
    """
    parts = flatten(events)
    whole = total(price(_in_every_sample(part)) for part in parts)
    by_group = _in_two_steps(lambda delta1: direct_epsilon(parts, delta1), delta)
    return min(replace_one_epsilon(whole, delta), by_group)


def _in_every_sample(event: Event) -> Event:
    if isinstance(event, SampledRun):
        return FullBatchRun(steps=event.steps, noise_multiplier=event.noise_multiplier)
    return event


def _in_two_steps(epsilon_at: Callable[[float], float], delta: float) -> float:
    """Group privacy of two zero-out steps: 2 epsilon at delta1 (1 + e^epsilon), for a delta1 that
    keeps this below `delta`."""
    guess, least = 2 * epsilon_at(delta), math.inf
    for _ in range(_GUESSES):
        if guess > _LARGEST_GUESS:
            break
        try:
            bound = epsilon_at(delta / (1 + math.exp(guess)))
        except (UnpricedEvent, InvalidInput):  # there is no epsilon at so small a delta
            break
        if bound <= guess:  # the bound holds, and is a better guess
            guess = least = bound
        else:
            guess = 1.25 * bound
    return 2 * least
