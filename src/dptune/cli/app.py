"""The command line: verbs over the public API.

Every verb takes --json. Exit codes: 0 done, 2 bad input, 3 a budget would be exceeded, 1 anything
else (a damaged or locked ledger, a missing package). Errors are one paragraph, never a traceback.
"""

import csv
import io
import itertools
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import dptune
from dptune import accounting
from dptune.accounting.split import DEFAULT_SCORE_SHARE, Sweep, split_budget
from dptune.cli import screen
from dptune.data.fingerprint import fingerprint_file
from dptune.errors import DptuneError, InvalidInput, LedgerCorrupt
from dptune.privacy import Budget, FullBatchRun, Price, Receipt, SampledRun

if TYPE_CHECKING:
    from dptune.ledger import Ledger
    from dptune.study.study import StudyResult

# Typer may carry its own copy of click, so its errors are found through the one it exports.
_UsageError: Any = typer.BadParameter.__base__

_FLAG = ""  # Typer would show a flag as if it took a value
_SETTINGS = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    help="Differential privacy with the search for hyperparameters inside the same budget: tune "
    "and train, price runs, and keep a ledger that cannot be overspent.",
    no_args_is_help=True,
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
    str,
    typer.Option(
        "--data",
        metavar="ROWS",
        help="The private data: what tune takes. Only a keyed hash of it is stored.",
    ),
]
Reason = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why; kept in the ledger for good.")
]
AsJson = Annotated[
    bool, typer.Option("--json", metavar=_FLAG, help="Print one JSON object instead of tables.")
]


def _either(choices: type[StrEnum]) -> str:
    """The choices in words, for a help that breaks lines at words only."""
    *others, last = choices
    return f"{', '.join(others)} or {last}"


class Score(StrEnum):
    noisy = "noisy"
    public = "public"


class StudyScore(StrEnum):
    noisy = "noisy"
    public = "public"
    held_out = "held-out"
    unpaid = "unpaid"


class Method(StrEnum):
    linear_scaling = "linear-scaling"
    unit_noise = "unit-noise"
    paper_line = "paper-line"
    random_search = "random-search"
    grid_search = "grid-search"
    private_selection = "private-selection"
    subset = "subset"
    hypo = "hypo"
    wosm = "wosm"
    one_step = "one-step"


class Device(StrEnum):
    cpu = "cpu"
    cuda = "cuda"


class Effort(StrEnum):
    full = "full"
    quick = "quick"


TrainOn = Annotated[
    Device, typer.Option("--device", metavar="DEVICE", help=f"Where to train: {_either(Device)}.")
]
Folder = Annotated[
    str, typer.Argument(metavar="FOLDER", help="Where tune wrote the run.", show_default=False)
]


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
    screen.error(message)
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
        bool,
        typer.Option(
            "--version",
            metavar=_FLAG,
            callback=_version,
            is_eager=True,
            help="Print the version.",
        ),
    ] = False,
) -> None:
    pass


@app.command()
def tune(
    data: Annotated[
        str | None,
        typer.Option(
            metavar="ROWS",
            help="The private rows: a .csv, .parquet, .npz or .npy file, a folder that "
            "save_to_disk wrote, hub:NAME, or demo, the bundled data. Not given: demo.",
        ),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Total epsilon. Not given: 1.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="Total delta. Not given: one in ten times the rows.")
    ] = None,
    method: Annotated[
        Method | None,
        typer.Option(
            metavar="METHOD", help=f"The search: {_either(Method)}. Not given: linear-scaling."
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="A new run folder. Not given: runs/NAME-1, or the next."
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The column of labels. Not given: label."),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            metavar="ROWS",
            help="Rows that report a figure; nobody's secret. To use the test rows that --data "
            "itself holds, name it again.",
        ),
    ] = None,
    public: Annotated[
        str | None, typer.Option(metavar="ROWS", help="Rows that are nobody's secret.")
    ] = None,
    score: Annotated[
        StudyScore | None,
        typer.Option(
            metavar="SCORE",
            help="How trials are compared: by noisy counts that are paid for (noisy), on --public "
            "rows (public), on private rows held out (held-out), or by exact counts that nobody "
            "pays for (unpaid), which the guarantee then says. Not given: noisy.",
        ),
    ] = None,
    device: Annotated[
        Device | None,
        typer.Option(metavar="DEVICE", help=f"Where to train: {_either(Device)}. Not given: cpu."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="For public choices; noise is always fresh.")
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A TOML file like a run's run.toml, or a part of it. Options win."
        ),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="LEDGER",
            help="A ledger to pay from. Not given: one of the run's own, in its folder.",
        ),
    ] = None,
    reuse: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="A run paid from the same ledger whose search serves this one too; its price "
            "comes on top.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            metavar=_FLAG,
            help="Show what would be paid and promised; do nothing.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Search for hyperparameters and train, all inside one budget.

    Example: dptune tune --data patients.csv --label ill --epsilon 1
    """
    from dptune.cli import options, study_screen
    from dptune.study import study

    asked = options.read(
        config,
        {
            "data": {"source": data, "label": label, "test": test, "public": public},
            "budget": {"epsilon": epsilon, "delta": delta},
            "search": {"method": method and method.value},
            "score": {"kind": score and score.value},
            "run": {
                "device": device and device.value,
                "seed": seed,
                "ledger": ledger,
                "reuse": reuse,
            },
        },
    )
    if asked.data.unused_test_rows:
        study_screen.about_unused_test_rows(asked.settings["source"]["source"])
    if dry_run:
        planned, guarantee = study.foresee(asked.data, asked.config)
        plain = study_screen.foreseen_plain(planned, guarantee)
        plain["delta_chosen"] = asked.delta_chosen
        _show(
            as_json,
            plain,
            lambda: study_screen.foreseen(
                planned, guarantee, asked.delta_chosen, asked.data.column_names
            ),
        )
        return
    folder = out if out is not None else _free_folder(asked.data.name)
    with _resumable(folder), study_screen.watching(asked.config.search) as watch:
        result = study.tune(None, asked.data, out=folder, watch=watch, **asked.settings)
    _show_study(result, as_json, asked.delta_chosen)


@app.command()
def resume(folder: Folder, as_json: AsJson = False) -> None:
    """Go on with a study that was cut off; nothing is paid twice.

    Example: dptune resume runs/patients-1
    """
    from dptune.cli import study_screen
    from dptune.study import study
    from dptune.study.run_folder import RunFolder

    search = study.read_config(RunFolder.open(folder)).search
    with _resumable(folder), study_screen.watching(search) as watch:
        result = study.resume(folder, watch=watch)
    _show_study(result, as_json, delta_chosen=False)


@app.command()
def predict(
    folder: Folder,
    data: Annotated[
        str,
        typer.Option(
            metavar="ROWS", help="New rows: a source as for tune; a column of labels is left out."
        ),
    ],
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="The CSV file to write.")],
    as_json: AsJson = False,
) -> None:
    """Predict new rows: a CSV file with one prediction a line.

    Example: dptune predict runs/patients-1 --data new.csv -o predictions.csv
    """
    from dptune.data.sources import read_features
    from dptune.study import study
    from dptune.study.run_folder import RunFolder

    model = dptune.load(folder)
    label = study.read_config(RunFolder.open(folder)).source.get("label")
    features = read_features(data, model.column_names or model.columns, label)
    predictions = model.predict(features).tolist()
    _write_column(out, "prediction", predictions, beside=data)
    _show(
        as_json,
        {"rows": len(predictions), "out": out},
        lambda: print(f"Wrote {len(predictions):,} predictions to {out}."),
    )


@app.command()
def card(folder: Folder, as_json: AsJson = False) -> None:
    """Print the model card of a finished run, as Markdown.

    Example: dptune card runs/patients-1 > CARD.md
    """
    from dptune.report.card import model_card

    text = model_card(folder)
    _show(as_json, {"markdown": text}, lambda: print(text, end=""))


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
    # A ledger counts all of the failure probability that it sets aside, whoever uses it.
    charged = Price(guarantee.mu**2, accounting.slack_set_aside(delta))
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
    _show(as_json, plain, lambda: screen.account(plain, guarantee))


@app.command()
def plan(
    epsilon: Epsilon,
    delta: Delta,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TRIALS@EPSILON", help="That many trials at that epsilon each. Repeatable."
        ),
    ] = None,
    score: Annotated[
        Score,
        typer.Option(
            metavar="SCORE",
            help="How trials are compared: noisy counts that are paid for (noisy), or public rows "
            "(public).",
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
    _show(as_json, split.to_dict(), lambda: screen.plan(split))


@app.command()
def budget(
    where: Where,
    contains: Annotated[
        str | None,
        typer.Option(
            metavar="ENTRY",
            help="Check that the ledger still contains this entry, noted down earlier.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a ledger: what is spent, what is left, every payment; verifies the whole chain."""
    inside = os.path.join(where, "ledger.db")  # of a run folder with a ledger of its own
    ledger = dptune.Ledger.open(inside if os.path.exists(inside) else where)
    state = ledger.state()
    if contains is not None and contains not in state.hashes:
        raise LedgerCorrupt(
            f"{ledger.address} does not contain entry {contains}: it is another ledger, or an "
            "older copy was put in its place. Count what was spent since as spent."
        )
    plain = {"ledger": ledger.address, **state.to_dict()}
    _show(as_json, plain, lambda: screen.budget(ledger.address, state))


@ledger_app.command("open")
def open_ledger(
    where: Where,
    dataset: Annotated[
        str, typer.Option(metavar="NAME", help="The data set's name, as it may be published.")
    ],
    epsilon: Epsilon,
    delta: Delta,
    data: Data,
    slack: Annotated[
        float | None,
        typer.Option(
            help="How much of delta, up to half of it, is set aside, for good, for failures of "
            "sampled runs and sealed searches; 2 % of it if not given."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Open a new ledger for a data set.

    Example: dptune ledger open patients.db --dataset patients --data patients.csv
    --epsilon 1 --delta 1e-5
    """
    ledger = dptune.Ledger.create(
        where,
        Budget(epsilon, delta),
        dataset=dataset,
        fingerprint=_fingerprint(data),
        slack=slack,
    )
    _show_ledger(ledger, as_json, f"opened {ledger.address} for data set {dataset!r}")


@ledger_app.command()
def declare(where: Where, data: Data, reason: Reason, as_json: AsJson = False) -> None:
    """Declare that these data are another version of the ledger's data set and share its budget."""
    ledger = dptune.Ledger.open(where)
    new = ledger.declare(_fingerprint(data), reason=reason)
    done = "declared; runs on these data pay from the same budget" if new else "declared already"
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
    purpose: Annotated[str, typer.Option(metavar="TEXT", help="What the run is for.")],
    steps: Steps,
    noise_multiplier: Noise,
    sampling_rate: Rate = None,
    as_json: AsJson = False,
) -> None:
    """Pay for a run before it touches the data. Reserved counts as spent.

    Example: dptune ledger reserve patients.db --data patients.csv
    --purpose "trial 1" --steps 100 --noise-multiplier 60
    """
    ledger = dptune.Ledger.open(where)
    event = _run(steps, noise_multiplier, sampling_rate)
    receipt = ledger.reserve(event, purpose=purpose, fingerprint=_fingerprint(data))
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
    from dptune.cli import bench_screen

    with screen.progress() as report:
        results = bench.measure(report)
    _show(as_json, results, lambda: bench_screen.bench_accounting(results))


@bench_app.command("speed")
def bench_speed(
    device: TrainOn = Device.cpu,
    as_json: AsJson = False,
) -> None:
    """Time the linear engine against Opacus and bare matrix products (about a minute)."""
    from dptune.bench import speed as bench
    from dptune.cli import bench_screen

    with screen.progress() as report:
        results = bench.measure(report, device.value)
    _show(as_json, results, lambda: bench_screen.bench_speed(results))


@bench_app.command("ledger")
def bench_ledger(
    ledger: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="Where to make the ledgers that are timed, given twice: files, or postgresql:// "
            "URLs of empty schemas; temporary files if not given.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Time a ledger as it grows, and its share of a study of 1,000 trials (about a minute)."""
    from dptune.bench import ledger as bench
    from dptune.cli import bench_screen

    with screen.progress() as report:
        results = bench.measure(report, ledger or ())
    _show(as_json, results, lambda: bench_screen.bench_ledger(results))


@bench_app.command("compare")
def bench_compare(
    data: Annotated[
        str,
        typer.Option(
            metavar="TASKS",
            help="Tasks, separated by commas: demo, or files with test rows; a change may follow, "
            "as in demo?rows=1000, demo?unbalanced=38, demo?unscaled.",
        ),
    ] = "demo",
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="METHODS",
            help="Methods, separated by commas, options after colons as in "
            "random-search:trials=3; all if not given. `oracle` is the best of an unpaid grid.",
        ),
    ] = None,
    epsilon: Annotated[
        str, typer.Option(metavar="EPSILONS", help="Budgets, separated by commas.")
    ] = "1",
    delta: Annotated[float, typer.Option(help="The delta of every budget.")] = 1e-5,
    repeats: Annotated[int, typer.Option(help="Independent studies of each method.")] = 20,
    folder: Annotated[
        str,
        typer.Option(
            "--out",
            metavar="FOLDER",
            help="Where tables go; what is there is not measured again.",
        ),
    ] = "runs/compare",
    device: TrainOn = Device.cpu,
    workers: Annotated[
        int | None, typer.Option(help="Processes; as many as cores if not given, on a GPU one.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare search methods on public data: accuracy, spread, and how much of the gap between
    random search and an unpaid oracle each closes.

    Example: dptune bench compare --data demo --epsilon 0.3,1,3 --repeats 20
    """
    from dptune.bench import compare as bench
    from dptune.cli import bench_screen

    usual = (os.cpu_count() or 1) if device is Device.cpu else 1
    with screen.progress() as report:
        table = bench.compare(
            data.split(","),
            bench.DEFAULT_METHODS if methods is None else methods.split(","),
            [_number(text) for text in epsilon.split(",")],
            delta=delta,
            repeats=repeats,
            out=Path(folder),
            device=device.value,
            report=report,
            workers=usual if workers is None else workers,
        )
    _show(as_json, {"rows": table}, lambda: bench_screen.bench_compare(table, folder))


@bench_app.command("reproduce")
def bench_reproduce(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="A table or figure, or all; without it they are listed."
        ),
    ] = None,
    data: Annotated[
        str,
        typer.Option(
            metavar="TASKS",
            help="Tasks, separated by commas, as in bench compare; most use the first.",
        ),
    ] = "demo",
    repeats: Annotated[int, typer.Option(help="Runs behind every accuracy.")] = 20,
    folder: Annotated[
        str,
        typer.Option(
            "--out",
            metavar="FOLDER",
            help="Where tables and pictures go; what was measured is not measured again.",
        ),
    ] = "runs/reproduce",
    device: TrainOn = Device.cpu,
    effort: Annotated[
        Effort,
        typer.Option(metavar="EFFORT", help="The grids: full, or quick to see whether all works."),
    ] = Effort.full,
    only_list: Annotated[
        bool,
        typer.Option("--list", metavar=_FLAG, help="List the names and stop.", show_default=False),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure the tables and figures of the linear scaling paper on public data, its figures beside
    ours.

    Example: dptune bench reproduce methods --data demo --repeats 20
    """
    from dptune.bench import reproduce as bench
    from dptune.cli import bench_screen

    if name is None or only_list:
        names = {one.name: one.title for one in bench.EXPERIMENTS.values()}
        _show(as_json, names, lambda: bench_screen.bench_names(names))
        return
    with screen.progress() as report:
        results = bench.reproduce(
            name,
            data.split(","),
            repeats=repeats,
            out=Path(folder),
            device=device.value,
            report=report,
            effort=effort.value,
        )
    plain = {called: result.table.plain() for called, result in results.items()}
    _show(as_json, plain, lambda: bench_screen.bench_results(results, folder))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"--epsilon takes numbers, separated by commas; got {text!r}.") from None


def _show_study(result: "StudyResult", as_json: bool, delta_chosen: bool) -> None:
    from dptune.cli import study_screen
    from dptune.report import plots
    from dptune.report.record import Record

    assert result.folder is not None
    record = Record.read(result.folder)
    picture = plots.save(record)
    plain = {**result.to_dict(), "picture": str(picture), "delta_chosen": delta_chosen}
    _show(as_json, plain, lambda: study_screen.result(record, picture, delta_chosen))


@contextmanager
def _resumable(folder: str) -> Iterator[None]:
    """Whoever interrupts a study is told how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if (Path(folder) / "run.toml").exists():
            screen.error(f"interrupted; go on with: dptune resume {shlex.quote(folder)}")
        raise


def _free_folder(name: str) -> str:
    """The first runs/NAME-1, runs/NAME-2, ... that is not there."""
    numbered = (Path("runs") / f"{name.replace('/', '-')}-{n}" for n in itertools.count(1))
    return str(next(folder for folder in numbered if not folder.exists()))


def _write_column(path: str, head: str, values: list[Any], *, beside: str) -> None:
    if Path(path).absolute() == Path(beside).absolute():
        raise InvalidInput(f"{path!r} is the data file itself; write the {head}s to another file.")
    try:
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([[head], *([value] for value in values)])
    except OSError as error:
        raise InvalidInput(
            f"the {head}s cannot be written to {path!r}: {error.strerror}."
        ) from None


def _fingerprint(source: str) -> str:
    """As a study of these data has it. A file needs none of the packages that read rows."""
    if source == "demo" or source.startswith("hub:") or Path(source).is_dir():
        from dptune.data.sources import fingerprint_source

        return fingerprint_source(source)
    return fingerprint_file(source)


def _show_ledger(ledger: "Ledger", as_json: bool, done: str) -> None:
    state = ledger.state()
    plain = {"ledger": ledger.address, **state.to_dict()}
    _show(as_json, plain, lambda: screen.note(done, state))


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
    _show(as_json, plain, lambda: screen.note(done, now, then))


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
