"""A ledger that cannot be overspent.

One ledger holds the budget of one private data set, in a SQLite file or in PostgreSQL. Every
operation is one transaction that shuts out other writers, replays and verifies all entries, and
adds at most one. What was reserved counts as spent until it is voided, whatever happens to the
process; so the order is always: reserve, then touch the data, then commit.

    rows = fingerprint_file("patients.csv")
    ledger = Ledger.create("patients.db", Budget(1.0, 1e-5), dataset="patients")
    ledger.declare(rows, reason="first version")
    run = FullBatchRun(steps=100, noise_multiplier=60.0)
    receipt = ledger.reserve(run, purpose="trial 1", fingerprint=rows)
    ...  # train
    ledger.commit(receipt)
"""

import json
import secrets
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from dptune import _chain, _validate, accounting, gdp
from dptune._chain import BudgetChange as BudgetChange
from dptune._chain import Payment as Payment
from dptune._chain import State as State
from dptune._chain import Version as Version
from dptune._store import Store, open_store
from dptune.errors import BudgetExceeded, InvalidInput, WrongDataset
from dptune.privacy import Budget, Event, Price, Receipt, event_to_dict, total
from dptune.rounding import allowance, cost


class Ledger:
    """The budget of one private data set. Every method is one transaction: all or nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @classmethod
    def create(
        cls, address: str, budget: Budget, *, dataset: str, fingerprint: str | None = None
    ) -> "Ledger":
        """A new ledger at `address` (a file, or a `postgresql://` URL) for the data set that
        `dataset` names in everything published, with its first version declared if it is there
        already. An existing ledger is never replaced."""
        _validate.text(dataset=dataset)
        key = secrets.token_hex(32)
        opened = {"kind": "ledger-opened", "format": _chain.FORMAT, "key": key}
        written = [
            _chain.chained(
                None,
                kind="open",
                event=json.dumps(opened),
                epsilon=budget.epsilon,
                delta=budget.delta,
                text=dataset,
            )
        ]
        if fingerprint is not None:
            _validate.text(fingerprint=fingerprint)
            keyed = _chain.Replay(key=bytes.fromhex(key)).keyed(fingerprint)
            first_version = {"fingerprint": keyed, "text": "first version"}
            written.append(_chain.chained(written[0], kind="declare", **first_version))
        ledger = cls(open_store(address))
        with ledger._store.creation() as connection:
            _chain.metadata.create_all(connection, checkfirst=False)
            connection.execute(sa.text(_chain.PAYMENTS_VIEW))
            connection.execute(sa.insert(_chain.entries), written)
            connection.execute(sa.insert(_chain.head), _chain.end(written[-1]))
        return ledger

    @classmethod
    def open(cls, address: str) -> "Ledger":
        """An existing ledger, verified from its first entry to its last."""
        ledger = cls(open_store(address))
        ledger._store.check()
        ledger.state()
        return ledger

    @property
    def address(self) -> str:
        """Where it is, without password."""
        return self._store.shown

    def state(self) -> State:
        """Everything the ledger says, verified now."""
        with self._store.reading() as connection:
            return _chain.replay(connection, self.address).state()

    def spent(self) -> Price:
        """Everything reserved or committed so far."""
        return self.state().spent

    def remaining(self) -> Price:
        """What a payment that needs no slack may still cost."""
        return self.state().remaining

    def receipt(self, payment: int) -> Receipt:
        """The receipt of an earlier payment."""
        state = self.state()
        for listed in state.payments:
            if listed.number == payment:
                return Receipt(payment, state.dataset, listed.event, listed.price, listed.entry)
        known = ", ".join(str(listed.number) for listed in state.payments) or "none yet"
        raise InvalidInput(f"{self.address} has no payment {payment}; its payments are: {known}.")

    def declare(self, fingerprint: str, *, reason: str) -> bool:
        """Say that these rows are a version of this ledger's data set and share its budget.

        False where they are declared already; then nothing is written.
        """
        _validate.text(fingerprint=fingerprint, reason=reason)
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
        _validate.text(purpose=purpose, fingerprint=fingerprint)
        if not accounting.needs_slack(event):
            slack = 0.0
        elif slack is None:
            slack = accounting.default_slack(self.state().budget.delta)
        slack = _validate.non_negative(slack=slack, at_most=1.0)
        price = accounting.price(event, slack=slack)  # may take a second: not while others wait
        with self._writing() as (past, append):
            state = past.state()
            keyed = past.keyed(fingerprint)
            if keyed not in past.fingerprints:
                raise WrongDataset(_wrong_dataset(state, self.address))
            together = total([*(payment.price for payment in state.counted), price])
            if not accounting.fits([*state.events, event], together, state.budget):
                raise BudgetExceeded(_exceeded(state, price, together, purpose))
            entry = append(
                kind="reserve",
                payment=past.next_payment,
                event=json.dumps(event_to_dict(event)),
                mu_squared=price.mu_squared,
                slack=price.slack,
                fingerprint=keyed,
                text=purpose,
            )
        return Receipt(entry["payment"], state.dataset, event, price, entry["hash"])

    def commit(self, receipt: Receipt) -> None:
        """Record that the event ran and its output exists."""
        self._settle(receipt, kind="commit", text="done")

    def void(self, receipt: Receipt, *, reason: str) -> None:
        """Give a reservation back. Only for an event that never started: once a row was read, the
        payment stands, whatever became of the run."""
        _validate.text(reason=reason)
        self._settle(receipt, kind="void", text=reason)

    def change_budget(self, budget: Budget, *, reason: str) -> None:
        """Replace the budget from now on; the old one and the reason stay in the chain."""
        _validate.text(reason=reason)
        with self._writing() as (past, append):
            state = past.state()
            if not accounting.fits(state.events, state.spent, budget):
                spent = _epsilon(state.spent, budget.delta)
                raise BudgetExceeded(
                    f"a budget of epsilon {budget.epsilon:g} at delta {budget.delta:g} is less "
                    f"than {self.address} has spent already ({spent} at "
                    "that delta); what is spent cannot be taken back."
                )
            append(kind="budget", epsilon=budget.epsilon, delta=budget.delta, text=reason)

    def _settle(self, receipt: Receipt, *, kind: str, text: str) -> None:
        with self._writing() as (past, append):
            payment = past.payments.get(receipt.payment)
            if payment is None or payment.entry != receipt.entry:
                raise InvalidInput(
                    f"payment {receipt.payment} of this receipt is not in {self.address}; it was "
                    "paid from another ledger."
                )
            if payment.state != "reserved":
                raise InvalidInput(
                    f"payment {receipt.payment} is {payment.state} already; only a reserved "
                    "payment can be committed or voided."
                )
            append(kind=kind, payment=receipt.payment, text=text)

    @contextmanager
    def _writing(self) -> Iterator[tuple[_chain.Replay, Callable[..., dict[str, Any]]]]:
        """The verified past and a way to add one entry, in one exclusive transaction."""
        with self._store.writing(_chain.entries) as connection:
            past = _chain.replay(connection, self.address)

            def append(**values: Any) -> dict[str, Any]:
                entry = _chain.chained(past.last, **values)
                connection.execute(sa.insert(_chain.entries), entry)
                connection.execute(sa.update(_chain.head), _chain.end(entry))
                return entry

            yield past, append


def _epsilon(price: Price, delta: float) -> str:
    if price.slack >= delta:
        return f"a failure probability of {cost(price.slack)}"
    if price.mu > gdp.LARGEST_MU:
        return f"more than any epsilon we compute (mu {cost(price.mu)})"
    return f"epsilon {cost(accounting.epsilon(price, delta))}"


def _exceeded(state: State, price: Price, together: Price, purpose: str) -> str:
    budget = state.budget
    return (
        f"reserving {_epsilon(price, budget.delta)} for {purpose!r} would bring data set "
        f"{state.dataset!r} to {_epsilon(together, budget.delta)}; the budget is epsilon "
        f"{budget.epsilon:g} at delta {budget.delta!r}, and nothing was spent. What is left is "
        "enough for one full-batch run of epsilon "
        f"{allowance(state.remaining_epsilon)}: make the run smaller, or have the owner of the "
        "data change the budget."
    )


def _wrong_dataset(state: State, address: str) -> str:
    versions = "; ".join(f"{v.reason} ({v.time[:10]})" for v in state.versions) or "none yet"
    return (
        f"these rows are not a declared version of data set {state.dataset!r}, which {address} "
        f"pays for (declared: {versions}); nothing was spent. If they are the same data set, with "
        "rows added or mended, say so with: dptune ledger declare "
        f"{shlex.quote(address)} --data FILE --reason WHY. If they are other data, use a ledger of "
        "its own; to declare them here would be false."
    )
