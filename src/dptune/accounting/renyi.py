"""Renyi DP: for comparison, and for sealed searches where it is tighter than our own bounds or
gives the only bound."""

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from dptune import gdp, validate
from dptune.accounting.composition import flatten, gaussian_mu_squared
from dptune.accounting.trial_count import TrialCount
from dptune.errors import UnpricedEvent
from dptune.privacy import Event, RandomStopping, SampledRun, SubsetSearch

if TYPE_CHECKING:
    from dp_accounting import dp_event, rdp

Array = NDArray[np.float64]

# The optimal order for a budget of epsilon 0.01 lies near 2,500, beyond the usual tables.
ORDERS = [1 + x / 10 for x in range(1, 100)] + [
    float(round(11 * 1.12**k)) for k in range(67) if 11 * 1.12**k < 20_000
]
# Covers the rounding of sums, which stays below 1e-13.
_MARGIN = 1e-12


@dataclass(frozen=True)
class RenyiCurve:
    """Renyi divergences at increasing orders above 1; infinite where we know none."""

    orders: Array
    values: Array

    @staticmethod
    def gaussian(mu: float, *, also: Array | None = None) -> "RenyiCurve":
        """The curve of a mu-GDP mechanism, at orders that suit it and those in `also`."""
        # The best order lies near 1 + sqrt(2 log(mean/delta)) / mu.
        orders = 1.0 + np.geomspace(1e-3, 500.0, 2000) / mu
        if also is not None:
            orders = np.union1d(orders, also)
        return RenyiCurve(orders, orders * (mu * mu / 2))

    def epsilon(self, delta: float) -> float:
        """The epsilon at `delta`, rounded up."""
        delta = validate.strictly_between(0, 1, delta=delta)
        orders = self.orders
        epsilons = self.values + np.log1p(-1.0 / orders) - np.log(delta * orders) / (orders - 1.0)
        return max(0.0, float(np.min(epsilons))) * (1 + _MARGIN)

    def delta(self, epsilon: float) -> float:
        """The delta at `epsilon`, rounded up."""
        orders = self.orders
        excess = self.values + np.log1p(-1.0 / orders) - epsilon
        excess += 1e-15 * (self.values + epsilon)  # its rounding error, which high orders multiply
        log_delta = float(np.min((orders - 1.0) * excess - np.log(orders))) + gdp.LOG_MARGIN
        return max(math.exp(min(log_delta, 0.0)), sys.float_info.min)


def rdp_epsilon(events: Iterable[Event], delta: float) -> float:
    """Epsilon by Renyi DP, which is looser than the other accountants here. Gaussian events have a
    closed form; dp-accounting computes sampled runs and searches."""
    delta = validate.strictly_between(0, 1, delta=delta)
    parts = flatten(events)
    if not any(isinstance(part, SampledRun | RandomStopping | SubsetSearch) for part in parts):
        orders = np.array(ORDERS)
        divergences = orders * (math.fsum(map(gaussian_mu_squared, parts)) / 2)
        return RenyiCurve(orders, divergences).epsilon(delta)
    with _accountant(parts) as accountant:
        return float(accountant.get_epsilon(delta)) * (1 + _MARGIN)


@lru_cache(maxsize=256)  # slow, and the same for every delta
def renyi_curve(event: Event) -> RenyiCurve:
    """The divergences of one event at all `ORDERS`."""
    orders, values = np.asarray(ORDERS), np.zeros(len(ORDERS))
    whole = orders == orders.round()
    for part in flatten([event]):
        if isinstance(part, SampledRun):
            values[whole] += [_sampled_divergence(part, int(order)) for order in orders[whole]]
        else:
            values[whole] += orders[whole] * (gaussian_mu_squared(part) / 2)
    with _accountant([event], orders[~whole].tolist()) as accountant:
        values[~whole] = accountant.rdp
    # An order that did not converge gives no bound.
    return RenyiCurve(orders, np.where(np.isnan(values), math.inf, values))


def _sampled_divergence(run: SampledRun, order: int) -> float:
    """The divergence at an integer order in closed form (Mironov, Talwar & Zhang 2019, section
    3.3). dp-accounting uses the same formula, but adds its thousands of terms one by one."""
    drawn, rate = np.arange(order + 1), run.sampling_rate
    log_terms = gammaln(order + 1) - gammaln(drawn + 1) - gammaln(order - drawn + 1)
    log_terms += drawn * math.log(rate) + (order - drawn) * math.log1p(-rate)
    log_terms += drawn * (drawn - 1) / (2 * run.noise_multiplier**2)
    # The relative rounding error of each term.
    largest = order * (order / (2 * run.noise_multiplier**2) - math.log(rate))
    rounding = 1e-14 * (1 + gammaln(order + 1) + largest)
    return run.steps * float(logsumexp(log_terms) + rounding) / (order - 1)


@contextmanager
def _accountant(
    events: Iterable[Event], orders: Sequence[float] = ORDERS
) -> Iterator["rdp.RdpAccountant"]:
    from absl import logging
    from dp_accounting import rdp  # slow to import

    accountant = rdp.RdpAccountant(orders)
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)  # orders that do not converge are skipped, not wrong
    try:
        for event in events:
            accountant.compose(_dp_event(event))
        yield accountant
    except (ValueError, ArithmeticError) as error:
        raise UnpricedEvent(
            f"Renyi DP cannot price this event in double precision ({error}); use less extreme "
            "noise, steps or rates."
        ) from None
    finally:
        logging.set_verbosity(verbosity)


def _dp_event(event: Event) -> "dp_event.DpEvent":
    from dp_accounting import dp_event

    if len(parts := flatten([event])) > 1:
        return dp_event.ComposedDpEvent([_dp_event(part) for part in parts])
    (event,) = parts
    match event:
        case SampledRun(steps=steps, noise_multiplier=noise, sampling_rate=rate):
            step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
            return dp_event.SelfComposedDpEvent(step, steps)
        case RandomStopping(trial=trial, expected_trials=mean, density_ratio=None):
            shape = TrialCount.of(event).shape
            if shape < 0:
                raise UnpricedEvent(
                    f"dp-accounting has no sealed search of negative shape; got {shape:g}. Use "
                    "sealed_bound instead."
                )
            return dp_event.RepeatAndSelectDpEvent(_dp_event(trial), mean, shape)
        case RandomStopping() | SubsetSearch():
            raise UnpricedEvent(
                f"dp-accounting has no {event.kind} whose trials learn from each other or use a "
                "sample of the rows. Use sealed_bound instead."
            )
    mu_squared = gaussian_mu_squared(event)
    return dp_event.GaussianDpEvent(mu_squared**-0.5) if mu_squared else dp_event.NoOpDpEvent()
