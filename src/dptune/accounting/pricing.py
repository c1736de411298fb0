"""The price of events, and the epsilon of what was spent.

A price is (mu^2, slack): a mechanism costs (mu^2, slack) when it is dominated by mu-GDP composed
with a failure of probability `slack`, that is, for every epsilon and in both directions

    delta(epsilon) <= slack + (1 - slack) * delta_gdp(mu, epsilon).

Such prices add up, even if later events are chosen from earlier outputs, as long as each price was
fixed before its event ran (Smith & Thakurta 2022; Koskela, Tobaben & Honkela 2023). If nothing was
chosen from outputs, `direct_epsilon` composes privacy loss distributions, which is tighter for
sampled runs.

>>> from dptune.privacy import FullBatchRun
>>> round(price(FullBatchRun(steps=100, noise_multiplier=37.3063)).mu, 6)
0.268051
"""

from collections.abc import Sequence
from functools import lru_cache

from dptune import gdp, rounding, validate
from dptune.accounting import sampled
from dptune.accounting.bounds import Sealed, composable_mu, lone_search, sealed_bound
from dptune.accounting.budget import Budget, delta_beside
from dptune.accounting.composition import (
    flatten,
    gaussian_mu_squared,
    sampled_and_gaussian,
    thresholded_price,
)
from dptune.errors import InvalidInput
from dptune.privacy import Event, Price, SampledRun, ThresholdedCount, total

_RUNS_OF_A_LEDGER = 20  # sampled runs that a ledger has slack for by default


def default_slack(delta: float) -> float:
    """The failure probability of one sampled run or sealed search: 0.1 % of delta."""
    return 1e-3 * delta


def slack_set_aside(delta: float) -> float:
    """The part of delta that a ledger sets aside for failures by default: enough for twenty
    sampled runs. It costs an eighth of a percent of mu at epsilon 1."""
    return _RUNS_OF_A_LEDGER * default_slack(delta)


def slack_of_one(set_aside: float) -> float:
    """The part of `set_aside` that one sampled run or sealed search uses by default."""
    return set_aside / _RUNS_OF_A_LEDGER


def needs_slack(event: Event) -> int:
    """How many parts of `event` need a failure probability from the caller. Counts with a
    threshold do not: theirs follows from the threshold."""
    return sum(isinstance(part, SampledRun | Sealed) for part in flatten([event]))


def price(event: Event, *, slack: float = 0.0) -> Price:
    """The price of `event`.

    Gaussian events are priced exactly and need no slack. The parts that need it share `slack`
    equally; counts with a threshold have a slack of their own.

    Raises: UnpricedEvent for an event that no accountant here can price.
    """
    parts = flatten([event])
    sharing = sum(needs_slack(part) for part in parts)
    if sharing:
        if slack == 0:
            raise InvalidInput(
                f"a {event.kind} with sampling or random stopping needs a failure probability; got "
                "slack 0. Give a slack above 0, for example 1e-3 * delta."
            )
        slack = validate.strictly_between(0, 1, slack=slack) / sharing
    return total(_part_price(part, slack) for part in parts)


@lru_cache(maxsize=1024)  # a study has many equal runs, and prices them several times
def _part_price(part: Event, slack: float) -> Price:
    if isinstance(part, SampledRun):
        steps, _ = sampled_and_gaussian([part])
        mu = sampled.trade_off(steps, failure=slack).mu(slack)
        return Price(rounding.above(mu * mu), slack)
    if isinstance(part, Sealed):
        mu = composable_mu(part, slack)
        return Price(mu * mu * (1 + 1e-12), slack)  # exceeds the rounding of quantiles
    if isinstance(part, ThresholdedCount):
        return thresholded_price(part)
    return Price(gaussian_mu_squared(part))


def epsilon(spent: Price, delta: float) -> float:
    """The epsilon at `delta` of all events whose prices sum to `spent`."""
    delta = validate.strictly_between(0, 1, delta=delta)
    left = delta_beside(spent.slack, delta)
    if left <= 0:
        raise InvalidInput(
            f"failure probabilities of {spent.slack:.3g} already use up delta = {delta:g}; use a "
            "larger delta."
        )
    return gdp.epsilon_from_mu(spent.mu, left)


def epsilon_of(events: Sequence[Event], spent: Price, delta: float) -> float:
    """The epsilon of `events`, for which `spent` was paid: by the sum of their prices or, if the
    only event is a sealed search, by its own bound."""
    search = lone_search(events)
    return sealed_bound(search, delta).epsilon if search else epsilon(spent, delta)


def fits(events: Sequence[Event], spent: Price, budget: Budget, slack: float) -> bool:
    """Whether `events`, for which `spent` was paid, stay within `budget`.

    `slack` is the part of delta that was set aside for failures before the first event ran. mu^2
    and slack are two separate limits: trading one for the other after seeing outputs can exceed
    the budget (docs/design/accounting.md).
    """
    if spent.slack > slack:
        return False
    if spent.mu_squared <= budget.mu_squared(slack):
        return True
    search = lone_search(events)
    return search is not None and sealed_bound(search, budget.delta).epsilon <= budget.epsilon
