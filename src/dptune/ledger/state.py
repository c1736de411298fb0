"""The whole content of a ledger, for people and programs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from dptune import accounting
from dptune.accounting import Budget, Guarantee
from dptune.ledger.balance import Balance
from dptune.privacy import Event, Price, event_to_dict
from dptune.rounding import cost, probability


@dataclass(frozen=True)
class Payment:
    """One payment and its state: reserved, started, committed, voided or exchanged."""

    number: int
    time: str
    purpose: str
    event: Event
    price: Price
    state: str
    entry: str
    settled: str = ""  # when it was committed, voided or exchanged
    reason: str = ""  # why it was voided or exchanged
    study: str | None = None  # the study that paid, if any
    label: str | None = None  # the payment's name in that study

    @property
    def counts(self) -> bool:
        """Whether it is spent. A successor takes the place of an exchanged payment."""
        return self.state not in ("voided", "exchanged")

    def with_state(self, state: str, settled: str, reason: str = "") -> "Payment":
        """The payment in its next state. Written out, since `replace` is slow and this is called
        most of all."""
        paid = (self.number, self.time, self.purpose, self.event, self.price)
        return Payment(*paid, state, self.entry, settled, reason, self.study, self.label)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "payment": self.number,
            "time": self.time,
            "purpose": self.purpose,
            "study": self.study,
            "label": self.label,
            "event": event_to_dict(self.event),
            **asdict(self.price),
            "state": self.state,
            "settled": self.settled,
            "reason": self.reason,
            "entry": self.entry,
        }


@dataclass(frozen=True)
class BudgetChange:
    """The budget from this moment on, and why."""

    time: str
    budget: Budget
    reason: str


@dataclass(frozen=True)
class Version:
    """A declared version of this data set, and why it was declared."""

    time: str
    reason: str


@dataclass(frozen=True)
class State:
    """The content of a verified chain, without fingerprints, which never leave the ledger."""

    balance: Balance
    scheduled: int  # the number of first payments that were fixed together before any of them ran
    hashes: tuple[str, ...]  # of all entries, in order
    changes: tuple[BudgetChange, ...]
    versions: tuple[Version, ...]
    payments: tuple[Payment, ...]

    @property
    def entries(self) -> int:
        return len(self.hashes)

    @property
    def head(self) -> str:
        return self.hashes[-1] if self.hashes else ""

    @property
    def dataset(self) -> str:
        return self.balance.dataset

    @property
    def budget(self) -> Budget:
        return self.balance.budget

    @property
    def opened_slack(self) -> float | None:
        return self.balance.opened_slack

    @property
    def slack(self) -> float:
        return self.balance.slack

    @property
    def spent(self) -> Price:
        return self.balance.spent

    @property
    def charged(self) -> Price:
        return self.balance.charged

    @property
    def remaining(self) -> Price:
        return self.balance.remaining

    @property
    def remaining_epsilon(self) -> float:
        return self.balance.remaining_epsilon

    @property
    def fixed(self) -> bool:
        return self.balance.fixed

    @cached_property
    def counted(self) -> tuple[Payment, ...]:
        """Payments that count as spent: all that are neither voided nor exchanged."""
        return tuple(payment for payment in self.payments if payment.counts)

    @property
    def cut_off(self) -> frozenset[int]:
        """Payments that were interrupted: a study started them and then finished without them."""
        waiting = {each.study for each in self.payments if each.state == "reserved"}
        last = {each.study: each.number for each in self.payments if each.state == "committed"}
        return frozenset(
            each.number
            for each in self.payments
            if each.state == "started" and each.study not in {None, *waiting}
            if each.number < last.get(each.study, 0)
        )

    @property
    def events(self) -> list[Event]:
        return [payment.event for payment in self.counted]

    def admits(self, events: Sequence[Event], price: Price) -> bool:
        """Whether `events`, which cost `price`, fit together with everything that counts."""
        return self.balance.admits(events, [price])

    def fits(self, budget: Budget) -> bool:
        """Whether everything that counts fits in another budget."""
        if self.fixed and self.epsilon_at(budget.delta) <= budget.epsilon:
            return True
        return self.balance.fits(budget)

    @property
    def spent_epsilon(self) -> float:
        """The epsilon spent, at the budget's delta. All payments fit in the budget, so rounding
        must not exceed it."""
        return min(self.epsilon_at(self.budget.delta), self.budget.epsilon)

    def epsilon_at(self, delta: float) -> float:
        """The epsilon of everything that counts, at another delta. If everything was fixed before
        the first output was seen, privacy losses are composed directly."""
        if self.fixed:
            return accounting.direct_epsilon(self.events, delta)
        return accounting.epsilon_of(self.events, self.charged, delta)

    def guarantee(self) -> Guarantee:
        """The statement for everything this ledger paid for."""
        return accounting.guarantee(
            self.events,
            self.budget.delta,
            spent=self.charged,
            adaptive=not self.fixed,
            covers_search=None,
            covers_selection=None,
            releases=("the outputs of all payments that count",) if self.counted else (),
            public_facts=(f"the data set's name, {self.dataset}", "its number of rows"),
            caveats=self._caveats(),
        )

    @property
    def _limit(self) -> str:
        """The largest budget that this ledger ever had. A budget that was lowered to what was spent
        is no limit fixed beforehand. If mu squared and slack could be traded for each other, both
        may be used up: delta + (1 - delta) * delta (docs/design/accounting.md)."""
        epsilon = max(change.budget.epsilon for change in self.changes)
        delta = max(change.budget.delta for change in self.changes)
        delta *= 1 if self.opened_slack is not None else 2
        return f"({epsilon:g}, {probability(delta)})"

    def _caveats(self) -> tuple[str, ...]:
        budget, first = self.budget, self.changes[0].budget
        caveats = [
            "uses of the rows without a payment in this ledger are not covered",
            "a row is the unit of the studies that paid from this ledger: a row of a table, a "
            "picture, a text or, with --unit, all that one person wrote",
        ]
        if self.counted:
            # A sum that stops early because of outputs is an odometer, not a filter.
            caveats.append(
                "this is what was spent; if the number or the size of the runs depended on "
                f"outputs, promise the budget instead: {self._limit}"
            )
        if self.opened_slack is None:
            caveats.append(
                "this ledger is of a version that did not limit the sum of failure probabilities; "
                "if outputs decided which runs had one, delta may be twice as large, and the "
                "budget above includes that"
            )
        elif self.opened_slack:
            caveats.append(
                f"{cost(self.opened_slack)} of delta is set aside for failures of sampled runs and "
                "sealed searches since the ledger was opened, used or not"
            )
        if budget != first:
            caveats.append(
                f"the budget was changed from ({first.epsilon:g}, {probability(first.delta)}) to "
                f"({budget.epsilon:g}, {probability(budget.delta)}): {self.changes[-1].reason}"
            )
        states = [payment.state for payment in self.payments]
        if voided := states.count("voided"):
            caveats.append(f"payments voided by users or programs as never started: {voided}")
        if exchanged := states.count("exchanged"):
            # No budget was freed, but a program that ran both events would have paid only once.
            caveats.append(
                "payments exchanged for others that cost no more; their programs stated that the "
                f"originals were never started: {exchanged}"
            )
        return tuple(caveats)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plain = self.to_stream()
        return plain | {"payments": list(plain["payments"])}

    def to_stream(self) -> dict[str, Any]:
        """The same with an iterator over the payments, since there may be many."""
        budget, spent, left = self.budget, self.spent, self.remaining
        return {
            "dataset": self.dataset,
            "budget": {**asdict(budget), "mu": budget.mu},
            "spent": {"epsilon": self.spent_epsilon, "mu": spent.mu, **asdict(spent)},
            "left": {"epsilon": self.remaining_epsilon, "mu": left.mu, **asdict(left)},
            "payments": (payment.to_dict() for payment in self.payments),
            "budget_history": [
                {"time": change.time, **asdict(change.budget), "reason": change.reason}
                for change in self.changes
            ],
            "versions": [{"time": v.time, "reason": v.reason} for v in self.versions],
            "chain": {"verified": True, "entries": self.entries, "head": self.head},
            "guarantee": self.guarantee().to_dict(),
        }
