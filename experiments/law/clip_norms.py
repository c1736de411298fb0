"""Which clipping norm is best where iterates are averaged: single runs at the law's c and at half
of it for every norm, and how many points each norm gains over the smallest."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dptune.accounting import Budget
from dptune.bench.tables import Table
from dptune.bench.tasks import Task, load_task
from dptune.plan import TrainPlan
from dptune.search.law import best_noise
from dptune.study.outline import Outline
from experiments.law.best_noise import plan_at, run_plans
from experiments.pages import BENCHMARKS

NORMS = (0.1, 0.3, 0.5)
OF_THE_LAW = (0.5, 1.0)  # parts of its c
_MEASURED = BENCHMARKS / "clip-norms.jsonl"
_FEW_COLUMNS = 63  # of tables; features have more


def measure(task: Task, epsilon: float, repeats: int) -> dict[str, Any]:
    """Test accuracies of runs of all that preparing the rows leaves, by norm."""
    planned, runs = run_plans(task, Budget(epsilon, 1e-5), repeats, _plans)
    by_norm = runs.reshape(repeats, len(NORMS), len(OF_THE_LAW)).swapaxes(0, 1)
    return {
        "task": task.name,
        "columns": task.train.columns,
        "classes": task.outputs,
        "epsilon": epsilon,
        "averaged": planned.recipe.averaging == "swa",
        "accuracies": {
            str(norm): own.ravel().tolist() for norm, own in zip(NORMS, by_norm, strict=True)
        },
    }


def _plans(known: Outline) -> list[TrainPlan]:
    law = best_noise(known.schedule.final.mu, known.recipe, known.facts_by_now, None)
    return [plan_at(part * law, known, norm) for norm in NORMS for part in OF_THE_LAW]


def gains(cells: Iterable[Mapping[str, Any]]) -> Table:
    """Points over the smallest norm: mean of all budgets of a set, and of all sets of a kind."""
    kinds: dict[str, dict[str, list[list[float]]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        if cell["averaged"]:
            least, *others = (np.mean(cell["accuracies"][str(norm)]) for norm in NORMS)
            kinds[_kind(cell)][cell["task"]].append([other - least for other in others])
    rows: list[list[Any]] = []
    for kind, sets in sorted(kinds.items()):
        each = {name: np.mean(own, 0) for name, own in sorted(sets.items())}
        rows += [[name, *gain] for name, gain in each.items()]
        rows.append([f"**{kind}**: mean of {len(each)}", *np.mean(list(each.values()), 0)])
    return Table({"set": "", **{f"norm {norm:g}": "+.2f" for norm in NORMS[1:]}}, rows)


def _kind(cell: Mapping[str, Any]) -> str:
    if cell["columns"] > _FEW_COLUMNS:
        return "features"
    return "tables of two classes" if cell["classes"] == 2 else "tables of several classes"


def add(name: str, epsilons: Iterable[float], repeats: int) -> None:
    """A line for every budget."""
    task = load_task(name)
    for epsilon in epsilons:
        cell = measure(task, epsilon, repeats)
        with _MEASURED.open("a") as file:
            file.write(json.dumps(cell) + "\n")


def measured() -> Table:
    return gains(map(json.loads, _MEASURED.read_text().splitlines()))
