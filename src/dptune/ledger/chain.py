"""The entries of a ledger, their hash chain, and their replay.

Entries are only ever added. Each stores the hash of the one before, and `head` repeats the last
hash, so an incomplete or carelessly edited ledger is detected. A person who may write to the store
can still restore a whole older ledger. Processes that have the ledger open detect that; others
detect it only with a head that was recorded elsewhere (`dptune budget` prints it, and every receipt
has one). A payment's state is not stored; it follows from the entries that name it.
"""

import hashlib
import hmac
import json
import math
import operator
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Any

import sqlalchemy as sa

from dptune.accounting import Budget
from dptune.errors import DptuneError, LedgerCorrupt
from dptune.ledger.balance import Balance, Sum
from dptune.ledger.state import BudgetChange, Payment, State, Version
from dptune.plain_data import UNFIT, read_json
from dptune.privacy import Event, Price, event_from_dict

# Format 1 had no limit on slack: a reader of format 1 would admit too much. Format 2 had no columns
# for study and label. Older ledgers continue in the format they were opened in.
FORMAT, READABLE = 3, (1, 2, 3)


def _entries(metadata: sa.MetaData, *of_studies: sa.Column[Any]) -> sa.Table:
    return sa.Table(
        "entries",
        metadata,
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("time", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("payment", sa.Integer),  # 1, 2, ... in reserve; the kinds in MOVES point to it
        sa.Column("event", sa.Text),
        sa.Column("mu_squared", sa.Double),
        sa.Column("slack", sa.Double),
        sa.Column("fingerprint", sa.Text),  # hashed with a secret key: see Replay.hide
        sa.Column("epsilon", sa.Double),
        sa.Column("delta", sa.Double),
        sa.Column("text", sa.Text, nullable=False),  # name, purpose or reason
        *of_studies,
        sa.Column("previous", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
    )


metadata = sa.MetaData()
# Of reserve entries of studies: the study's name, and the payment's label in it.
entries = _entries(metadata, sa.Column("study", sa.Text), sa.Column("label", sa.Text))
sa.Index("entries_by_payment", entries.c.payment, entries.c.number)  # for the view below
entries_before_3 = _entries(sa.MetaData())
_NAMES = tuple(column.name for column in entries.columns)
_hashed = operator.itemgetter(
    *(column.name for column in entries_before_3.columns if column.name != "hash")
)
head = sa.Table(
    "head",
    metadata,
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
)
# For each kind of entry: the states of a payment that it may follow, and the state after it. A
# started payment may have read rows, so it can only become committed.
MOVES: dict[str, tuple[tuple[str, ...], str]] = {
    "start": (("reserved",), "started"),
    "commit": (("reserved", "started"), "committed"),
    "void": (("reserved",), "voided"),
    "exchange": (("reserved",), "exchanged"),  # the next entry reserves the payment in its place
}
# For people who use SQL: one row per payment, with its state, which the last entry decides.
_STATES = " ".join(f"WHEN '{kind}' THEN '{state}'" for kind, (_, state) in MOVES.items())


def _view(of_studies: str) -> str:
    return f"""
CREATE VIEW payments AS
SELECT r.payment, r.time, r.text AS purpose, {of_studies}r.event, r.mu_squared, r.slack,
       r.fingerprint,
       (SELECT CASE e.kind {_STATES} ELSE 'reserved' END
        FROM entries e WHERE e.payment = r.payment ORDER BY e.number DESC LIMIT 1) AS state,
       r.previous, r.hash
FROM entries r WHERE r.kind = 'reserve'
"""


PAYMENTS_VIEW, PAYMENTS_VIEW_BEFORE_3 = _view("r.study, r.label, "), _view("")


@dataclass
class Replay:
    """The chain read so far, including secrets; it never leaves the ledger.

    It only grows, by `take` and `add`. All that a new entry needs is kept as a sum or an index, so
    the cost of an entry does not depend on their number.
    """

    format: int = FORMAT
    key: bytes = b""
    dataset: str = ""
    opened_slack: float | None = None
    scheduled: int = 0
    schedule_begun: bool = False
    expected: int = 0  # reservations of the schedule that must follow
    changes: list[BudgetChange] = field(default_factory=list)
    versions: list[Version] = field(default_factory=list)
    fingerprints: set[str] = field(default_factory=set)
    payments: dict[int, Payment] = field(default_factory=dict)
    paid_for: dict[int, str] = field(default_factory=dict)  # fingerprint of the rows, by payment
    studies: dict[str, list[int]] = field(default_factory=dict)  # numbers of their payments
    counted: OrderedDict[int, Event] = field(default_factory=OrderedDict)  # by payment
    sum: Sum = field(default_factory=Sum)  # of the prices of those that count
    exchanging: Payment | None = None  # the next entry must reserve its successor
    hashes: list[str] = field(default_factory=list)
    last: Mapping[str, Any] | None = None

    @property
    def next_payment(self) -> int:
        return len(self.payments) + 1

    @property
    def table(self) -> sa.Table:
        return entries if self.format >= 3 else entries_before_3

    @property
    def view(self) -> str:
        return PAYMENTS_VIEW if self.format >= 3 else PAYMENTS_VIEW_BEFORE_3

    def hide(self, fingerprint: str) -> str:
        """The fingerprint hashed with the ledger's secret key. A hash of private rows without a
        key would be a release."""
        return hmac.new(self.key, fingerprint.encode(), "sha256").hexdigest()

    def must_stay(self, payment: Payment) -> bool:
        """Whether `payment` belongs to a schedule that has begun. The schedule was admitted as a
        whole: leaving out a part would free nothing for other payments."""
        return payment.number <= self.scheduled and self.schedule_begun

    def balance(self) -> Balance:
        return Balance(
            dataset=self.dataset,
            budget=self.changes[-1].budget,
            opened_slack=self.opened_slack,
            fixed=0 < self.scheduled == len(self.payments),
            payments=len(self.counted),
            sum=self.sum,
            some_events=tuple(islice(self.counted.values(), 2)),
        )

    def balance_without(self, payment: Payment) -> Balance:
        """The balance without `payment`, which counts, but with the same slack."""
        others = (event for number, event in self.counted.items() if number != payment.number)
        balance = self.balance()
        return replace(
            balance,
            opened_slack=balance.slack,
            payments=balance.payments - 1,
            sum=self.sum.minus(payment.price),
            some_events=tuple(islice(others, 2)),
        )

    def state(self) -> State:
        return State(
            balance=self.balance(),
            scheduled=self.scheduled,
            hashes=tuple(self.hashes),
            changes=tuple(self.changes),
            versions=tuple(self.versions),
            payments=tuple(self.payments.values()),
        )

    def take(self, entry: Mapping[str, Any]) -> None:
        """Verify one entry against the one before, then apply it."""
        _require(
            entry["number"] == (self.last["number"] + 1 if self.last else 1), "is out of order"
        )
        _require(entry["previous"] == (self.last["hash"] if self.last else ""), "breaks the chain")
        _require(entry["hash"] == _hash(entry), "was changed after it was written")
        self._apply(entry)

    def add(self, **values: Any) -> dict[str, Any]:
        """Make a new entry after the last and apply it, so that no unreadable entry is written."""
        entry = next_entry(self.last, **values)
        self._apply(entry)
        return entry

    def _apply(self, entry: Mapping[str, Any]) -> None:
        kind, number, time = entry["kind"], entry["number"], entry["time"]
        study, label = entry["study"], entry["label"]
        _require(
            (study is None) == (label is None),
            "has only one of study and label",
        )
        _require(study is None or kind == "reserve", "names a study, but reserves nothing")
        _require((kind == "open") == (number == 1), "opens the ledger twice")
        if self.expected:
            _require(kind == "reserve", "interrupts a schedule")
            self.expected -= 1
        if self.exchanging is not None:
            problem = f"does not reserve the successor of payment {self.exchanging.number}"
            _require(kind == "reserve", problem)
        match kind:
            case "open":
                self._open(entry)
            case "budget":
                self.changes.append(BudgetChange(time, _budget(entry), entry["text"]))
            case "declare":
                self.fingerprints.add(entry["fingerprint"])
                self.versions.append(Version(time, entry["text"]))
            case "schedule":
                _require(not self.payments, "fixes a schedule after the first payment")
                self.scheduled = self.expected = read_json(entry["event"], "it")["payments"]
            case "reserve":
                self._reserve(entry)
            case _:
                _require(kind in MOVES, f"is of unknown kind {kind!r}")
                self._move(entry)
        self.hashes.append(entry["hash"])
        self.last = entry

    def _open(self, entry: Mapping[str, Any]) -> None:
        """The first entry: the rules of this ledger."""
        opened = read_json(entry["event"], "it")
        number = opened["format"]
        _require(number in READABLE, f"is of format {number}; this dptune reads {FORMAT}")
        self.format = number
        self.key = bytes.fromhex(opened["key"])
        if number > 1:
            self.opened_slack = float(opened["slack"])
            valid = 0 <= self.opened_slack <= 0.5 * entry["delta"]
            _require(valid, "sets aside more than half of delta")
        self.dataset = entry["text"]
        self.changes.append(BudgetChange(entry["time"], _budget(entry), "opened"))

    def _reserve(self, entry: Mapping[str, Any]) -> None:
        """Add a payment, which counts from now on."""
        number = self.next_payment
        _require(entry["payment"] == number, "has the wrong payment number")
        price = Price(entry["mu_squared"], entry["slack"])
        valid = 0 <= price.mu_squared < math.inf and 0 <= price.slack < 1
        _require(valid, "has an invalid price")
        if (old := self.exchanging) is not None:
            same_rows = entry["fingerprint"] == self.paid_for[old.number]
            _require(same_rows, f"is not for the rows of payment {old.number}")
            _require(costs_no_more(price, old.price), f"costs more than payment {old.number}")
            self.exchanging = None
        study, label = entry["study"], entry["label"]
        if self.format < 3:
            study, label = _study_in(entry["text"])
        payment = Payment(
            number,
            entry["time"],
            entry["text"],
            _event(entry["event"]),
            price,
            "reserved",
            entry["hash"],
            study=study,
            label=label,
        )
        self.payments[number] = payment
        self.paid_for[number] = entry["fingerprint"]
        if study is not None:
            self.studies.setdefault(study, []).append(number)
        self.counted[number] = payment.event
        self.sum = self.sum.plus(price)

    def _move(self, entry: Mapping[str, Any]) -> None:
        """Change the state of a payment."""
        kind, time = entry["kind"], entry["time"]
        payment = self.payments.get(entry["payment"])
        if payment is None:
            raise _Broken(f"is a {kind} of a payment never reserved")
        allowed, state = MOVES[kind]
        if payment.state not in allowed:
            already = f"which is already {payment.state}"
            raise _Broken(f"is a {kind} of payment {payment.number}, {already}")
        if kind in ("void", "exchange") and self.must_stay(payment):
            raise _Broken(f"is a {kind} of payment {payment.number}, whose schedule has begun")
        settled = "" if kind == "start" else time
        if kind in ("start", "commit"):
            payment = payment.with_state(state, settled)
            self.schedule_begun |= payment.number <= self.scheduled
        else:
            payment = payment.with_state(state, settled, entry["text"])
            del self.counted[payment.number]
            self.sum = self.sum.minus(payment.price)
        if kind == "exchange":
            self.exchanging = payment
        self.payments[payment.number] = payment


def costs_no_more(price: Price, old: Price) -> bool:
    """Whether `price` exceeds `old` in neither part, not even by rounding."""
    return price.mu_squared <= old.mu_squared and price.slack <= old.slack


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def next_entry(last: Mapping[str, Any] | None, **values: Any) -> dict[str, Any]:
    """A new entry after `last`."""
    entry: dict[str, Any] = dict.fromkeys(_NAMES)
    entry |= {
        "number": last["number"] + 1 if last else 1,
        "time": values.get("time") or now(),
        "previous": last["hash"] if last else "",
    }
    entry |= values
    entry["hash"] = _hash(entry)
    return entry


def end(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `head` while `entry` is the last one."""
    return {"number": entry["number"], "hash": entry["hash"]}


def write(connection: sa.Connection, past: Replay, added: Sequence[Mapping[str, Any]]) -> None:
    """Write entries that were added to `past` to the end of the chain in the store."""
    names = past.table.columns.keys()
    values = operator.itemgetter(*names)
    rows: list[Any] = list(map(values, added))
    insert = sa.insert(past.table).compile(dialect=connection.dialect)
    if not insert.positional:
        rows = [dict(zip(names, row, strict=True)) for row in rows]
    # Directly by the driver: SQLAlchemy's handling of every parameter takes longer than the rest.
    connection.exec_driver_sql(str(insert), rows)
    connection.execute(sa.update(head), end(added[-1]))


def follow(
    connection: sa.Connection, past: Replay, address: str, seen: Mapping[str, Any] | None
) -> None:
    """Verify the entries that were added since, and apply them to `past`.

    A ledger is refused if it is inconsistent or lacks `seen`, the last entry of an earlier read;
    `past` must not be used after that. The last entry of `past` must be unchanged in its place. Its
    hash covers all entries before it, so those are not read again (docs/design/ledger.md). An empty
    past verifies everything.
    """
    number = len(past.hashes)
    try:
        if past.last is None:
            past.format = _format(connection)
        stored = _read(connection, past.table, since=number if past.last else None)
        if past.last is not None:
            _require(_is_same(next(stored, None), past.last), _REPLACED)
        for entry in stored:
            number += 1
            past.take(entry)
        ends = connection.execute(sa.select(head.c.number, head.c.hash)).all()
        _require(past.exchanging is None, "exchanges a payment without a successor")
        _require(not past.expected, "ends a schedule too early")
        last = past.last or {"number": 0, "hash": ""}
        _require([row._asdict() for row in ends] == [end(last)], "is not the last")
        if seen is not None:
            held = past.hashes[seen["number"] - 1 : seen["number"]] == [seen["hash"]]
            number = number if held else seen["number"]
            _require(held, _REPLACED)
    except (*UNFIT, _Broken, DptuneError) as error:
        raise LedgerCorrupt(_edited(address, f"entry {number} {_why(error)}")) from None


_PORTION = 1_000
_REPLACED = (
    "is not the one that was verified here before; the ledger was replaced by an older copy or by "
    "another ledger"
)


def _format(connection: sa.Connection) -> int:
    """The format, which gives the columns; it is verified with the first entry."""
    first = sa.select(entries.c.event).where(entries.c.number == 1)
    event = connection.execute(first).scalar()
    number = read_json(event, "it")["format"] if event is not None else FORMAT
    return number if number in READABLE else FORMAT


def _read(
    connection: sa.Connection, table: sa.Table, *, since: int | None
) -> Iterator[dict[str, Any]]:
    """All entries, or those from number `since` on, in order. They are read in portions: a server
    without statistics of the table would otherwise scan all of it for the last few."""
    missing = dict.fromkeys(name for name in _NAMES if name not in table.columns)
    names = table.columns.keys()
    portion = sa.select(table).order_by(table.c.number).limit(_PORTION)
    while True:
        query = portion if since is None else portion.where(table.c.number >= since)
        rows = connection.execute(query).all()
        for row in rows:
            yield dict(zip(names, row, strict=True)) | missing
        if len(rows) < _PORTION:
            return
        since = rows[-1].number + 1


def _is_same(entry: Mapping[str, Any] | None, last: Mapping[str, Any]) -> bool:
    return entry is not None and end(entry) == end(last) and _hash(entry) == last["hash"]


def verify_view(connection: sa.Connection, past: Replay, address: str) -> None:
    """Refuse a ledger whose view `payments` differs from its entries."""
    if connection.dialect.name == "sqlite":
        definitions = connection.execute(
            sa.text("SELECT type, sql FROM sqlite_master WHERE name = 'payments'")
        )
        is_ours = [tuple(row) for row in definitions] == [("view", past.view.strip())]
    else:
        is_ours = _view_matches(connection, past)
    if not is_ours:
        raise LedgerCorrupt(_edited(address, "its view payments was changed"))


def _view_matches(connection: sa.Connection, past: Replay) -> bool:
    """Whether the view shows the payments. A server rewrites the definition of a view, so its
    current rows are compared."""
    relation = sa.text(
        "SELECT relkind, has_table_privilege(oid, 'SELECT') FROM pg_class "
        "WHERE oid = to_regclass('payments')"
    )
    match [tuple(row) for row in connection.execute(relation)]:
        case [("v", True)]:
            pass
        case [("v", False)]:  # a user without the right to read it cannot be misled by it
            return True
        case _:
            return False
    of_studies = "study, label, " if past.format >= 3 else ""
    columns = f"{of_studies}event, mu_squared, slack, fingerprint, previous, hash"
    of_view = sa.text(
        f"SELECT payment, time, purpose, {columns}, state FROM payments ORDER BY payment"
    )
    of_entries = sa.text(
        f"SELECT payment, time, text, {columns} FROM entries WHERE kind = 'reserve' "
        "ORDER BY payment"
    )
    portions = {"yield_per": _PORTION}  # there may be many rows
    try:
        with (
            connection.execute(of_view, execution_options=portions) as shown,
            connection.execute(of_entries, execution_options=portions) as entered,
        ):
            rows = zip(shown, entered, past.payments.values(), strict=True)
            return all(tuple(row) == (*entry, payment.state) for row, entry, payment in rows)
    except sa.exc.ProgrammingError:  # a column is missing
        return False
    except ValueError:  # the view has too many or too few payments
        return False


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


def _study_in(purpose: str) -> tuple[str | None, str | None]:
    """Study and label as formats 1 and 2 wrote them: into the purpose."""
    label, separator, study = purpose.rpartition(" (study ")
    return (study[:-1], label) if separator and study.endswith(")") else (None, None)


@lru_cache(maxsize=1024)  # a study reserves many equal events
def _event(text: str) -> Event:
    return event_from_dict(read_json(text, "its event"))


_to_json = json.JSONEncoder(allow_nan=False).encode


def _hash(entry: Mapping[str, Any]) -> str:
    """The hash of an entry's other columns. Without a study it leaves study and label out, so that
    such entries hash as in older formats, and older readers detect the newer format."""
    values = _hashed(entry)
    if entry["study"] is not None or entry["label"] is not None:
        values += (entry["study"], entry["label"])
    return hashlib.sha256(_to_json(values).encode()).hexdigest()
