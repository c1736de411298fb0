"""What was measured, a line of JSON each: a cell, which says all that decides it, and its figures.
A verb has a file. Cells that are there are not measured again."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from dptune.bench.harness import Report
from dptune.bench.processes import side_by_side
from dptune.errors import FolderProblem

Figures = dict[str, Any]
AnyCell = TypeVar("AnyCell", bound=Any)  # a frozen dataclass of plain values, with a verb
Measure = Callable[[AnyCell, str | None, str], Figures]


def read(folder: Path, verb: str, kind: type[AnyCell]) -> dict[AnyCell, Figures]:
    """All that was measured, whenever that was."""
    file = _file(folder, verb)
    if not file.exists():
        return {}
    found: dict[AnyCell, Figures] = {}
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        try:
            plain = json.loads(line)
            found[kind(**fixed(plain["cell"]))] = plain["figures"]
        except (ValueError, KeyError, TypeError) as error:
            raise FolderProblem(
                f"line {number} of {file} is damaged ({error}); remove it to measure again."
            ) from None
    return found


def measure_missing(
    cells: Sequence[AnyCell],
    measure: Measure[AnyCell],
    folder: Path,
    words: Callable[[AnyCell, Figures], str],
    *,
    root: str | None,
    device: str,
    workers: int,
    report: Report,
) -> int:
    """Every cell that is not in its verb's file in the folder yet, written as soon as it is
    measured and told in `words`; how many those are. One that fails is told too, and ends the
    measurement only once all others are done."""
    there: set[AnyCell] = set()
    for verb in {cell.verb for cell in cells}:
        there |= read(folder, verb, type(cells[0])).keys()
    missing = [cell for cell in cells if cell not in there]
    failed: Exception | None = None
    work = partial(_tried, measure, root, device)
    measured = side_by_side(work, missing, workers, preload=measure.__module__)
    for number, (cell, found) in enumerate(measured, 1):
        if isinstance(found, Exception):
            failed = found
            report(f"{number} of {len(missing)}: {cell} failed: {found}")
            continue
        add(folder, cell, found)
        report(f"{number} of {len(missing)}: {words(cell, found)}")
    if failed is not None:
        raise failed
    return len(missing)


def _tried(
    measure: Measure[AnyCell], root: str | None, device: str, cell: AnyCell
) -> Figures | Exception:
    try:
        return measure(cell, root, device)
    except Exception as error:
        return error


def _file(folder: Path, verb: str) -> Path:
    return folder / f"{verb}.jsonl"


def fixed(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a frozen dataclass: JSON and TOML have lists for tuples."""
    return {name: _tuples(value) for name, value in plain.items()}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def add(folder: Path, cell: AnyCell, figures: Figures) -> None:
    """One more line."""
    file = _file(folder, cell.verb)
    line = json.dumps({"cell": asdict(cell), "figures": figures}, allow_nan=False)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "a") as lines:
            lines.write(f"{line}\n")
    except OSError as error:
        raise FolderProblem(f"{file} could not be written: {error.strerror}.") from None
