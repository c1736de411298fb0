"""Theorem 3.1: how far noise takes gradient descent from where it would have been without.

For a loss with curvature from alpha to beta, a learning rate eta below 2 / beta, no momentum, and
noise of standard deviation sigma on each of d coordinates of the mean gradient,

    E |w_T - w_T without noise|  <=  sqrt(d) sigma eta (1 + c + ... + c^(T - 1)),

c = max(|1 - eta alpha|, |1 - eta beta|). The noise of different steps is independent, so squares
add as well: the root of d sigma^2 eta^2 (1 + c^2 + ... + c^(2 T - 2)) is a bound too, and a smaller
one.
"""

import math
from dataclasses import dataclass, replace

import torch

from dptune.accounting import Budget
from dptune.bench.tables import Table
from dptune.bench.tasks import Task
from dptune.plan import TrainPlan
from experiments.charts import Picture, Plot, Series
from experiments.paper.experiment import Result
from experiments.paper.lab import DELTA, Lab, priced

_DECAYS = (0.0, 0.05)
_STEPS = (1, 2, 5, 10, 20, 50, 100)
_UNCLIPPED = 1.5  # gradients of softmax on rows of unit length are shorter than the root of 2


@dataclass(frozen=True)
class Curvature:
    """The least and the greatest of a loss."""

    least: float
    greatest: float

    @staticmethod
    def of(task: Task, decay: float) -> "Curvature":
        """Of softmax regression with weight decay: half the greatest eigenvalue of X'X / N, and no
        curvature at all where all logits are moved alike."""
        features = task.train.features[:, 0].double()
        moment = features.T @ features / task.train.count
        return Curvature(decay, float(torch.linalg.eigvalsh(moment)[-1]) / 2 + decay)

    def shrinks(self, rate: float) -> float:
        """The theorem's c: what a step leaves of a distance, at most."""
        return max(abs(1 - rate * self.least), abs(1 - rate * self.greatest))


def radius_bound(plan: TrainPlan, parameters: int, curvature: Curvature, power: int = 1) -> float:
    """Theorem 3.1; with `power` 2, the one where squares add."""
    c = curvature.shrinks(plan.learning_rate)
    per_step = math.sqrt(parameters) * plan.noise / plan.divisor * plan.learning_rate
    powers = math.fsum(c ** (power * i) for i in range(plan.steps))
    return float(per_step * powers ** (1 / power))


def radius(lab: Lab) -> Result:
    task = lab.task(lab.source)
    parameters = task.outputs * task.train.columns
    rows: list[list[object]] = []
    panels = []
    for decay in _DECAYS:
        curvature = Curvature.of(task, decay)
        whole = priced(
            task,
            Budget(1.0, DELTA),
            _STEPS[-1],
            clip_norm=_UNCLIPPED,
            momentum=0.0,
            weight_decay=decay,
        )
        whole = replace(whole, learning_rate=1 / curvature.greatest)
        plans = [replace(whole, steps=steps) for steps in _STEPS]
        measured = [lab.mean_norm(lab.source, "radius", plan, still=True) for plan in plans]
        published = [radius_bound(plan, parameters, curvature) for plan in plans]
        squares = [radius_bound(plan, parameters, curvature, power=2) for plan in plans]
        rows += [[decay, *row] for row in zip(_STEPS, measured, published, squares, strict=True)]
        panels.append(
            Plot(
                f"weight decay {decay:g}: c = {curvature.shrinks(whole.learning_rate):.3f}",
                "steps",
                "distance from the run without noise",
                [
                    Series("measured", _STEPS, measured),
                    Series("Theorem 3.1", _STEPS, published),
                    Series("where squares add", _STEPS, squares),
                ],
                xlog=True,
                ylog=True,
            )
        )
    return Result(
        Table(
            {
                "weight decay": "g",
                "steps": "d",
                "mean distance": ".3f",
                "Theorem 3.1": ".3f",
                "where squares add": ".3f",
            },
            rows,
        ),
        Picture(f"{task.name}: how far noise leads, and how far at most, epsilon 1", panels),
        notes=(
            "Curvature is from the weight decay to that plus half the greatest eigenvalue of the "
            "rows' second moment, the learning rate is one over the latter. Without weight decay "
            "c is 1, and the theorem's bound grows with the steps where the distance grows with "
            "their root; the bound in which squares add has that too.",
        ),
    )
