"""What events cost, and what was spent.

The currency is (mu^2, slack): a mechanism costs (mu^2, slack) when it is dominated by mu-GDP
composed with a failure of probability `slack`, that is, for every epsilon and in both directions

    delta(epsilon) <= slack + (1 - slack) * delta_gdp(mu, epsilon).

Such prices add, also when later events are chosen from earlier outputs, as long as each price was
fixed before its event ran (Smith & Thakurta 2022; Koskela, Tobaben & Honkela 2023). Where nothing
at all was chosen from outputs, `direct_epsilon` composes privacy loss distributions, which is
tighter for sampled runs.

>>> from dptune.privacy import FullBatchRun
>>> round(price(FullBatchRun(steps=100, noise_multiplier=37.3063)).mu, 6)
0.268051
"""

from collections.abc import Sequence
from functools import lru_cache

from dptune import gdp, rounding, validate
from dptune.accounting import sampled
from dptune.accounting.bounds import Sealed, lone_search, mu_in_company, sealed_bound
from dptune.accounting.budget import Budget, delta_beside
from dptune.accounting.composition import (
    flatten,
    gaussian_mu_squared,
    sampled_and_gaussian,
    thresholded_price,
)
from dptune.errors import InvalidInput
from dptune.privacy import Event, Price, SampledRun, ThresholdedCount, total

_RUNS_OF_A_LEDGER = 20  # sampled runs, as many as usually have room


def default_slack(delta: float) -> float:
    """The failure probability of one sampled run or sealed search: ten use a percent of delta."""
    return 1e-3 * delta


def slack_set_aside(delta: float) -> float:
    """How much of delta a ledger keeps for failures unless told otherwise: enough for twenty
    sampled runs, for an eighth of a percent of mu at epsilon 1."""
    return _RUNS_OF_A_LEDGER * default_slack(delta)


def slack_of_one(set_aside: float) -> float:
    """What one sampled run or sealed search takes of it unless told otherwise."""
    return set_aside / _RUNS_OF_A_LEDGER


def needs_slack(event: Event) -> int:
    """How many parts of `event` can only be priced outside a failure probability that somebody must
    name; that of a count with a threshold follows from the threshold."""
    return sum(isinstance(part, SampledRun | Sealed) for part in flatten([event]))


def price(event: Event, *, slack: float = 0.0) -> Price:
    """What `event` costs. Gaussian events are exact and need no slack; `slack` is shared equally
    by the parts that do, and counts with a threshold have one of their own. An event nobody can
    price is an error, never a guess."""
    parts = flatten([event])
    sharing = sum(needs_slack(part) for part in parts)
    if sharing:
        if slack == 0:
            raise InvalidInput(
                f"a {event.kind} with sampling or random stopping is priced outside a failure "
                "probability; give a slack above 0, for example 1e-3 * delta."
            )
        slack = validate.strictly_between(0, 1, slack=slack) / sharing
    return total(_part_price(part, slack) for part in parts)


@lru_cache(maxsize=1024)  # runs of a study are alike, and planned, reserved and stated in turn
def _part_price(part: Event, slack: float) -> Price:
    if isinstance(part, SampledRun):
        steps, _ = sampled_and_gaussian([part])
        mu = sampled.trade_off(steps, failure=slack).mu(slack)
        return Price(rounding.above(mu * mu), slack)
    if isinstance(part, Sealed):
        mu = mu_in_company(part, slack)
        return Price(mu * mu * (1 + 1e-12), slack)  # more than quantiles are rounded by
    if isinstance(part, ThresholdedCount):
        return thresholded_price(part)
    return Price(gaussian_mu_squared(part))


def epsilon(spent: Price, delta: float) -> float:
    """The epsilon at `delta` of everything that was paid for with `spent`."""
    delta = validate.strictly_between(0, 1, delta=delta)
    left = delta_beside(spent.slack, delta)
    if left <= 0:
        raise InvalidInput(
            f"failure probabilities of {spent.slack:.3g} already use up delta = {delta:g}; report "
            "at a larger delta."
        )
    return gdp.epsilon_from_mu(spent.mu, left)


def epsilon_of(events: Sequence[Event], spent: Price, delta: float) -> float:
    """The epsilon of `events`, for which `spent` was paid: by the sum of prices or, for a sealed
    search that is alone, by its own bound."""
    search = lone_search(events)
    return sealed_bound(search, delta).epsilon if search else epsilon(spent, delta)


def fits(events: Sequence[Event], spent: Price, budget: Budget, slack: float) -> bool:
    """Whether `events`, for which `spent` was paid, stay within `budget`, of whose delta `slack`
    was set aside for failures before the first of them ran.

    mu^2 and slack are two limits, never traded for each other: who may choose between them after
    seeing outputs can exceed the budget (docs/design/accounting.md).
    """
    if spent.slack > slack:
        return False
    if spent.mu_squared <= budget.mu_squared(slack):
        return True
    search = lone_search(events)
    return search is not None and sealed_bound(search, budget.delta).epsilon <= budget.epsilon
