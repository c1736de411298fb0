"""The sets, as fit.toml, seen.toml and kept.toml declare them.

Ranges and categories are written down there and not computed from rows; they are round numbers, but
whoever wrote them had seen the tables, which are public.
"""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dptune.errors import InvalidInput
from experiments.lines import fixed
from experiments.sets.files import FINE, Arrays, as_codes, split
from experiments.sets.readers import READY, SEED, TABLES

ROLES = ("fit", "seen", "kept")
_SEED_AS_THEY_COME, _SEED_SMALL = 20261118, 5
_TESTED_OF_SMALL = 4000


@dataclass(frozen=True)
class PublicSet:
    """How a set becomes numbers. With `ranges` it is a table whose numbers are mapped to [-1, 1]
    and clipped: `categories` become one column of 0 and 1 a value, a missing number is put in the
    middle, and those of the columns in `gaps` are marked in a column of their own. Without, a table
    is taken as it comes. Rows of other values of the label than `classes` are left out."""

    name: str
    role: str
    source: str
    task: str
    read: str
    label: str = ""  # else the last column
    over: float | None = None  # two classes: is the label above this?
    classes: tuple[Any, ...] = ()
    drop: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    most_rows: int | None = None
    ranges: tuple[tuple[str, float, float], ...] = ()
    categories: tuple[tuple[Any, ...], ...] = ()

    @property
    def file(self) -> str:
        return f"{self.role}/{self.name}.npz"

    def declared(self) -> str:
        reader, *_ = self.read.split()
        if reader in READY:
            return READY[reader][1]
        if not self.ranges:
            return "as they come, unscaled"
        spans = [f"{name} {low:g} to {high:g}" for name, low, high in self.ranges]
        values = [f"{name} ({len(each)} values)" for name, *each in self.categories]
        marked = [f"marks for missing {', '.join(self.gaps)}"] if self.gaps else []
        return "; ".join([", ".join(spans), *values, *marked])

    def build(self, folder: Path) -> Arrays:
        reader, *words = self.read.split()
        if reader in READY:
            return READY[reader][0](folder, *words)
        table = TABLES[reader](folder, *words)
        return self._mapped(table) if self.ranges else self._as_it_comes(table)

    def small(self, folder: Path, train: int) -> Arrays | None:
        """A table of ranges without them, as it comes, cut to some rows; a missing number is the
        median. None where rows are too few."""
        reader, *words = self.read.split()
        table, labels = self._told(TABLES[reader](folder, *words))
        if len(table) < 1.2 * train:
            return None
        names = [name for name, _, _ in self.ranges]
        numbers = table[names].astype(float).replace([np.inf, -np.inf], np.nan)
        filled = numbers.fillna(numbers.median())
        rows = _stacked([*(filled[name] for name in names), *self._marks(table)], np.float32)
        order = np.random.default_rng(_SEED_SMALL).permutation(len(rows))
        order = order[: train + _TESTED_OF_SMALL]
        return split(rows[order], labels[order], train)

    def _mapped(self, table: pd.DataFrame) -> Arrays:
        table, labels = self._told(table)
        numbers = [
            (table[name].astype(float) - (low + high) / 2) / ((high - low) / 2)
            for name, low, high in self.ranges
        ]
        rows = np.clip(np.nan_to_num(_stacked([*numbers, *self._marks(table)], float)), -1, 1)
        order = np.random.default_rng(SEED).permutation(len(rows))[: self.most_rows]
        train = round(0.8 * len(order))
        return as_codes(rows[order], labels[order], train, FINE, np.int16)

    def _told(self, table: pd.DataFrame) -> tuple[pd.DataFrame, Any]:
        """Its rows of the known classes, and the numbers of these."""
        label, classes = table[self.label], self.classes
        if self.over is not None:
            label, classes = label > self.over, (False, True)
        known = label.isin(classes)
        numbers = {name: number for number, name in enumerate(classes)}
        return table[known], label[known].map(numbers).to_numpy()

    def _marks(self, table: pd.DataFrame) -> list[Any]:
        """Columns of yes and no: what is missing, and one a category."""
        gaps = [table[name].isna() for name in self.gaps]
        return gaps + [table[name] == value for name, *each in self.categories for value in each]

    def _as_it_comes(self, table: pd.DataFrame) -> Arrays:
        """Numbers of whatever size; a category is one column of 0 and 1 a value, or of two values
        one column. Rows in which anything is missing are left out."""
        if self.label:
            table = table.drop(columns=[*self.drop]).drop(columns="rownames", errors="ignore")
            table = table.dropna()
            label = table.pop(self.label)
            table = table.assign(label=label if self.over is None else label > self.over)
            table = table[table["label"].isin(self.classes)] if self.classes else table
        columns = []
        for name in table.columns[:-1]:
            column = table[name]
            if pd.api.types.is_numeric_dtype(column):
                columns.append(column)
                continue
            values = sorted(column.unique())
            columns += [column == value for value in values[len(values) <= 2 :]]
        rows = _stacked(columns, float).astype(np.float32)
        labels = pd.factorize(table.iloc[:, -1], sort=True)[0]
        order = np.random.default_rng(_SEED_AS_THEY_COME).permutation(len(rows))
        return split(rows[order], labels[order], round(0.8 * len(rows)))


def _stacked(columns: Iterable[Any], kind: Any) -> Any:
    return np.stack([np.asarray(column, kind) for column in columns], axis=1)


@cache
def public_sets() -> dict[str, PublicSet]:
    """All of them by name, role by role."""
    return {
        name: PublicSet(name, role, **fixed(plain))
        for role in ROLES
        for name, plain in _declared(role).items()
    }


def _declared(role: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((Path(__file__).parent / f"{role}.toml").read_text())


def set_of(name: str) -> PublicSet:
    if name not in public_sets():
        raise InvalidInput(f"there is no set called {name!r}; sets are {', '.join(public_sets())}.")
    return public_sets()[name]
