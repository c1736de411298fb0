"""Verbs that measure."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dptune.cli import screen
from dptune.cli.parameters import (
    BACKBONE,
    HELP_FLAGS,
    AsJson,
    Device,
    FeatureKind,
    Kind,
    NetworkDevice,
    PictureRoot,
    PictureSize,
    TrainingDevice,
    in_words,
    option,
)
from dptune.errors import InvalidInput

app = typer.Typer(
    help="Measure speed and accuracy on this machine.",
    no_args_is_help=True,
    context_settings=HELP_FLAGS,
)


@app.command("accounting")
def bench_accounting(as_json: AsJson = False) -> None:
    """Time dptune's prices against dp-accounting and prv-accountant (under a minute)."""
    from dptune.bench import accounting as bench
    from dptune.cli import bench_screen

    with screen.progress() as report:
        results = bench.measure(report)
    screen.show(as_json, results, lambda: bench_screen.bench_accounting(results))


class Timed(StrEnum):
    """Engines whose speed is measured."""

    linear = "linear"
    modules = "modules"


@app.command("speed")
def bench_speed(
    engine: Annotated[
        Timed,
        option(f"What is timed: probes or whole networks, {in_words(Timed)}.", metavar="ENGINE"),
    ] = Timed.linear,
    device: TrainingDevice = Device.cpu,
    as_json: AsJson = False,
) -> None:
    """Time an engine against Opacus, and against bare matrix products (linear) or plain training
    (modules), in a few minutes.

    Example: dptune bench speed --engine modules --device cuda
    """
    from dptune.cli import bench_screen

    with screen.progress() as report:
        if engine is Timed.linear:
            from dptune.bench import speed

            results, draw = speed.measure(report, device.value), bench_screen.bench_speed
        else:
            from dptune.bench import modules

            results, draw = modules.measure(report, device.value), bench_screen.bench_modules
    screen.show(as_json, results, lambda: draw(results))


@app.command("compare")
def bench_compare(
    data: Annotated[
        str,
        option(
            "Tasks, separated by commas: demo, or files with test rows; a change may follow, "
            "as in demo?rows=1000, demo?unbalanced=38, demo?unscaled, demo?plain.",
            metavar="TASKS",
        ),
    ] = "demo",
    methods: Annotated[
        str | None,
        option(
            "Methods, separated by commas, options after colons as in "
            "random-search:trials=3; default: all. `oracle` is the best of an unpaid grid.",
            metavar="METHODS",
        ),
    ] = None,
    epsilon: Annotated[str, option("Budgets, separated by commas.", metavar="EPSILONS")] = "1",
    delta: Annotated[float, option("The delta of every budget.")] = 1e-5,
    repeats: Annotated[int, option("Independent studies of each method.")] = 20,
    folder: Annotated[
        str,
        option("Where tables go; what is there is not measured again.", "--out", metavar="FOLDER"),
    ] = "runs/compare",
    device: TrainingDevice = Device.cpu,
    workers: Annotated[
        int | None, option("Processes. Default: as many as cores; one on a GPU.")
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
    screen.show(as_json, {"rows": table}, lambda: bench_screen.bench_compare(table, folder))


@app.command("extract")
def bench_extract(
    images: Annotated[str, option("Whatever extract takes for --images.", metavar="PICTURES")],
    backbone: Annotated[list[str], BACKBONE],
    pictures: Annotated[int, option("How many pictures at most.")] = 10_000,
    features: FeatureKind = None,
    size: PictureSize = None,
    root: PictureRoot = None,
    device: NetworkDevice = Device.cpu,
    as_json: AsJson = False,
) -> None:
    """Time a whole extraction, decoding included, against the network's bare forward pass.

    Example: dptune bench extract --images cifar10 --backbone lite0 --pictures 2000
    """
    from dptune.bench import extraction as bench
    from dptune.cli import bench_screen

    with screen.progress() as report:
        results = bench.measure(
            images,
            backbone,
            report,
            pictures=pictures,
            features=(features or Kind.pooled).value,
            size=size,
            root=root,
            device=device.value,
        )
    screen.show(as_json, results, lambda: bench_screen.bench_extract(results))


@app.command("ledger")
def bench_ledger(
    ledger: Annotated[
        list[str] | None,
        option(
            "Where to make the ledgers that are timed, given twice: files, or postgresql:// "
            "URLs of empty schemas; default: temporary files.",
            metavar="ADDRESS",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Time a ledger as it grows, and its share of a study of 1,000 trials (about a minute)."""
    from dptune.bench import ledger as bench
    from dptune.cli import bench_screen

    with screen.progress() as report:
        results = bench.measure(report, ledger or ())
    screen.show(as_json, results, lambda: bench_screen.bench_ledger(results))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"--epsilon takes numbers, separated by commas; got {text!r}.") from None
