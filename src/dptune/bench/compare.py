"""Methods side by side: accuracy, spread, price, time, and how much of the gap between random
search and the oracle each closes."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dptune import validate
from dptune.accounting import Budget
from dptune.bench.harness import Report, outline_of, run_method, run_oracle
from dptune.bench.outcome import ORACLE, Outcome, error_reduction
from dptune.bench.processes import side_by_side
from dptune.bench.store import read, write
from dptune.bench.tables import Table
from dptune.bench.tasks import Task, identity, load_task
from dptune.errors import DptuneError, InvalidInput
from dptune.plain_data import read_json
from dptune.search.base import SearchMethod
from dptune.search.methods import METHODS
from dptune.search.paper_line import PaperLine
from dptune.search.random_search import RandomSearch
from dptune.study.config import search_from
from dptune.version import __version__

DEFAULT_METHODS = (*METHODS, ORACLE)
# The authors' trials for a total of epsilon 1; for other totals in proportion.
_PAPER_SHARES = (0.05, 0.1)
# Every RERR is divided by the mean of settings drawn at random, which differ by many points.
DRAWS = 5

_COLUMNS = (  # heading, name in a row, format
    ("task", "task", ""),
    ("epsilon", "epsilon", "g"),
    ("delta", "delta", "g"),
    ("method", "method", ""),
    ("accuracy", "mean", ".2f"),
    ("standard error", "error", ".2f"),
    ("spread", "spread", ".2f"),
    ("RERR", "rerr", ".1f"),
    ("below the oracle", "below_oracle", ".2f"),
    ("epsilon spent", "spent_epsilon", ".4f"),
    ("compute s", "compute_seconds", ".1f"),
    ("wall s", "seconds", ".1f"),
    ("repeats", "repeats", "d"),
)


@dataclass(frozen=True)
class Cell:
    """One method on one task with one budget: what is measured, and measured again only if its
    file is not there, which another version of dptune does not share."""

    source: str
    rows: str  # what they are, whatever the source is called
    method: str
    budget: Budget
    repeats: int
    device: str

    def file(self, out: Path) -> Path:
        task, method = (
            "".join(c if c.isalnum() or c == "-" else "-" for c in text)
            for text in (Path(self.source).name, self.method)
        )
        rows = hashlib.sha256(f"{self.rows} {__version__}".encode()).hexdigest()[:8]
        budget = f"{self.budget.epsilon:g}_{self.budget.delta:g}"
        name = f"{task}_{rows}_{method}_{budget}_{self.repeats}"
        return out / "cells" / f"{name}.json"

    def measure(self, report: Report) -> Outcome:
        task = _task(self.source, self.rows, self.device)
        if self.method == ORACLE:
            return run_oracle(task, self.budget, self.repeats, report)
        method = method_from(self.method, self.budget)
        times = self.repeats * (DRAWS if method == RandomSearch() else 1)
        return run_method(task, method, self.budget, times, report, self.method)


def compare(
    sources: Sequence[str],
    methods: Sequence[str],
    epsilons: Sequence[float],
    *,
    delta: float,
    repeats: int,
    out: Path,
    device: str,
    report: Report,
    workers: int = 1,
) -> list[dict[str, Any]]:
    """One row for every task, budget and method. What is in `out` already is not run again.

    `workers` processes measure at the same time, each with its share of the cores.
    """
    repeats = validate.whole(2, repeats=repeats)
    workers = validate.whole(1, at_most=1024, workers=workers)
    budgets = [Budget(epsilon, delta) for epsilon in epsilons]
    cells = [
        Cell(source, rows, method, budget, repeats, device)
        for source, rows in [(source, identity(source)) for source in sources]
        for budget in budgets
        for method in methods
    ]
    for cell in cells:  # what cannot be done is refused before anything is measured
        _must_be_possible(cell)
    found = {cell: read(cell.file(out), Outcome.from_dict) for cell in cells}
    missing = [cell for cell, outcome in found.items() if outcome is None]
    for cell, outcome in _measured(missing, workers, report):
        write(cell.file(out), json.dumps(outcome.to_dict()))
        found[cell] = outcome
    outcomes = [outcome for outcome in found.values() if outcome is not None]
    rows = [_row(outcome, outcomes) for outcome in outcomes]
    table = as_table(rows)
    write(out / "compare.json", json.dumps(rows, indent=2))
    write(out / "compare.csv", table.csv())
    write(out / "compare.md", table.markdown())
    return rows


def _must_be_possible(cell: Cell) -> None:
    task = _task(cell.source, cell.rows, cell.device)
    if cell.method == ORACLE:
        return
    asked = method_from(cell.method, cell.budget)
    try:
        # Its price is worked out here.
        outline_of(task, asked, cell.budget, 0).payments  # noqa: B018
    except DptuneError as error:
        raise InvalidInput(
            f"{cell.method} cannot be run on {task.name} at epsilon {cell.budget.epsilon:g}: "
            f"{error}"
        ) from None


def method_from(text: str, budget: Budget) -> SearchMethod:
    """The method called `text`: a name, and options after colons, as in random-search:trials=3."""
    name, *given = text.split(":")
    options: dict[str, Any] = {}
    for option in given:
        key, _, value = option.partition("=")
        try:
            options[key] = read_json(value, key)
        except InvalidInput:
            options[key] = value
    validate.one_of((*METHODS, ORACLE), method=name)
    if name == PaperLine.name:
        options.setdefault("epsilons", [share * budget.epsilon for share in _PAPER_SHARES])
    return search_from({"method": name, **options})


def _measured(
    cells: Sequence[Cell], workers: int, report: Report
) -> Iterator[tuple[Cell, Outcome]]:
    """Each cell with its outcome, as soon as it has one."""
    if workers == 1 or len(cells) < 2:
        for cell in cells:
            yield cell, cell.measure(report)
        return
    done = side_by_side(_measured_in_silence, cells, workers, preload=__name__)
    for number, (cell, outcome) in enumerate(done, start=1):
        report(
            f"{number} of {len(cells)} measured: {Path(cell.source).stem}, {cell.method}, "
            f"epsilon {cell.budget.epsilon:g}"
        )
        yield cell, outcome


@lru_cache(maxsize=1)  # cells of one task come one after another
def _task(source: str, rows: str, device: str) -> Task:
    """The task of `source`, whose rows were `rows` when it was asked for."""
    return load_task(source, device=device)


def _measured_in_silence(cell: Cell) -> Outcome:
    return cell.measure(lambda text: None)


def as_table(rows: Sequence[dict[str, Any]]) -> Table:
    """The rows as people read them."""
    paid = [
        {**row, "spent_epsilon": "unpaid" if row["spent_epsilon"] is None else row["spent_epsilon"]}
        for row in rows
    ]
    return Table(
        {heading: style for heading, _, style in _COLUMNS},
        [[row[name] for _, name, _ in _COLUMNS] for row in paid],
    )


def _row(outcome: Outcome, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    beside = {
        other.method: other
        for other in outcomes
        if (other.task, other.epsilon) == (outcome.task, outcome.epsilon)
    }
    oracle, random = beside.get(ORACLE), beside.get(RandomSearch.name)
    return {
        **outcome.to_dict(),
        "mean": outcome.mean,
        "spread": outcome.spread,
        "error": outcome.error,
        "rerr": error_reduction(outcome, random, oracle),
        "below_oracle": None if oracle is None else oracle.mean - outcome.mean,
        "repeats": len(outcome.accuracies),
    }
