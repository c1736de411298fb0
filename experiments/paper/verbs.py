"""`python -m experiments run`: the linear scaling paper's tables and figures."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dptune.cli import screen
from dptune.cli.parameters import AsJson, Device, TrainingDevice
from experiments.paper import reproduce
from experiments.paper.experiment import Result


class Effort(StrEnum):
    full = "full"
    quick = "quick"


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

    Example: python -m experiments run methods --data demo --repeats 20
    """
    if name is None or only_list:
        names = {one.name: one.title for one in reproduce.EXPERIMENTS.values()}
        screen.show(as_json, names, lambda: _show_names(names))
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
    plain = {called: result.table.plain() for called, result in results.items()}
    screen.show(as_json, plain, lambda: _show_results(results, folder))


def _show_names(names: Mapping[str, str]) -> None:
    table = screen.plain_table("tables and figures of the linear scaling paper")
    table.show_header = False
    for name, title in names.items():
        table.add_row(name, title)
    screen.out.print(table)
    screen.out.print(
        "measure one with: python -m experiments run NAME, or all of them with NAME all"
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
