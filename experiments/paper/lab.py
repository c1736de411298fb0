"""Where experiments are run: the data, the repeats, and a store of what was measured already.

Everything measured is a cell: a small file named by a digest of all that decides it (the rows, the
plan or method, the repeats). What is there is not measured again, so a run that was killed goes on
where it stopped, and experiments share what they have in common.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dptune import gdp
from dptune.accounting import Budget, calibrate_direct
from dptune.bench.harness import Report, accuracies, fit, run_method, run_oracle
from dptune.bench.outcome import Outcome, Runs
from dptune.bench.store import read, write
from dptune.bench.tasks import Task, identity, load_task
from dptune.engines.linear import LinearEngine
from dptune.plan import TrainPlan
from dptune.search.base import SearchMethod
from dptune.search.score import NoisyScore, Score
from dptune.search.space import Space
from experiments.paper import published

DELTA = 1e-5
# Plain DP-GD, whatever `tune` does by default: what the paper compares, and what this package does.
PLAIN: dict[str, Any] = {"clip_norm": 1.0, "momentum": 0.9, "averaging": "none", "free_steps": 0}
_LINEAR = LinearEngine()
_LONGER = 10
_RUNS_AT_ONCE = 400  # about as many as a kill may lose


@dataclass(frozen=True)
class Effort:
    """How finely experiments look; how often they repeat is said elsewhere.

    Attributes:
        noises: values of c among which a variant finds its best learning rate.
        scouts: runs at each of them; the best one is then run afresh.
        steps: of a run, where steps are not what is looked at.
        rates, step_counts, epsilons: the grid of the heat maps, of which the best setting of the
            recipe is taken too.
        totals: budgets of fronts.
        plain_rates: learning rates of training without noise.

    """

    noises: tuple[float, ...]
    scouts: int
    steps: int
    rates: tuple[float, ...]
    step_counts: tuple[int, ...]
    epsilons: tuple[float, ...]
    totals: tuple[float, ...]
    plain_rates: tuple[float, ...]


EFFORTS = {
    "full": Effort(
        noises=tuple(float(noise) for noise in np.geomspace(0.01, 10.0, 13)),
        scouts=3,
        steps=100,
        rates=published.GRID_RATES,
        step_counts=published.GRID_STEPS,
        epsilons=published.GRID_EPSILONS,
        totals=(0.01, 0.05, 0.1, 0.2, 0.5, 1.0),
        plain_rates=tuple(float(rate) for rate in np.geomspace(1e-3, 100.0, 16)),
    ),
    "quick": Effort(
        noises=(0.3, 1.0, 3.0),
        scouts=1,
        steps=10,
        rates=(0.1, 1.0),
        step_counts=(5, 10),
        epsilons=(0.5, 1.0),
        totals=(0.5, 1.0),
        plain_rates=(0.01, 1.0),
    ),
}


@dataclass(frozen=True)
class Lab:
    """Sources to measure on, and everything that decides a measurement."""

    sources: tuple[str, ...]
    repeats: int
    out: Path
    device: str
    report: Report
    effort: Effort
    _tasks: dict[str, Task] = field(default_factory=dict)
    _identities: dict[str, str] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """The first, for experiments that want one."""
        return self.sources[0]

    def only(self, source: str) -> "Lab":
        """The same lab with this source alone."""
        return replace(self, sources=(source,))

    def task(self, source: str) -> Task:
        if source not in self._tasks:
            self._tasks[source] = load_task(source, device=self.device).plain()
        return self._tasks[source]

    def changed(self, source: str, change: str, task: Task) -> str:
        """The name of a source whose task is `task`: that of `source` after some change."""
        name = f"{source}#{change}"
        self._tasks[name] = task
        self._identities[name] = f"{self.key(source, change)['rows']}#{change}"
        return name

    def cell(self, key: dict[str, Any], measure: Callable[[], Any]) -> Any:
        """What `measure` returns, in terms of JSON, unless a cell with this key is there."""
        found = self._read(key)
        if found is None:
            found = json.loads(json.dumps(measure()))
            self._write(key, found)
        return found

    def runs(
        self, source: str, plans: Sequence[TrainPlan], engine: LinearEngine = _LINEAR
    ) -> list[Runs]:
        """Repeats of every plan."""
        return self._runs(source, plans, self.repeats, "runs", engine)

    def best(
        self, source: str, plans: Sequence[TrainPlan], engine: LinearEngine = _LINEAR
    ) -> tuple[TrainPlan, Runs]:
        """The best of some plans by a few runs each, and fresh repeats of it: the best of many
        means would flatter itself."""
        scouted = self._runs(source, plans, self.effort.scouts, "scouts", engine)
        chosen = plans[int(np.argmax([runs.mean for runs in scouted]))]
        return chosen, self._runs(source, [chosen], self.repeats, "runs", engine)[0]

    def tuned(
        self, source: str, plan: TrainPlan, engine: LinearEngine = _LINEAR
    ) -> tuple[TrainPlan, Runs]:
        """A plan at the best of some learning rates, and its repeats."""
        return self.best(source, at_noises(plan, self.effort.noises), engine)

    def without_noise(self, source: str) -> Runs:
        """Epsilon = infinity: the best of some rates without noise or clipping. There is nothing to
        repeat."""
        steps = _LONGER * self.effort.steps  # noise does not tell it to stop
        start = _open_plan(self.task(source), steps, clip_norm=None)
        plans = [replace(start, learning_rate=rate) for rate in self.effort.plain_rates]
        return max(self._runs(source, plans, 1, "plain"), key=lambda runs: runs.mean)

    def studies(
        self,
        source: str,
        method: SearchMethod,
        budget: Budget,
        repeats: int | None = None,
        *,
        space: Space | None = None,
        recipe: Mapping[str, Any] = PLAIN,
        score: Score | None = None,
    ) -> Outcome:
        """Repeats of a whole search, in the space of `bench compare` where none is given."""
        times = self.repeats if repeats is None else repeats
        facts = {"method": repr(method), "budget": asdict(budget), "repeats": times}
        facts |= {
            "space": space and asdict(space),
            "recipe": dict(recipe),
            "score": repr(score or NoisyScore()),
        }
        return self._studies(
            self.key(source, "method", **facts),
            lambda: run_method(
                self.task(source),
                method,
                budget,
                times,
                self.report,
                space=space,
                recipe=recipe,
                score=score,
            ),
        )

    def oracle(
        self,
        source: str,
        budget: Budget,
        *,
        space: Space | None = None,
        recipe: Mapping[str, Any] = PLAIN,
    ) -> Outcome:
        """The best setting of a fine grid, which nobody paid for."""
        facts = {"space": space and asdict(space), "recipe": dict(recipe), "repeats": self.repeats}
        key = self.key(source, "oracle", budget=asdict(budget), **facts)
        return self._studies(
            key,
            lambda: run_oracle(self.task(source), budget, self.repeats, self.report, space, recipe),
        )

    def mean_norm(self, source: str, kind: str, plan: TrainPlan, *, still: bool = False) -> float:
        """How far from zero weights end on average; from where a run without noise ends, if
        `still`."""
        task = self.task(source)

        def measure() -> float:
            engine, start = LinearEngine(outputs=task.outputs), 0.0
            if still:
                (model,) = fit(engine, task, [replace(plan, noise_multiplier=0.0)])
                start = model.weights
            models = fit(engine, task, [plan] * self.repeats)
            return float(np.mean([float((one.weights - start).norm()) for one in models]))

        key = self.key(source, kind, plan=asdict(plan), repeats=self.repeats)
        return float(self.cell(key, measure))

    def key(self, source: str, kind: str, **facts: Any) -> dict[str, Any]:
        """The key of a cell about this source."""
        if source not in self._identities:
            self._identities[source] = identity(source)
        return {"kind": kind, "rows": self._identities[source], **facts}

    def _studies(self, key: dict[str, Any], measure: Callable[[], Outcome]) -> Outcome:
        return Outcome.from_dict(self.cell(key, lambda: measure().to_dict()))

    def _runs(
        self,
        source: str,
        plans: Sequence[TrainPlan],
        repeats: int,
        kind: str,
        engine: LinearEngine = _LINEAR,
    ) -> list[Runs]:
        own = {"bias": engine.bias, "initialization": engine.initialization}
        keys = [self.key(source, kind, plan=asdict(plan) | own, repeats=repeats) for plan in plans]
        found = [self._read(key) for key in keys]
        missing = [index for index, value in enumerate(found) if value is None]
        missing.sort(key=lambda index: plans[index].steps)  # those of a length train together
        if missing:
            engine = replace(engine, outputs=self.task(source).outputs)
        size = max(1, _RUNS_AT_ONCE // repeats)
        for start in range(0, len(missing), size):
            group = missing[start : start + size]
            self.report(f"{self.task(source).name}: {kind} {start} of {len(missing)}")
            wanted = [plans[index] for index in group for _ in range(repeats)]
            measured = np.reshape(accuracies(engine, self.task(source), wanted), (-1, repeats))
            for index, values in zip(group, measured.tolist(), strict=True):
                found[index] = values
                self._write(keys[index], values)
        return [Runs(tuple(values)) for values in found]

    def _file(self, key: dict[str, Any]) -> Path:
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        return self.out / "cells" / f"{key['kind']}-{digest[:24]}.json"

    def _read(self, key: dict[str, Any]) -> Any:
        return read(self._file(key), lambda plain: plain["value"])

    def _write(self, key: dict[str, Any], value: Any) -> None:
        write(self._file(key), json.dumps({"key": key, "value": value}))


def priced(
    task: Task, budget: Budget, steps: int, *, mu: float | None = None, **changes: Any
) -> TrainPlan:
    """Plain DP-GD with some changes and the noise that this budget (or `mu`) asks for, its learning
    rate still open."""
    plan = _open_plan(task, steps, **changes)
    if plan.sampling_rate is None:
        noise = gdp.noise_multiplier(budget.mu if mu is None else mu, steps)
    else:
        noise = calibrate_direct(
            epsilon=budget.epsilon,
            delta=budget.delta,
            steps=steps,
            sampling_rate=plan.sampling_rate,
        ).noise_multiplier
    return replace(plan, noise_multiplier=noise)


def _open_plan(task: Task, steps: int, **changes: Any) -> TrainPlan:
    recipe = PLAIN | changes
    noise = 0.0 if recipe["clip_norm"] is None else 1.0
    return TrainPlan(
        rows=task.train.count, steps=steps, learning_rate=1.0, noise_multiplier=noise, **recipe
    )


def at_noises(plan: TrainPlan, noises: Sequence[float]) -> list[TrainPlan]:
    """The plan at the learning rates that leave each of these noises on its weights."""
    unit = replace(plan, learning_rate=1.0).weight_noise
    return [replace(plan, learning_rate=noise / unit) for noise in noises]
