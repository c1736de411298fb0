"""Over many budgets: fronts of accuracy and of r, and one search that serves them all."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from dptune.accounting import Budget
from dptune.bench.harness import SPACE, accuracies, run_method
from dptune.bench.outcome import ORACLE, Outcome, Runs
from dptune.bench.tables import Table
from dptune.engines.linear import LinearEngine
from dptune.search.base import SearchMethod, Situation, Stage, calibrated, draft
from dptune.search.linear_scaling import LinearScaling
from dptune.search.random_search import RandomSearch
from dptune.search.space import Setting, Space
from experiments.charts import Picture, Plot, Series
from experiments.paper.experiment import WITHOUT_PRIVACY, Result
from experiments.paper.lab import DELTA, PLAIN, Lab
from experiments.paper.own_setting import bounds, search
from experiments.paper.setting import LINES, RECIPE, SAID, natural, space_as_said

_SERVED = (0.5, 1.0, 2.0, 4.0, 8.0)
_LINE = LINES[SAID]


def _front(lab: Lab, budget: Budget) -> dict[str, Outcome]:
    """All in the paper's setting; trials of its line cost in proportion to the budget."""
    trials = tuple(epsilon * budget.epsilon for epsilon in _LINE.epsilons)
    between = bounds(lab, budget)
    return {
        "the paper's line": search(lab, replace(_LINE, epsilons=trials), budget),
        "linear-scaling": search(lab, LinearScaling(), budget),
        "random search": between[RandomSearch.name],
        "oracle (unpaid)": between[ORACLE],
    }


def pareto(lab: Lab) -> Result:
    totals = lab.effort.totals
    fronts = [_front(lab, Budget(total, DELTA)) for total in totals]
    found = {name: [front[name] for front in fronts] for name in fronts[0]}
    rows: list[list[object]] = [
        [name, total, runs.mean, runs.spread, best.mean - runs.mean, runs.typical_r]
        for name, all_runs in found.items()
        for total, runs, best in zip(totals, all_runs, found["oracle (unpaid)"], strict=True)
    ]
    plain = lab.without_noise(natural(lab.source)).mean
    rows.append(["without noise", WITHOUT_PRIVACY, plain, None, None, None])
    return Result(
        Table(
            {
                "method": "",
                "epsilon": "g",
                "accuracy": ".2f",
                "spread": ".2f",
                "below the oracle": ".2f",
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
                    [Series.of_runs(name, totals, runs) for name, runs in found.items()],
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
        notes=(
            "Trials of the paper's line cost a tenth and a fifth of the total epsilon each. Below "
            "epsilon 0.1 they carry next to no signal.",
        ),
    )


@dataclass(frozen=True)
class Place:
    """Where one search of many budgets is made."""

    source: str
    space: Space
    recipe: Mapping[str, Any]


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


def _served(lab: Lab, method: SearchMethod, place: Place) -> list[Runs]:
    """Final runs at every total, all from searches that were paid within the least of them."""
    least = Budget(_SERVED[0], DELTA)
    task = lab.task(place.source)

    def measure() -> list[list[float]]:
        watched = Watched(method)
        run_method(
            task,
            cast(SearchMethod, watched),
            least,
            lab.repeats,
            lab.report,
            space=place.space,
            recipe=place.recipe,
        )
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

    facts = {"totals": list(_SERVED), "space": asdict(place.space), "recipe": dict(place.recipe)}
    key = lab.key(place.source, "served", method=repr(method), repeats=lab.repeats, **facts)
    return [Runs(tuple(values)) for values in lab.cell(key, measure)]


def one_search(lab: Lab) -> Result:
    rows: list[list[object]] = []
    series = []
    theirs = natural(lab.source)
    space = space_as_said(lab.task(theirs).train.count)
    # Trials that a total of one half can pay as well.
    cheap = replace(_LINE, epsilons=tuple(epsilon / 2 for epsilon in _LINE.epsilons))
    searches: tuple[tuple[str, SearchMethod, Place], ...] = (
        ("linear-scaling", LinearScaling(), Place(lab.source, SPACE, PLAIN)),
        ("the paper's line", cheap, Place(theirs, space, RECIPE)),
    )
    for number, (name, method, place) in enumerate(searches):
        one = _served(lab, method, place)
        own = []
        for total, runs in zip(_SERVED, one, strict=True):
            beside = lab.studies(
                place.source, method, Budget(total, DELTA), space=place.space, recipe=place.recipe
            )
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
            Series.of_runs(f"{name}, one search for all", _SERVED, one, 2 * number),
            Series.of_runs(f"{name}, a search of its own", _SERVED, own, 2 * number + 1),
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
