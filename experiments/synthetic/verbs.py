"""`python -m experiments synthetic`: random pictures, and a backbone that learns from them."""

from pathlib import Path
from typing import Annotated

import typer

from dptune.cli import screen
from dptune.cli.parameters import Device, TrainingDevice
from dptune.errors import InvalidInput
from experiments.options import group

Seed = Annotated[int, typer.Option(help="The same number makes the same pictures.")]


def images(
    out: Annotated[
        str, typer.Option(metavar="FILE", help="An .npz of pixels, or a .png sheet of them all.")
    ],
    count: Annotated[int, typer.Option(help="How many pictures.")] = 96,
    seed: Seed = 0,
    device: TrainingDevice = Device.cpu,
) -> None:
    """Make random pictures, to look at or to keep.

    Example: python -m experiments synthetic images --count 96 --out preview.png
    """
    from experiments.synthetic import preview

    writers = {".npz": preview.save_pixels, ".png": preview.save_sheet}
    file = Path(out)
    if file.suffix not in writers:
        raise InvalidInput(f"--out takes a file that ends in .npz or .png; got {out!r}.")
    if count < 1:
        raise InvalidInput(f"--count takes a number of pictures, at least 1; got {count}.")
    writers[file.suffix](count, file, seed=seed, device=device.value)
    screen.out.print(f"{count:,} pictures in {out}", highlight=False)


def pretrain(
    out: Annotated[str, typer.Option(metavar="FILE", help="The weights, a .safetensors file.")],
    minutes: Annotated[float, typer.Option(help="Time for everything.")] = 8.0,
    count: Annotated[int, typer.Option(help="How many pictures to learn from.")] = 300_000,
    seed: Seed = 0,
    device: TrainingDevice = Device.cpu,
) -> None:
    """Train a WideResNet-16-4 on random pictures without labels.

    Example: python -m experiments synthetic pretrain --device cuda --out wrn16-4.safetensors
    """
    from experiments.synthetic.pretrain import pretrain as train

    if minutes <= 0:
        raise InvalidInput(f"--minutes takes a time above 0; got {minutes:g}.")
    train(Path(out), minutes=minutes, device=device.value, pictures=count, seed=seed, report=_say)
    _say(f"how good its features are: python -m experiments vision --backbone wrn16-4:{out}")


app = group(
    "Pictures from random processes, and a backbone that has seen nothing else.", images, pretrain
)


def _say(line: str) -> None:
    screen.out.print(line, highlight=False)
