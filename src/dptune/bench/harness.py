"""Many repeats of one search method, in lockstep.

All repeats train their trials in the same passes over the rows, which on the linear engine costs
little more than one repeat. Prices, plans, scores and noise are those of a real study
(`_outline`, `_measure`); only the ledger and the folder are missing, because the rows are public.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter, process_time
from typing import Any

import numpy as np

from dptune.bench.outcome import ORACLE, Outcome
from dptune.bench.tasks import Task
from dptune.engines.executors import SerialExecutor
from dptune.engines.linear import LinearEngine, LinearModel
from dptune.engines.randomness import Randomness
from dptune.plan import TrainPlan
from dptune.privacy import Budget
from dptune.search.base import Census, SearchMethod, Stage, calibrated, draft
from dptune.search.score import NoisyScore
from dptune.search.space import Setting, Space
from dptune.search.trial import Trial
from dptune.study.config import Config
from dptune.study.measure import compare, take_census
from dptune.study.outline import Outline
from dptune.study.sealed_run import SealedRun

SPACE = Space(learning_rate=(0.1, 100.0), steps=(5, 200))
_LOGITS_A_ROW = {"cpu": 500, "cuda": 6400}
_GRID_RATES, _GRID_STEPS, _GRID_RUNS = 25, (10, 25, 50, 100, 200), 5

Report = Callable[[str], None]
Ended = tuple[LinearModel, TrainPlan]


def run_method(
    task: Task,
    method: SearchMethod,
    budget: Budget,
    repeats: int,
    report: Report,
    name: str | None = None,
    space: Space = SPACE,
) -> Outcome:
    """`repeats` independent studies; `name` where the method's own would not say its options."""
    name = name or method.name
    began, worked = perf_counter(), process_time()
    outlines = [outline_of(task, method, budget, seed, space) for seed in range(repeats)]
    engine = LinearEngine(outputs=task.outputs)

    def tell(doing: str) -> None:
        report(f"{task.name}, {name}, epsilon {budget.epsilon:g}: {doing}")

    if outlines[0].schedule.sealed:
        ended = _sealed(engine, task, outlines, tell)
    else:
        ended = _open(engine, task, outlines, tell)
    models, plans = zip(*ended, strict=True)
    right = tested(engine, task, models)
    seconds = perf_counter() - began
    spent = outlines[0].epsilon
    return Outcome(
        task=task.name,
        method=name,
        epsilon=budget.epsilon,
        delta=budget.delta,
        spent_epsilon=min(spent, budget.epsilon),
        accuracies=right,
        total_step_sizes=tuple(plan.total_step_size for plan in plans),
        seconds=seconds,
        compute_seconds=_worked(task, process_time() - worked, seconds),
    )


def _open(
    engine: LinearEngine, task: Task, outlines: Sequence[Outline], tell: Report
) -> list[Ended]:
    """Methods whose trials may all be seen: every repeat's sweeps, then its final run or the best
    of its final runs."""
    censuses = [_census(task, outline) for outline in outlines]
    histories: list[list[Trial]] = [[] for _ in outlines]
    final = outlines[0].schedule.final
    ended: list[Ended] = []
    for sweep, numbers in outlines[0].sweeps():
        tell(sweep.name)
        settings = _ask(outlines, sweep, histories, censuses)
        plans = [
            outline.plan(setting, sweep)
            for outline, chosen in zip(outlines, settings, strict=True)
            for setting in chosen
        ]
        models = fit(engine, task, plans)
        for index, outline in enumerate(outlines):
            own = slice(index * sweep.trials, (index + 1) * sweep.trials)
            score, rows = outline.config.score, task.train
            values, noise = compare(
                engine, models[own], rows, score, sweep.score, censuses[index], rows.count
            )
            histories[index] += [
                Trial(number=number, stage=sweep.name, plan=plan, mu=sweep.mu).with_score(
                    value, noise
                )
                for number, plan, value in zip(numbers, plans[own], values, strict=True)
            ]
            if sweep == final:
                best = own.start + int(np.argmax(values))
                ended.append((models[best], plans[best]))
    if ended:
        return ended
    tell(final.name)
    chosen = [settings[0] for settings in _ask(outlines, final, histories, censuses)]
    plans = [o.plan(setting, final) for o, setting in zip(outlines, chosen, strict=True)]
    return list(zip(fit(engine, task, plans), plans, strict=True))


def _sealed(
    engine: LinearEngine, task: Task, outlines: Sequence[Outline], tell: Report
) -> list[Ended]:
    """Sealed searches, one after another. Benchmarks are on public data, so how far they are may
    be seen."""
    ended = []
    for number, outline in enumerate(outlines, start=1):
        tell(f"search {number} of {len(outlines)}")
        sealed = outline.schedule.sealed
        assert sealed is not None
        model, winner = SealedRun(outline, sealed, engine, SerialExecutor()).on(task.train)
        ended.append((model, winner.plan))
    return ended


def run_oracle(task: Task, budget: Budget, repeats: int, report: Report) -> Outcome:
    """The best single setting of a fine grid at the whole budget, which nobody paid for: an upper
    bound, not a method. Each cell is a mean of several runs; the best one is then run again
    `repeats` times, since the best of many means flatters itself."""
    began, worked = perf_counter(), process_time()
    engine = LinearEngine(outputs=task.outputs)
    rates = np.geomspace(*SPACE.learning_rate, _GRID_RATES)
    cells = [Setting(float(rate), steps) for steps in _GRID_STEPS for rate in rates]
    recipe = TrainPlan(rows=task.train.count, steps=1, learning_rate=1.0, noise_multiplier=1.0)
    grid = [calibrated(draft(recipe, cell), budget.mu_squared(), 0.0) for cell in cells]
    report(f"{task.name}, oracle, epsilon {budget.epsilon:g}: {len(grid)} settings")
    runs = accuracies(engine, task, [plan for plan in grid for _ in range(_GRID_RUNS)])
    means = np.reshape(runs, (len(grid), _GRID_RUNS)).mean(1)
    best = grid[int(means.argmax())]
    again = accuracies(engine, task, [best] * repeats)
    seconds = perf_counter() - began
    return Outcome(
        task=task.name,
        method=ORACLE,
        epsilon=budget.epsilon,
        delta=budget.delta,
        spent_epsilon=None,
        accuracies=again,
        total_step_sizes=(best.total_step_size,) * repeats,
        seconds=seconds,
        compute_seconds=_worked(task, process_time() - worked, seconds),
        note=f"learning rate {best.learning_rate:.3g}, {best.steps} steps, "
        f"c {best.weight_noise:.2f}; its cell of the grid read {means.max():.2f}",
    )


def outline_of(
    task: Task, method: SearchMethod, budget: Budget, seed: int, space: Space = SPACE
) -> Outline:
    """What one study will do and pay for."""
    config = Config(
        study="bench",
        budget=budget,
        search=method,
        score=NoisyScore(),
        space=space,
        recipe={},
        preparation=task.preparation,
        seed=seed,
        source={},
    )
    return Outline(
        config=config,
        count=task.train.count,
        columns=task.train.columns,
        outputs=task.outputs,
        has_classes=True,
        reused=False,
    )


def _census(task: Task, outline: Outline) -> Census | None:
    event = outline.schedule.census
    if event is None:
        return None
    unit_rows = outline.facts.unit_rows
    return take_census(task.train, event, classes=task.outputs, unit_rows=unit_rows)


def _ask(
    outlines: Sequence[Outline],
    stage: Stage,
    histories: Sequence[list[Trial]],
    censuses: Sequence[Census | None],
) -> list[list[Setting]]:
    asked = zip(outlines, histories, censuses, strict=True)
    return [outline.suggest(stage, history, census) for outline, history, census in asked]


def fit(engine: LinearEngine, task: Task, plans: Sequence[TrainPlan]) -> list[LinearModel]:
    """All plans, as many at once as fit. Those of similar length train together."""
    order = sorted(range(len(plans)), key=lambda index: plans[index].steps)
    models: dict[int, LinearModel] = {}
    for batch in _batched(order, _at_once(task)):
        chosen = [plans[index] for index in batch]
        fitted = engine.fit_many(chosen, task.train, [Randomness() for _ in batch])
        models |= {i: replace(model, velocity=None) for i, model in zip(batch, fitted, strict=True)}
    return [models[index] for index in range(len(plans))]


def accuracies(engine: LinearEngine, task: Task, plans: Sequence[TrainPlan]) -> tuple[float, ...]:
    """Test accuracy in percent of every plan."""
    return tested(engine, task, fit(engine, task, plans))


def tested(engine: LinearEngine, task: Task, models: Sequence[LinearModel]) -> tuple[float, ...]:
    """Test accuracy in percent of every model."""
    evaluations = [
        evaluation
        for batch in _batched(models, _at_once(task))
        for evaluation in engine.evaluate_many(batch, task.test)
    ]
    return tuple(100 * evaluation.correct / evaluation.rows for evaluation in evaluations)


def _worked(task: Task, processor: float, seconds: float) -> float:
    """Seconds of all cores, or for which the GPU was held."""
    return processor if task.train.device.type == "cpu" else seconds


def _at_once(task: Task) -> int:
    """How many models share a pass over the rows: their logits must fit in memory, or caches."""
    return max(1, _LOGITS_A_ROW[task.train.device.type] // task.outputs)


def _batched(values: Sequence[Any], size: int) -> list[Any]:
    return [values[start : start + size] for start in range(0, len(values), size)]
