"""Verbs of a ledger: show it, open it, pay from it, change it."""

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dptune.cli import screen
from dptune.cli.parameters import (
    HELP_FLAGS,
    AsJson,
    Delta,
    Epsilon,
    LedgerAddress,
    NoiseMultiplier,
    PaymentNumber,
    PrivateData,
    Reason,
    SamplingRate,
    Steps,
    option,
)
from dptune.cli.price_verbs import training_run
from dptune.errors import LedgerCorrupt

if TYPE_CHECKING:
    from dptune.ledger import Ledger, State
    from dptune.privacy import Receipt

app = typer.Typer(
    help="Keep the ledger of a data set's budget: open it, pay from it, change it.",
    no_args_is_help=True,
    context_settings=HELP_FLAGS,
)


def budget(
    where: LedgerAddress,
    contains: Annotated[
        str | None,
        option(
            "Check that the ledger still contains this entry, noted down earlier.", metavar="ENTRY"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a ledger: what is spent, what is left, the last payments; verifies the whole chain.

    All payments are listed with --json.
    """
    from dptune.cli import ledger_screen

    inside = os.path.join(where, "ledger.db")  # of a run folder with a ledger of its own
    ledger = _open(inside if os.path.exists(inside) else where)
    state = ledger.state()
    if contains is not None and contains not in state.hashes:
        raise LedgerCorrupt(
            f"{ledger.address} does not contain entry {contains}: it is another ledger, or an "
            "older copy was put in its place. Count what was spent since as spent."
        )
    _show_state(ledger, state, as_json, lambda: ledger_screen.show_budget(ledger.address, state))


@app.command("open")
def open_ledger(
    where: LedgerAddress,
    dataset: Annotated[str, option("The data set's name, as it may be published.", metavar="NAME")],
    epsilon: Epsilon,
    delta: Delta,
    data: PrivateData,
    slack: Annotated[
        float | None,
        option(
            "How much of delta, up to half of it, is set aside, for good, for failures of "
            "sampled runs and sealed searches; default: 2 % of it."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Open a new ledger for a data set.

    Example: dptune ledger open patients.db --dataset patients --data patients.csv
    --epsilon 1 --delta 1e-5
    """
    from dptune.accounting import Budget
    from dptune.ledger import Ledger

    ledger = Ledger.create(
        where,
        Budget(epsilon, delta),
        dataset=dataset,
        fingerprint=_fingerprint(data),
        slack=slack,
    )
    _show_ledger(ledger, as_json, f"opened {ledger.address} for data set {dataset!r}")


@app.command()
def declare(
    where: LedgerAddress, data: PrivateData, reason: Reason, as_json: AsJson = False
) -> None:
    """Declare that these data are another version of the ledger's data set and share its budget."""
    ledger = _open(where)
    new = ledger.declare(_fingerprint(data), reason=reason)
    done = "declared; runs on these data pay from the same budget" if new else "declared already"
    _show_ledger(ledger, as_json, done)


@app.command("change-budget")
def change_budget(
    where: LedgerAddress, epsilon: Epsilon, delta: Delta, reason: Reason, as_json: AsJson = False
) -> None:
    """Replace the budget. The old one and the reason stay in the ledger."""
    from dptune.accounting import Budget

    ledger = _open(where)
    old, new = ledger.state().budget, Budget(epsilon, delta)
    ledger.change_budget(new, reason=reason)
    was, now = screen.promised(old), screen.promised(new)
    _show_ledger(ledger, as_json, f"the budget was {was}, and is now {now}")


@app.command()
def reserve(
    where: LedgerAddress,
    data: PrivateData,
    purpose: Annotated[str, option("What the run is for.", metavar="TEXT")],
    steps: Steps,
    noise_multiplier: NoiseMultiplier,
    sampling_rate: SamplingRate = None,
    as_json: AsJson = False,
) -> None:
    """Pay for a run before it touches the data. Reserved counts as spent.

    Example: dptune ledger reserve patients.db --data patients.csv
    --purpose "trial 1" --steps 100 --noise-multiplier 60
    """
    ledger = _open(where)
    event = training_run(steps, noise_multiplier, sampling_rate)
    receipt = ledger.reserve(event, purpose=purpose, fingerprint=_fingerprint(data))
    _show_payment(ledger, receipt, "reserved", as_json)


@app.command()
def commit(where: LedgerAddress, payment: PaymentNumber, as_json: AsJson = False) -> None:
    """Record that a reserved run has ended and its output exists."""
    ledger = _open(where)
    receipt = ledger.receipt(payment)
    ledger.commit(receipt)
    _show_payment(ledger, receipt, "committed", as_json)


@app.command()
def void(
    where: LedgerAddress, payment: PaymentNumber, reason: Reason, as_json: AsJson = False
) -> None:
    """Give a reservation back. Only for a run that never started: once it read a row, it counts."""
    ledger = _open(where)
    receipt = ledger.receipt(payment)
    ledger.void(receipt, reason=reason)
    _show_payment(ledger, receipt, "voided", as_json)


def _open(where: str) -> "Ledger":
    from dptune.ledger import Ledger

    return Ledger.open(where)


def _fingerprint(source: str) -> str:
    """As a study of these data has it. A file needs none of the packages that read rows."""
    from dptune.data.fingerprint import fingerprint_file

    if source == "demo" or source.startswith("hub:") or Path(source).is_dir():
        from dptune.data.sources import fingerprint_source

        return fingerprint_source(source)
    return fingerprint_file(source)


def _show_ledger(ledger: "Ledger", as_json: bool, done: str) -> None:
    from dptune.cli import ledger_screen

    state = ledger.state()
    _show_state(ledger, state, as_json, lambda: ledger_screen.show_note(done, state))


def _show_state(ledger: "Ledger", state: "State", as_json: bool, draw: Callable[[], None]) -> None:
    # Of many payments, the plain data take a while: they are made only where they are asked for.
    plain = {"ledger": ledger.address, **state.to_stream()} if as_json else {}
    screen.show(as_json, plain, draw)


def _show_payment(ledger: "Ledger", receipt: "Receipt", state: str, as_json: bool) -> None:
    from dptune.cli import ledger_screen

    now = ledger.state()
    plain = {
        "ledger": ledger.address,
        "dataset": receipt.dataset,
        "payment": receipt.payment,
        "state": state,
        "mu_squared": receipt.price.mu_squared,
        "slack": receipt.price.slack,
        "entry": receipt.entry,
        "left": {"epsilon": now.remaining_epsilon, "mu_squared": now.remaining.mu_squared},
    }
    done = f"payment {receipt.payment} is {state}"
    command = f"dptune ledger commit {shlex.quote(ledger.address)} {receipt.payment}"
    then = f"When the run has ended: {command}" if state == "reserved" else ""
    screen.show(as_json, plain, lambda: ledger_screen.show_note(done, now, then))
