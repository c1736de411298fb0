"""`python -m experiments best-noise`, `fit-law`, `clip-norms` and `unseen`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dptune.cli import screen
from dptune.cli.parameters import AsJson, Device, TrainingDevice
from experiments.law import best_noise
from experiments.options import Budgets, group, numbers


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
            help="Tasks, separated by commas, as in dptune bench compare. Default: nothing is "
            "measured, and what is in the folder is drawn.",
        ),
    ] = None,
    epsilon: Budgets = "0.1,1,8",
    repeats: Annotated[int, typer.Option(help="Runs at each noise.")] = 8,
    device: TrainingDevice = Device.cpu,
    as_json: AsJson = False,
) -> None:
    """Map the best noise c of many tasks and budgets, beside the law (docs/law.md).

    Example: python -m experiments best-noise --data demo --out runs/best-noise
    """
    file = Path(folder) / "best-noise.json"
    if data is not None:
        with screen.progress() as report:
            found = best_noise.measure(
                data.split(","),
                numbers(epsilon),
                repeats=repeats,
                device=device.value,
                report=report,
            )
        best_noise.save(found, file)
    scans = best_noise.load(file)
    picture = file.with_suffix(".png")
    best_noise.picture(scans, picture)
    plain = {"scans": [asdict(scan) for scan in scans], "picture": str(picture)}
    screen.show(as_json, plain, lambda: _show_scans(scans, folder))


def fit_law() -> None:
    """Print how good the law of best noise is on the sets it was fitted to."""
    from experiments.law.fit_law import report

    report()


def clip_norms(
    sets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SET", help="As in dptune bench compare. Default: what was measured is printed."
        ),
    ] = None,
    epsilon: Budgets = "1,8",
    repeats: Annotated[int, typer.Option(help="Runs at each norm and noise.")] = 4,
) -> None:
    """Find the best clipping norm where iterates are averaged: single runs on public rows.

    A line for each set and budget is added to benchmarks/clip-norms.jsonl. What was concluded:
    experiments/notes/law-measured.md.
    """
    from experiments.law.clip_norms import add, measured

    for name in sets or ():
        add(name, numbers(epsilon), repeats)
    screen.out.print(measured().markdown(), highlight=False, markup=False)


def _measure(
    out: Annotated[Path, typer.Argument(metavar="RUNS", help="A file of one set and budget.")],
    epsilon: float,
    files: Annotated[list[Path], typer.Argument(help="Its splits, by sets resplit.")],
    device: TrainingDevice = Device.cpu,
) -> None:
    """Measure single runs at multiples of the law's c."""
    from experiments.law.unseen import measure

    measure(out, epsilon, files, device.value)


def _page(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUNS STUDIES", help="Files, and what bench compare wrote of them."),
    ] = None,
) -> None:
    """Write benchmarks/compare/unseen.md and its picture."""
    from experiments.law.unseen import write_page

    write_page(files or [])


unseen = group("Is the law right on sets that it never saw?", _measure, _page)


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
