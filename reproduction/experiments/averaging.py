"""Averages of the iterates, and how far from their start the weights end."""

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from dptune.accounting import Budget
from dptune.bench.harness import fit, tested
from dptune.bench.outcome import Runs
from dptune.bench.tables import Table
from dptune.bench.tasks import Task
from dptune.engines.linear import LinearEngine
from dptune.plan import TrainPlan
from reproduction.charts import Picture, Plot, Series
from reproduction.experiment import UNKNOWN, Experiment, Result
from reproduction.lab import DELTA, Lab, at_noises, priced

_AVERAGES: dict[str, dict[str, Any]] = {
    "last iterate": {},
    "EMA 0.9": {"averaging": "ema", "ema_decay": 0.9},
    "EMA 0.99": {"averaging": "ema", "ema_decay": 0.99},
    "EMA 0.9999": {"averaging": "ema", "ema_decay": 0.9999},
    "SWA, second half": {"averaging": "swa"},
}
_LEAST_NOISE = 0.09  # where runs are too short for averages to matter
_ACCURACY = {"accuracy": ".2f", "spread": ".2f"}


def _averaging(lab: Lab) -> Result:
    task, budget = lab.task(lab.source), Budget(1.0, DELTA)
    rows: list[list[object]] = []
    accuracy, distance = [], []
    noises = [noise for noise in lab.effort.noises if noise >= _LEAST_NOISE]
    for name, changes in _AVERAGES.items():
        plans = at_noises(priced(task, budget, lab.effort.steps, **changes), noises)
        found = [_with_distance(lab, task, plan) for plan in plans]
        for plan, (runs, moved) in zip(plans, found, strict=True):
            rows.append(
                [
                    name,
                    plan.weight_noise,
                    plan.learning_rate,
                    runs.mean,
                    runs.spread,
                    moved,
                ]
            )
        x = [plan.weight_noise for plan in plans]
        accuracy.append(Series(name, x, [r.mean for r, _ in found], [r.spread for r, _ in found]))
        distance.append(Series(name, x, [moved for _, moved in found]))
    best = [max(_rows_of(rows, name), key=_mean_of) for name in _AVERAGES]
    columns = {"average": "", "c": ".2f", "learning rate": ".4g", **_ACCURACY}
    columns |= {"distance from initialisation": ".2f"}
    axis = "noise c on each weight of the last iterate"
    return Result(
        Table(columns, best),
        Picture(
            f"{task.name}: averages of the iterates, epsilon 1, {lab.effort.steps} steps",
            [
                Plot(
                    "accuracy: mean and standard deviation",
                    axis,
                    "test accuracy (%)",
                    accuracy,
                    xlog=True,
                ),
                Plot(
                    "distance from initialisation",
                    axis,
                    "norm of the released weights",
                    distance,
                    xlog=True,
                    ylog=True,
                ),
            ],
        ),
        details=Table(columns, rows),
        notes=(
            "The table has the best c of each average, chosen by the figures that it shows; all of "
            "them are in the CSV file. EMA is warmed up: its decay at step t is at most (1 + t) / "
            "(10 + t), so that decays of 0.99 and more are the same in short runs.",
        ),
    )


def _rows_of(rows: list[list[object]], name: str) -> list[list[object]]:
    return [row for row in rows if row[0] == name]


def _mean_of(row: list[object]) -> float:
    value = row[3]
    return value if isinstance(value, float) else math.nan


def _with_distance(lab: Lab, task: Task, plan: TrainPlan) -> tuple[Runs, float]:
    """Repeats of a plan, and the mean norm of their weights, which began at zero."""

    def measure() -> dict[str, list[float]]:
        lab.report(f"{task.name}: {plan.averaging}, c {plan.weight_noise:.2f}")
        engine = LinearEngine(outputs=task.outputs)
        models = fit(engine, task, [plan] * lab.repeats)
        return {
            "accuracies": list(tested(engine, task, models)),
            "norms": [float(model.weights.norm()) for model in models],
        }

    key = lab.key(lab.source, "distance", plan=asdict(plan), repeats=lab.repeats)
    found = lab.cell(key, measure)
    return Runs(tuple(found["accuracies"])), float(np.mean(found["norms"]))


EXPERIMENTS = (
    Experiment(
        "averaging",
        "Weight averaging and distance from initialisation",
        "Averages of the iterates are free; its accuracies are " + UNKNOWN + ".",
        "All averages over the same values of the noise c.",
        _averaging,
    ),
)
