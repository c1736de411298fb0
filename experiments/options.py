"""Options that several verbs have, and how what is given by them is read."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dptune import validate
from dptune.cli import screen
from dptune.cli.parameters import Device
from dptune.data.rows import find_device
from dptune.errors import InvalidInput
from experiments import lines

Out = Annotated[
    str,
    typer.Option(
        "--out",
        metavar="FOLDER",
        help="Measurements (.jsonl files) and their page go here; what was measured is not "
        "measured again.",
    ),
]
Budgets = Annotated[
    str, typer.Option("--epsilon", metavar="EPSILONS", help="Budgets, separated by commas.")
]
Repeats = Annotated[int, typer.Option(help="Studies behind every accuracy.")]
Batch = Annotated[int, typer.Option(help="Rows expected in a Poisson sample.")]
Steps = Annotated[int, typer.Option(help="Of every run, those of trials included.")]
Limit = Annotated[
    int | None, typer.Option(help="Rows of each part at most, to see whether all works.")
]
Workers = Annotated[int, typer.Option(help="Processes that measure at once.")]


def words(given: str) -> list[str]:
    """What stands between commas."""
    return [word.strip() for word in given.split(",") if word.strip()]


def numbers(given: str, option: str = "epsilon") -> tuple[float, ...]:
    try:
        return tuple(float(text) for text in given.split(","))
    except ValueError:
        raise InvalidInput(
            f"--{option} takes numbers, separated by commas; got {given!r}."
        ) from None


def show(page: Path) -> None:
    screen.out.print(page.read_text(), highlight=False, markup=False, soft_wrap=True)


Cells = Sequence[Any] | Callable[[], Sequence[Any]]


def measure_and_show(
    rounds: Sequence[tuple[Cells, int]],
    measure: "lines.Measure[Any]",
    folder: str,
    said: Callable[[Any, lines.Figures], str],
    write_page: Callable[[Path], Path],
    root: str | None,
    device: Device,
) -> None:
    """Measure what is missing, by so many processes in each round, and write and print the page.
    Cells that follow from what an earlier round measured are asked for when it is done."""
    find_device(device.value)
    for _, workers in rounds:
        validate.whole(1, workers=workers)
    with screen.progress() as report:
        count = 0
        for cells, workers in rounds:
            count += lines.measure_missing(
                cells() if callable(cells) else cells,
                measure,
                Path(folder),
                said,
                root=root,
                device=device.value,
                workers=workers,
                report=report,
            )
        report(f"{count} cells measured; the others were there")
    show(write_page(Path(folder)))


def group(help: str, *verbs: Callable[..., None]) -> typer.Typer:
    """Verbs by the names of their functions."""
    app = typer.Typer(help=help, no_args_is_help=True)
    for verb in verbs:
        app.command(verb.__name__.strip("_").replace("_", "-"))(verb)
    return app
