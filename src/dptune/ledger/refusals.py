"""The refusals of a ledger and their messages: what was asked, what was found, what to do."""

import bisect
import shlex
from collections.abc import Sequence

from dptune import accounting, gdp
from dptune.errors import BudgetExceeded, InvalidInput
from dptune.ledger import chain
from dptune.ledger.balance import Balance
from dptune.ledger.state import Payment
from dptune.privacy import Event, Price
from dptune.rounding import allowance, cost, probability


def check_budget(
    balance: Balance, events: Sequence[Event], prices: Sequence[Price], purposes: Sequence[str]
) -> None:
    """Refuse payments that do not fit together, and name the first that does not fit. If all fit
    together, each one fits, because no price is negative."""
    if not events or balance.admits(events, prices):
        return

    def too_much(number: int) -> bool:
        return not balance.admits(events[: number + 1], prices[: number + 1])

    first = bisect.bisect_left(range(len(events)), True, key=too_much)
    before = balance.plus(prices[:first])
    raise BudgetExceeded(_exceeded(before, prices[first], purposes[first]))


def check_schedule(balance: Balance, payments: int, events: Sequence[Event], price: Price) -> None:
    budget = balance.budget
    if price.slack > balance.slack:
        raise BudgetExceeded(_exceeded(balance, price, f"a schedule of {len(events)} payments"))
    if payments:
        raise InvalidInput(
            "a schedule must be fixed before the first payment of a ledger, and this ledger has "
            f"{payments}; reserve without `fixed`, or in a new ledger."
        )
    together = accounting.direct_epsilon(events, budget.delta)
    if together > budget.epsilon:
        raise BudgetExceeded(
            f"a schedule of {len(events)} payments costs epsilon {cost(together)} by direct "
            f"composition; the budget of data set {balance.dataset!r} is epsilon "
            f"{budget.epsilon:g} at delta {probability(budget.delta)}, and nothing was spent. Make "
            "the runs smaller."
        )


def cannot_move(payment: Payment, to: str, allowed: tuple[str, ...]) -> str:
    if payment.state == "started":
        never = {
            "start": "started again; make a new payment for another attempt",
            "void": "voided; commit it if its output exists, else leave it as it is",
            "exchange": "exchanged; reserve the other event on its own",
        }
        return (
            f"payment {payment.number} is already started: it may have read rows, so it counts "
            f"and cannot be {never[to]}."
        )
    _, state = chain.MOVES[to]
    return (
        f"payment {payment.number} is already {payment.state}; only a payment that is "
        f"{' or '.join(allowed)} can be {state}."
    )


def epsilon_in_words(price: Price, delta: float) -> str:
    if price.slack >= delta:
        return f"a failure probability of {cost(price.slack)}"
    if price.mu > gdp.LARGEST_MU:
        return f"an epsilon too large to compute (mu {cost(price.mu)})"
    return f"epsilon {cost(accounting.epsilon(price, delta))}"


def _exceeded(balance: Balance, price: Price, purpose: str) -> str:
    budget, left = balance.budget, balance.remaining
    if price.slack > left.slack:
        return (
            f"{purpose!r} needs a failure probability of {cost(price.slack)}. Data set "
            f"{balance.dataset!r} has {cost(balance.slack)} for all sampled runs and sealed "
            f"searches, of which {allowance(left.slack)} is left; nothing was spent. That total is "
            "fixed when a ledger is opened (--slack). Use full-batch runs, which need none, or a "
            "smaller slack."
        )
    together = Price(balance.spent.mu_squared + price.mu_squared, balance.slack)
    return (
        f"reserving {epsilon_in_words(price, budget.delta)} for {purpose!r} would bring data set "
        f"{balance.dataset!r} to {epsilon_in_words(together, budget.delta)}; the budget is epsilon "
        f"{budget.epsilon:g} at delta {probability(budget.delta)}, and nothing was spent. What is "
        "left is enough for one full-batch run of epsilon "
        f"{allowance(balance.remaining_epsilon)}: make the run smaller, or have the owner of the "
        "data change the budget."
    )


def wrong_dataset(past: chain.Replay, address: str) -> str:
    versions = "; ".join(f"{v.reason} ({v.time[:10]})" for v in past.versions) or "none yet"
    return (
        f"these rows are not a declared version of data set {past.dataset!r}, which {address} "
        f"pays for (declared: {versions}); nothing was spent. If they are the same data set with "
        "rows added or corrected, declare them: dptune ledger declare "
        f"{shlex.quote(address)} --data FILE --reason WHY. If they are a different data set, use "
        "another ledger; declaring them here would make its guarantee false."
    )
