"""Methods side by side: accuracy, error reduction over random search, and feature extractors."""

import math

from dptune.accounting import Budget
from dptune.bench.compare import DRAWS, method_from
from dptune.bench.outcome import ORACLE, Outcome, Runs, error_reduction
from dptune.bench.tables import Table
from dptune.errors import DptuneError
from dptune.search.methods import METHODS
from dptune.search.paper_line import PaperLine
from dptune.search.random_search import RandomSearch
from experiments.charts import Dots, Picture, Plot, Series, dots_of
from experiments.paper import own_setting, published
from experiments.paper.experiment import NOT_PRINTED, WITHOUT_PRIVACY, Result, data_set
from experiments.paper.lab import DELTA, Lab
from experiments.paper.setting import LINES, SAID

RANDOM = RandomSearch.name
_LINE = PaperLine.name
_SAID = f"{_LINE}, {SAID}"
_OURS = f"{_LINE}, authors' ranges"
_TOTALS = (0.1, 0.3, 1.0, 3.0, 8.0)


def contenders(lab: Lab, source: str, budget: Budget) -> dict[str, Outcome | str]:
    """Every method and the oracle; one that cannot run at this budget says why."""
    found: dict[str, Outcome | str] = {}
    lab.task(source)  # what is wrong with the data is no method's fault
    for name in METHODS:
        times = lab.repeats * (DRAWS if name == RANDOM else 1)
        try:
            found[name] = lab.studies(source, method_from(name, budget), budget, times)
        except DptuneError as error:
            found[name] = f"not run: {error}"
    found[ORACLE] = lab.oracle(source, budget)
    return found


def reduction(found: dict[str, Outcome | str], name: str) -> tuple[float, float] | None:
    """RERR of a method in percent and its standard error, where there is a gap to close."""
    own, random, oracle = (found.get(key) for key in (name, RANDOM, ORACLE))
    if not isinstance(own, Runs) or not isinstance(random, Runs) or not isinstance(oracle, Runs):
        return None
    closed = error_reduction(own, random, oracle)
    return None if closed is None else (closed, 100 * own.error / (oracle.mean - random.mean))


def methods(lab: Lab) -> Result:
    budget = Budget(1.0, DELTA)
    found = contenders(lab, lab.source, budget)
    rows: list[list[object]] = []
    said, closed = _as_said(lab)
    rows.append(
        [
            _SAID,
            said.mean,
            said.spread,
            len(said.accuracies),
            None if closed is None else closed[0],
            said.spent_epsilon,
            f"{published.METHODS[_LINE]:g}",
            "the paper's space, rows of natural length",
        ]
    )
    for name, runs in found.items():
        printed = published.METHODS.get(name) if name != _LINE else None
        beside = None if printed is None else f"{printed:g}"
        if isinstance(runs, str):
            rows.append([name, *[None] * 5, beside, runs])
            continue
        rerr = reduction(found, name)
        rows.append(
            [
                _OURS if name == _LINE else runs.label,
                runs.mean,
                runs.spread,
                len(runs.accuracies),
                None if rerr is None else rerr[0],
                runs.spent_epsilon,
                beside,
                runs.note,
            ]
        )
    task = lab.task(lab.source)
    measured = {_SAID: said} | {
        _OURS if name == _LINE else runs.label: runs
        for name, runs in found.items()
        if isinstance(runs, Outcome)
    }
    whose = {_LINE: "its line", "subset": "subset", "private-selection": "private selection"}
    levels = [
        (value, f"paper, {whose[name]}: {value:g}") for name, value in published.METHODS.items()
    ]
    return Result(
        Table(
            {
                "method": "",
                "accuracy": ".2f",
                "spread": ".2f",
                "repeats": "d",
                "RERR": ".1f",
                "epsilon spent": ".4f",
                "paper": "",
                "note": "",
            },
            rows,
        ),
        Picture(
            f"{task.name}: whole searches at epsilon 1, delta 1e-5",
            [
                Dots(
                    "mean and standard deviation over repeats",
                    "test accuracy (%)",
                    list(measured),
                    [dots_of("dptune", list(measured.values()))],
                    levels if _is_resnet20(lab.source) else (),
                )
            ],
        ),
        notes=(
            "The first row is the paper's search in the paper's setting (see [paper](paper.md)), "
            "its errors reduced between random search and the oracle of that setting. All others "
            "look in one wide space of our own (learning rates 0.1 to 100 for rows of unit "
            f'length); "{_OURS}" narrows that space from sweep to sweep as the authors\' code '
            "does.",
        ),
    )


def rerr(lab: Lab) -> Result:
    budget = Budget(1.0, DELTA)
    rows: list[list[object]] = []
    values: dict[str, list[float]] = {}
    errors: dict[str, list[float]] = {}
    for source in lab.sources:
        found = contenders(lab, source, budget)
        for name, runs in found.items():
            rerr = reduction(found, name)
            values.setdefault(name, []).append(math.nan if rerr is None else rerr[0])
            errors.setdefault(name, []).append(0.0 if rerr is None else rerr[1])
            if isinstance(runs, str):
                rows.append([lab.task(source).name, name, None, None, None, None, None, runs])
                continue
            rows.append(
                [
                    lab.task(source).name,
                    _OURS if name == _LINE else runs.label,
                    runs.mean,
                    runs.spread,
                    *(rerr or (None, None)),
                    None,
                    "",
                ]
            )
        said, closed = _as_said(lab.only(source))
        beside = published.RERR.get(data_set(source))
        share, error = closed or (math.nan, 0.0)
        rows.append(
            [
                lab.task(source).name,
                _SAID,
                said.mean,
                said.spread,
                *(closed or (None, None)),
                NOT_PRINTED if beside is None else beside[3],
                "",
            ]
        )
        values.setdefault(_SAID, []).append(share)
        errors.setdefault(_SAID, []).append(error)
    for name in ("CIFAR-10 without public data", "ImageNet", "SQuAD"):
        absent = "not run: no such data here"
        rows.append([name, _SAID, None, None, None, None, published.RERR[name][3], absent])
    # Parameter-free recipes are so far below that beside them nothing else could be told apart.
    left_out = {ORACLE, RANDOM} | {name for name in METHODS if METHODS[name].fixes}
    drawn = [
        (_OURS if name == _LINE else name, values[name], errors[name])
        for name in values
        if name not in left_out
    ]
    return Result(
        Table(
            {
                "task": "",
                "method": "",
                "accuracy": ".2f",
                "spread": ".2f",
                "RERR": ".1f",
                "standard error": ".1f",
                "paper": "",
                "note": "",
            },
            rows,
        ),
        Picture(
            "Error reduction over random search at epsilon 1, delta 1e-5",
            [
                Dots(
                    "mean and its standard error",
                    "share closed of the gap between random search and an unpaid oracle (%)",
                    [lab.task(source).name for source in lab.sources],
                    drawn,
                    ((100.0, "oracle"), (0.0, "random search")),
                )
            ],
        ),
        notes=(
            f'"{_SAID}" is in the paper\'s space, on rows of natural length, with random search '
            "and oracle of that setting ([paper](paper.md)); all others are in a wide space of our "
            "own.",
            "Recipes without anything to tune are in the table only, not in the picture.",
        ),
    )


def architectures(lab: Lab) -> Result:
    rows: list[list[object]] = []
    series = []
    for source in lab.sources:
        task, front = lab.task(source), []
        facts = [task.name, task.train.count, task.train.columns, task.outputs]
        for total in _TOTALS:
            budget = Budget(total, DELTA)
            runs = lab.studies(source, method_from("linear-scaling", budget), budget)
            front.append(runs)
            rows.append([*facts, total, runs.mean, runs.spread, _printed(source, total)])
        plain = lab.without_noise(source).mean
        rows.append([*facts, WITHOUT_PRIVACY, plain, None, _printed(source, math.inf)])
        series.append(Series.of_runs(task.name, _TOTALS, front))
    return Result(
        Table(
            {
                "features": "",
                "rows": ",d",
                "columns": ",d",
                "classes": "d",
                "epsilon": "g",
                "accuracy": ".2f",
                "spread": ".2f",
                "paper": "",
            },
            rows,
        ),
        Picture(
            "Frozen features, one search each: accuracy over the budget",
            [
                Plot(
                    "linear-scaling, mean and standard deviation",
                    "total epsilon at delta 1e-5",
                    "test accuracy (%)",
                    series,
                    xlog=True,
                )
            ],
        ),
    )


def _as_said(lab: Lab) -> tuple[Outcome, tuple[float, float] | None]:
    """The paper's search in its own setting, paid scores, and the RERR it has there."""
    runs = own_setting.search(lab, LINES[SAID])
    return runs, reduction({_SAID: runs, **own_setting.bounds(lab)}, _SAID)


def _printed(source: str, epsilon: float) -> str:
    return published.EXTRACTORS.get((data_set(source), epsilon), NOT_PRINTED)


def _is_resnet20(source: str) -> bool:
    return source == "demo" or "cifar10_resnet20" in source
