"""What is measured of pictures and a backbone: one cell for every budget.

A cell is known by all that decides it but the pictures themselves, which go by the name of their
set: a folder of cells is about sets that do not change.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

from dptune.accounting import Budget
from dptune.bench.outcome import Runs
from dptune.data.extracted import SHIFT, Extracted
from dptune.data.preprocess import Preprocessing
from dptune.data.sources import load_data
from dptune.study.study import tune
from experiments import lines
from experiments.lines import Figures
from experiments.vision.plain_probe import plain_probe

VERB, DELTA = "vision", 1e-5


@dataclass(frozen=True)
class Shifted:
    """Accuracies on a shift, in percent, one for every repeat."""

    name: str
    accuracies: tuple[float, ...]
    worst: tuple[float, ...]  # of the worst group
    worst_group: str  # of the last repeat


@dataclass(frozen=True)
class Measured(Runs):
    """Of the test rows, and what else there is to say."""

    shifts: tuple[Shifted, ...]
    rows: int
    test_rows: int
    columns: int
    classes: int
    notes: tuple[str, ...]  # how rows were prepared, or which ridge was chosen
    seconds: float

    @staticmethod
    def from_figures(plain: Mapping[str, Any]) -> "Measured":
        shifts = tuple(Shifted(**lines.fixed(shift)) for shift in plain["shifts"])
        return Measured(**lines.fixed(plain) | {"shifts": shifts})


@dataclass(frozen=True)
class Cell:
    """One set, one backbone, one budget; no epsilon is without privacy."""

    pictures: str  # the set, by its name or the name of its file
    backbone: str
    kind: str
    size: int | None  # None: the backbone's own
    limit: int | None  # pictures of every part at most
    made_by: str  # digest of all that features depend on besides the pictures
    shifts: tuple[str, ...]
    epsilon: float | None
    repeats: int
    verb: str = VERB

    @property
    def features(self) -> str:
        """What made the rows, as a table calls it."""
        kind = "" if self.kind == "pooled" else f", {self.kind}"
        return self.backbone + kind + ("" if self.size is None else f", {self.size} px")


def cells_in(out: Path) -> dict[Cell, Measured]:
    """All that were measured, whenever that was."""
    found = lines.read(out, VERB, Cell)
    return {cell: Measured.from_figures(figures) for cell, figures in found.items()}


def folder_of(cell: Cell, out: Path) -> Path:
    """Where its features are."""
    parts = [cell.pictures, cell.backbone, "" if cell.kind == "pooled" else cell.kind]
    parts += ["" if number is None else str(number) for number in (cell.size, cell.limit)]
    return out / "features" / word("-".join(part for part in parts if part))


def said(cell: Cell, figures: Figures) -> str:
    budget = "infinity" if cell.epsilon is None else f"{cell.epsilon:g}"
    return (
        f"{cell.pictures}, {cell.features}, epsilon {budget}: "
        f"{fmean(figures['accuracies']):.2f} % in {figures['seconds']:.0f} s"
    )


def word(text: str) -> str:
    """As a part of a file's name."""
    return re.sub(r"[^\w.+-]+", "-", text)


def measure(cell: Cell, root: str | None, device: str) -> Figures:
    """The cell, from the features in this folder."""
    began = perf_counter()
    folder = folder_of(cell, Path(root or "."))
    data = _data(str(folder))
    test, by_shift, notes = (_plain if cell.epsilon is None else _paid)(cell, data, device)
    found = Measured(
        accuracies=test,
        shifts=by_shift,
        rows=data.count,
        test_rows=Extracted.read(folder).parts["test"].rows,
        columns=data.facts.columns,
        classes=len(data.classes),
        notes=notes,
        seconds=perf_counter() - began,
    )
    return asdict(found)


@lru_cache(maxsize=1)  # cells of one folder come one after another
def _data(folder: str) -> Any:
    parts = Extracted.read(Path(folder)).parts
    shifts = [str(Path(folder) / name) for name in parts if name.startswith(SHIFT)]
    return load_data(folder, test=folder, shifts=shifts)


Found = tuple[tuple[float, ...], tuple[Shifted, ...], tuple[str, ...]]


def _paid(cell: Cell, data: Any, device: str) -> Found:
    """Studies with everything paid, as anybody would run them."""
    assert cell.epsilon is not None
    budget = Budget(cell.epsilon, DELTA)
    results = [tune(data, budget=budget, seed=seed, device=device) for seed in range(cell.repeats)]
    test = tuple(_percent(result.test_accuracy) for result in results)
    shifts = []
    for several in zip(*(result.shifts for result in results), strict=True):
        worst = [shift.worst or shift for shift in several]
        shifts.append(
            Shifted(
                several[0].name,
                tuple(_percent(shift.accuracy) for shift in several),
                tuple(_percent(group.accuracy) for group in worst),
                worst[-1].name,
            )
        )
    return test, tuple(shifts), results[-1].preparation


def _plain(cell: Cell, data: Any, device: str) -> Found:
    """Without privacy there is nothing to repeat."""
    unit = Preprocessing(unit_rows=True)
    groups = [(shift, data.shifted_rows(shift, unit, device)) for shift in data.shifts]
    others = [data.test_rows(unit, device)]
    others += [rows for _, by_group in groups for rows in by_group.values()]
    train = data.unprotected_rows(unit, device=device)
    ridge, (test, *rest) = plain_probe(train, others, len(data.classes))
    shifts, shares = [], iter(rest)
    for shift, by_group in groups:
        found = {name: (next(shares), rows.count) for name, rows in by_group.items()}
        right = sum(share * count for share, count in found.values())
        worst = min(found, key=lambda name: found[name][0])
        count = sum(count for _, count in found.values())
        shifts.append(
            Shifted(shift, (_percent(right / count),), (_percent(found[worst][0]),), worst)
        )
    return (_percent(test),), tuple(shifts), (f"ridge {ridge:g}",)


def _percent(share: float | None) -> float:
    assert share is not None
    return 100 * share
