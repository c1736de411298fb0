"""Methods side by side: accuracy, spread, and how much of the gap to the oracle each closes.

    RERR = 100 * (1 - (oracle - method) / (oracle - random search))

is the error reduction over random search: 100 for a method that is as good as the best setting
known for free, 0 for one that is no better than a setting drawn at random.
"""

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dptune import _validate
from dptune.artifacts import write_whole
from dptune.bench.harness import Outcome, Report, run_method, run_oracle
from dptune.bench.tasks import load_task
from dptune.errors import FolderProblem
from dptune.privacy import Budget
from dptune.search.base import SearchMethod
from dptune.search.methods import METHODS
from dptune.search.paper_line import PaperLine
from dptune.search.random_search import RandomSearch

ORACLE = "oracle"
DEFAULT_METHODS = ("linear-scaling", "unit-noise", "paper-line", "random-search", ORACLE)
# The authors' trials for a total of epsilon 1; for other totals in proportion.
_PAPER_SHARES = (0.05, 0.1)
# Every RERR is divided by the mean of settings drawn at random, which differ by many points.
_DRAWS = 5


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
) -> list[dict[str, Any]]:
    """One row for every task, budget and method. What is in `out` already is not run again."""
    repeats = _validate.whole(2, repeats=repeats)
    budgets = [Budget(epsilon, delta) for epsilon in epsilons]
    for method in methods:
        _validate.one_of((*METHODS, ORACLE), method=method)
    outcomes: list[Outcome] = []
    for source in sources:
        task = None
        for budget in budgets:
            for method in methods:
                file = out / "cells" / _file_name(source, method, budget, repeats)
                found = _read(file)
                if found is None:
                    task = task or load_task(source, device=device)
                    if method == ORACLE:
                        found = run_oracle(task, budget, repeats, report)
                    else:
                        times = repeats * (_DRAWS if method == RandomSearch.name else 1)
                        found = run_method(task, _method(method, budget), budget, times, report)
                    _write(file, json.dumps(_plain(found)))
                outcomes.append(found)
    table = [_row(outcome, outcomes) for outcome in outcomes]
    _write(out / "compare.json", json.dumps(table, indent=2))
    _write(out / "compare.csv", _as_csv(table))
    _write(out / "compare.md", as_markdown(table))
    return table


def as_markdown(table: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| task | epsilon | method | accuracy | spread | RERR | below the oracle | seconds |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in table:
        rerr = "" if row["rerr"] is None else f"{row['rerr']:.1f}"
        gap = "" if row["below_oracle"] is None else f"{row['below_oracle']:.2f}"
        lines.append(
            f"| {row['task']} | {row['epsilon']:g} | {row['method']} | {row['mean']:.2f} | "
            f"{row['spread']:.2f} | {rerr} | {gap} | {row['seconds']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def _method(name: str, budget: Budget) -> SearchMethod:
    if name == PaperLine.name:
        return PaperLine(epsilons=tuple(share * budget.epsilon for share in _PAPER_SHARES))
    found: SearchMethod = METHODS[name]()
    return found


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


def _file_name(source: str, method: str, budget: Budget, repeats: int) -> str:
    task = "".join(c if c.isalnum() else "-" for c in Path(source).name)
    return f"{task}_{method}_{budget.epsilon:g}_{budget.delta:g}_{repeats}.json"


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
