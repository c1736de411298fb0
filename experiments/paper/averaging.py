"""Averages of the iterates, and how far from their start the weights are."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from dptune.bench.harness import fit
from dptune.bench.tables import Table
from dptune.engines.linear import LinearEngine
from dptune.plan import TrainPlan
from experiments.charts import Picture, Plot, Series
from experiments.paper.ablation import COLUMNS, EPSILON, Ablation, ablation, dots
from experiments.paper.experiment import Result
from experiments.paper.lab import Lab

_AVERAGES: dict[str, dict[str, Any]] = {  # free steps move the last iterate only
    "last iterate, one free step": {},
    "last iterate": {"free_steps": 0},
    "EMA 0.9": {"averaging": "ema", "ema_decay": 0.9, "free_steps": 0},
    "EMA 0.99": {"averaging": "ema", "ema_decay": 0.99, "free_steps": 0},
    "SWA, second half": {"averaging": "swa", "free_steps": 0},
}


def averaging(lab: Lab) -> Result:
    whole = ablation(lab)
    found = {name: whole.both(**changes) for name, changes in _AVERAGES.items()}
    steps = [count for count in lab.effort.step_counts if count <= whole.best.steps]
    noisy = [_distance(whole, replace(whole.best, steps=count)) for count in steps]
    without = [
        _distance(whole, replace(whole.best, steps=count, noise_multiplier=0.0)) for count in steps
    ]
    return Result(
        Table({"average": "", **COLUMNS}, [[name, *one.cells] for name, one in found.items()]),
        Picture(
            f"{whole.name}: averages of the iterates, epsilon {EPSILON:g}",
            [
                dots(list(found), list(found.values())),
                Plot(
                    "distance from the start, in one run",
                    "step",
                    "norm of the weights",
                    [
                        Series("with noise", steps, noisy, color=2),
                        Series("the same without noise", steps, without, color=3),
                    ],
                ),
            ],
        ),
        notes=(
            "EMA is warmed up: its decay at step t is at most (1 + t) / (10 + t), so that decays "
            "of 0.99 and more are the same in short runs.",
            f"The weights end {noisy[-1]:.2f} from where they began ({without[-1]:.2f} without "
            "noise).",
        ),
    )


def _distance(whole: Ablation, plan: TrainPlan) -> float:
    """The mean norm of weights that began at zero."""
    lab = whole.lab
    plan = replace(plan, free_steps=0)

    def measure() -> float:
        models = fit(LinearEngine(outputs=whole.task.outputs), whole.task, [plan] * lab.repeats)
        return float(np.mean([float(model.weights.norm()) for model in models]))

    key = lab.key(whole.source, "distance", plan=asdict(plan), repeats=lab.repeats)
    return float(lab.cell(key, measure))
