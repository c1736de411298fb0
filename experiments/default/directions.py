"""Whole studies of features in their principal directions: the default, and the same with
`range_share = 0`, which looks for no sizes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

from dptune.accounting import Budget
from dptune.bench.harness import run_method
from dptune.bench.tasks import load_task
from dptune.search.linear_scaling import LinearScaling
from experiments.lines import Figures
from experiments.pages import markdown

VERB = "directions"
EPSILONS = (0.1, 0.3, 1.0)
WAYS = ("default", "without")


@dataclass(frozen=True)
class Cell:
    """A set at one budget, by its file."""

    file: str
    epsilon: float
    repeats: int
    verb: str = VERB


def measure(cell: Cell, root: str | None, device: str) -> Figures:
    task, budget = load_task(cell.file, device=device), Budget(cell.epsilon, 1e-5)
    plain = replace(task, preparation=replace(task.preparation, range_share=0.0))
    return {
        way: run_method(each, LinearScaling(), budget, cell.repeats, lambda _: None).accuracies
        for way, each in zip(WAYS, (task, plain), strict=True)
    }


def said(cell: Cell, found: Figures) -> str:
    return f"{Path(cell.file).stem}, epsilon {cell.epsilon:g}: {fmean(found['default']):.2f} %"


def table(found: Mapping[Cell, Figures]) -> str:
    rows = []
    for cell in sorted(found, key=lambda cell: (Path(cell.file).stem, cell.epsilon)):
        ways = [found[cell][way] for way in WAYS]
        error = math.sqrt(sum(stdev(each) ** 2 / len(each) for each in ways))
        gain = f"{fmean(ways[0]) - fmean(ways[1]):+.2f} ± {error:.2f}"
        means = [f"{fmean(each):.2f}" for each in ways]
        rows.append([Path(cell.file).stem, f"{cell.epsilon:g}", *means, gain])
    return markdown(("set", "epsilon", "default", "range_share = 0", "difference"), rows)
