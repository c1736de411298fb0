"""The balance of a budget, as sums that each payment updates.

It has all that is needed to admit a payment, and its size does not grow with the ledger.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from dptune import accounting, gdp
from dptune.accounting import Budget
from dptune.privacy import Event, Price

_BITS = 1074  # every double is a whole number of 2^-1074


@dataclass(frozen=True)
class Sum:
    """An exact sum of prices, so that neither order nor additions that were reversed leave a trace.
    `price` equals `privacy.total` of the same prices to the last bit."""

    mu_squared: int = 0  # in units of 2^-1074
    slack: int = 0

    def plus(self, price: Price) -> "Sum":
        return Sum(
            self.mu_squared + _units(price.mu_squared),
            self.slack + _units(price.slack),
        )

    def minus(self, price: Price) -> "Sum":
        return Sum(
            self.mu_squared - _units(price.mu_squared),
            self.slack - _units(price.slack),
        )

    @property
    def price(self) -> Price:
        return Price(_double(self.mu_squared), _double(self.slack))


def _units(value: float) -> int:
    numerator, denominator = value.as_integer_ratio()
    return numerator << (_BITS + 1 - denominator.bit_length())


def _double(units: int) -> float:
    """The nearest double."""
    try:
        return units / (1 << _BITS)
    except OverflowError:
        return math.inf


@lru_cache(maxsize=64)  # every payment needs it again
def _mu_squared_limit(budget: Budget, slack: float) -> float:
    return budget.mu_squared(slack)


@dataclass(frozen=True)
class Balance:
    """A budget and what was spent of it."""

    dataset: str
    budget: Budget
    opened_slack: float | None  # None in ledgers of formats that did not fix it
    fixed: bool  # all payments were fixed before the first output was seen
    payments: int  # the number of those that count
    sum: Sum
    # At most two of the events that count: enough to see whether a sealed search is the only
    # event, which has a bound of its own.
    some_events: tuple[Event, ...]

    @property
    def spent(self) -> Price:
        return self.sum.price

    @property
    def slack(self) -> float:
        """The failure probability that all payments together may have. In ledgers that did not fix
        it, that is what they have spent."""
        return self.spent.slack if self.opened_slack is None else self.opened_slack

    @property
    def charged(self) -> Price:
        """What was spent, with the whole failure probability that was set aside. Which part of it
        is used may depend on outputs, so the guarantee counts all of it unless all was fixed."""
        spent = self.spent
        return spent if self.fixed else Price(spent.mu_squared, max(self.slack, spent.slack))

    @property
    def remaining(self) -> Price:
        """What a payment may still cost, in mu squared and in slack."""
        spent, slack = self.spent, self.slack
        return Price(
            max(0.0, _mu_squared_limit(self.budget, slack) - spent.mu_squared),
            max(0.0, slack - spent.slack),
        )

    @property
    def remaining_epsilon(self) -> float:
        """The epsilon of a single full-batch run that would use up what is left, on its own."""
        return gdp.epsilon_from_mu(self.remaining.mu, self.budget.delta)

    @property
    def is_within_sums(self) -> bool:
        """Whether everything that counts fits by the sum of its prices. If so, exchanges for events
        that cost no more fit, too."""
        spent, limit = self.spent, _mu_squared_limit(self.budget, self.slack)
        return spent.slack <= self.slack and spent.mu_squared <= limit

    def admits(self, events: Sequence[Event], prices: Iterable[Price]) -> bool:
        """Whether `events`, which cost `prices`, fit together with everything that counts."""
        together = self.sum
        for price in prices:
            if not (math.isfinite(price.mu_squared) and math.isfinite(price.slack)):
                return False
            together = together.plus(price)
        all_events = [*self.some_events, *events]
        return accounting.fits(all_events, together.price, self.budget, self.slack)

    def fits(self, budget: Budget) -> bool:
        """Whether everything that counts fits in another budget, by the sum of prices."""
        return accounting.fits(self.some_events, self.spent, budget, self.slack)

    def plus(self, prices: Iterable[Price]) -> "Balance":
        """The balance after payments of these prices."""
        spent = self.sum
        for price in prices:
            spent = spent.plus(price)
        return replace(self, sum=spent)
