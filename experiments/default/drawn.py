"""How good the default is on tables that nobody picked: whole studies, and single runs at multiples
of what the law of best noise says."""

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from dptune.accounting import Budget
from dptune.bench.harness import Report, in_parts, outline_of, parts, run_method
from dptune.bench.tasks import Task, load_task
from dptune.search.linear_scaling import LinearScaling
from dptune.search.random_search import RandomSearch
from experiments import lines
from experiments.law.multiples import Prepared
from experiments.lines import Figures
from experiments.sets import files

VERB = "drawn"
BUDGETS, DELTA = (0.3, 1.0, 8.0), 1e-5
ROOT = 2**0.5
MULTIPLES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1 / ROOT, 1, ROOT, 2, 4)
LAW = MULTIPLES.index(1)
PREPARATIONS, RUNS, SETTINGS, STUDIES = 6, 6, 24, 8


@dataclass(frozen=True)
class Cell:
    """A table at one budget."""

    table: str
    epsilon: float
    verb: str = VERB


def measure_all(folder: Path, out: Path, device: str, workers: int, report: Report) -> int:
    """Every table at every budget that is not there yet, the largest first."""
    tables = sorted(folder.glob("*.npz"), key=lambda file: (-file.stat().st_size, file.stem))
    cells = [Cell(file.stem, epsilon) for file in tables for epsilon in BUDGETS]
    # Before processes start, which take this from here: one thread each, also where scipy adds up.
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return lines.measure_missing(
        cells,
        measure,
        out,
        lambda cell, found: f"{cell.table}, {cell.epsilon:g}: {fmean(found['default']):.2f} %",
        root=str(folder),
        device=device,
        workers=workers,
        report=report,
    )


def measure(cell: Cell, root: str | None, device: str) -> Figures:
    path = Path(root or ".") / f"{cell.table}.npz"
    arrays, task = files.load(path), load_task(str(path), device=device)
    budget = Budget(cell.epsilon, DELTA)
    whole = run_method(task, LinearScaling(), budget, STUDIES, lambda _: None)
    rows, columns = arrays["X_train"].shape
    most = np.bincount(arrays["y_train"]).argmax()
    return {
        "target": str(arrays["target"]),
        "rows": rows,
        "columns": columns,
        "classes": task.outputs,
        "majority": 100 * float(np.mean(arrays["y_test"] == most)),
        "regression": regression(arrays),
        "default": whole.accuracies,
        "parts": [int(part.sum()) for part in parts(task)],
        "prepared": [single_runs(task, budget, seed) for seed in range(PREPARATIONS)],
    }


def single_runs(task: Task, budget: Budget, seed: int) -> dict[str, Any]:
    """Of every plan the accuracy on each part of the test rows, on rows that are prepared once."""
    made = Prepared.of(task, budget, seed)
    space, draws = outline_of(task, RandomSearch(), budget, seed).space, np.random.default_rng(seed)
    noises = [multiple * made.law for multiple in MULTIPLES] + [1.0]
    plans = [made.at(noise) for noise in noises for _ in range(RUNS)]
    plans += [made.plan(space.draw(draws)) for _ in range(SETTINGS)]
    right = in_parts(made.engine, made.rows, plans).round(3)
    fixed = right[:-SETTINGS].reshape(len(noises), RUNS, -1).tolist()
    return {
        "noise": made.law,
        "averaged": made.averaged,
        "multiples": fixed[:-1],
        "unit noise": fixed[-1],
        "random": right[-SETTINGS:].tolist(),
    }


def regression(arrays: Mapping[str, Any]) -> float:
    """Test accuracy in percent of logistic regression without privacy."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(arrays["X_train"].astype(float))
    rows, new = (scaler.transform(arrays[name].astype(float)) for name in ("X_train", "X_test"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may not be done after so many steps, or nearly so
        model = LogisticRegression(C=1.0, max_iter=1000).fit(rows, arrays["y_train"])
    return 100 * float(model.score(new, arrays["y_test"]))
