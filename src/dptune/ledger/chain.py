"""The entries of a ledger, how they are chained, and what they say when replayed.

Entries are only ever added. Each carries the hash of the one before, and `head` repeats the last
one's, so a torn or carelessly edited ledger is noticed. Somebody who may write to the store can
still put a whole older ledger back; only a head noted down elsewhere (`dptune budget` prints it,
every receipt carries one) tells. A payment's state is not stored, it follows from the entries that
name it.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from dptune import accounting, gdp
from dptune.accounting import Budget, Guarantee
from dptune.errors import DptuneError, LedgerCorrupt
from dptune.privacy import Event, Price, Receipt, event_from_dict, event_to_dict, total
from dptune.rounding import cost

# 1 had no limit on slack of its own: who reads only that would admit too much.
FORMAT, READABLE = 2, (1, 2)

metadata = sa.MetaData()
entries = sa.Table(
    "entries",
    metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("time", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("payment", sa.Integer),  # 1, 2, ... in reserve; the kinds in MOVES point to it
    sa.Column("event", sa.Text),
    sa.Column("mu_squared", sa.Double),
    sa.Column("slack", sa.Double),
    sa.Column("fingerprint", sa.Text),  # keyed: see Replay.keyed
    sa.Column("epsilon", sa.Double),
    sa.Column("delta", sa.Double),
    sa.Column("text", sa.Text, nullable=False),  # name, purpose or reason
    sa.Column("previous", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
)
head = sa.Table(
    "head",
    metadata,
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
)
# Which states of a payment an entry of each kind may end, and the state that follows. A payment
# that was started may have read rows, so no way leads from there but to committed.
MOVES: dict[str, tuple[tuple[str, ...], str]] = {
    "start": (("reserved",), "started"),
    "commit": (("reserved", "started"), "committed"),
    "void": (("reserved",), "voided"),
    "exchange": (("reserved",), "exchanged"),  # for the payment that the next entry reserves
}
# For people who look with SQL: one row per payment, with its state, which the last entry decides.
_STATES = " ".join(f"WHEN '{kind}' THEN '{state}'" for kind, (_, state) in MOVES.items())
PAYMENTS_VIEW = f"""
CREATE VIEW payments AS
SELECT r.payment, r.time, r.text AS purpose, r.event, r.mu_squared, r.slack,
       r.fingerprint,
       (SELECT CASE e.kind {_STATES} ELSE 'reserved' END
        FROM entries e WHERE e.payment = r.payment ORDER BY e.number DESC LIMIT 1) AS state,
       r.previous, r.hash
FROM entries r WHERE r.kind = 'reserve'
"""


@dataclass(frozen=True)
class Payment:
    """One payment and where it stands: reserved, started, committed, voided or exchanged."""

    number: int
    time: str
    purpose: str
    event: Event
    price: Price
    state: str
    entry: str
    settled: str = ""  # when it was committed, voided or exchanged
    reason: str = ""  # why it was voided or exchanged

    @property
    def counts(self) -> bool:
        """Whether it is spent. An exchanged payment's place is taken by its successor."""
        return self.state not in ("voided", "exchanged")


@dataclass(frozen=True)
class BudgetChange:
    """The budget from this moment on, and why."""

    time: str
    budget: Budget
    reason: str


@dataclass(frozen=True)
class Version:
    """Rows that were declared to be this data set, and why."""

    time: str
    reason: str


@dataclass(frozen=True)
class State:
    """What a verified chain says. Holds no fingerprint: they never leave the ledger."""

    dataset: str
    opened_slack: float | None  # None in ledgers that were opened before it was fixed
    scheduled: int  # how many of the first payments were fixed together, before any of them ran
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
    def budget(self) -> Budget:
        return self.changes[-1].budget

    @property
    def counted(self) -> tuple[Payment, ...]:
        """Payments that count as spent: all but the voided and the exchanged."""
        return tuple(payment for payment in self.payments if payment.counts)

    def receipt(self, payment: Payment) -> Receipt:
        """What whoever paid was given."""
        return Receipt(payment.number, self.dataset, payment.event, payment.price, payment.entry)

    @property
    def events(self) -> list[Event]:
        return [payment.event for payment in self.counted]

    @property
    def spent(self) -> Price:
        return total(payment.price for payment in self.counted)

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

    def admits(self, events: Sequence[Event], price: Price) -> bool:
        """Whether `events`, which cost `price`, fit in beside everything that counts."""
        together = total([*(payment.price for payment in self.counted), price])
        return accounting.fits([*self.events, *events], together, self.budget, self.slack)

    def fits(self, budget: Budget) -> bool:
        """Whether everything that counts would be within another budget."""
        if self.fixed and self.epsilon_at(budget.delta) <= budget.epsilon:
            return True
        return accounting.fits(self.events, self.spent, budget, self.slack)

    def without(self, payment: Payment) -> "State":
        """The same had `payment` never been made, with as much slack as there is now."""
        others = tuple(other for other in self.payments if other.number != payment.number)
        return replace(self, opened_slack=self.slack, payments=others)

    @property
    def fixed(self) -> bool:
        """Whether everything that was ever paid for was fixed before the first output was seen, so
        that privacy losses may be composed directly."""
        return 0 < self.scheduled == len(self.payments)

    @property
    def spent_epsilon(self) -> float:
        """At the budget's delta. What was granted fits in the budget, so this does not exceed it
        by a rounding either."""
        return min(self.epsilon_at(self.budget.delta), self.budget.epsilon)

    def epsilon_at(self, delta: float) -> float:
        """The epsilon of everything that counts, at another delta."""
        if self.fixed:
            return accounting.direct_epsilon(self.events, delta)
        return accounting.epsilon_of(self.events, self.charged, delta)

    @property
    def remaining(self) -> Price:
        """What a payment may still cost, in mu squared and in slack."""
        spent, slack = self.spent, self.slack
        return Price(
            max(0.0, self.budget.mu_squared(slack) - spent.mu_squared),
            max(0.0, slack - spent.slack),
        )

    @property
    def remaining_epsilon(self) -> float:
        """The epsilon, by itself, of a single full-batch run that would use up what is left."""
        return gdp.epsilon_from_mu(self.remaining.mu, self.budget.delta)

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
        """The budget as a promise: the largest there ever was, because one that is lowered to what
        was spent is no limit that was fixed beforehand. Where mu squared and slack were traded for
        each other, both may have been used up: delta + (1 - delta) * delta (docs/accounting.md)."""
        epsilon = max(change.budget.epsilon for change in self.changes)
        delta = max(change.budget.delta for change in self.changes)
        return f"({epsilon:g}, {delta * (1 if self.opened_slack is not None else 2)!r})"

    def _caveats(self) -> tuple[str, ...]:
        budget, first = self.budget, self.changes[0].budget
        caveats = ["whatever touched the rows without a payment here is not covered"]
        if self.counted:
            # A sum that stops early because of what was seen is an odometer, not a filter.
            caveats.append(
                "this is what was spent; if how many runs there were, or how large, depended on "
                f"outputs, promise the budget instead: {self._limit}"
            )
        if self.opened_slack is None:
            caveats.append(
                "this ledger was opened before the sum of failure probabilities was fixed; if "
                "outputs decided which runs had one, delta may have doubled, and the budget above "
                "says so"
            )
        elif self.opened_slack:
            caveats.append(
                f"of delta, {cost(self.opened_slack)} is set aside for failures of sampled runs "
                "and sealed searches, used or not, since the ledger was opened"
            )
        if budget != first:
            caveats.append(
                f"the budget was changed from ({first.epsilon:g}, {first.delta!r}) to "
                f"({budget.epsilon:g}, {budget.delta!r}): {self.changes[-1].reason}"
            )
        states = [payment.state for payment in self.payments]
        if voided := states.count("voided"):
            caveats.append(f"payments voided as never started, on somebody's word: {voided}")
        if exchanged := states.count("exchanged"):
            # Nothing came back, but whoever ran the first and then the second paid once.
            caveats.append(
                "payments exchanged before they were started, on the word of the program that ran "
                f"them, for others that cost no more and count in their place: {exchanged}"
            )
        return tuple(caveats)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        budget, spent, left = self.budget, self.spent, self.remaining
        return {
            "dataset": self.dataset,
            "budget": {**asdict(budget), "mu": budget.mu},
            "spent": {"epsilon": self.spent_epsilon, "mu": spent.mu, **asdict(spent)},
            "left": {"epsilon": self.remaining_epsilon, "mu": left.mu, **asdict(left)},
            "payments": [
                {
                    "payment": payment.number,
                    "time": payment.time,
                    "purpose": payment.purpose,
                    "event": event_to_dict(payment.event),
                    **asdict(payment.price),
                    "state": payment.state,
                    "settled": payment.settled,
                    "reason": payment.reason,
                    "entry": payment.entry,
                }
                for payment in self.payments
            ],
            "budget_history": [
                {"time": change.time, **asdict(change.budget), "reason": change.reason}
                for change in self.changes
            ],
            "versions": [{"time": v.time, "reason": v.reason} for v in self.versions],
            "chain": {"verified": True, "entries": self.entries, "head": self.head},
            "guarantee": self.guarantee().to_dict(),
        }


@dataclass
class Replay:
    """The chain read so far, secrets included; never leaves the ledger."""

    key: bytes = b""
    dataset: str = ""
    opened_slack: float | None = None
    scheduled: int = 0
    expected: int = 0  # reservations of the schedule that must follow
    changes: list[BudgetChange] = field(default_factory=list)
    versions: list[Version] = field(default_factory=list)
    fingerprints: set[str] = field(default_factory=set)
    payments: dict[int, Payment] = field(default_factory=dict)
    paid_for: dict[int, str] = field(default_factory=dict)  # which rows, by payment
    exchanging: Payment | None = None  # whose successor the next entry must reserve
    hashes: list[str] = field(default_factory=list)
    last: Mapping[str, Any] | None = None

    @property
    def next_payment(self) -> int:
        return len(self.payments) + 1

    def keyed(self, fingerprint: str) -> str:
        """A plain hash of private rows is a release; under a secret key it is not."""
        return hmac.new(self.key, fingerprint.encode(), "sha256").hexdigest()

    def must_stay(self, payment: Payment) -> bool:
        """Whether `payment` is of a schedule that has begun. It was admitted as a whole: what
        became free by leaving out a part could not be spent on anything else."""
        schedule = list(self.payments.values())[: self.scheduled]
        begun = any(other.state in ("started", "committed") for other in schedule)
        return payment.number <= self.scheduled and begun

    def state(self) -> State:
        return State(
            dataset=self.dataset,
            opened_slack=self.opened_slack,
            scheduled=self.scheduled,
            hashes=tuple(self.hashes),
            changes=tuple(self.changes),
            versions=tuple(self.versions),
            payments=tuple(self.payments.values()),
        )

    def take(self, entry: Mapping[str, Any]) -> None:
        """Verify one entry against the one before, then let it count."""
        _require(
            entry["number"] == (self.last["number"] + 1 if self.last else 1), "is out of order"
        )
        _require(entry["previous"] == (self.last["hash"] if self.last else ""), "breaks the chain")
        _require(entry["hash"] == _hash(entry), "was changed after it was written")
        kind, number, time = entry["kind"], entry["number"], entry["time"]
        _require((kind == "open") == (number == 1), "opens the ledger twice")
        if self.expected:
            _require(kind == "reserve", "stands where a schedule goes on")
            self.expected -= 1
        if self.exchanging is not None:
            _require(kind == "reserve", f"stands where payment {self.exchanging.number} goes on")
        match kind:
            case "open":
                opened = json.loads(entry["event"])
                found = opened["format"]
                _require(found in READABLE, f"is of format {found}; this dptune reads {FORMAT}")
                self.key = bytes.fromhex(opened["key"])
                if found > 1:
                    self.opened_slack = float(opened["slack"])
                    sane = 0 <= self.opened_slack <= 0.5 * entry["delta"]
                    _require(sane, "sets aside more than half of delta")
                self.dataset = entry["text"]
                self.changes.append(BudgetChange(time, _budget(entry), "opened"))
            case "budget":
                self.changes.append(BudgetChange(time, _budget(entry), entry["text"]))
            case "declare":
                self.fingerprints.add(entry["fingerprint"])
                self.versions.append(Version(time, entry["text"]))
            case "schedule":
                _require(not self.payments, "fixes a schedule after the first payment")
                self.scheduled = self.expected = json.loads(entry["event"])["payments"]
            case "reserve":
                payment_number = self.next_payment
                _require(entry["payment"] == payment_number, "numbers its payment wrongly")
                price = Price(entry["mu_squared"], entry["slack"])
                if (old := self.exchanging) is not None:
                    same_rows = entry["fingerprint"] == self.paid_for[old.number]
                    _require(same_rows, f"is not for the rows of payment {old.number}")
                    _require(no_dearer(price, old.price), f"costs more than payment {old.number}")
                    self.exchanging = None
                self.payments[payment_number] = Payment(
                    payment_number,
                    time,
                    entry["text"],
                    event_from_dict(json.loads(entry["event"])),
                    price,
                    "reserved",
                    entry["hash"],
                )
                self.paid_for[payment_number] = entry["fingerprint"]
            case _:
                _require(kind in MOVES, f"is of unknown kind {kind!r}")
                self._move(entry)
        self.hashes.append(entry["hash"])
        self.last = entry

    def _move(self, entry: Mapping[str, Any]) -> None:
        """Let a payment go from one state to the next."""
        kind, time = entry["kind"], entry["time"]
        _require(entry["payment"] in self.payments, f"is a {kind} of a payment never reserved")
        payment = self.payments[entry["payment"]]
        allowed, state = MOVES[kind]
        _require(
            payment.state in allowed,
            f"is a {kind} of payment {payment.number}, which is {payment.state} already",
        )
        _require(
            kind not in ("void", "exchange") or not self.must_stay(payment),
            f"is a {kind} of payment {payment.number}, whose schedule has begun",
        )
        payment = replace(payment, state=state)
        if kind != "start":
            payment = replace(payment, settled=time)
        if not payment.counts:
            payment = replace(payment, reason=entry["text"])
        if kind == "exchange":
            self.exchanging = payment
        self.payments[payment.number] = payment


def no_dearer(price: Price, old: Price) -> bool:
    """Whether `price` takes no more of anything than `old`; not by a rounding."""
    return price.mu_squared <= old.mu_squared and price.slack <= old.slack


def chained(last: Mapping[str, Any] | None, **values: Any) -> dict[str, Any]:
    """A new entry that follows `last`."""
    entry: dict[str, Any] = dict.fromkeys(entries.columns.keys())
    entry |= {
        "number": last["number"] + 1 if last else 1,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "previous": last["hash"] if last else "",
    }
    entry |= values
    entry["hash"] = _hash(entry)
    return entry


def end(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What `head` holds while `entry` is the last."""
    return {"number": entry["number"], "hash": entry["hash"]}


def replay(connection: sa.Connection, address: str) -> Replay:
    """Read and verify everything; a ledger that does not add up is refused."""
    replayed = Replay()
    number = 0
    try:
        for row in connection.execute(sa.select(entries).order_by(entries.c.number)):
            number += 1
            replayed.take(row._asdict())
        ends = connection.execute(sa.select(head.c.number, head.c.hash)).all()
        _require(replayed.exchanging is None, "exchanges a payment for none")
        _require(not replayed.expected, "ends a schedule too early")
        state = replayed.state()
        _require([tuple(end) for end in ends] == [(state.entries, state.head)], "is not the last")
    except (KeyError, TypeError, ValueError, _Broken, DptuneError) as error:
        raise LedgerCorrupt(_edited(address, f"entry {number} {_why(error)}")) from None
    return replayed


def verify_view(connection: sa.Connection, state: State, address: str) -> None:
    """Refuse a ledger whose view `payments` tells people something else than its entries."""
    if connection.dialect.name == "sqlite":
        found = connection.execute(
            sa.text("SELECT type, sql FROM sqlite_master WHERE name = 'payments'")
        )
        ours = [tuple(row) for row in found] == [("view", PAYMENTS_VIEW.strip())]
    else:
        ours = _view_tells(connection, state)
    if not ours:
        raise LedgerCorrupt(_edited(address, "its view payments is not the one it was made with"))


def _view_tells(connection: sa.Connection, state: State) -> bool:
    """A server keeps a view in words of its own, so it is judged by what it says now."""
    found = sa.text(
        "SELECT relkind, has_table_privilege(oid, 'SELECT') FROM pg_class "
        "WHERE oid = to_regclass('payments')"
    )
    match [tuple(row) for row in connection.execute(found)]:
        case [("v", True)]:
            pass
        case [("v", False)]:  # whoever may not look is told nothing
            return True
        case _:
            return False
    told = sa.text(
        "SELECT payment, time, purpose, event, mu_squared, slack, fingerprint, previous, hash, "
        "state FROM payments ORDER BY payment"
    )
    true = sa.text(
        "SELECT payment, time, text, event, mu_squared, slack, fingerprint, previous, hash "
        "FROM entries WHERE kind = 'reserve' ORDER BY payment"
    )
    try:
        shown = [tuple(row) for row in connection.execute(told)]
    except sa.exc.ProgrammingError:  # a column is gone
        return False
    rows = zip(connection.execute(true), state.payments, strict=True)
    return shown == [(*row, payment.state) for row, payment in rows]


def _edited(address: str, what: str) -> str:
    return (
        f"the ledger {address} is damaged or was edited: {what}. Its numbers cannot be trusted, so "
        "nothing may be paid from it. Restore it from a backup, and count what was spent since as "
        "spent."
    )


class _Broken(Exception):
    pass


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise _Broken(problem)


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, _Broken) else f"cannot be read ({error})"


def _budget(entry: Mapping[str, Any]) -> Budget:
    return Budget(entry["epsilon"], entry["delta"])


def _hash(entry: Mapping[str, Any]) -> str:
    values = [entry[column.name] for column in entries.columns if column is not entries.c.hash]
    return hashlib.sha256(json.dumps(values, allow_nan=False).encode()).hexdigest()
