"""Where the best noise c lies, on many tasks and budgets, and what the law says of it.

Measured as a study trains: by the recipe, on rows that every repeat prepares anew, in the steps
that are stable for them.
"""

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dptune.accounting import Budget
from dptune.bench.harness import Report, accuracies, outline_of, prepared
from dptune.bench.store import write
from dptune.bench.tasks import Task, load_task
from dptune.errors import InvalidInput
from dptune.plan import TrainPlan
from dptune.prior import LINEAR
from dptune.search.law import best_noise, displacement
from dptune.search.space import MANY_STEPS, Space
from dptune.search.unit_noise import UnitNoise
from dptune.study.outline import Outline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOISES = tuple(float(noise) for noise in np.geomspace(0.05, 20.0, 25))
_SPACE = Space((1e-6, 1e6), MANY_STEPS.steps)  # the law is about noise: no rate is out of bounds
_WIDTH = 0.4  # in log c, over which accuracies are smoothed
_LEARNED = 2.0  # points above the most frequent class, or all noises are as bad
UNFELT = 0.3  # points that nobody would miss
_TABLES = ("diamonds", "credit", "earnings", "insurance", "churn", "storms", "breast_cancer")


@dataclass(frozen=True)
class Scan:
    """Mean test accuracy in percent of runs of price `mu` that end at each of `noises`, or as near
    to it as a stable rate comes."""

    task: str
    rows: int
    columns: int
    classes: int
    majority: float  # percent of the test rows in their most frequent class
    epsilon: float
    mu: float
    prepared: tuple[str, ...]  # by which figures that were paid for
    averaged: bool  # whether the mean of the last iterates was released
    law: float
    noises: tuple[float, ...]
    accuracies: tuple[float, ...]

    @property
    def source(self) -> str:
        """The set without its changes."""
        return self.task.partition("?")[0]

    @property
    def signal(self) -> float:
        return self.mu * self.rows / (self.columns * self.classes)

    @property
    def learned(self) -> bool:
        """Whether any noise is better than to name the most frequent class."""
        return bool(self.smooth().max() > self.majority + _LEARNED)

    def smooth(self) -> NDArray[np.float64]:
        """Accuracies without most of their errors: at each noise, a parabola through those near."""
        x, y = np.log(self.noises), np.array(self.accuracies)
        near = [np.exp(-(((x - here) / _WIDTH) ** 2) / 4) for here in x]  # roots of weights
        return np.array(
            [np.polyfit(x - here, y, 2, w=w)[-1] for here, w in zip(x, near, strict=True)]
        )

    def near_best(self, points: float) -> tuple[float, float, float]:
        """The best noise, and the range of noises that lose less than `points`."""
        smooth = self.smooth()
        best = int(smooth.argmax())
        fine = smooth > smooth[best] - points
        low = high = best
        while low > 0 and fine[low - 1]:
            low -= 1
        while high < len(fine) - 1 and fine[high + 1]:
            high += 1
        return self.noises[best], self.noises[low], self.noises[high]

    def regret(self, noise: float) -> float:
        """Points that are lost at `noise`."""
        smooth = self.smooth()
        return float(smooth.max() - np.interp(math.log(noise), np.log(self.noises), smooth))


def measure(
    sources: Sequence[str], epsilons: Sequence[float], *, repeats: int, device: str, report: Report
) -> list[Scan]:
    """One scan for every task and budget, at delta 1e-5."""
    found = []
    for source in sources:
        task = load_task(source, device=device)
        for epsilon in epsilons:
            report(f"{task.name}, epsilon {epsilon:g}")
            found.append(_scan(task, Budget(epsilon, 1e-5), repeats))
    return found


def _scan(task: Task, budget: Budget, repeats: int) -> Scan:
    known, runs = run_plans(task, budget, repeats, _plans)
    mu, facts = known.schedule.final.mu, known.facts_by_now
    counts = task.test.targets.bincount()
    return Scan(
        task=task.name,
        rows=task.train.count,
        columns=facts.columns,
        classes=task.outputs,
        majority=100 * float(counts.max() / counts.sum()),
        epsilon=budget.epsilon,
        mu=mu,
        prepared=tuple(known.preparing),
        averaged=known.recipe.averaging == "swa",
        law=best_noise(mu, known.recipe, facts, None),
        noises=NOISES,
        accuracies=tuple(runs.mean(0).tolist()),
    )


def run_plans(
    task: Task, budget: Budget, repeats: int, plans: Callable[[Outline], list[TrainPlan]]
) -> tuple[Outline, NDArray[np.float64]]:
    """What was known in the end, and test accuracies (repeats, plans), each time on rows that are
    prepared anew and with `plans` of what is known then."""
    known, runs = outline_of(task, UnitNoise(), budget, 0, _SPACE), []
    for _ in range(repeats):
        rows, known = prepared(task, known)
        runs.append(accuracies(known.engine, rows, plans(known)))
    return known, np.array(runs)


def plan_at(noise: float, known: Outline, clip_norm: float | None) -> TrainPlan:
    """A run that ends at this noise, of all that preparing the rows leaves of the budget."""
    final, recipe = known.schedule.final, replace(known.recipe, clip_norm=clip_norm)
    moved = displacement(noise, final.mu, recipe)
    setting = known.space.steady(moved, recipe, known.curvature)
    return known.plan(replace(setting, clip_norm=clip_norm), final)


def _plans(known: Outline) -> list[TrainPlan]:
    return [plan_at(noise, known, known.recipe.clip_norm) for noise in NOISES]


def save(scans: Sequence[Scan], file: Path) -> None:
    write(file, json.dumps([asdict(one) for one in scans], indent=1) + "\n")


def load(file: Path) -> list[Scan]:
    if not file.exists():
        raise InvalidInput(f"there is no {file} to draw; give --data to measure it.")
    plain = json.loads(file.read_text())
    names = {field.name for field in fields(Scan)}
    if any(set(one) != names for one in plain):
        raise InvalidInput(f"{file} is of another version; give --data to measure it again.")
    return [_scan_of(one) for one in plain]


def _scan_of(plain: Mapping[str, Any]) -> Scan:
    lists = {name: tuple(value) for name, value in plain.items() if isinstance(value, list)}
    return Scan(**{**plain, **lists})


def picture(scans: Sequence[Scan], file: Path) -> None:
    """How far the best noise lies from the law, over signal: a panel for features, one for tables.
    Where nothing can be learned, no noise is best."""
    import matplotlib.pyplot as plt

    told = [one for one in scans if one.learned]
    kinds = {
        "Features and pixels": [one for one in told if one.source not in _TABLES],
        "Tables": [one for one in told if one.source in _TABLES],
    }
    drawn = {kind: own for kind, own in kinds.items() if own}
    if not drawn:
        raise InvalidInput("no scan is better than the most frequent class: nothing to draw.")
    height = 1.2 + 3.6 * len(drawn)
    figure, grid = plt.subplots(
        len(drawn), figsize=(10, height), layout="constrained", sharex=True, squeeze=False
    )
    for axes, (kind, own) in zip(grid[:, 0], drawn.items(), strict=True):
        _draw(axes, own)
        axes.set_title(kind, loc="left", fontsize=11)
    grid[-1, 0].set_xlabel("signal: mu x rows / (columns x classes)")
    figure.suptitle(
        f"Best c (mark), and every c that loses less than {UNFELT:g} points (bar), as multiples "
        "of the law's c.\nHollow: a set changed to fewer rows, columns or classes. "
        "Grey: how far the law expects to be off.",
        fontsize=11,
    )
    figure.savefig(file, dpi=130)
    plt.close(figure)


def _draw(axes: "Axes", scans: Sequence[Scan]) -> None:
    from experiments.figures import COLORS

    axes.axhspan(math.exp(-LINEAR.error), math.exp(LINEAR.error), color="#E8E8E8")
    axes.axhline(1.0, color="black", linewidth=1)
    sources = sorted({one.source for one in scans})
    colors = dict(zip(sources, itertools.cycle(COLORS), strict=False))
    for source, color in colors.items():
        axes.plot([], [], "o", color=color, markersize=5, label=source)
    for one in scans:
        best, low, high = (noise / one.law for noise in one.near_best(UNFELT))
        color = colors[one.source]
        axes.plot([one.signal] * 2, [low, high], color=color, linewidth=1, alpha=0.7)
        inside = color if one.task == one.source else "white"
        axes.plot(one.signal, best, "o", color=color, markerfacecolor=inside, markersize=5)
    averaged = [one.signal for one in scans if one.averaged]
    if averaged:
        axes.axvline(min(averaged) / 1.05, color="black", linewidth=1, linestyle=":")
        axes.annotate(
            " averaged", (min(averaged) / 1.05, 0.02), xycoords=("data", "axes fraction"),
            fontsize=9,
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", ylabel="best c / the law's c")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.25)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9, frameon=False)
