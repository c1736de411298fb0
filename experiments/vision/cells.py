"""What is measured of pictures and a backbone: one cell for every budget, each a small file.

A cell is known by all that decides it but the pictures themselves, which go by the name of their
set: a folder of cells is about sets that do not change.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from statistics import fmean, stdev
from time import perf_counter
from typing import Any

from dptune.accounting import Budget
from dptune.bench.store import read, write
from dptune.data.extracted import SHIFT, Extracted
from dptune.data.preprocess import Preprocessing
from dptune.data.sources import load_data
from dptune.study.study import tune
from experiments.vision.plain_probe import plain_probe

DELTA = 1e-5


@dataclass(frozen=True)
class Shifted:
    """Accuracies on a shift, in percent, one for every repeat."""

    name: str
    accuracies: tuple[float, ...]
    worst: tuple[float, ...]  # of the worst group
    worst_group: str  # of the last repeat


@dataclass(frozen=True)
class Measured:
    """Accuracies in percent of the test rows, one for every repeat."""

    accuracies: tuple[float, ...]
    shifts: tuple[Shifted, ...]
    rows: int
    test_rows: int
    columns: int
    classes: int
    notes: tuple[str, ...]  # how rows were prepared, or which ridge was chosen
    seconds: float

    @property
    def mean(self) -> float:
        return fmean(self.accuracies)

    @property
    def spread(self) -> float | None:
        """Standard deviation, where there is more than one."""
        return stdev(self.accuracies) if len(self.accuracies) > 1 else None

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> "Measured":
        shifts = tuple(
            Shifted(s["name"], tuple(s["accuracies"]), tuple(s["worst"]), s["worst_group"])
            for s in plain["shifts"]
        )
        given = {**plain, "accuracies": tuple(plain["accuracies"]), "notes": tuple(plain["notes"])}
        return Measured(**given | {"shifts": shifts})


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

    def file(self, out: Path) -> Path:
        budget = "infinity" if self.epsilon is None else f"{self.epsilon:g}"
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()
        name = word(f"{self.pictures}_{self.backbone}_{self.kind}_{budget}_{digest[:12]}")
        return out / "cells" / f"{name}.json"

    def read(self, out: Path) -> Measured | None:
        return read(self.file(out), lambda plain: Measured.from_dict(plain["measured"]))

    def write(self, out: Path, measured: Measured) -> None:
        plain = {"cell": asdict(self), "measured": asdict(measured)}
        write(self.file(out), json.dumps(plain, indent=1))

    @property
    def features(self) -> str:
        """What made the rows, as a table calls it."""
        kind = "" if self.kind == "pooled" else f", {self.kind}"
        return self.backbone + kind + ("" if self.size is None else f", {self.size} px")


def cells_in(out: Path) -> dict[Cell, Measured]:
    """All that were measured, whenever that was."""
    found = {}
    for file in sorted((out / "cells").glob("*.json")):
        pair = read(
            file, lambda plain: (_cell(plain["cell"]), Measured.from_dict(plain["measured"]))
        )
        if pair is not None:
            found[pair[0]] = pair[1]
    return found


def _cell(plain: Mapping[str, Any]) -> Cell:
    return Cell(**{**plain, "shifts": tuple(plain["shifts"])})


def word(text: str) -> str:
    """As a part of a file's name."""
    return re.sub(r"[^\w.+-]+", "-", text)


def measure(cell: Cell, folder: Path, device: str) -> Measured:
    """The cell, from a folder of features."""
    began = perf_counter()
    data = _data(str(folder))
    test, by_shift, notes = (_plain if cell.epsilon is None else _paid)(cell, data, device)
    return Measured(
        accuracies=test,
        shifts=by_shift,
        rows=data.count,
        test_rows=Extracted.read(folder).parts["test"].rows,
        columns=data.facts.columns,
        classes=len(data.classes),
        notes=notes,
        seconds=perf_counter() - began,
    )


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
