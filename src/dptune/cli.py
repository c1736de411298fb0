"""The command line: verbs over the public API.

Every verb takes --json. Exit codes: 0 done, 2 bad input, 3 a budget would be exceeded, 1 anything
else (a damaged or locked ledger, a missing package). Errors are one paragraph, never a traceback.
"""

import io
import json
import os
import shlex
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

import dptune
from dptune import _screen, accounting
from dptune.errors import DptuneError, InvalidInput, LedgerCorrupt
from dptune.fingerprint import fingerprint_file
from dptune.privacy import Budget, FullBatchRun, Price, Receipt, SampledRun
from dptune.split import DEFAULT_SCORE_SHARE, Sweep, split_budget

if TYPE_CHECKING:
    from dptune.ledger import Ledger

# Typer may carry its own copy of click, so its errors are found through the one it exports.
_UsageError: Any = typer.BadParameter.__base__

_SETTINGS = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    help="Differential privacy with the search for hyperparameters inside the same budget: price "
    "runs, plan studies, and keep a ledger that cannot be overspent.",
    no_args_is_help=True,
    add_completion=False,
    context_settings=_SETTINGS,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
ledger_app = typer.Typer(
    help="Keep the ledger of a data set's budget: open it, pay from it, change it.",
    no_args_is_help=True,
    context_settings=_SETTINGS,
)
bench_app = typer.Typer(
    help="Measure: every figure is a ratio or a time taken in one run on this machine.",
    no_args_is_help=True,
    context_settings=_SETTINGS,
)
app.add_typer(ledger_app, name="ledger")
app.add_typer(bench_app, name="bench")

Epsilon = Annotated[float, typer.Option("--epsilon", help="Total epsilon.")]
Delta = Annotated[float, typer.Option("--delta", help="Total delta, for example 1e-5.")]
Steps = Annotated[int, typer.Option("--steps", help="Number of training steps.")]
Rate = Annotated[
    float | None,
    typer.Option(
        "--sampling-rate",
        help="Poisson sampling rate; leave out for full batch.",
        callback=lambda rate: None if rate == 1 else rate,  # every row in every step
    ),
]
Noise = Annotated[
    float, typer.Option("--noise-multiplier", help="Noise on the sum, in clipping norms.")
]
Where = Annotated[
    str,
    typer.Argument(metavar="LEDGER", help="A file, or a postgresql:// URL.", show_default=False),
]
Number = Annotated[
    int, typer.Argument(metavar="PAYMENT", help="The payment's number.", show_default=False)
]
Data = Annotated[
    str, typer.Option("--data", help="The private data file; only a keyed hash of it is stored.")
]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the ledger for good.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]


class Score(StrEnum):
    noisy = "noisy"
    public = "public"


class Device(StrEnum):
    cpu = "cpu"
    cuda = "cuda"


def main() -> None:
    """The `dptune` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no box characters
    try:
        exit_code = app(prog_name="dptune", standalone_mode=False)
        sys.stdout.flush()
    except DptuneError as error:
        exit_code = _fail(type(error).__name__, str(error), error.exit_code)
    except _UsageError as error:
        exit_code = _explain_usage(error)
    except OSError as error:
        # Whatever was asked may be done: printing comes last.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        message = f"the result could not be written ({error}); it may have taken effect, so look"
        exit_code = _fail("OSError", f"{message} before you repeat the command.", 1)
    except (typer.Abort, KeyboardInterrupt):
        exit_code = 130
    sys.exit(exit_code or 0)


def _fail(kind: str, message: str, exit_code: int) -> int:
    if "--json" in sys.argv:
        print(json.dumps({"error": {"kind": kind, "message": message}}))
    _screen.error(message)
    return exit_code


def _explain_usage(error: Any) -> int:
    command = error.ctx.command_path if error.ctx else "dptune"
    message = error.format_message().rstrip(".")
    if not message:  # a verb without arguments has shown its help already
        return int(error.exit_code)
    return _fail("InvalidInput", f"{message}. See {command} --help.", error.exit_code)


def _show(as_json: bool, plain: dict[str, Any], draw: Callable[[], None]) -> None:
    if as_json:
        print(json.dumps(plain, indent=2, allow_nan=False))
    else:
        draw()


def _version(wanted: bool) -> None:
    if wanted:
        print(f"dptune {dptune.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def account(
    delta: Delta,
    steps: Steps,
    epsilon: Annotated[
        float | None, typer.Option("--epsilon", help="Ask for the noise that this epsilon needs.")
    ] = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option("--noise-multiplier", help="Ask for the epsilon that this noise gives."),
    ] = None,
    sampling_rate: Rate = None,
    as_json: AsJson = False,
) -> None:
    """Price one training run: noise from epsilon, or epsilon from noise.

    Example: dptune account --epsilon 1 --delta 1e-5 --steps 100
    """
    if (epsilon is None) == (noise_multiplier is None):
        raise InvalidInput(
            "give either --epsilon, to learn the noise, or --noise-multiplier, to learn the "
            f"epsilon; got {'neither' if epsilon is None else 'both'}."
        )
    run: FullBatchRun | SampledRun
    if epsilon is None:
        run = _run(steps, noise_multiplier or 0.0, sampling_rate)
    elif sampling_rate is None:
        run = accounting.calibrate_full_batch(mu=Budget(epsilon, delta).mu, steps=steps)
    else:
        run = accounting.calibrate_direct(
            epsilon=epsilon, delta=delta, steps=steps, sampling_rate=sampling_rate
        )
    guarantee = accounting.guarantee(
        [run],
        delta,
        adaptive=False,
        covers_search=False,
        covers_selection=False,
        releases=("every noisy sum of this run, and so its model",),
        public_facts=("the number of rows",),
        caveats=("prices this run alone; other runs on the same rows, trials included, add to it",),
    )
    charged = Price(guarantee.mu**2, guarantee.slack)
    plain = {
        "steps": steps,
        "sampling_rate": sampling_rate,
        "noise_multiplier": run.noise_multiplier,
        "epsilon": guarantee.epsilon,
        "delta": delta,
        "mu": guarantee.mu,
        "slack": guarantee.slack,
        "ledger_epsilon": accounting.epsilon(charged, delta),
        "rdp_epsilon": accounting.rdp_epsilon([run], delta),
        "guarantee": guarantee.to_dict(),
    }
    _show(as_json, plain, lambda: _screen.account(plain, guarantee))


@app.command()
def plan(
    epsilon: Epsilon,
    delta: Delta,
    sweep: Annotated[
        list[str] | None,
        typer.Option(help="TRIALS@EPSILON: that many trials at that epsilon each. Repeatable."),
    ] = None,
    score: Annotated[
        Score,
        typer.Option(
            help="How trials are compared: noisy counts that are paid for, or public rows."
        ),
    ] = Score.noisy,
    score_share: Annotated[
        float | None,
        typer.Option(
            help=f"Share of the budget (of mu squared) for noisy scores, {DEFAULT_SCORE_SHARE} if "
            "not given."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Split a budget: sweeps of cheap trials, their scores, and what is left for the final run.

    Touches no data and spends nothing.

    Example: dptune plan --epsilon 1 --delta 1e-5 --sweep 3@0.1 --sweep 3@0.2
    """
    sweeps = [_sweep(text) for text in sweep or []]
    if score is Score.public and score_share is not None:
        raise InvalidInput(
            "--score public costs nothing, so it takes no --score-share; leave one of them out."
        )
    share = DEFAULT_SCORE_SHARE if score_share is None else score_share
    split = split_budget(Budget(epsilon, delta), sweeps, score=score.value, score_share=share)
    _show(as_json, split.to_dict(), lambda: _screen.plan(split))


@app.command()
def budget(
    where: Where,
    contains: Annotated[
        str | None,
        typer.Option(help="Check that the ledger still contains this entry, noted down earlier."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a ledger: what is spent, what is left, every payment; verifies the whole chain."""
    ledger = dptune.Ledger.open(where)
    state = ledger.state()
    if contains is not None and contains not in state.hashes:
        raise LedgerCorrupt(
            f"{ledger.address} does not contain entry {contains}: it is another ledger, or an "
            "older copy was put in its place. Count what was spent since as spent."
        )
    plain = {"ledger": ledger.address, **state.to_dict()}
    _show(as_json, plain, lambda: _screen.budget(ledger.address, state))


@ledger_app.command("open")
def open_ledger(
    where: Where,
    dataset: Annotated[str, typer.Option(help="The data set's name, as it may be published.")],
    epsilon: Epsilon,
    delta: Delta,
    data: Data,
    as_json: AsJson = False,
) -> None:
    """Open a new ledger for a data set.

    Example: dptune ledger open patients.db --dataset patients --data patients.csv
    --epsilon 1 --delta 1e-5
    """
    ledger = dptune.Ledger.create(
        where, Budget(epsilon, delta), dataset=dataset, fingerprint=fingerprint_file(data)
    )
    _show_ledger(ledger, as_json, f"opened {ledger.address} for data set {dataset!r}")


@ledger_app.command()
def declare(where: Where, data: Data, reason: Reason, as_json: AsJson = False) -> None:
    """Declare that a file is another version of the ledger's data set and shares its budget."""
    ledger = dptune.Ledger.open(where)
    new = ledger.declare(fingerprint_file(data), reason=reason)
    done = "declared; runs on this file pay from the same budget" if new else "declared already"
    _show_ledger(ledger, as_json, done)


@ledger_app.command("change-budget")
def change_budget(
    where: Where, epsilon: Epsilon, delta: Delta, reason: Reason, as_json: AsJson = False
) -> None:
    """Replace the budget. The old one and the reason stay in the ledger."""
    ledger = dptune.Ledger.open(where)
    old, new = ledger.state().budget, Budget(epsilon, delta)
    ledger.change_budget(new, reason=reason)
    done = f"the budget was epsilon {old.epsilon:g} at delta {old.delta:g}, and is now epsilon "
    _show_ledger(ledger, as_json, f"{done}{new.epsilon:g} at delta {new.delta:g}")


@ledger_app.command()
def reserve(
    where: Where,
    data: Data,
    purpose: Annotated[str, typer.Option(help="What the run is for.")],
    steps: Steps,
    noise_multiplier: Noise,
    sampling_rate: Rate = None,
    as_json: AsJson = False,
) -> None:
    """Pay for a run before it touches the data. Reserved counts as spent.

    Example: dptune ledger reserve patients.db --data patients.csv --purpose "trial 1" --steps 100
    --noise-multiplier 60
    """
    ledger = dptune.Ledger.open(where)
    event = _run(steps, noise_multiplier, sampling_rate)
    receipt = ledger.reserve(event, purpose=purpose, fingerprint=fingerprint_file(data))
    _show_payment(ledger, receipt, "reserved", as_json)


@ledger_app.command()
def commit(where: Where, payment: Number, as_json: AsJson = False) -> None:
    """Record that a reserved run has ended and its output exists."""
    ledger = dptune.Ledger.open(where)
    receipt = ledger.receipt(payment)
    ledger.commit(receipt)
    _show_payment(ledger, receipt, "committed", as_json)


@ledger_app.command()
def void(where: Where, payment: Number, reason: Reason, as_json: AsJson = False) -> None:
    """Give a reservation back. Only for a run that never started: once it read a row, it counts."""
    ledger = dptune.Ledger.open(where)
    receipt = ledger.receipt(payment)
    ledger.void(receipt, reason=reason)
    _show_payment(ledger, receipt, "voided", as_json)


@bench_app.command("accounting")
def bench_accounting(as_json: AsJson = False) -> None:
    """Time dptune's prices against dp-accounting and prv-accountant (under a minute)."""
    from dptune.bench import accounting as bench

    with _screen.progress() as report:
        results = bench.measure(report)
    _show(as_json, results, lambda: _screen.bench_accounting(results))


@bench_app.command("speed")
def bench_speed(
    device: Annotated[Device, typer.Option(help="Where to train.")] = Device.cpu,
    as_json: AsJson = False,
) -> None:
    """Time the linear engine against Opacus and bare matrix products (about a minute)."""
    from dptune.bench import speed as bench

    with _screen.progress() as report:
        results = bench.measure(report, device.value)
    _show(as_json, results, lambda: _screen.bench_speed(results))


def _show_ledger(ledger: "Ledger", as_json: bool, done: str) -> None:
    state = ledger.state()
    plain = {"ledger": ledger.address, **state.to_dict()}
    _show(as_json, plain, lambda: _screen.note(done, state))


def _show_payment(ledger: "Ledger", receipt: Receipt, state: str, as_json: bool) -> None:
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
    _show(as_json, plain, lambda: _screen.note(done, now, then))


def _run(
    steps: int, noise_multiplier: float, sampling_rate: float | None
) -> FullBatchRun | SampledRun:
    if sampling_rate is None:
        return FullBatchRun(steps=steps, noise_multiplier=noise_multiplier)
    return SampledRun(steps=steps, noise_multiplier=noise_multiplier, sampling_rate=sampling_rate)


def _sweep(text: str) -> Sweep:
    trials, _, epsilon = text.partition("@")
    try:
        return Sweep(int(trials), float(epsilon))
    except (ValueError, InvalidInput) as error:
        detail = f" ({error})" if isinstance(error, InvalidInput) else ""
        raise InvalidInput(
            f"--sweep takes TRIALS@EPSILON, for example 3@0.1; got {text!r}{detail}."
        ) from None
