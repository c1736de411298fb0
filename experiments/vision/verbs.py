"""`python -m experiments vision`, `imagenet-shape` and `augmented-copies`."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dptune.cli import picture_screen, screen
from dptune.cli.parameters import (
    AsJson,
    Device,
    FeatureKind,
    Kind,
    PictureRoot,
    PictureSize,
    TrainingDevice,
)
from dptune.errors import InvalidInput
from experiments.options import Budgets, Limit, Repeats, numbers, show, words

Backbones = Annotated[
    list[str] | None,
    typer.Option(
        "--backbone",
        metavar="NAME",
        help="A public network, as in dptune extract, or several with + between them, side by "
        "side. May be given several times. Default: nothing is measured, and the page of what "
        "is in the folder is written.",
    ),
]


def vision(
    folder: Annotated[
        str,
        typer.Option(
            "--out", metavar="FOLDER", help="Features, cells, vision.md and vision.png go here."
        ),
    ],
    sets: Annotated[
        str, typer.Option(metavar="SETS", help="Known sets or .npz files, separated by commas.")
    ] = "cifar10,cifar100,fashion_mnist,mnist,emnist",
    backbone: Backbones = None,
    features: FeatureKind = Kind.pooled,
    size: PictureSize = None,
    root: PictureRoot = None,
    epsilon: Budgets = "0.1,0.5,1",
    repeats: Repeats = 5,
    shift: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SET=SHIFT",
            help="Also try the models of SET on SHIFT. Default: cifar10=cifar10-c and "
            "cifar100=cifar100-c, Gaussian blur; none: SET=",
        ),
    ] = None,
    limit: Limit = None,
    rerr: Annotated[
        bool,
        typer.Option(
            "--rerr", metavar="", help="Compare with random search and the oracle at epsilon 1."
        ),
    ] = False,
    device: TrainingDevice = Device.cpu,
    workers: Annotated[
        int | None,
        typer.Option(help="Processes that study at once; as many as cores if not given."),
    ] = None,
) -> None:
    """Measure the paper's vision tasks from pictures; what was measured is not measured again.

    Example: python -m experiments vision --sets cifar10 --backbone lite0 --out runs/vision
    """
    from experiments.vision.page import write_page
    from experiments.vision.rows import USUAL_SHIFTS, Wanted, measure_rows

    usual = os.cpu_count() or 1
    with screen.progress() as report:
        if backbone:
            wanted = Wanted(
                sets=words(sets),
                backbones=backbone,
                out=Path(folder),
                kind=(features or Kind.pooled).value,
                size=size,
                root=root,
                epsilons=numbers(epsilon),
                repeats=repeats,
                shifts=_shifts(shift) if shift else USUAL_SHIFTS,
                limit=limit,
                device=device.value,
                workers=usual if workers is None else workers,
                rerr=rerr,
            )
            with picture_screen.live_view() as watch:
                count = measure_rows(wanted, report, watch)
            report(f"{count} cells measured; the others were there")
        page = write_page(Path(folder), report)
    show(page)


def imagenet_shape(
    folder: Annotated[
        str, typer.Option("--out", metavar="FOLDER", help="Pictures and features go here.")
    ],
    pictures: Annotated[int, typer.Option(help="How many JPEG files to make up.")] = 20_000,
    backbone: Annotated[
        str, typer.Option(metavar="NAME", help="The network, as in dptune extract.")
    ] = "lite0",
    device: TrainingDevice = Device.cpu,
    as_json: AsJson = False,
) -> None:
    """ImageNet's shape end to end: JPEG files of 1,000 classes, features, a study from chunks.

    Example: python -m experiments imagenet-shape --pictures 2000 --out runs/imagenet-shape
    """
    from experiments.vision.imagenet_shape import measure

    with screen.progress() as report:
        results = measure(Path(folder), pictures, backbone, device.value, report)
    screen.show(as_json, results, lambda: _show(results))


def augmented_copies(
    images: Annotated[
        str, typer.Argument(metavar="CIFAR10.npz", help="Training images as JPEG files.")
    ],
    weights: Annotated[str, typer.Argument(help="Of a ResNet-20, a .safetensors file.")],
    features: Annotated[Path, typer.Argument(help="Of the same images, as codes; copied.")],
    out: Annotated[Path, typer.Argument(help="The .npz file to write.")],
) -> None:
    """Make features of augmented CIFAR-10 images, for python -m experiments run augmult."""
    from experiments.vision.augmented_copies import write_copies

    with screen.progress() as report:
        write_copies(images, weights, features, out, report)


def _show(results: dict[str, float | str]) -> None:
    table = screen.facts_table("ImageNet's shape, from files to a model")
    for name, value in results.items():
        shown = (
            value if isinstance(value, str) else f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"
        )
        table.add_row(name.replace("_", " "), shown)
    screen.out.print(table)


def _shifts(given: Sequence[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for text in given:
        name, equals, shift = text.partition("=")
        if not name or not equals:
            raise InvalidInput(f"--shift takes SET=SHIFT, as in cifar10=cifar10-c; got {text!r}.")
        found[name] = (*found.get(name, ()), *((shift,) if shift else ()))
    return found
