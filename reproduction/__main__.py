"""`python -m reproduction`: the paper's tables and figures, its vision tasks from pictures, the map
of best noise, whole networks from scratch, language models, real tables, and a backbone from random
pictures.

Options, output, --json and exit codes are as in the command line of dptune.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from dptune.cli import screen
from dptune.cli.app import run_verbs
from dptune.cli.parameters import AsJson, Device, TrainingDevice
from reproduction import best_noise, reproduce
from reproduction.experiment import Result
from reproduction.language import verbs as language
from reproduction.modules import verbs as modules
from reproduction.synthetic import verbs as synthetic
from reproduction.tables import verbs as tables
from reproduction.vision import verbs as pictures

app = typer.Typer(
    help="Measure what the linear scaling paper claims, on public data, with dptune.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(language.app, name="language")
app.add_typer(modules.app, name="modules")
app.add_typer(synthetic.app, name="synthetic")
app.add_typer(tables.app, name="tables")
app.command("vision")(pictures.vision)
app.command("imagenet-shape")(pictures.imagenet_shape)


class Effort(StrEnum):
    full = "full"
    quick = "quick"


def main() -> None:
    run_verbs(app, "python -m reproduction")


@app.command()
def run(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAMES",
            help="Tables and figures, separated by commas, or all; without it they are listed.",
        ),
    ] = None,
    data: Annotated[
        str,
        typer.Option(
            metavar="TASKS",
            help="Tasks, separated by commas, as in dptune bench compare; most use the first, some "
            "the first of CIFAR-100.",
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
    device: TrainingDevice = Device.cpu,
    effort: Annotated[
        Effort,
        typer.Option(metavar="EFFORT", help="The grids: full, or quick to see whether all works."),
    ] = Effort.full,
    only_list: Annotated[
        bool,
        typer.Option("--list", metavar="", help="List the names and stop.", show_default=False),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure tables and figures of the paper, its figures beside ours.

    Example: python -m reproduction run methods --data demo --repeats 20
    """
    if name is None or only_list:
        names = {one.name: one.title for one in reproduce.EXPERIMENTS.values()}
        if as_json:
            _print_json(names)
        else:
            _show_names(names)
        return
    with screen.progress() as report:
        results = reproduce.reproduce(
            name,
            data.split(","),
            repeats=repeats,
            out=Path(folder),
            device=device.value,
            report=report,
            effort=effort.value,
        )
    if as_json:
        _print_json({called: result.table.plain() for called, result in results.items()})
    else:
        _show_results(results, folder)


@app.command("best-noise")
def map_best_noise(
    folder: Annotated[
        str,
        typer.Option(
            "--out", metavar="FOLDER", help="Where best-noise.json and best-noise.png go."
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            metavar="TASKS",
            help="Tasks, separated by commas, as in dptune bench compare. Not given: nothing is "
            "measured, and what is in the folder is drawn.",
        ),
    ] = None,
    epsilon: Annotated[
        str, typer.Option(metavar="EPSILONS", help="Budgets, separated by commas.")
    ] = "0.1,1,8",
    repeats: Annotated[int, typer.Option(help="Runs at each noise.")] = 8,
    device: TrainingDevice = Device.cpu,
    as_json: AsJson = False,
) -> None:
    """Map the best noise c of many tasks and budgets, beside the law (docs/law.md).

    Example: python -m reproduction best-noise --data demo --out runs/best-noise
    """
    file = Path(folder) / "best-noise.json"
    if data is not None:
        with screen.progress() as report:
            found = best_noise.measure(
                data.split(","),
                pictures.numbers(epsilon),
                repeats=repeats,
                device=device.value,
                report=report,
            )
        best_noise.save(found, file)
    scans = best_noise.load(file)
    picture = file.with_suffix(".png")
    best_noise.picture(scans, picture)
    if as_json:
        _print_json({"scans": [asdict(scan) for scan in scans], "picture": str(picture)})
    else:
        _show_scans(scans, folder)


def _print_json(plain: Mapping[str, Any]) -> None:
    print(json.dumps(plain, indent=2, allow_nan=False))


def _show_names(names: Mapping[str, str]) -> None:
    table = screen.plain_table("tables and figures of the linear scaling paper")
    table.show_header = False
    for name, title in names.items():
        table.add_row(name, title)
    screen.out.print(table)
    screen.out.print(
        "measure one with: python -m reproduction run NAME, or all of them with NAME all"
    )


def _show_results(results: Mapping[str, Result], folder: str) -> None:
    """Each table with its notes; pages and pictures are in the folder."""
    for name, result in results.items():
        drawn = screen.plain_table(name)
        for heading, style in result.table.columns.items():
            drawn.add_column(heading, justify="right" if style else "left")
        for row in result.table.texts():
            drawn.add_row(*row)
        screen.out.print(drawn)
        for note in result.notes:
            screen.out.print(note, highlight=False)
        picture = f", {name}.png" if result.picture else ""
        files = f"{name}.md, {name}.csv, {name}.json{picture}"
        screen.out.print(f"in {folder}: {files}\n", highlight=False)


def _show_scans(scans: list[best_noise.Scan], folder: str) -> None:
    table = screen.plain_table("best noise c")
    table.add_column("task")
    for heading in ("epsilon", "signal", "best c", "by the law"):
        table.add_column(heading, justify="right")
    for scan in scans:
        best, _, _ = scan.near_best(0.3)
        table.add_row(
            scan.task, f"{scan.epsilon:g}", f"{scan.signal:.3g}", f"{best:.2f}", f"{scan.law:.2f}"
        )
    screen.out.print(table)
    screen.out.print(f"in {folder}: best-noise.json, best-noise.png", highlight=False)


if __name__ == "__main__":
    main()
