"""What was measured, a line of JSON each: a cell, which says all that decides it, and its figures.
Cells that are there are not measured again."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import torch

from dptune.bench.harness import Report
from dptune.errors import FolderProblem

Figures = dict[str, Any]
AnyCell = TypeVar("AnyCell", bound=Any)  # a frozen dataclass of plain values, with a verb
Measure = Callable[[AnyCell, str | None, str], Figures]


def read(file: Path, kind: type[AnyCell]) -> dict[AnyCell, Figures]:
    """All that was measured, whenever that was."""
    if not file.exists():
        return {}
    found: dict[AnyCell, Figures] = {}
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        try:
            plain = json.loads(line)
            found[kind(**plain["cell"])] = plain["figures"]
        except (ValueError, KeyError, TypeError) as error:
            raise FolderProblem(
                f"line {number} of {file} is damaged ({error}); remove it to measure again."
            ) from None
    return found


def measure_missing(
    cells: Sequence[AnyCell],
    measure: Measure[AnyCell],
    file: Path,
    words: Callable[[AnyCell, Figures], str],
    *,
    root: str | None,
    device: str,
    workers: int,
    report: Report,
) -> int:
    """Every cell that is not in the file yet, written as soon as it is measured and told in
    `words`. One that fails is told too, and ends the measurement only once all others are done."""
    there = read(file, type(cells[0])) if cells else {}
    missing = [cell for cell in cells if cell not in there]
    failed: Exception | None = None
    for number, (cell, found) in enumerate(_each(missing, measure, root, device, workers), 1):
        if isinstance(found, Exception):
            failed = found
            report(f"{number} of {len(missing)}: {cell} failed: {found}")
            continue
        _append(file, cell, found)
        report(f"{number} of {len(missing)}: {words(cell, found)}")
    if failed is not None:
        raise failed
    return len(missing)


def _each(
    missing: Sequence[AnyCell],
    measure: Measure[AnyCell],
    root: str | None,
    device: str,
    workers: int,
) -> Iterator[tuple[AnyCell, Figures | Exception]]:
    """In processes of their own where there are several: small networks leave a GPU idle. Noise is
    fresh in every run, so nothing depends on which process it was."""
    if workers == 1 or len(missing) < 2:
        for cell in missing:
            yield cell, _tried(measure, cell, root, device)
        return
    threads = max(1, (os.cpu_count() or 1) // workers)
    context = get_context("forkserver")
    context.set_forkserver_preload([measure.__module__])  # once, not in every process
    pool = ProcessPoolExecutor(workers, context, torch.set_num_threads, (threads,))
    with pool:
        jobs = {pool.submit(_tried, measure, cell, root, device): cell for cell in missing}
        try:
            for job in as_completed(jobs):
                yield jobs[job], job.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _tried(
    measure: Measure[AnyCell], cell: AnyCell, root: str | None, device: str
) -> Figures | Exception:
    try:
        return measure(cell, root, device)
    except Exception as error:
        return error


def _append(file: Path, cell: AnyCell, figures: Figures) -> None:
    line = json.dumps({"cell": asdict(cell), "figures": figures}, allow_nan=False)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "a") as lines:
            lines.write(f"{line}\n")
    except OSError as error:
        raise FolderProblem(f"{file} could not be written: {error.strerror}.") from None
