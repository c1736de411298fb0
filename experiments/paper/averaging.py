"""Averages of the iterates, and how far from their start the weights are."""

from dataclasses import replace
from typing import Any

from dptune.bench.tables import Table
from experiments.charts import Plot, Series
from experiments.paper.ablation import COLUMNS, ablation, dots
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

    def distance(**changes: Any) -> float:
        plan = replace(whole.best, free_steps=0, **changes)
        return lab.mean_norm(whole.source, "distance", plan)

    steps = [count for count in lab.effort.step_counts if count <= whole.best.steps]
    noisy = [distance(steps=count) for count in steps]
    without = [distance(steps=count, noise_multiplier=0.0) for count in steps]
    return Result(
        Table({"average": "", **COLUMNS}, [[name, *one.cells] for name, one in found.items()]),
        whole.picture(
            "averages of the iterates",
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
        ),
        notes=(
            "EMA is warmed up: its decay at step t is at most (1 + t) / (10 + t), so that decays "
            "of 0.99 and more are the same in short runs.",
            f"The weights end {noisy[-1]:.2f} from where they began ({without[-1]:.2f} without "
            "noise).",
        ),
    )
