"""`python -m reproduction modules`: whole networks, trained from scratch on public pictures."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from dptune import validate
from dptune.cli import screen
from dptune.cli.parameters import Device, PictureRoot, TrainingDevice
from dptune.data.rows import find_device
from reproduction.modules.cells import (
    GRID,
    Shape,
    law_cells,
    study_cells,
    usual_epsilons,
    zeroth_order_cells,
)
from reproduction.modules.lines import Cell, Measure

app = typer.Typer(
    help="Whole networks by DP-SGD, from scratch, with all of the search paid.",
    no_args_is_help=True,
)
Out = Annotated[
    str,
    typer.Option(
        "--out",
        metavar="FOLDER",
        help="A .jsonl file for every verb and modules.md go here; what was measured is not "
        "measured again.",
    ),
]
Sets = Annotated[str, typer.Option(metavar="SETS", help="Known sets, separated by commas.")]
Epsilons = Annotated[
    str | None,
    typer.Option(
        "--epsilon", metavar="EPSILONS", help="Budgets, separated by commas; else those of papers."
    ),
]
Repeats = Annotated[int, typer.Option(help="Seeds behind every accuracy.")]
Batch = Annotated[int, typer.Option(help="Rows expected in a Poisson sample.")]
Steps = Annotated[int, typer.Option(help="Of every run, those of trials included.")]
Limit = Annotated[
    int | None, typer.Option(help="Pictures of each part at most, to see whether all works.")
]
Workers = Annotated[int, typer.Option(help="Processes that train at once.")]
FOLDER = "benchmarks/modules"


@app.command()
def cnn(
    folder: Out = FOLDER,
    sets: Sets = "mnist,fashion_mnist",
    epsilon: Epsilons = None,
    repeats: Repeats = 3,
    batch: Batch = 2048,
    steps: Steps = 1000,
    root: PictureRoot = None,
    limit: Limit = None,
    device: TrainingDevice = Device.cpu,
    workers: Workers = 1,
) -> None:
    """Study the small convolutional network of Tramèr & Boneh.

    Example: python -m reproduction modules cnn --sets mnist --epsilon 2.93 --repeats 1
    """
    shape = Shape(batch=batch, steps=steps, clip_norm=0.1, momentum=0.9)
    cells = [
        cell
        for name in _names(sets)
        for cell in study_cells(
            "cnn", name, "small_convolutional", _budgets(epsilon, name), repeats, shape, limit
        )
    ]
    _measure(cells, folder, root, device, workers)


@app.command()
def wrn(
    folder: Out = FOLDER,
    sets: Sets = "cifar10",
    epsilon: Epsilons = None,
    repeats: Repeats = 1,
    batch: Batch = 4096,
    steps: Steps = 250,
    copies: Annotated[int, typer.Option(help="Augmentations of each row in a step.")] = 16,
    compute: Annotated[
        str, typer.Option(metavar="TYPE", help="Of products: float32 or bfloat16.")
    ] = "bfloat16",
    root: PictureRoot = None,
    limit: Limit = None,
    device: TrainingDevice = Device.cpu,
) -> None:
    """Study WRN-16-4 with group norm, standardised weights, augmentations and averaged weights.

    Example: python -m reproduction modules wrn --epsilon 8 --steps 100 --device cuda
    """
    shape = Shape(batch=batch, steps=steps, clip_norm=1.0, momentum=0.0)
    shape = shape.augmented(copies, compute)
    cells = [
        cell
        for name in _names(sets)
        for cell in study_cells(
            "wrn", name, "wide_resnet", _budgets(epsilon, name), repeats, shape, limit
        )
    ]
    _measure(cells, folder, root, device, 1)


@app.command("zeroth-order")
def zeroth_order(
    folder: Out = FOLDER,
    pictures: Annotated[str, typer.Option("--set", metavar="SET", help="A known set.")] = "mnist",
    epsilon: Epsilons = None,
    repeats: Repeats = 3,
    batch: Batch = 2048,
    steps: Steps = 400,
    directions: Annotated[int, typer.Option(help="Differences that a row gives a step.")] = 32,
    rates: Annotated[
        str, typer.Option(metavar="RATES", help="The grid that nobody pays for.")
    ] = GRID,
    root: PictureRoot = None,
    limit: Limit = None,
    device: TrainingDevice = Device.cpu,
    workers: Workers = 1,
) -> None:
    """Zeroth order: our search, random search and a free grid, as in the paper's Table 9.

    Example: python -m reproduction modules zeroth-order --set mnist --repeats 1 --device cuda
    """
    shape = Shape(batch=batch, steps=steps, clip_norm=1.0, momentum=0.0, directions=directions)
    budgets = _budgets(epsilon, pictures)
    cells = zeroth_order_cells(pictures, budgets, repeats, shape, _numbers("rates", rates), limit)
    _measure(cells, folder, root, device, workers)


@app.command()
def law(
    folder: Out = FOLDER,
    sets: Sets = "mnist,fashion_mnist,demo",
    epsilon: Epsilons = "1,3",
    repeats: Repeats = 2,
    noises: Annotated[
        str, typer.Option(metavar="NOISES", help="c, the noise that a run leaves on every weight.")
    ] = "0.01,0.02,0.04,0.08,0.16,0.32,0.64",
    batch: Batch = 2048,
    steps: Steps = 500,
    root: PictureRoot = None,
    limit: Limit = None,
    device: TrainingDevice = Device.cpu,
    workers: Workers = 1,
) -> None:
    """Where accuracy is best over the noise on weights: single runs on public rows.

    Example: python -m reproduction modules law --sets demo --repeats 1
    """
    shape = Shape(batch=batch, steps=steps, clip_norm=0.1, momentum=0.9)
    cells = [
        cell
        for name in _names(sets)
        for cell in law_cells(
            name, _budgets(epsilon, name), repeats, shape, _numbers("noises", noises), limit
        )
    ]
    _measure(cells, folder, root, device, workers)


@app.command("page")
def page(folder: Out = FOLDER) -> None:
    """Write modules.md anew from all that the folder holds."""
    _show_page(Path(folder))


def _measure(
    cells: Sequence[Cell], folder: str, root: str | None, device: Device, workers: int
) -> None:
    from reproduction.modules.lines import measure_missing
    from reproduction.modules.measure import run, study

    find_device(device.value)
    validate.whole(1, workers=workers)
    with screen.progress() as report:
        count = 0
        for by_search in (True, False):
            measure: Measure = study if by_search else run
            some = [cell for cell in cells if cell.by_search == by_search]
            count += measure_missing(
                some,
                measure,
                Path(folder),
                root=root,
                device=device.value,
                workers=workers,
                report=report,
            )
        report(f"{count} cells measured; the others were there")
    _show_page(Path(folder))


def _show_page(folder: Path) -> None:
    from reproduction.modules.page import write_page

    text = write_page(folder).read_text()
    screen.out.print(text, highlight=False, markup=False, soft_wrap=True)


def _names(sets: str) -> list[str]:
    return [name for name in sets.split(",") if name]


def _budgets(epsilon: str | None, name: str) -> Iterable[float]:
    return usual_epsilons(name) if epsilon is None else _numbers("epsilon", epsilon)


def _numbers(option: str, texts: str) -> tuple[float, ...]:
    from dptune.errors import InvalidInput

    try:
        return tuple(float(text) for text in texts.split(","))
    except ValueError:
        raise InvalidInput(
            f"--{option} takes numbers, separated by commas; got {texts!r}."
        ) from None
