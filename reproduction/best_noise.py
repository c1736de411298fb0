"""Where the best noise c lies, on many tasks and budgets, and what the law says of it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from dptune.accounting import Budget
from dptune.bench.harness import Report, accuracies
from dptune.bench.store import write
from dptune.bench.tasks import Task, load_task
from dptune.engines.linear import LinearEngine
from dptune.errors import InvalidInput
from dptune.plan import TrainPlan
from dptune.search.base import Facts, calibrated, draft
from dptune.search.law import best_noise, displacement
from dptune.search.space import Space

NOISES = tuple(float(noise) for noise in np.geomspace(0.05, 20.0, 25))
_STEPS, _WIDE = 200, (1e-6, 1e6)  # the law is about noise: no rate is out of bounds here


@dataclass(frozen=True)
class Scan:
    """Mean test accuracy in percent of runs that end at each of `NOISES`, at one budget."""

    task: str
    rows: int
    columns: int
    outputs: int
    epsilon: float
    signal: float
    law: float
    accuracies: tuple[float, ...]

    def near_best(self, points: float) -> tuple[float, float, float]:
        """The best noise, and the range of noises that lose less than `points`."""
        padded = np.pad(self.accuracies, 1, mode="edge")
        smooth = np.convolve(padded, [0.25, 0.5, 0.25], "valid")
        best = int(smooth.argmax())
        fine = smooth > smooth[best] - points
        low = high = best
        while low > 0 and fine[low - 1]:
            low -= 1
        while high < len(fine) - 1 and fine[high + 1]:
            high += 1
        return NOISES[best], NOISES[low], NOISES[high]


def measure(
    sources: Sequence[str],
    epsilons: Sequence[float],
    *,
    repeats: int,
    device: str,
    report: Report,
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
    recipe = TrainPlan(rows=task.train.count, steps=1, learning_rate=1.0, noise_multiplier=1.0)
    space = Space(_WIDE, (_STEPS, _STEPS))
    plans = [
        calibrated(
            draft(recipe, space.spread(displacement(noise, budget.mu, recipe), recipe)),
            budget.mu_squared(),
            0.0,
        )
        for noise in NOISES
    ]
    engine = LinearEngine(outputs=task.outputs)
    runs = accuracies(engine, task, [plan for plan in plans for _ in range(repeats)])
    facts = Facts(task.train.columns, task.outputs, unit_rows=task.preparation.unit_rows)
    return Scan(
        task=task.name,
        rows=task.train.count,
        columns=task.train.columns,
        outputs=task.outputs,
        epsilon=budget.epsilon,
        signal=budget.mu * task.train.count / task.train.columns,
        law=best_noise(budget.mu, recipe, facts, None),
        accuracies=tuple(np.reshape(runs, (len(NOISES), repeats)).mean(1).tolist()),
    )


def save(scans: Sequence[Scan], file: Path) -> None:
    write(file, json.dumps([asdict(one) for one in scans], indent=1) + "\n")


def load(file: Path) -> list[Scan]:
    if not file.exists():
        raise InvalidInput(f"there is no {file} to draw; give --data to measure it.")
    plain = json.loads(file.read_text())
    return [Scan(**{**one, "accuracies": tuple(one["accuracies"])}) for one in plain]


def picture(scans: Sequence[Scan], file: Path) -> None:
    """Best noise over signal, one mark for every task and budget, with the law."""
    import matplotlib.pyplot as plt

    from reproduction.figures import COLORS

    tasks = sorted({one.task for one in scans})
    sources = list(dict.fromkeys(task.partition("?")[0] for task in tasks))
    changes = list(dict.fromkeys(task.partition("?")[2] for task in tasks))
    marks = "o^s*DPX"
    figure, axes = plt.subplots(figsize=(10, 6.2), layout="constrained")
    for task in tasks:
        source, _, change = task.partition("?")
        own = [one for one in scans if one.task == task]
        best = [one.near_best(0.3) for one in own]
        x = [one.signal for one in own]
        y = [middle for middle, _, _ in best]
        errors = [
            [middle - low for middle, low, _ in best],
            [high - middle for middle, _, high in best],
        ]
        axes.errorbar(
            x,
            y,
            yerr=errors,
            fmt=marks[changes.index(change) % len(marks)],
            color=COLORS[sources.index(source) % len(COLORS)],
            markersize=7,
            capsize=3,
            alpha=0.85,
            label=f"{task} ({own[0].rows:,} rows, {own[0].columns} columns)",
        )
    signals = np.geomspace(
        min(one.signal for one in scans) / 1.5, max(one.signal for one in scans) * 1.5
    )
    axes.plot(signals, 0.5 * signals**0.15, color="black", label="the law, 10 classes")
    axes.axhline(1.0, color="gray", linestyle="--", linewidth=1, label="c = 1")
    axes.set(xscale="log", yscale="log", ylim=(0.04, 12))
    axes.set_xlabel("signal: mu x rows / columns")
    axes.set_ylabel("noise c on each weight at the end of the run")
    axes.set_title("Best c (mark), and every c that loses less than 0.3 points (bar)")
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8, frameon=False)
    figure.savefig(file, dpi=130)
    plt.close(figure)
