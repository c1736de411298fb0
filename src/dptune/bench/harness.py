"""Many repeats of one search method, in lockstep where they can be.

All repeats train their trials in the same passes over the rows, which on the linear engine costs
little more than one repeat; but where rows are prepared by noisy figures, every repeat has rows of
its own, and they go one after another. Every repeat is the search of a real study (`study.loop`),
with its prices, plans, scores and noise; only the ledger and the folder are missing, because the
rows are public.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import perf_counter, process_time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dptune.accounting import Budget
from dptune.bench.outcome import ORACLE, Outcome
from dptune.bench.tasks import Task, scaled_rows
from dptune.columns import Encoding
from dptune.data.preprocess import Preprocessing
from dptune.data.rows import DataFacts
from dptune.engines.base import Engine
from dptune.engines.executors import SerialExecutor
from dptune.engines.randomness import Randomness
from dptune.plan import TrainPlan
from dptune.preparation.pipeline import prepare
from dptune.preparation.step import Decision, PrivateRows, State, Step
from dptune.search.base import Census, SearchMethod, calibrated, draft
from dptune.search.law import displacement
from dptune.search.score import NoisyScore, Score
from dptune.search.space import Setting, Space
from dptune.search.unit_noise import UnitNoise
from dptune.study import loop
from dptune.study.config import Config
from dptune.study.measure import compare, fresh_normal, take_census
from dptune.study.outline import Outline
from dptune.study.recipe import settled
from dptune.study.sealed_run import SealedRun

SPACE = Space(learning_rate=(0.1, 100.0), steps=(5, 200))
_LOGITS_A_ROW = {"cpu": 500, "cuda": 6400}
_GRID_RATES, _GRID_STEPS, _GRID_RUNS = 25, (10, 25, 50, 100, 200), 5
_FINALISTS, _FINALISTS_RUNS, _PARTS = 8, 20, 5
_GRID_NOISES, _GRID_STEPS_OF_NOISES = (0.1, 60.0), (50, 200, 500)

Report = Callable[[str], None]
Ended = tuple[Any, TrainPlan]


def run_method(
    task: Task,
    method: SearchMethod,
    budget: Budget,
    repeats: int,
    report: Report,
    name: str | None = None,
    space: Space | None = None,
    recipe: Mapping[str, Any] | None = None,
    score: Score | None = None,
) -> Outcome:
    """`repeats` independent studies; `name` where the method's own would not say its options.
    `recipe` fixes fields of every plan, and trials are compared by noisy counts where no `score` is
    given."""
    name = name or method.name
    began, worked = perf_counter(), process_time()
    outlines = [
        outline_of(task, method, budget, seed, space, recipe, score) for seed in range(repeats)
    ]

    def tell(doing: str) -> None:
        report(f"{task.name}, {name}, epsilon {budget.epsilon:g}: {doing}")

    right, sizes = zip(*_studied(task, outlines, tell), strict=True)
    seconds = perf_counter() - began
    spent = outlines[0].epsilon
    return Outcome(
        task=task.name,
        method=name,
        epsilon=budget.epsilon,
        delta=budget.delta,
        spent_epsilon=min(spent, budget.epsilon),
        accuracies=right,
        total_step_sizes=sizes,
        seconds=seconds,
        compute_seconds=_worked(task, process_time() - worked, seconds),
    )


def _studied(
    task: Task, outlines: Sequence[Outline], tell: Report
) -> Iterator[tuple[float, float]]:
    """Test accuracy and r of every repeat."""
    together: Iterable[tuple[Task, Sequence[Outline]]] = [(task, outlines)]
    if outlines[0].preparing:
        together = _one_by_one(task, outlines, tell)
    for rows, some in together:
        run = _sealed if some[0].schedule.sealed else _open
        models, plans = zip(*run(rows, some, tell), strict=True)
        right = tested(some[0].engine, rows, models)
        yield from zip(right, [plan.total_step_size for plan in plans], strict=True)


def _one_by_one(
    task: Task, outlines: Sequence[Outline], tell: Report
) -> Iterator[tuple[Task, Sequence[Outline]]]:
    for number, outline in enumerate(outlines, start=1):
        tell(f"study {number} of {len(outlines)}")
        rows, known = prepared(task, outline)
        yield rows, [known]


def prepared(task: Task, outline: Outline) -> tuple[Task, Outline]:
    """The rows of one repeat, prepared with noise of its own, and what its study knows then: just
    those of the task where no statistic prepares them."""
    if not outline.preparing:
        return task, outline
    train, test = task.given
    first_copies = train.features[:, 0].numpy()
    plan = outline.preparation
    rows = PrivateRows(
        tables=lambda maps: [
            first_copies if maps is None else Preprocessing(maps).apply(first_copies)
        ],
        vocabularies=dict,
        normal=fresh_normal,
    )

    def measured(step: Step, decision: Decision, state: State) -> Any:
        return step.measure(plan.case, decision, state, rows)

    named = outline.data.named
    state = prepare(plan, measured, plan.start(None if named is None else Encoding(named)))
    made = state.preprocessing
    device, precision = str(task.train.device), str(task.train.dtype).removeprefix("torch.")
    return (
        replace(
            task,
            train=scaled_rows(made, train, device, precision),
            test=scaled_rows(made, test, device, precision),
        ),
        outline.prepared(state),
    )


def _open(task: Task, outlines: Sequence[Outline], tell: Report) -> list[Ended]:
    """Methods whose trials may all be seen: every repeat's sweeps, then its final run or the best
    of its final runs."""
    desk = _Desk(task, outlines, tell)
    results = loop.drive([loop.search(outline) for outline in outlines], desk.answer)
    return [
        (desk.trials[index][result.final.number] if result.is_trial else final, result.final.plan)
        for index, (result, final) in enumerate(zip(results, desk.finals, strict=True))
    ]


class _Desk:
    """Answers what the searches of all repeats ask at one moment, in as few passes over the rows as
    can be."""

    def __init__(self, task: Task, outlines: Sequence[Outline], tell: Report) -> None:
        self.task, self.outlines, self.tell = task, outlines, tell
        self.engine = outlines[0].engine
        self.trials: list[dict[int, Any]] = [{} for _ in outlines]  # models by number
        self.finals: list[Any] = [None] * len(outlines)

    def answer(self, requests: Sequence[loop.Request]) -> Sequence[loop.Answer]:
        match requests[0]:
            case loop.Count():
                return [_census(self.task, outline) for outline in self.outlines]
            case loop.Fit():
                return self._fit(requests)
            case loop.Compare():
                return [self._compare(*pair) for pair in zip(requests, self.trials, strict=True)]
            case loop.Segment():
                return self._segment(requests)
            case loop.Check():  # paid for as in a study; test rows say more
                return [None] * len(requests)

    def _fit(self, requests: Sequence[loop.Request]) -> Sequence[loop.Answer]:
        asked = [request.trials for request in requests if isinstance(request, loop.Fit)]
        stage = asked[0][0].stage
        self.tell(stage)
        models = iter(fit(self.engine, self.task, [t.plan for trials in asked for t in trials]))
        for kept, trials in zip(self.trials, asked, strict=True):
            # Only the final stage's models may be released; older ones are compared by now.
            kept.clear()
            kept |= {trial.number: next(models) for trial in trials}
        return asked

    def _compare(self, request: loop.Request, models: Mapping[int, Any]) -> loop.Answer:
        assert isinstance(request, loop.Compare)
        values, noise = compare(
            self.engine,
            [models[trial.number] for trial in request.trials],
            self.task.train,
            self.outlines[0].config.score,
            request.stage.score,
            self.outlines[0].weighing(request.census),
            self.task.train.count,
        )
        pairs = zip(request.trials, values, strict=True)
        return [trial.with_score(value, noise) for trial, value in pairs]

    def _segment(self, requests: Sequence[loop.Request]) -> Sequence[loop.Answer]:
        segments = [request for request in requests if isinstance(request, loop.Segment)]
        self.tell(f"final run, segment {segments[0].number} of {segments[0].segments}")
        last = segments[0].number == segments[0].segments
        self.finals = fit(
            self.engine,
            self.task,
            [segment.plan for segment in segments],
            self.finals,
            continued=not last,
        )
        return [True] * len(segments)


def _sealed(task: Task, outlines: Sequence[Outline], tell: Report) -> list[Ended]:
    """Sealed searches, one after another. Benchmarks are on public data, so how far they are may
    be seen."""
    ended = []
    for number, outline in enumerate(outlines, start=1):
        tell(f"search {number} of {len(outlines)}")
        sealed = outline.schedule.sealed
        assert sealed is not None
        model, winner = SealedRun(outline, sealed, SerialExecutor()).on(task.train)
        ended.append((model, winner.plan))
    return ended


def run_oracle(
    task: Task,
    budget: Budget,
    repeats: int,
    report: Report,
    space: Space | None = None,
    recipe: Mapping[str, Any] | None = None,
) -> Outcome:
    """The best setting of a fine grid, which nobody paid for, at all of the budget that preparing
    the rows leaves: an upper bound, not a method.

    The best of many means flatters itself, by luck of its runs and by the rows that they are tested
    on. So each cell is a mean of a few runs, of those that lead more runs decide, and what they
    chose is run again `repeats` times; and every fifth of the test rows is judged by the setting
    that the other four chose.
    """
    began, worked = perf_counter(), process_time()
    _, planned = prepared(task, outline_of(task, UnitNoise(), budget, 0, space, recipe))
    mu_squared = planned.schedule.final.mu_squared
    cells = _grid(planned, math.sqrt(mu_squared))
    grid = [calibrated(draft(planned.recipe, cell), mu_squared, 0.0) for cell in cells]
    report(f"{task.name}, oracle, epsilon {budget.epsilon:g}: {len(grid)} settings")
    shares = np.array([int(part.sum()) for part in parts(task)]) / task.test.count
    # One row a part of the test rows: what each other part weighs where that one is judged.
    others = np.where(np.eye(len(shares)) * (len(shares) > 1), 0, shares)
    means = _repeated(task, planned, grid, _GRID_RUNS).mean(0) @ others.T
    leading = np.argsort(-means, axis=0, kind="stable")[:_FINALISTS]
    finalists = np.unique(leading).tolist()
    means = _repeated(task, planned, [grid[n] for n in finalists], _FINALISTS_RUNS).mean(0)
    own = (means @ shares).max()
    places = np.searchsorted(finalists, leading)
    means = np.take_along_axis(means @ others.T, places, axis=0)
    best = leading[means.argmax(0), np.arange(len(shares))]
    chosen = np.unique(best).tolist()
    again = _repeated(task, planned, [grid[n] for n in chosen], repeats)
    judged = again[:, np.searchsorted(chosen, best), np.arange(len(shares))] @ shares
    sizes = [grid[number].total_step_size for number in best]
    noises = [grid[number].weight_noise for number in best]
    seconds = perf_counter() - began
    return Outcome(
        task=task.name,
        method=ORACLE,
        epsilon=budget.epsilon,
        delta=budget.delta,
        spent_epsilon=None,
        accuracies=tuple(judged.tolist()),
        total_step_sizes=(math.exp(shares @ np.log(sizes)),) * repeats,
        seconds=seconds,
        compute_seconds=_worked(task, process_time() - worked, seconds),
        note=f"c {min(noises):.2f} to {max(noises):.2f}; judged by the rows that choose it, "
        f"the best is {own:.2f}",
    )


def _grid(planned: Outline, mu: float) -> list[Setting]:
    """Rates and steps over all of the space; where rows are clipped far below their gradients,
    rather over the noise that runs leave on weights, because the best of it hardly moves."""
    recipe = planned.recipe
    if recipe.clip_norm == 1.0:
        rates = np.geomspace(*planned.space.learning_rate, _GRID_RATES)
        fewest, most = planned.space.steps
        counts = [steps for steps in _GRID_STEPS if fewest <= steps <= most]
        return [Setting(float(rate), steps) for steps in counts for rate in rates]
    settings = []
    for steps in _GRID_STEPS_OF_NOISES:
        reach = replace(recipe, learning_rate=1.0, steps=steps).displacement
        for noise in np.geomspace(*_GRID_NOISES, _GRID_RATES):
            settings.append(Setting(displacement(float(noise), mu, recipe) / reach, steps))
    return settings


def _repeated(
    task: Task, planned: Outline, plans: Sequence[TrainPlan], times: int
) -> NDArray[np.float64]:
    """(times, plans, parts): accuracies on every part of the test rows, each time on rows that are
    prepared anew."""
    if planned.preparing:
        anew = (prepared(task, planned)[0] for _ in range(times))
        return np.array([in_parts(planned.engine, rows, plans) for rows in anew])
    flat = in_parts(planned.engine, task, [*plans] * times)
    return flat.reshape(times, len(plans), -1)


def in_parts(engine: Engine[Any], task: Task, plans: Sequence[TrainPlan]) -> NDArray[np.float64]:
    """(plans, parts): accuracies in percent on every part of the test rows."""
    models = fit(engine, task, plans)
    each = [replace(task, test=task.test.taken(rows)) for rows in parts(task)]
    return np.stack([tested(engine, part, models) for part in each], axis=-1)


def parts(task: Task) -> list[Tensor]:
    """A mask for every fifth of the test rows, the same every time, whatever order they come in."""
    count = task.test.count
    part = torch.from_numpy(np.random.default_rng(0).permutation(count) % _PARTS)
    return [part == number for number in range(min(_PARTS, count))]


def outline_of(
    task: Task,
    method: SearchMethod,
    budget: Budget,
    seed: int,
    space: Space | None = None,
    recipe: Mapping[str, Any] | None = None,
    score: Score | None = None,
) -> Outline:
    """What one study will do and pay for."""
    train = task.train
    facts = DataFacts(
        train.count,
        train.shape,
        train.copies,
        task.outputs,
        "softmax",
        task.named,
        task.as_given,
    )
    asked = Config(
        study="bench",
        budget=budget,
        search=method,
        score=score or NoisyScore(),
        space=space or SPACE,
        recipe={**task.recipe, **(recipe or {})},
        preparation=task.preparation,
        seed=seed,
        source={},
    )
    config = settled(asked, facts)
    if space is None:  # where all gradients are clipped, a rate moves weights by rate * norm
        clip_norm = config.plan(1).clip_norm or 1.0
        low, high = (rate / clip_norm for rate in SPACE.learning_rate)
        steps = (SPACE.steps[0], method.usual_space.steps[1])
        config = replace(config, space=Space(learning_rate=(low, high), steps=steps))
    return Outline(config=config, data=facts, reused=False)


def _census(task: Task, outline: Outline) -> Census | None:
    event = outline.schedule.census
    if event is None:
        return None
    unit_rows = outline.facts.unit_rows
    return take_census(task.train, event, classes=task.outputs, unit_rows=unit_rows)


def fit(
    engine: Engine[Any],
    task: Task,
    plans: Sequence[TrainPlan],
    start: Sequence[Any] | None = None,
    *,
    continued: bool = False,
) -> list[Any]:
    """All plans, as many at once as fit. Those of similar length train together. Unless runs will
    be `continued`, models keep their weights only, because there are many of them."""
    order = sorted(range(len(plans)), key=lambda index: plans[index].steps)
    models: dict[int, Any] = {}
    for batch in _batched(order, _at_once(task)):
        chosen = [plans[index] for index in batch]
        begun = None if start is None else [start[index] for index in batch]
        fitted = engine.fit_many(chosen, task.train, [Randomness() for _ in batch], begun)
        if not continued:
            fitted = [model.released() for model in fitted]
        models |= zip(batch, fitted, strict=True)
    return [models[index] for index in range(len(plans))]


def accuracies(engine: Engine[Any], task: Task, plans: Sequence[TrainPlan]) -> tuple[float, ...]:
    """Test accuracy in percent of every plan."""
    return tested(engine, task, fit(engine, task, plans))


def tested(engine: Engine[Any], task: Task, models: Sequence[Any]) -> tuple[float, ...]:
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
