"""A ledger that cannot be overspent.

One ledger holds the budget of one private data set, in a SQLite file or in PostgreSQL. Every
operation is one transaction. It excludes other writers, verifies the entries that were added since
the last one, and adds all of its own entries or none. A reservation counts as spent until it is
voided, even if the process dies. So the order is always: reserve, start, read the data, commit.

    rows = fingerprint_file("patients.csv")
    ledger = Ledger.create("patients.db", Budget(1.0, 1e-5), dataset="patients")
    ledger.declare(rows, reason="first version")
    run = FullBatchRun(steps=100, noise_multiplier=60.0)
    receipt = ledger.reserve(run, purpose="trial 1", fingerprint=rows)
    ledger.start(receipt)
    ...  # train
    ledger.commit(receipt)
"""

import json
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from dptune import accounting, validate
from dptune.accounting import Budget
from dptune.errors import BudgetExceeded, InvalidInput, WrongDataset
from dptune.ledger import chain
from dptune.ledger.balance import Balance
from dptune.ledger.refusals import (
    cannot_move,
    check_budget,
    check_schedule,
    epsilon_in_words,
    wrong_dataset,
)
from dptune.ledger.state import Payment, State
from dptune.ledger.store import Store, open_store
from dptune.privacy import Event, Price, Receipt, event_to_dict, total
from dptune.rounding import cost

_LONGEST_PURPOSE = 200  # characters; older ledgers may have longer ones


class Ledger:
    """The budget of one private data set. Every method is one transaction: all or nothing. Threads
    may share a ledger."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()  # for the two below
        self._past: chain.Replay | None = None  # verified entries that are certainly in the store
        self._seen: Mapping[str, Any] | None = None  # the last entry that was ever seen

    @classmethod
    def create(
        cls,
        address: str,
        budget: Budget,
        *,
        dataset: str,
        fingerprint: str | None = None,
        slack: float | None = None,
    ) -> "Ledger":
        """Create a ledger at `address`, a file or a `postgresql://` URL. An existing ledger is
        never replaced.

        `dataset` names the data set in everything that is published. `fingerprint` declares its
        first version. `slack` is the part of the budget's delta that is permanently set aside for
        failures of sampled runs and sealed searches, by default 2 %; 0 allows none of those.
        """
        validate.text(dataset=dataset)
        slack = accounting.slack_set_aside(budget.delta) if slack is None else slack
        slack = validate.non_negative(slack=slack, at_most=0.5 * budget.delta)
        key = secrets.token_hex(32)
        opened = {"kind": "ledger-opened", "format": chain.FORMAT, "key": key, "slack": slack}
        written = [
            chain.next_entry(
                None,
                kind="open",
                event=json.dumps(opened),
                epsilon=budget.epsilon,
                delta=budget.delta,
                text=dataset,
            )
        ]
        if fingerprint is not None:
            validate.text(fingerprint=fingerprint)
            hidden = chain.Replay(key=bytes.fromhex(key)).hide(fingerprint)
            first_version = {"fingerprint": hidden, "text": "first version"}
            written.append(chain.next_entry(written[0], kind="declare", **first_version))
        ledger = cls(open_store(address))
        with ledger._store.creation() as connection:
            chain.metadata.create_all(connection, checkfirst=False)
            connection.execute(sa.text(chain.PAYMENTS_VIEW))
            connection.execute(sa.insert(chain.entries), written)
            connection.execute(sa.insert(chain.head), chain.end(written[-1]))
        ledger._seen = chain.end(written[-1])
        return ledger

    @classmethod
    def open(cls, address: str) -> "Ledger":
        """Open an existing ledger and verify all of its entries."""
        ledger = cls(open_store(address))
        ledger.verify()
        return ledger

    def verify(self) -> State:
        """Read all entries again and verify them, as `open` does. Other methods verify only new
        entries, and that these follow the entries verified before."""
        with self._lock:
            self._past = None
            self._store.check()
            with self._store.reading() as connection:
                past = self._catch_up(connection)
                chain.verify_view(connection, past, self.address)
            return past.state()

    @property
    def address(self) -> str:
        """The ledger's address, without password."""
        return self._store.shown

    def state(self) -> State:
        """A copy of everything in the ledger now; the time grows with the number of entries."""
        with self._reading() as past:
            return past.state()

    def balance(self) -> Balance:
        """The sums that count against the budget now."""
        with self._reading() as past:
            return past.balance()

    def spent(self) -> Price:
        """The price of everything reserved, started or committed so far."""
        return self.balance().spent

    def remaining(self) -> Price:
        """What a payment may still cost, in mu squared and in slack."""
        return self.balance().remaining

    def receipt(self, payment: int) -> Receipt:
        """The receipt of an earlier payment."""
        return self.receipts([payment])[0]

    def receipts(self, payments: Sequence[int]) -> list[Receipt]:
        """The receipts of earlier payments."""
        with self._reading() as past:
            last = len(past.payments)
            for payment in payments:
                if payment not in past.payments:
                    numbers = f"1 to {last}" if last > 1 else "1" if last else "none yet"
                    raise InvalidInput(
                        f"{self.address} has no payment {payment}; its payments are: {numbers}."
                    )
            return [self._receipt(past, past.payments[payment]) for payment in payments]

    def payments_of(self, study: str) -> list[Payment]:
        """All payments of a study, in order."""
        with self._reading() as past:
            return [past.payments[number] for number in past.studies.get(study, ())]

    def must_be_for(self, payment: int, fingerprint: str) -> None:
        """Refuse rows other than those of `payment`."""
        with self._reading() as past:
            self._must_be_for(past, payment, fingerprint)

    def must_be_in_force(self, receipt: Receipt, fingerprint: str) -> None:
        """Refuse a receipt that is not of this ledger, not for these rows, or not started. A
        payment that is only reserved may still be voided, and then the rows would be unpaid."""
        with self._reading() as past:
            payment = self._payment_of(past, receipt)
            if payment.state not in ("started", "committed"):
                advice = {
                    "reserved": "start it first, so that it can no longer be voided",
                    "voided": "it no longer counts; make a new payment",
                    "exchanged": "use the receipt of the payment that took its place",
                }
                raise InvalidInput(
                    f"private rows open only for a started payment; payment {payment.number} of "
                    f"{self.address} is {payment.state}: {advice[payment.state]}."
                )
            self._must_be_for(past, payment.number, fingerprint)

    def _must_be_for(self, past: chain.Replay, payment: int, fingerprint: str) -> None:
        if past.paid_for.get(payment) != past.hide(fingerprint):
            raise WrongDataset(
                f"these rows are not those of payment {payment} of {self.address}; no rows were "
                "read. Give the original rows, unchanged, or make a new payment for these."
            )

    def must_know(self, fingerprint: str) -> None:
        """Refuse rows that are not a declared version of the data set."""
        with self._reading() as past:
            self._must_know(past, past.hide(fingerprint))

    def _must_know(self, past: chain.Replay, hidden: str) -> None:
        if hidden not in past.fingerprints:
            raise WrongDataset(wrong_dataset(past, self.address))

    def declare(self, fingerprint: str, *, reason: str) -> bool:
        """Declare that these rows are a version of this ledger's data set and share its budget.

        Returns False, and writes nothing, if they are already declared.
        """
        validate.text(fingerprint=fingerprint, reason=reason)
        with self._writing() as (past, append):
            hidden = past.hide(fingerprint)
            new = hidden not in past.fingerprints
            if new:
                append(kind="declare", fingerprint=hidden, text=reason)
        return new

    def reserve(
        self, event: Event, *, purpose: str, fingerprint: str, slack: float | None = None
    ) -> Receipt:
        """Pay for `event` before it touches the rows that `fingerprint` identifies.

        `slack` is the failure probability of a sampled or randomly stopped event, by default 1e-3
        of the budget's delta.

        Guarantees: either the payment is stored and all payments together fit in the budget, or
        this raises and nothing was written.
        """
        return self.reserve_all([(purpose, event)], fingerprint=fingerprint, slack=slack)[0]

    def reserve_all(
        self,
        planned: Sequence[tuple[str, Event]],
        *,
        fingerprint: str,
        slack: float | None = None,
        fixed: bool = False,
        study: str | None = None,
    ) -> list[Receipt]:
        """Pay for several events at once, each with its purpose, in their order.

        With a `study`, each purpose is a label by which the study finds the payment again
        (`payments_of`).

        With `fixed` you promise that all of them will run exactly like this, independently of
        earlier outputs. In a ledger without other payments their privacy losses are then composed
        directly, which is tighter for sampled runs. Once one has begun, none can be exchanged or
        voided.

        Guarantees: all of them are stored and fit in the budget together, or this raises and
        nothing was written.
        """
        validate.text(fingerprint=fingerprint)
        for purpose, _ in planned:
            _must_be_short(purpose)
        if study is not None:
            validate.text(study=study)
        events = [event for _, event in planned]
        if slack is None and any(map(accounting.needs_slack, events)):
            slack = self._default_slack()
        # Pricing may take seconds, so other writers do not wait for it.
        prices = [accounting.price(event, slack=slack or 0.0) for event in events]
        purposes = [_purpose_columns(purpose, study) for purpose, _ in planned]
        with self._writing() as (past, append):
            hidden = past.hide(fingerprint)
            self._must_know(past, hidden)
            balance = past.balance()
            if fixed:
                check_schedule(balance, len(past.payments), events, total(prices))
                schedule = json.dumps({"kind": "schedule", "payments": len(planned)})
                append(kind="schedule", event=schedule, text="fixed before the first of them ran")
            else:  # check all before the first is added, so that a refusal changes nothing
                check_budget(balance, events, prices, [purpose["text"] for purpose in purposes])
            return [
                self._reserve(past, append, event, price, fingerprint=hidden, **purpose)
                for event, price, purpose in zip(events, prices, purposes, strict=True)
            ]

    def _default_slack(self) -> float:
        now = self.balance()
        return accounting.slack_of_one(now.slack) or accounting.default_slack(now.budget.delta)

    def start(self, receipt: Receipt) -> None:
        """Record that the event may touch rows from now on; its payment can no longer be voided.

        Guarantees: of several processes that start the same payment, one succeeds. The others get
        an error and must not touch the rows for it.
        """
        self.begin_all([(receipt, receipt.event)])

    def begin_all(self, planned: Sequence[tuple[Receipt, Event]]) -> list[Receipt]:
        """Start several payments, each for its event, and return their receipts in order. A payment
        that was reserved for another event is exchanged first.

        Guarantees: all of them are started, or this raises and nothing was written.
        """
        # Pricing may take seconds, so other writers do not wait for it.
        prices = [
            None if event == receipt.event else _exchange_price(receipt, event)
            for receipt, event in planned
        ]
        with self._writing() as (past, append):
            begun = []
            fits = past.balance().is_within_sums  # no exchange changes this
            for (receipt, event), price in zip(planned, prices, strict=True):
                if price is None:
                    paid = self._receipt(past, self._payment(past, receipt, to="start"))
                else:
                    paid = self._exchange(past, append, receipt, event, price, fits=fits)
                append(kind="start", payment=paid.payment, text="may touch rows from now on")
                begun.append(paid)
            return begun

    def commit(self, receipt: Receipt) -> None:
        """Record that the event ran and its output exists."""
        self.settle_all([receipt])

    def settle_all(self, receipts: Sequence[Receipt]) -> None:
        """Commit several payments, all or none of them."""
        with self._writing() as (past, append):
            for receipt in receipts:
                payment = self._payment(past, receipt, to="commit")
                append(kind="commit", payment=payment.number, text="done")

    def void(self, receipt: Receipt, *, reason: str) -> None:
        """Cancel a reservation whose event never started. Once a row may have been read the payment
        stands, even if the run failed."""
        self.void_all([receipt], reason=reason)

    def void_all(self, receipts: Sequence[Receipt], *, reason: str) -> None:
        """Cancel several reservations, all or none of them."""
        validate.text(reason=reason)
        with self._writing() as (past, append):
            for receipt in receipts:
                payment = self._payment(past, receipt, to="void")
                append(kind="void", payment=payment.number, text=reason)

    def exchange(self, receipt: Receipt, event: Event, *, purpose: str | None = None) -> Receipt:
        """Replace a payment that never started by one for `event`, for the same rows and, by
        default, the same purpose. It may cost no more, in mu squared and in slack.

        Guarantees: both happen or neither, and no other process can use the freed budget between.
        """
        if purpose is not None:
            _must_be_short(purpose)
        price = _exchange_price(receipt, event)  # slow, so other writers do not wait for it
        with self._writing() as (past, append):
            fits = past.balance().is_within_sums
            return self._exchange(past, append, receipt, event, price, purpose, fits=fits)

    def _exchange(
        self,
        past: chain.Replay,
        append: "_Append",
        receipt: Receipt,
        event: Event,
        price: Price,
        purpose: str | None = None,
        *,
        fits: bool,
    ) -> Receipt:
        """With `fits`, all sums are within the budget, and stay so for an event of lower price."""
        old = self._payment(past, receipt, to="exchange")
        if not chain.costs_no_more(price, old.price):
            raise InvalidInput(
                f"payment {old.number} can only be exchanged for an event of at most mu squared "
                f"{old.price.mu_squared!r} and slack {old.price.slack!r}; this event costs "
                f"{price.mu_squared!r} and {price.slack!r}. Nothing was changed: add noise, or "
                "reserve it on its own."
            )
        text, fingerprint = purpose or old.purpose, past.paid_for[old.number]
        # A sealed search as the only event may fit by its own profile and not by its price.
        if not fits:
            check_budget(past.balance_without(old), [event], [price], [text])
        reason = f"exchanged for payment {past.next_payment}, which costs no more"
        append(kind="exchange", payment=old.number, text=reason)
        of_study = {"study": old.study, "label": old.label}
        return self._reserve(
            past, append, event, price, fingerprint=fingerprint, text=text, **of_study
        )

    def change_budget(self, budget: Budget, *, reason: str) -> None:
        """Replace the budget from now on; the chain keeps the old one and the reason."""
        validate.text(reason=reason)
        with self._writing() as (past, append):
            state = past.state()
            if state.opened_slack is not None and 2 * state.slack > budget.delta:
                raise InvalidInput(
                    f"this ledger sets aside {cost(state.slack)} of delta for failures since it "
                    f"was opened, which may be at most half of delta; got delta {budget.delta:g}. "
                    "Keep a larger delta, or open a new ledger."
                )
            if not state.fits(budget):
                spent = epsilon_in_words(state.charged, budget.delta)
                if state.charged.slack < budget.delta:  # a sealed search has a tighter bound
                    spent = f"epsilon {cost(state.epsilon_at(budget.delta))}"
                raise BudgetExceeded(
                    f"a budget of epsilon {budget.epsilon:g} at delta {budget.delta:g} is less "
                    f"than {self.address} has already spent ({spent} at that delta), which cannot "
                    "be undone; give a larger budget."
                )
            append(kind="budget", epsilon=budget.epsilon, delta=budget.delta, text=reason)

    def _receipt(self, past: chain.Replay, payment: Payment) -> Receipt:
        """The receipt of a payment."""
        paid = (payment.number, past.dataset, payment.event, payment.price, payment.entry)
        return Receipt(*paid, issuer=self)

    def _payment_of(self, past: chain.Replay, receipt: Receipt) -> Payment:
        """The payment of a receipt; refuses a receipt that was changed."""
        payment = past.payments.get(receipt.payment)
        if payment is None or receipt != self._receipt(past, payment):
            raise InvalidInput(
                f"payment {receipt.payment} of this receipt is not in {self.address}; it was "
                "paid from another ledger, or the receipt was changed. Use the unchanged receipt "
                "with its own ledger."
            )
        return payment

    def _payment(self, past: chain.Replay, receipt: Receipt, *, to: str) -> Payment:
        """The payment of a receipt, if an entry of kind `to` may follow."""
        payment = self._payment_of(past, receipt)
        allowed, _ = chain.MOVES[to]
        if payment.state not in allowed:
            raise InvalidInput(cannot_move(payment, to, allowed))
        if to in ("void", "exchange") and past.must_stay(payment):
            raise InvalidInput(
                f"payment {payment.number} belongs to a schedule that was fixed as a whole and has "
                "begun; it can only be started and committed."
            )
        return payment

    def _reserve(
        self,
        past: chain.Replay,
        append: "_Append",
        event: Event,
        price: Price,
        **values: str | None,
    ) -> Receipt:
        if past.format < 3:  # it only has the purpose
            values = values | {"study": None, "label": None}
        entry = append(
            kind="reserve",
            payment=past.next_payment,
            event=_to_text(event),
            mu_squared=price.mu_squared,
            slack=price.slack,
            **values,
        )
        return self._receipt(past, past.payments[entry["payment"]])

    @contextmanager
    def _reading(self) -> Iterator[chain.Replay]:
        """The verified past, up to now, while this ledger object is locked."""
        with self._lock, self._store.reading() as connection:
            yield self._catch_up(connection)

    @contextmanager
    def _writing(self) -> Iterator[tuple[chain.Replay, "_Append"]]:
        """The verified past and a way to add entries to it, in one exclusive transaction."""
        added: list[dict[str, Any]] = []
        begun = False
        with self._lock:
            try:
                with self._store.writing(chain.entries) as connection:
                    past, now = self._catch_up(connection), chain.now()

                    def append(**values: Any) -> dict[str, Any]:
                        nonlocal begun
                        begun = True
                        added.append(past.add(time=now, **values))
                        return added[-1]

                    yield past, append
                    if added:
                        chain.write(connection, past, added)
            except BaseException:
                if begun:  # the past has entries that the store may not have
                    self._past = None
                raise
            if added:
                self._seen = chain.end(added[-1])

    def _catch_up(self, connection: sa.Connection) -> chain.Replay:
        """Verify new entries after those verified before. After an error the next call starts from
        the beginning, but still requires the last entry that was seen."""
        past, self._past = self._past or chain.Replay(), None
        chain.follow(connection, past, self.address, self._seen)
        assert past.last is not None  # `follow` refuses an empty chain
        self._past, self._seen = past, chain.end(past.last)
        return past


_Append = Callable[..., dict[str, Any]]


@lru_cache(maxsize=256)  # a study reserves many equal events
def _to_text(event: Event) -> str:
    return json.dumps(event_to_dict(event))


def _must_be_short(purpose: str) -> None:
    validate.text(purpose=purpose)
    if len(purpose) > _LONGEST_PURPOSE:
        raise InvalidInput(
            f"purpose must have {_LONGEST_PURPOSE} characters at most; got {len(purpose):,}. "
            "Nothing was spent; shorten it."
        )


def _purpose_columns(purpose: str, study: str | None) -> dict[str, str]:
    """The columns of an entry's purpose: text for people, study and label for programs."""
    if study is None:
        return {"text": purpose}
    return {"text": f"{purpose} (study {study})", "study": study, "label": purpose}


def _exchange_price(receipt: Receipt, event: Event) -> Price:
    slack = receipt.price.slack if accounting.needs_slack(event) else 0.0
    if accounting.needs_slack(event) and not slack:
        raise InvalidInput(
            f"a {event.kind} needs a failure probability, and payment {receipt.payment} was paid "
            f"without one; reserve the {event.kind} on its own."
        )
    return accounting.price(event, slack=slack)
