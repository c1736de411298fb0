"""A ledger that cannot be overspent.

One ledger holds the budget of one private data set, in a SQLite file or in PostgreSQL. Every
operation is one transaction that shuts out other writers, verifies what was added since the last
one, and adds what it has to say or nothing. What was reserved counts as spent until it is voided,
whatever happens to the process; so the order is always: reserve, start, then touch the data, then
commit.

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

_LONGEST_PURPOSE = 200  # characters; older ledgers may hold longer ones


class Ledger:
    """The budget of one private data set. Every method is one transaction: all or nothing. Threads
    may share one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()  # for the two below
        self._past: chain.Replay | None = None  # what is verified and in the store, for sure
        self._seen: Mapping[str, Any] | None = None  # the last entry that ever was

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
        """A new ledger at `address` (a file, or a `postgresql://` URL) for the data set that
        `dataset` names in everything published, with its first version declared if it is there
        already. An existing ledger is never replaced.

        `slack` is how much of the budget's delta is set aside, now and for good, for failures of
        sampled runs and sealed searches, by default 2 %; with 0 there can be none of those.
        """
        validate.text(dataset=dataset)
        slack = accounting.slack_set_aside(budget.delta) if slack is None else slack
        slack = validate.non_negative(slack=slack, at_most=0.5 * budget.delta)
        key = secrets.token_hex(32)
        opened = {"kind": "ledger-opened", "format": chain.FORMAT, "key": key, "slack": slack}
        written = [
            chain.chained(
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
            keyed = chain.Replay(key=bytes.fromhex(key)).keyed(fingerprint)
            first_version = {"fingerprint": keyed, "text": "first version"}
            written.append(chain.chained(written[0], kind="declare", **first_version))
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
        """An existing ledger, verified from its first entry to its last."""
        ledger = cls(open_store(address))
        ledger.verify()
        return ledger

    def verify(self) -> State:
        """Read everything again and verify it from the first entry to the last, as `open` does;
        other methods verify what is new to them, and that it follows what they verified before."""
        with self._lock:
            self._past = None
            self._store.check()
            with self._store.reading() as connection:
                past = self._catch_up(connection)
                chain.verify_view(connection, past, self.address)
            return past.state()

    @property
    def address(self) -> str:
        """Where it is, without password."""
        return self._store.shown

    def state(self) -> State:
        """Everything the ledger says now: a copy, which takes the longer the more there is."""
        with self._reading() as past:
            return past.state()

    def balance(self) -> Balance:
        """What counts against the budget now, in sums."""
        with self._reading() as past:
            return past.balance()

    def spent(self) -> Price:
        """Everything reserved, started or committed so far."""
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
                    known = f"1 to {last}" if last > 1 else "1" if last else "none yet"
                    raise InvalidInput(
                        f"{self.address} has no payment {payment}; its payments are: {known}."
                    )
            return [self._receipt(past, past.payments[payment]) for payment in payments]

    def payments_of(self, study: str) -> list[Payment]:
        """All that a study ever paid for, in order."""
        with self._reading() as past:
            return [past.payments[number] for number in past.studies.get(study, ())]

    def must_be_for(self, payment: int, fingerprint: str) -> None:
        """Refuse rows other than those that `payment` was made for."""
        with self._reading() as past:
            self._must_be_for(past, payment, fingerprint)

    def must_be_in_force(self, receipt: Receipt, fingerprint: str) -> None:
        """Refuse unless `receipt` is of this ledger, for these rows, and was started: one that is
        merely reserved may still be given back, and then nobody would have paid for the rows."""
        with self._reading() as past:
            payment = self._known(past, receipt)
            if payment.state not in ("started", "committed"):
                then = {
                    "reserved": "start it first, so that it can no longer be given back",
                    "voided": "it was given back; rows need a payment that counts",
                    "exchanged": "use the receipt of the payment that took its place",
                }
                raise InvalidInput(
                    f"private rows open for a payment that was started; payment {payment.number} "
                    f"of {self.address} is {payment.state}: {then[payment.state]}."
                )
            self._must_be_for(past, payment.number, fingerprint)

    def _must_be_for(self, past: chain.Replay, payment: int, fingerprint: str) -> None:
        if past.paid_for.get(payment) != past.keyed(fingerprint):
            raise WrongDataset(
                f"these rows are not those that payment {payment} of {self.address} was made for; "
                "nothing was touched. Give the rows, unchanged, that it began with, or pay for "
                "these on their own."
            )

    def must_know(self, fingerprint: str) -> None:
        """Refuse rows that are not a declared version of the data set."""
        with self._reading() as past:
            self._must_know(past, past.keyed(fingerprint))

    def _must_know(self, past: chain.Replay, keyed: str) -> None:
        if keyed not in past.fingerprints:
            raise WrongDataset(wrong_dataset(past, self.address))

    def declare(self, fingerprint: str, *, reason: str) -> bool:
        """Say that these rows are a version of this ledger's data set and share its budget.

        False where they are declared already; then nothing is written.
        """
        validate.text(fingerprint=fingerprint, reason=reason)
        with self._writing() as (past, append):
            keyed = past.keyed(fingerprint)
            new = keyed not in past.fingerprints
            if new:
                append(kind="declare", fingerprint=keyed, text=reason)
        return new

    def reserve(
        self, event: Event, *, purpose: str, fingerprint: str, slack: float | None = None
    ) -> Receipt:
        """Pay for `event` before it touches the rows that `fingerprint` identifies.

        `slack` is the failure probability outside which a sampled or randomly stopped event is
        priced, by default 1e-3 of the budget's delta.

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

        Where a `study` pays, each purpose is a label by which it finds the payment again
        (`payments_of`).

        With `fixed` you promise that all of them will run exactly like this, whatever the first of
        them show. In a ledger that pays for nothing else their privacy losses are then composed
        directly, which is tighter for sampled runs; once one has begun, none can be exchanged or
        given back.

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
            slack = self._usual_slack()
        # May take seconds: not while others wait.
        prices = [accounting.price(event, slack=slack or 0.0) for event in events]
        listed = [_purposes(purpose, study) for purpose, _ in planned]
        with self._writing() as (past, append):
            keyed = past.keyed(fingerprint)
            self._must_know(past, keyed)
            balance = past.balance()
            if fixed:
                check_schedule(balance, len(past.payments), events, total(prices))
                schedule = json.dumps({"kind": "schedule", "payments": len(planned)})
                append(kind="schedule", event=schedule, text="fixed before the first of them ran")
            else:  # all before the first is added: a refusal is no failure
                check_budget(balance, events, prices, [purpose["text"] for purpose in listed])
            return [
                self._reserve(past, append, event, price, fingerprint=keyed, **purpose)
                for event, price, purpose in zip(events, prices, listed, strict=True)
            ]

    def _usual_slack(self) -> float:
        now = self.balance()
        return accounting.slack_of_one(now.slack) or accounting.default_slack(now.budget.delta)

    def start(self, receipt: Receipt) -> None:
        """Record that the event may touch rows from now on; its payment can no longer be voided.

        Guarantees: of all who start the same payment, one succeeds. The others get an error and
        must not touch the rows for it.
        """
        self.begin_all([(receipt, receipt.event)])

    def begin_all(self, wanted: Sequence[tuple[Receipt, Event]]) -> list[Receipt]:
        """Start several payments, each for the event beside it. Where that is not the one that was
        reserved, it is exchanged for it first. The receipts of what was started, in order.

        Guarantees: all of them are started, or this raises and nothing was written.
        """
        # May take seconds: not while others wait.
        prices = [
            None if event == receipt.event else _price_in_exchange(receipt, event)
            for receipt, event in wanted
        ]
        with self._writing() as (past, append):
            begun = []
            fits = past.balance().is_within_sums  # and so it stays, whatever is exchanged
            for (receipt, event), price in zip(wanted, prices, strict=True):
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
        """Give a reservation back. Only for an event that never started: once a row was read, the
        payment stands, whatever became of the run."""
        self.void_all([receipt], reason=reason)

    def void_all(self, receipts: Sequence[Receipt], *, reason: str) -> None:
        """Give several reservations back, all or none of them."""
        validate.text(reason=reason)
        with self._writing() as (past, append):
            for receipt in receipts:
                payment = self._payment(past, receipt, to="void")
                append(kind="void", payment=payment.number, text=reason)

    def exchange(self, receipt: Receipt, event: Event, *, purpose: str | None = None) -> Receipt:
        """Reserve `event` in the place of a payment that never started, for the same rows and, by
        default, the same purpose. It may cost no more, in mu squared and in slack.

        Guarantees: both happen or neither, and nobody else can take what is freed in between.
        """
        if purpose is not None:
            _must_be_short(purpose)
        price = _price_in_exchange(receipt, event)  # may take a second: not while others wait
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
        """`fits`: everything that counts is within the sums, so what costs no more is, too."""
        old = self._payment(past, receipt, to="exchange")
        if not chain.no_dearer(price, old.price):
            raise InvalidInput(
                f"payment {old.number} can be exchanged for what costs no more than mu squared "
                f"{old.price.mu_squared!r} and slack {old.price.slack!r}; this event costs "
                f"{price.mu_squared!r} and {price.slack!r}. Nothing was changed: add noise, or "
                "reserve it on its own."
            )
        text, fingerprint = purpose or old.purpose, past.paid_for[old.number]
        # A sealed search that was alone may have fitted by its own profile, not by its price.
        if not fits:
            check_budget(past.balance_without(old), [event], [price], [text])
        reason = f"exchanged for payment {past.next_payment}, which costs no more"
        append(kind="exchange", payment=old.number, text=reason)
        of_study = {"study": old.study, "label": old.label}
        return self._reserve(
            past, append, event, price, fingerprint=fingerprint, text=text, **of_study
        )

    def change_budget(self, budget: Budget, *, reason: str) -> None:
        """Replace the budget from now on; the old one and the reason stay in the chain."""
        validate.text(reason=reason)
        with self._writing() as (past, append):
            state = past.state()
            if state.opened_slack is not None and 2 * state.slack > budget.delta:
                raise InvalidInput(
                    f"of delta, {cost(state.slack)} is set aside for failures since this ledger "
                    f"was opened, and that may be at most half of it; got delta {budget.delta:g}. "
                    "Keep a larger delta, or open a new ledger."
                )
            if not state.fits(budget):
                spent = epsilon_in_words(state.charged, budget.delta)
                if state.charged.slack < budget.delta:  # by a bound of its own, where it has one
                    spent = f"epsilon {cost(state.epsilon_at(budget.delta))}"
                raise BudgetExceeded(
                    f"a budget of epsilon {budget.epsilon:g} at delta {budget.delta:g} is less "
                    f"than {self.address} has spent already ({spent} at "
                    "that delta); what is spent cannot be taken back."
                )
            append(kind="budget", epsilon=budget.epsilon, delta=budget.delta, text=reason)

    def _receipt(self, past: chain.Replay, payment: Payment) -> Receipt:
        """What whoever paid was given."""
        paid = (payment.number, past.dataset, payment.event, payment.price, payment.entry)
        return Receipt(*paid, issuer=self)

    def _known(self, past: chain.Replay, receipt: Receipt) -> Payment:
        """The payment behind a receipt; every word of it must be as it was given."""
        payment = past.payments.get(receipt.payment)
        if payment is None or receipt != self._receipt(past, payment):
            raise InvalidInput(
                f"payment {receipt.payment} of this receipt is not in {self.address}; it was "
                "paid from another ledger, or the receipt was changed."
            )
        return payment

    def _payment(self, past: chain.Replay, receipt: Receipt, *, to: str) -> Payment:
        """The payment behind a receipt, if an entry of kind `to` may follow."""
        payment = self._known(past, receipt)
        allowed, _ = chain.MOVES[to]
        if payment.state not in allowed:
            raise InvalidInput(cannot_move(payment, to, allowed))
        if to in ("void", "exchange") and past.must_stay(payment):
            raise InvalidInput(
                f"payment {payment.number} is of a schedule that was fixed, and admitted, as a "
                "whole, and that has begun; it can only be started and committed."
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
        if past.format < 3:  # there, only the purpose tells
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
        """The verified past, up to now. Nobody else may touch it meanwhile."""
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
                if begun:  # to add what the store, for all we know, does not have
                    self._past = None
                raise
            if added:
                self._seen = chain.end(added[-1])

    def _catch_up(self, connection: sa.Connection) -> chain.Replay:
        """Go on from what was verified before; whatever fails, start afresh next time, but never
        forget the last entry that was seen."""
        past, self._past = self._past or chain.Replay(), None
        chain.follow(connection, past, self.address, self._seen)
        assert past.last is not None  # or it would have been refused
        self._past, self._seen = past, chain.end(past.last)
        return past


_Append = Callable[..., dict[str, Any]]


@lru_cache(maxsize=256)  # a study reserves many of a kind
def _to_text(event: Event) -> str:
    return json.dumps(event_to_dict(event))


def _must_be_short(purpose: str) -> None:
    validate.text(purpose=purpose)
    if len(purpose) > _LONGEST_PURPOSE:
        raise InvalidInput(
            f"purpose must have {_LONGEST_PURPOSE} characters at most; got {len(purpose):,}. "
            "Nothing was spent; say it more briefly."
        )


def _purposes(purpose: str, study: str | None) -> dict[str, str]:
    """What an entry says of its purpose; for people in words, for studies in columns."""
    if study is None:
        return {"text": purpose}
    return {"text": f"{purpose} (study {study})", "study": study, "label": purpose}


def _price_in_exchange(receipt: Receipt, event: Event) -> Price:
    slack = receipt.price.slack if accounting.needs_slack(event) else 0.0
    if accounting.needs_slack(event) and not slack:
        raise InvalidInput(
            f"a {event.kind} is priced outside a failure probability, and payment "
            f"{receipt.payment} was paid without one; reserve the {event.kind} on its own."
        )
    return accounting.price(event, slack=slack)
