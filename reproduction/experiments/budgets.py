"""Over many budgets: fronts of accuracy and of r, and one search that serves them all."""

from dataclasses import replace
from typing import Any, cast

from dptune.accounting import Budget
from dptune.bench.compare import DRAWS, method_from
from dptune.bench.harness import accuracies, run_method
from dptune.bench.outcome import ORACLE, Outcome, Runs
from dptune.bench.tables import Table
from dptune.engines.linear import LinearEngine
from dptune.search.base import SearchMethod, Situation, Stage, calibrated, draft
from dptune.search.space import Setting
from reproduction.charts import Picture, Plot, Series
from reproduction.experiment import UNKNOWN, Experiment, Result
from reproduction.experiments.methods import RANDOM
from reproduction.lab import DELTA, Lab

_SERVED = (0.5, 1.0, 2.0, 4.0, 8.0)
_FRONTS = ("linear-scaling", "unit-noise", "paper-line", RANDOM)


def _pareto(lab: Lab) -> Result:
    rows: list[list[object]] = []
    totals = lab.effort.totals
    found: dict[str, list[Outcome]] = {}
    for name in (*_FRONTS, ORACLE):
        for total in totals:
            budget = Budget(total, DELTA)
            if name == ORACLE:
                runs = lab.oracle(lab.source, budget)
            else:
                times = lab.repeats * (DRAWS if name == RANDOM else 1)
                runs = lab.studies(lab.source, method_from(name, budget), budget, times)
            found.setdefault(runs.label, []).append(runs)
            rows.append([runs.label, total, runs.mean, runs.spread, runs.typical_r])
    return Result(
        Table(
            {
                "method": "",
                "epsilon": "g",
                "accuracy": ".2f",
                "spread": ".2f",
                "r": ".4g",
            },
            rows,
        ),
        Picture(
            f"{lab.task(lab.source).name}: accuracy and chosen r over the budget",
            [
                Plot(
                    "accuracy: mean and standard deviation",
                    "total epsilon at delta 1e-5",
                    "test accuracy (%)",
                    [
                        Series(name, totals, [r.mean for r in runs], [r.spread for r in runs])
                        for name, runs in found.items()
                    ],
                    xlog=True,
                ),
                Plot(
                    "r of the final run: geometric mean",
                    "total epsilon at delta 1e-5",
                    "total step size r (learning rate × steps)",
                    [
                        Series(name, totals, [r.typical_r for r in runs])
                        for name, runs in found.items()
                    ],
                    xlog=True,
                    ylog=True,
                ),
            ],
        ),
    )


class Watched:
    """A method that notes what it knew when it chose the final run, and what was left for it."""

    def __init__(self, method: SearchMethod) -> None:
        self._method = method
        self.seen: list[tuple[Stage, Situation]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def suggest(self, stage: Stage, situation: Situation) -> list[Setting]:
        if stage.trials == 1:
            self.seen.append((stage, replace(situation, history=tuple(situation.history))))
        return self._method.suggest(stage, situation)


def _served(lab: Lab, name: str) -> list[Runs]:
    """Final runs at every total, all from searches that were paid within the least of them."""
    least = Budget(_SERVED[0], DELTA)
    # The trials of the authors, which a total of one half can pay as well.
    method = method_from(name, Budget(1.0, DELTA))
    task = lab.task(lab.source)

    def measure() -> list[list[float]]:
        watched = Watched(method)
        run_method(task, cast(SearchMethod, watched), least, lab.repeats, lab.report)
        plans = []
        for total in _SERVED:
            for stage, situation in watched.seen:
                spent = least.mu_squared() - stage.mu_squared
                left = Budget(total, DELTA).mu_squared() - spent
                (setting,) = method.suggest(Stage(stage.name, 1, left), situation)
                plans.append(calibrated(draft(situation.recipe, setting), left, 0.0))
        engine = LinearEngine(outputs=task.outputs)
        found = accuracies(engine, task, plans)
        size = lab.repeats
        return [list(found[i : i + size]) for i in range(0, len(found), size)]

    key = lab.key(
        lab.source, "served", method=repr(method), totals=list(_SERVED), repeats=lab.repeats
    )
    return [Runs(tuple(values)) for values in lab.cell(key, measure)]


def _one_search(lab: Lab) -> Result:
    rows: list[list[object]] = []
    series = []
    for number, name in enumerate(("linear-scaling", "paper-line")):
        one = _served(lab, name)
        own = []
        for total, runs in zip(_SERVED, one, strict=True):
            budget = Budget(total, DELTA)
            beside = lab.studies(lab.source, method_from(name, budget), budget)
            own.append(beside)
            rows.append(
                [
                    name,
                    total,
                    runs.mean,
                    runs.spread,
                    beside.mean,
                    beside.spread,
                    runs.mean - beside.mean,
                ]
            )
        series += [
            Series(
                f"{name}, one search for all",
                _SERVED,
                [r.mean for r in one],
                [r.spread for r in one],
                color=2 * number,
            ),
            Series(
                f"{name}, a search of its own",
                _SERVED,
                [r.mean for r in own],
                [r.spread for r in own],
                color=2 * number + 1,
            ),
        ]
    return Result(
        Table(
            {
                "method": "",
                "epsilon": "g",
                "one search": ".2f",
                "spread": ".2f",
                "own search": ".2f",
                "spread of own": ".2f",
                "difference": "+.2f",
            },
            rows,
        ),
        Picture(
            f"{lab.task(lab.source).name}: a search paid within epsilon {_SERVED[0]:g}, "
            "used for every larger total",
            [
                Plot(
                    "mean and standard deviation over repeats",
                    "total epsilon at delta 1e-5, search included",
                    "test accuracy (%)",
                    series,
                    xlog=True,
                )
            ],
        ),
    )


EXPERIMENTS = (
    Experiment(
        "pareto",
        "Fronts of accuracy and of r over epsilon",
        "It draws accuracy over epsilon 0.5 to 8, and lets r grow linearly with epsilon; the "
        "single values are " + UNKNOWN + ".",
        "Frozen features of the data at hand.",
        _pareto,
    ),
    Experiment(
        "one-search",
        "One search for many budgets",
        "One search at small epsilon serves final runs from epsilon 0.5 to 8; its accuracies are "
        + UNKNOWN
        + ".",
        "The search is paid within epsilon 0.5; larger totals leave the rest to the final run.",
        _one_search,
    ),
)
