"""Accuracy over learning rates and steps: maps, and how far from the best r costs how much."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dptune.accounting import Budget
from dptune.bench.outcome import Runs
from dptune.bench.tables import Table
from dptune.plan import TrainPlan
from experiments.charts import Heat, Picture, Plot, Series
from experiments.paper.experiment import Result
from experiments.paper.lab import DELTA, Lab, priced
from experiments.paper.setting import RECIPE, natural

_FACTORS = ((1.5, "up to 1.5"), (3.0, "1.5 to 3"), (10.0, "3 to 10"), (math.inf, "above 10"))
_HIDDEN = (0.05, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9)  # in tables only: pictures have to end
_CELL = {
    "epsilon": "g",
    "learning rate": "g",
    "steps": "d",
    "r": ".4g",
    "c": ".3g",
    "accuracy": ".2f",
    "spread": ".2f",
}


def _grid(lab: Lab, epsilon: float) -> list[tuple[TrainPlan, Runs]]:
    """Every learning rate with every number of steps, the latter outside."""
    source = natural(lab.source)
    task, budget = lab.task(source), Budget(epsilon, DELTA)
    plans = [
        replace(priced(task, budget, steps, **RECIPE), learning_rate=rate)
        for steps in lab.effort.step_counts
        for rate in lab.effort.rates
    ]
    return list(zip(plans, lab.runs(source, plans), strict=True))


def _best(cells: list[tuple[TrainPlan, Runs]]) -> tuple[TrainPlan, Runs]:
    return max(cells, key=lambda cell: cell[1].mean)


def _row(epsilon: float, plan: TrainPlan, runs: Runs) -> list[object]:
    return [
        epsilon,
        plan.learning_rate,
        plan.steps,
        plan.total_step_size,
        plan.weight_noise,
        runs.mean,
        runs.spread,
    ]


def heatmaps(lab: Lab) -> Result:
    best, every, panels = [], [], []
    for epsilon in lab.effort.epsilons:
        cells = _grid(lab, epsilon)
        every += [_row(epsilon, *cell) for cell in cells]
        best.append(_row(epsilon, *_best(cells)))
        if epsilon in _HIDDEN:
            continue
        means = np.reshape([runs.mean for _, runs in cells], (-1, len(lab.effort.rates)))
        panels.append(
            Heat(
                f"epsilon {epsilon:g}",
                "learning rate",
                "steps",
                [f"{rate:g}" for rate in lab.effort.rates],
                [f"{steps}" for steps in lab.effort.step_counts],
                means.tolist(),
                "test accuracy (%)",
            )
        )
    return Result(
        Table(_CELL, best),
        Picture(
            f"{lab.task(lab.source).name}: mean accuracy of {lab.repeats} runs by learning rate "
            "and steps (best framed)",
            panels,
        ),
        details=Table(_CELL, every),
        notes=(
            "The table has the best field of each map; all fields are in the CSV file, and some "
            "of the maps in the picture. The largest r of the grid is 100.",
        ),
    )


def scatter(lab: Lab) -> Result:
    rows: list[list[object]] = []
    every: list[list[object]] = []
    panels = []
    measures: tuple[tuple[str, str, Callable[[TrainPlan], float]], ...] = (
        ("r", "learning rate × steps", lambda plan: plan.total_step_size),
        ("r with momentum", "how far momentum really moves", lambda plan: plan.displacement),
    )
    found = {epsilon: _grid(lab, epsilon) for epsilon in lab.effort.epsilons}
    for name, meaning, measure in measures:
        series = []
        for epsilon, cells in found.items():
            top, top_runs = _best(cells)
            ratios = [measure(plan) / measure(top) for plan, _ in cells]
            gaps = [top_runs.mean - runs.mean for _, runs in cells]
            if epsilon not in _HIDDEN:
                series.append(Series(f"epsilon {epsilon:g}", ratios, gaps, line=False))
            every += [
                [name, *_row(epsilon, *cell), ratio, gap]
                for cell, ratio, gap in zip(cells, ratios, gaps, strict=True)
            ]
            rows += [[name, epsilon, *row] for row in _by_distance(ratios, gaps)]
        panels.append(
            Plot(
                f"{name}: {meaning}",
                f"{name} / its value at the best setting",
                "points of test accuracy below the best setting",
                series,
                xlog=True,
            )
        )
    return Result(
        Table(
            {
                "measured by": "",
                "epsilon": "g",
                "factor from the best": "",
                "settings": "d",
                "median gap": ".2f",
                "largest gap": ".2f",
            },
            rows,
        ),
        Picture(
            f"{lab.task(lab.source).name}: distance from the best r, and what it costs", panels
        ),
        details=Table({"measured by": "", **_CELL, "factor": ".4g", "gap": ".2f"}, every),
        notes=(
            "The best setting is the best of the grid by the same runs, so gaps are a little too "
            "large; every setting is in the CSV file.",
        ),
    )


def _by_distance(ratios: list[float], gaps: list[float]) -> list[list[object]]:
    """Gaps of the settings within some factors of the best one."""
    distance = np.exp(np.abs(np.log(ratios)))
    rows: list[list[object]] = []
    low = 0.0
    for high, label in _FACTORS:
        inside = np.asarray(gaps)[(distance > low) & (distance <= high)]
        if len(inside):
            rows.append([label, len(inside), float(np.median(inside)), float(inside.max())])
        low = high
    return rows
