"""Methods side by side: accuracy, spread, and how much of the gap to the oracle each closes.

    RERR = 100 * (1 - (oracle - method) / (oracle - random search))

is the error reduction over random search: 100 for a method that is as good as the best setting
known for free, 0 for one that is no better than a setting drawn at random.
"""

import csv
import io
import json
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from dptune import _validate, rounding
from dptune.artifacts import write_whole
from dptune.bench.harness import Outcome, Report, run_method, run_oracle
from dptune.bench.tasks import Task, load_task
from dptune.config import search_from
from dptune.errors import FolderProblem
from dptune.privacy import Budget
from dptune.search.base import SearchMethod
from dptune.search.methods import METHODS
from dptune.search.paper_line import PaperLine
from dptune.search.random_search import RandomSearch

ORACLE = "oracle"
DEFAULT_METHODS = (*METHODS, ORACLE)
# The authors' trials for a total of epsilon 1; for other totals in proportion.
_PAPER_SHARES = (0.05, 0.1)
# Every RERR is divided by the mean of settings drawn at random, which differ by many points.
_DRAWS = 5


@dataclass(frozen=True)
class Cell:
    """One method on one task with one budget: what is measured, and measured again only if its
    file is not there."""

    source: str
    method: str
    budget: Budget
    repeats: int
    device: str

    def file(self, out: Path) -> Path:
        task, method = (
            "".join(c if c.isalnum() or c == "-" else "-" for c in text)
            for text in (Path(self.source).name, self.method)
        )
        name = f"{task}_{method}_{self.budget.epsilon:g}_{self.budget.delta:g}_{self.repeats}"
        return out / "cells" / f"{name}.json"

    def measure(self, report: Report) -> Outcome:
        task = _task(self.source, self.device)
        if self.method == ORACLE:
            return run_oracle(task, self.budget, self.repeats, report)
        method = method_from(self.method, self.budget)
        times = self.repeats * (_DRAWS if method == RandomSearch() else 1)
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
    repeats = _validate.whole(2, repeats=repeats)
    workers = _validate.whole(1, at_most=1024, workers=workers)
    budgets = [Budget(epsilon, delta) for epsilon in epsilons]
    for budget in budgets:
        for method in methods:
            if method != ORACLE:
                method_from(method, budget)
    for source in sources:
        _task(source, device)  # what cannot be loaded is refused before anything is measured
    cells = [
        Cell(source, method, budget, repeats, device)
        for source in sources
        for budget in budgets
        for method in methods
    ]
    missing = [cell for cell in cells if _read(cell.file(out)) is None]
    for cell, outcome in _measured(missing, workers, report):
        _write(cell.file(out), json.dumps(_plain(outcome)))
    found = [_read(cell.file(out)) for cell in cells]
    outcomes = [outcome for outcome in found if outcome is not None]
    table = [_row(outcome, outcomes) for outcome in outcomes]
    _write(out / "compare.json", json.dumps(table, indent=2))
    _write(out / "compare.csv", _as_csv(table))
    _write(out / "compare.md", as_markdown(table))
    return table


def method_from(text: str, budget: Budget) -> SearchMethod:
    """The method called `text`: a name, and options after colons, as in random-search:trials=3."""
    name, *given = text.split(":")
    options: dict[str, Any] = {}
    for option in given:
        key, _, value = option.partition("=")
        try:
            options[key] = json.loads(value)
        except json.JSONDecodeError:
            options[key] = value
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
    threads = max(1, torch.get_num_threads() // workers)
    pool = ProcessPoolExecutor(workers, get_context("spawn"), torch.set_num_threads, (threads,))
    with pool:
        jobs = {pool.submit(cell.measure, _in_silence): cell for cell in cells}
        try:
            for number, job in enumerate(as_completed(jobs), start=1):
                cell = jobs[job]
                report(
                    f"{number} of {len(cells)} measured: {Path(cell.source).stem}, {cell.method}, "
                    f"epsilon {cell.budget.epsilon:g}"
                )
                yield cell, job.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@lru_cache(maxsize=1)  # cells of one task come one after another
def _task(source: str, device: str) -> Task:
    return load_task(source, device=device)


def _in_silence(text: str) -> None:
    pass


def as_markdown(table: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| task | epsilon | method | accuracy | spread | RERR | below the oracle | epsilon spent "
        "| compute s | wall s |",
        "| --- " * 10 + "|",
    ]
    for row in table:
        rerr = "" if row["rerr"] is None else f"{row['rerr']:.1f}"
        gap = "" if row["below_oracle"] is None else f"{row['below_oracle']:.2f}"
        spent = "unpaid" if row["spent_epsilon"] is None else rounding.cost(row["spent_epsilon"])
        lines.append(
            f"| {row['task']} | {row['epsilon']:g} | {row['method']} | {row['mean']:.2f} | "
            f"{row['spread']:.2f} | {rerr} | {gap} | {spent} | "
            f"{row['compute_seconds']:.1f} | {row['seconds']:.1f} |"
        )
    return "\n".join(lines) + "\n"


def _row(outcome: Outcome, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    beside = {
        other.method: other.mean
        for other in outcomes
        if (other.task, other.epsilon) == (outcome.task, outcome.epsilon)
    }
    oracle, random = beside.get(ORACLE), beside.get("random-search")
    gap = None if oracle is None else oracle - outcome.mean
    rerr = None
    if gap is not None and oracle is not None and random is not None and oracle > random:
        rerr = 100 * (1 - gap / (oracle - random))
    return {
        **_plain(outcome),
        "mean": outcome.mean,
        "spread": outcome.spread,
        "error": outcome.spread / math.sqrt(len(outcome.accuracies)),
        "rerr": rerr,
        "below_oracle": gap,
        "repeats": len(outcome.accuracies),
    }


def _plain(outcome: Outcome) -> dict[str, Any]:
    unpaid = math.isinf(outcome.spent_epsilon)
    return {**asdict(outcome), "spent_epsilon": None if unpaid else outcome.spent_epsilon}


def _as_csv(table: Sequence[dict[str, Any]]) -> str:
    hidden = ("accuracies", "total_step_sizes")
    text = io.StringIO()
    names = [name for name in table[0] if name not in hidden] if table else []
    writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue()


def _read(file: Path) -> Outcome | None:
    if not file.exists():
        return None
    try:
        plain = json.loads(file.read_text())
        spent = math.inf if plain["spent_epsilon"] is None else plain["spent_epsilon"]
        outcome = Outcome(**{**plain, "spent_epsilon": spent})
        return replace(outcome, accuracies=tuple(outcome.accuracies))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FolderProblem(f"{file} is damaged ({error}); remove it to measure again.") from None


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, text)
    except OSError as error:
        raise FolderProblem(f"{file} could not be written: {error.strerror}.") from None


if __name__ == "__main__":  # for machines without the command line's packages
    import sys

    given = dict(pair.split("=", 1) for pair in sys.argv[1:])
    rows = compare(
        given["data"].split(","),
        given.get("methods", ",".join(DEFAULT_METHODS)).split(","),
        [float(epsilon) for epsilon in given.get("epsilon", "1").split(",")],
        delta=float(given.get("delta", "1e-5")),
        repeats=int(given.get("repeats", "20")),
        out=Path(given["out"]),
        device=given.get("device", "cuda"),
        report=lambda text: print(text, flush=True),
    )
    print(as_markdown(rows))
