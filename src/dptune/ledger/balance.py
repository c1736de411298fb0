"""What counts against a budget, in sums that grow by one payment at a time.

All that admitting a payment needs to know is here, and none of it grows with the ledger.
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
    """Prices added up without rounding, so that what is added and taken away again leaves nothing
    behind, and the order does not matter: `price` is what `privacy.total` says of the same prices,
    to the last bit."""

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
    """Rounded once, to the nearest."""
    try:
        return units / (1 << _BITS)
    except OverflowError:
        return math.inf


@lru_cache(maxsize=64)  # asked again for every payment
def _room(budget: Budget, slack: float) -> float:
    return budget.mu_squared(slack)


@dataclass(frozen=True)
class Balance:
    """A budget and what was spent of it."""

    dataset: str
    budget: Budget
    opened_slack: float | None  # None in ledgers that were opened before it was fixed
    fixed: bool  # all that was ever paid for was fixed before the first output was seen
    payments: int  # that count
    sum: Sum
    # Of the payments that count, two at most: a sealed search that is alone has a bound of its
    # own, and beside a second event nobody is alone.
    some_events: tuple[Event, ...]

    @property
    def spent(self) -> Price:
        return self.sum.price

    @property
    def slack(self) -> float:
        """How much failure probability all payments together may have. Where it was not fixed at
        first, what is spent is all there will be."""
        return self.spent.slack if self.opened_slack is None else self.opened_slack

    @property
    def charged(self) -> Price:
        """What was spent, with all of the failure probability that is set aside: which part of it
        is used may depend on outputs, so the promise counts the whole, unless all was fixed."""
        spent = self.spent
        return spent if self.fixed else Price(spent.mu_squared, max(self.slack, spent.slack))

    @property
    def remaining(self) -> Price:
        """What a payment may still cost, in mu squared and in slack."""
        spent, slack = self.spent, self.slack
        return Price(
            max(0.0, _room(self.budget, slack) - spent.mu_squared),
            max(0.0, slack - spent.slack),
        )

    @property
    def remaining_epsilon(self) -> float:
        """The epsilon, by itself, of a single full-batch run that would use up what is left."""
        return gdp.epsilon_from_mu(self.remaining.mu, self.budget.delta)

    @property
    def is_within_sums(self) -> bool:
        """Whether everything that counts fits in by the sum of its prices, so that whatever costs
        no more does so in its place."""
        spent, slack = self.spent, self.slack
        return spent.slack <= slack and spent.mu_squared <= _room(self.budget, slack)

    def admits(self, events: Sequence[Event], prices: Iterable[Price]) -> bool:
        """Whether `events`, which cost `prices`, fit in beside everything that counts."""
        together = self.sum
        for price in prices:
            if not (math.isfinite(price.mu_squared) and math.isfinite(price.slack)):
                return False
            together = together.plus(price)
        all_events = [*self.some_events, *events]
        return accounting.fits(all_events, together.price, self.budget, self.slack)

    def fits(self, budget: Budget) -> bool:
        """Whether everything that counts would be within another budget, by the sum of prices."""
        return accounting.fits(self.some_events, self.spent, budget, self.slack)

    def plus(self, prices: Iterable[Price]) -> "Balance":
        """The same after payments of these prices."""
        spent = self.sum
        for price in prices:
            spent = spent.plus(price)
        return replace(self, sum=spent)
