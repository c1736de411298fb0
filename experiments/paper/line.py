"""The paper's own search in its own setting, varied: what its trials may cost, which curve goes
through them, what is searched, and how r becomes a learning rate and steps."""

from collections.abc import Mapping
from dataclasses import replace

from dptune.accounting import Budget
from dptune.accounting.split import Sweep, split_budget
from dptune.bench.harness import SPACE
from dptune.bench.outcome import ORACLE, Outcome
from dptune.bench.tables import Table
from dptune.search.unit_noise import UnitNoise
from experiments.charts import Dots, Picture, Plot, Series, dots_of
from experiments.paper import published
from experiments.paper.experiment import Result
from experiments.paper.lab import DELTA, Lab, priced
from experiments.paper.own_setting import ONE, bounds, search
from experiments.paper.setting import CODED, LINES, RECIPE, SAID, natural, space_as_said

_LINE = LINES[SAID]
_TRIALS = _LINE.trials
_THIRD = 0.3  # the paper does not say at which epsilon its third sweep is
_FITS = {
    "linear (2)": _LINE,
    "linear (3)": replace(_LINE, epsilons=(*_LINE.epsilons, _THIRD)),
    "quadratic (3)": replace(_LINE, epsilons=(*_LINE.epsilons, _THIRD), degree=2),
    "linear (2), over mu": replace(_LINE, axis="mu"),
}
_SEARCHED = {
    "r": _LINE,
    "r and clipping norm": replace(_LINE, clip_norm=(0.1, 10.0)),
    "r and batch": replace(_LINE, sampling_rate=(0.1, 0.9)),
    "r, batch and clipping norm": replace(_LINE, sampling_rate=(0.1, 0.9), clip_norm=(0.1, 10.0)),
}
_DECOMPOSITIONS = ("rejection", "steps-first", "independent")
_BY_HAND = (20, 30, 40, 50, 70, 100)  # steps, of a fifth of the largest r: rates are in the space
_COLUMNS = {"accuracy": ".2f", "spread": ".2f", "below the oracle": ".2f", "r": ".4g"}


def _row(name: str, runs: Outcome, oracle: Outcome) -> list[object]:
    return [name, runs.mean, runs.spread, oracle.mean - runs.mean, runs.typical_r]


def _dots(found: Mapping[str, Outcome], oracle: Outcome) -> Dots:
    return Dots(
        "mean and standard deviation over repeats",
        "test accuracy (%)",
        list(found),
        [dots_of("the paper's line", list(found.values()))],
        ((oracle.mean, "oracle (unpaid)"),),
    )


def split(lab: Lab) -> Result:
    oracle = bounds(lab)[ORACLE]
    whole = lab.studies(lab.source, UnitNoise(), ONE)
    rows: list[list[object]] = []
    found: dict[str, Outcome] = {}
    for first, second, known, reached in published.SPLITS:
        split = split_budget(ONE, [Sweep(_TRIALS, first), Sweep(_TRIALS, second)])
        left = split.final.epsilon
        rest = lab.studies(lab.source, UnitNoise(), Budget(left, DELTA))
        name = f"{_TRIALS} × {first:g}, {_TRIALS} × {second:g}"
        runs = found[name] = search(lab, replace(_LINE, epsilons=(first, second)))
        rows.append(
            [
                name,
                100 * (1 - split.final.mu_squared / ONE.mu_squared()),
                left,
                f"{known:g}",
                whole.mean - rest.mean,
                *_row(name, runs, oracle)[1:],
                published.WITHOUT_SEARCH - reached,
                reached,
            ]
        )
    return Result(
        Table(
            {
                "trials at epsilon": "",
                "share of mu² (%)": ".2f",
                "epsilon left": ".4f",
                "paper's epsilon left": "",
                "a run on what is left loses": "+.2f",
                **_COLUMNS,
                "paper: below its oracle": ".2f",
                "paper: accuracy": ".2f",
            },
            rows,
        ),
        Picture(
            f"{lab.task(lab.source).name}: what a search takes from a total of epsilon 1",
            [_dots(found, oracle)],
        ),
        notes=(
            "0.1, 0.2 and 0.88 is the paper's default. What is left counts the scores of the "
            "trials as well (0.5 % of mu²), which the paper does not pay for. Its last row does "
            "not fit in epsilon 1: it costs 1.005, and at most 0.693 is left.",
            "A run on what is left: the unit-noise law with no search, against the same on the "
            "whole budget; that is what the search itself costs, whatever it finds.",
        ),
    )


def fits(lab: Lab) -> Result:
    oracle = bounds(lab)[ORACLE]
    found = {name: search(lab, method) for name, method in _FITS.items()}
    rows = []
    for name, runs in found.items():
        known = published.FITS.get(name)
        below = None if known is None else published.IMAGENET_ORACLE - known[0]
        printed = None if known is None else f"{known[0]:g} ± {known[1]:g}"
        rows.append([*_row(name, runs, oracle), below, printed])
    wide = lab.studies(lab.source, LINES[CODED], ONE)
    rows.append([*_row("authors' ranges, in our space", wide, oracle), None, None])
    found["authors' ranges, in our space"] = wide
    return Result(
        Table(
            {
                "fit (sweeps)": "",
                **_COLUMNS,
                "paper: below its oracle": ".2f",
                "paper: accuracy": "",
            },
            rows,
        ),
        Picture(
            f"{lab.task(lab.source).name}: curves through the best r of each sweep, epsilon 1",
            [_dots(found, oracle)],
        ),
        notes=(
            "In the paper linear (3) is 1.12 points above linear (2), and quadratic (3) ties with "
            f"it. It does not say at which epsilon its third sweep is; here {_THIRD:g}.",
            f"The last row is what the same line does elsewhere: rows of unit length, learning "
            f"rates {SPACE.learning_rate[0]:g} to {SPACE.learning_rate[1]:g}, trials and ranges of "
            "the authors' code. That space ends far beyond the best r, and the line with it.",
        ),
    )


def batch_and_clip(lab: Lab) -> Result:
    oracle = bounds(lab)[ORACLE]
    found = {name: search(lab, method) for name, method in _SEARCHED.items()}
    printed = {
        "r": f"{published.SEARCHING_R:.2f}",
        "r, batch and clipping norm": f"{published.SEARCHING_ALL:g} ± 1.9",
    }
    return Result(
        Table(
            {"searched": "", **_COLUMNS, "paper: accuracy": ""},
            [[*_row(name, runs, oracle), printed.get(name)] for name, runs in found.items()],
        ),
        Picture(
            f"{lab.task(lab.source).name}: searching the batch and the clipping norm too, epsilon "
            "1",
            [_dots(found, oracle)],
        ),
        notes=(
            "r is then the product of all that is searched. The batch is a share of the rows from "
            "0.1 to 0.9, the clipping norm is from 0.1 to 10, both drawn log-uniformly.",
        ),
    )


def decompositions(lab: Lab) -> Result:
    oracle = bounds(lab)[ORACLE]
    found = {name: search(lab, replace(_LINE, decomposition=name)) for name in _DECOMPOSITIONS}
    source = natural(lab.source)
    task = lab.task(source)
    r = 0.2 * space_as_said(task.train.count).total_step_size[1]
    plans = [
        replace(priced(task, ONE, steps, **RECIPE), learning_rate=r / steps) for steps in _BY_HAND
    ]
    runs = lab.runs(source, plans)
    rows = [_row(name, one, oracle) for name, one in found.items()]
    rows += [
        [
            f"one run, {plan.steps} steps at rate {plan.learning_rate:.3g}",
            one.mean,
            one.spread,
            oracle.mean - one.mean,
            plan.total_step_size,
        ]
        for plan, one in zip(plans, runs, strict=True)
    ]
    return Result(
        Table({"decomposition": "", **_COLUMNS}, rows),
        Picture(
            f"{lab.task(lab.source).name}: ways to split r into a learning rate and steps, "
            "epsilon 1",
            [
                _dots(found, oracle),
                Plot(
                    f"one run without search, r = {r:.3g}",
                    "steps",
                    "test accuracy (%)",
                    [Series.of_runs("split by hand", _BY_HAND, runs)],
                ),
            ],
        ),
        notes=(
            "rejection draws pairs until a product is near r, steps-first draws steps and divides, "
            "independent draws both. The last rows are single runs at a fifth of the largest r; "
            "all their rates are inside the paper's space.",
        ),
    )
