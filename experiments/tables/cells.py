"""Which cells are measured, and where their lines lie."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dptune import validate
from dptune.accounting import Budget
from experiments import lines
from experiments.lines import Figures as Figures
from experiments.tables.sets import table_of

DELTA = 1e-5
EPSILONS = "0.3,1,3,8"
PLAIN, BY_HAND, ORACLE = "no-privacy", "by-hand", "by-hand-oracle"
DECLARED, RANGES_PAID, CATEGORIES_PAID = "declared", "ranges-paid", "categories-paid"
WAYS = {
    PLAIN: "scikit-learn without privacy",
    BY_HAND: "prepared by hand, all paid",
    ORACLE: "prepared by hand, best setting for free",
    DECLARED: "one command, columns declared",
    RANGES_PAID: "one command, ranges bought",
    CATEGORIES_PAID: "one command, categories bought",
}


@dataclass(frozen=True)
class Cell:
    """One study, or one fit without privacy, which has no epsilon."""

    verb: str  # the way
    table: str
    epsilon: float | None
    delta: float
    seed: int


def cells_of(
    ways: Iterable[str], tables: Sequence[str], epsilons: Sequence[float], repeats: int
) -> list[Cell]:
    """One a repeat; the best setting for free repeats itself, and without privacy there is no noise
    to repeat."""
    validate.whole(1, repeats=repeats)
    for name in tables:
        table_of(name)
    for way in ways:
        validate.one_of(tuple(WAYS), way=way)
    return [
        Cell(way, name, epsilon, DELTA, seed)
        for way in ways
        for name in tables
        for epsilon in ([None] if way == PLAIN else epsilons)
        for seed in range(1 if way in (PLAIN, ORACLE) else repeats)
        if epsilon is None or Budget(epsilon, DELTA)
    ]


def read_all(folder: Path) -> dict[Cell, Figures]:
    """All that was measured, whenever that was."""
    found: dict[Cell, Figures] = {}
    for way in WAYS:
        found |= lines.read(folder, way, Cell)
    return found


def words(cell: Cell, figures: Figures) -> str:
    budget = "" if cell.epsilon is None else f", epsilon {cell.epsilon:g}, seed {cell.seed}"
    return f"{cell.table}, {cell.verb}{budget}: {figures['accuracy']:.2f} %"
