"""What was measured, a line of JSON each: a cell, which says all that decides it, and its figures.
Cells that are there are not measured again."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from dptune.bench.harness import Report
from dptune.errors import FolderProblem


@dataclass(frozen=True)
class Cell:
    """One run or study. `noise` or `learning_rate` is set where no search chooses; `copies` are
    those of a row, `directions` those of a zeroth-order step."""

    verb: str
    pictures: str
    network: str
    method: str
    epsilon: float
    delta: float
    seed: int
    batch: int
    steps: int
    clip_norm: float
    momentum: float
    copies: int = 1
    averaging: str = "none"
    compute: str = "float32"
    directions: int | None = None
    noise: float | None = None
    learning_rate: float | None = None
    limit: int | None = None

    @property
    def by_search(self) -> bool:
        """Whether it is a study, which finds its rate itself."""
        return self.noise is None and self.learning_rate is None


Figures = dict[str, Any]
Measure = Callable[[Cell, str | None, str], Figures]


def read_lines(folder: Path, verb: str) -> dict[Cell, Figures]:
    """All that was measured, whenever that was."""
    file = _file(folder, verb)
    if not file.exists():
        return {}
    found: dict[Cell, Figures] = {}
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        try:
            plain = json.loads(line)
            found[Cell(**plain["cell"])] = plain["figures"]
        except (ValueError, KeyError, TypeError) as error:
            raise FolderProblem(
                f"line {number} of {file} is damaged ({error}); remove it to measure again."
            ) from None
    return found


def measure_missing(
    cells: Sequence[Cell],
    measure: Measure,
    folder: Path,
    *,
    root: str | None,
    device: str,
    workers: int,
    report: Report,
) -> int:
    """Every cell that is not in the folder yet, written as soon as it is measured."""
    missing = [cell for cell in cells if cell not in read_lines(folder, cell.verb)]
    for number, (cell, figures) in enumerate(_each(missing, measure, root, device, workers), 1):
        _append(_file(folder, cell.verb), cell, figures)
        report(f"{number} of {len(missing)}: {_words(cell)}: {figures['accuracy']:.2f} %")
    return len(missing)


def _each(
    missing: Sequence[Cell], measure: Measure, root: str | None, device: str, workers: int
) -> Iterator[tuple[Cell, Figures]]:
    """In processes of their own where there are several: small networks leave a GPU idle. Noise is
    fresh in every run, so nothing depends on which process it was."""
    if workers == 1 or len(missing) < 2:
        for cell in missing:
            yield cell, measure(cell, root, device)
        return
    threads = max(1, (os.cpu_count() or 1) // workers)
    pool = ProcessPoolExecutor(workers, get_context("spawn"), torch.set_num_threads, (threads,))
    with pool:
        jobs = {pool.submit(measure, cell, root, device): cell for cell in missing}
        try:
            for job in as_completed(jobs):
                yield jobs[job], job.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _words(cell: Cell) -> str:
    chosen: Mapping[str, float | None] = {"c": cell.noise, "rate": cell.learning_rate}
    said = [f"{name} {value:.3g}" for name, value in chosen.items() if value is not None]
    words = [cell.pictures, cell.network, cell.method, f"epsilon {cell.epsilon:g}", *said]
    return ", ".join([*words, f"seed {cell.seed}"])


def _append(file: Path, cell: Cell, figures: Figures) -> None:
    line = json.dumps({"cell": asdict(cell), "figures": figures}, allow_nan=False)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "a") as lines:
            lines.write(f"{line}\n")
    except OSError as error:
        raise FolderProblem(f"{file} could not be written: {error.strerror}.") from None


def _file(folder: Path, verb: str) -> Path:
    return folder / f"{verb}.jsonl"
