"""`python -m experiments modules`: whole networks, trained from scratch on public pictures."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from dptune.cli.parameters import Device, PictureRoot, TrainingDevice
from experiments import options
from experiments.modules import cells as of_networks
from experiments.modules.cells import (
    GRID,
    Cell,
    Shape,
    law_cells,
    study_cells,
    usual_epsilons,
    zeroth_order_cells,
)
from experiments.options import Batch, Limit, Out, Repeats, Steps, Workers, group, numbers, words

Sets = Annotated[str, typer.Option(metavar="SETS", help="Known sets, separated by commas.")]
Epsilons = Annotated[
    str | None,
    typer.Option(
        "--epsilon", metavar="EPSILONS", help="Budgets, separated by commas; else those of papers."
    ),
]
FOLDER = "benchmarks/modules"


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

    Example: python -m experiments modules cnn --sets mnist --epsilon 2.93 --repeats 1
    """
    shape = Shape(batch=batch, steps=steps, clip_norm=0.1, momentum=0.9)
    cells = [
        cell
        for name in words(sets)
        for cell in study_cells(
            "cnn", name, "small_convolutional", _budgets(epsilon, name), repeats, shape, limit
        )
    ]
    _measure(cells, folder, root, device, workers)


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

    Example: python -m experiments modules wrn --epsilon 8 --steps 100 --device cuda
    """
    shape = Shape(batch=batch, steps=steps, clip_norm=1.0, momentum=0.0)
    shape = shape.augmented(copies, compute)
    cells = [
        cell
        for name in words(sets)
        for cell in study_cells(
            "wrn", name, "wide_resnet", _budgets(epsilon, name), repeats, shape, limit
        )
    ]
    _measure(cells, folder, root, device, 1)


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

    Example: python -m experiments modules zeroth-order --set mnist --repeats 1 --device cuda
    """
    shape = Shape(batch=batch, steps=steps, clip_norm=1.0, momentum=0.0, directions=directions)
    budgets = _budgets(epsilon, pictures)
    cells = zeroth_order_cells(pictures, budgets, repeats, shape, numbers(rates, "rates"), limit)
    _measure(cells, folder, root, device, workers)


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

    Example: python -m experiments modules law --sets demo --repeats 1
    """
    shape = Shape(batch=batch, steps=steps, clip_norm=0.1, momentum=0.9)
    cells = [
        cell
        for name in words(sets)
        for cell in law_cells(
            name, _budgets(epsilon, name), repeats, shape, numbers(noises, "noises"), limit
        )
    ]
    _measure(cells, folder, root, device, workers)


def page(folder: Out = FOLDER) -> None:
    """Write modules.md anew from all that the folder holds."""
    from experiments.modules.page import write_page

    options.show(write_page(Path(folder)))


app = group(
    "Whole networks by DP-SGD, from scratch, with all of the search paid.",
    cnn, wrn, zeroth_order, law, page,
)  # fmt: skip


def _measure(
    cells: Sequence[Cell], folder: str, root: str | None, device: Device, workers: int
) -> None:
    from experiments.modules.measure import measure
    from experiments.modules.page import write_page

    options.measure_and_show(
        [(cells, workers)], measure, folder, of_networks.words, write_page, root, device
    )


def _budgets(epsilon: str | None, name: str) -> Iterable[float]:
    return usual_epsilons(name) if epsilon is None else numbers(epsilon)
