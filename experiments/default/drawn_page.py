"""The page of tables that a rule draws: the default beside others, and where it loses."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from experiments import figures, lines
from experiments.charts import Picture, Plot, Series
from experiments.default import drawn
from experiments.default.drawn import LAW, MULTIPLES, ROOT
from experiments.pages import COMPARED, by_budget, json_list, markdown, write_below

PAGE = COMPARED / "drawn.json"
_GREY = 7  # of the colours of `experiments.figures`
CLEARLY, MARKED, APART, SHOWN = 0.1, 0.5, 1.0, 5.0  # points of accuracy
MOST_LISTED = 10

AGAINST_UNIT_NOISE = """
"Clearly" is by more than {clearly:g} points and two standard errors, those of the table's own
runs. These are few, so luck alone may put one table in twenty on either side.

## Multiples of the law's `c`

Points over the law itself, means over tables with standard errors over tables:

"""
LOSSES = """
## The largest losses against logistic regression, at epsilon {epsilon:g}

The default is below logistic regression without privacy on {lost} of {tables} tables, and furthest
on these {count}. Test accuracy in percent; "majority" is what the most frequent class of the
training rows gives:

"""
FALLS = """
## Where more budget gave less

The tables on which the mean of the default's studies falls with more budget by more than {marked:g}
points and two standard errors, {falls} of {pairs} pairs of budgets:

"""


@dataclass(frozen=True)
class Cell:
    """A table at one budget. Pairs are a mean and its standard error; `multiples` has a list over
    parts of the test rows a multiple, `sizes` says how many rows each part has."""

    table: str
    target: str
    epsilon: float
    rows: int
    columns: int
    classes: int
    majority: float
    regression: float
    noise: float  # the law's
    averaged: bool
    default: tuple[float, float]
    unit_noise: tuple[float, float]
    random: tuple[float, float]
    sizes: list[int]
    multiples: list[list[float]]

    @property
    def at(self) -> list[float]:
        """Of every multiple, the accuracy on all test rows."""
        return [float(np.average(each, weights=self.sizes)) for each in self.multiples]

    @property
    def best(self) -> float:
        """Every part judged by the multiple that the others chose."""
        right, sizes = np.array(self.multiples), np.array(self.sizes)
        judged = []
        for number in range(len(sizes)):
            others = np.where(np.arange(len(sizes)) == number, 0, sizes)
            judged.append(right[(right @ others).argmax(), number])
        return float(np.average(judged, weights=sizes))


Difference = Callable[[Cell], float]
BESIDE: dict[str, Difference] = {
    "unit noise": lambda cell: cell.default[0] - cell.unit_noise[0],
    "a setting at random": lambda cell: cell.default[0] - cell.random[0],
    "the law's c alone": lambda cell: cell.default[0] - cell.at[LAW],
    "the best multiple of it": lambda cell: cell.default[0] - cell.best,
    "logistic regression without privacy": lambda cell: cell.default[0] - cell.regression,
}


def compact(cell: drawn.Cell, found: Mapping[str, Any]) -> Cell:
    line = asdict(cell) | {**found}
    sizes, each = line["parts"], line["prepared"]

    def of(what: str) -> tuple[float, float]:
        """Runs on rows that were prepared once are not independent: preparations count."""
        return mean_and_error(
            [float(np.average(np.mean(made[what], axis=0), weights=sizes)) for made in each]
        )

    multiples = np.mean([made["multiples"] for made in each], axis=(0, 2)).round(3)
    same = ("table", "target", "epsilon", "rows", "columns", "classes", "majority", "regression")
    return Cell(
        **{name: _rounded(line[name]) for name in same},
        noise=_rounded(fmean(made["noise"] for made in each)),
        averaged=each[0]["averaged"],
        default=mean_and_error(line["default"]),
        unit_noise=of("unit noise"),
        random=of("random"),
        sizes=sizes,
        multiples=multiples.tolist(),
    )


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return round(fmean(values), 4), round(error, 4)


def recovered(cells: Sequence[Cell]) -> tuple[float, float]:
    """The pooled RERR, and its standard error."""
    gains = np.array([cell.default[0] - cell.random[0] for cell in cells])
    could = np.array([cell.best - cell.random[0] for cell in cells])
    without = (gains.sum() - gains) / (could.sum() - could)
    error = math.sqrt((len(cells) - 1) * float(np.var(without)))
    return 100 * float(gains.sum() / could.sum()), 100 * error


def text(cells: Sequence[Cell]) -> str:
    budgets, by_table = by_budget(cells), of_tables(cells)
    heads = ("the default minus", *(f"epsilon {e:g}" for e in budgets))
    found = markdown(heads, beside(budgets)) + AGAINST_UNIT_NOISE.format(clearly=CLEARLY)
    found += markdown(("epsilon", *map(_times, MULTIPLES)), multiples(budgets))
    most, dearest = max(budgets.items())
    against = BESIDE["logistic regression without privacy"]
    lost = sorted((cell for cell in dearest if against(cell) < 0), key=against)
    losses = lost[:MOST_LISTED]
    found += LOSSES.format(epsilon=most, count=len(losses), lost=len(lost), tables=len(dearest))
    heads = (*_HEADS, "default", "unit noise", "best", "regression", "majority")
    found += markdown(heads, _of(losses))
    falls = list(falling(by_table))
    pairs = sum(math.comb(len(each), 2) for each in by_table.values())
    found += FALLS.format(marked=MARKED, falls=len(falls), pairs=pairs)
    if falls:
        heads = (*_HEADS, "epsilon", "default", "epsilon", "default", "falls by")
        found += markdown(heads, falls)
    return found + "\n![drawn](drawn.png)\n"


def of_tables(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: (cell.table, cell.epsilon)):
        found.setdefault(cell.table, []).append(cell)
    return found


def beside(budgets: Mapping[float, Sequence[Cell]]) -> Iterator[tuple[str, ...]]:
    some = budgets.values()
    for label, difference in BESIDE.items():
        yield label, *(_points([difference(cell) for cell in cells]) for cells in some)
    yield "RERR, percent", *map(_recovered, some)
    far = [[cell for cell in cells if cell.best - cell.random[0] >= APART] for cells in some]
    yield "RERR where a random setting is a point behind", *map(_recovered, far)
    for label, sign in (("clearly below unit noise", -1), ("clearly above unit noise", 1)):
        yield label, *(f"{sum(is_clear(cell, sign) for cell in cells)} tables" for cells in some)
    yield "tables", *(str(len(cells)) for cells in some)


def _recovered(cells: Sequence[Cell]) -> str:
    value, error = recovered(cells)
    return f"{value:.1f} ± {error:.1f} ({len(cells)} tables)"


def is_clear(cell: Cell, sign: int) -> bool:
    difference = sign * BESIDE["unit noise"](cell)
    return difference > max(CLEARLY, 2 * math.hypot(cell.default[1], cell.unit_noise[1]))


def multiples(budgets: Mapping[float, Sequence[Cell]]) -> Iterator[tuple[str, ...]]:
    for epsilon, cells in budgets.items():
        over_law = [[value - cell.at[LAW] for value in cell.at] for cell in cells]
        columns = [_points(values) for values in zip(*over_law, strict=True)]
        columns[LAW] = "0"
        yield f"{epsilon:g}", *columns


_HEADS = ("table", "told", "rows", "columns", "classes")


def _facts(cell: Cell) -> tuple[str, ...]:
    counts = f"{cell.rows:,}", str(cell.columns), str(cell.classes)
    return cell.table, cell.target, *counts


def _of(cells: Sequence[Cell]) -> Iterator[tuple[str, ...]]:
    for cell in cells:
        values = (cell.default[0], cell.unit_noise[0], cell.best, cell.regression, cell.majority)
        yield *_facts(cell), *(f"{value:.1f}" for value in values)


def falling(by_table: Mapping[str, Sequence[Cell]]) -> Iterator[tuple[str, ...]]:
    for cells in by_table.values():
        for little, more in combinations(cells, 2):
            fall = little.default[0] - more.default[0]
            error = math.hypot(little.default[1], more.default[1])
            if fall > max(MARKED, 2 * error):
                values = [
                    text
                    for cell in (little, more)
                    for text in (f"{cell.epsilon:g}", f"{cell.default[0]:.1f}")
                ]
                yield *_facts(little), *values, f"{fall:.1f} ± {error:.1f}"


def picture(cells: Sequence[Cell]) -> Picture:
    lines = ("the best multiple of it", "unit noise", "logistic regression without privacy")
    panels = []
    for epsilon, some in by_budget(cells).items():
        share = [100 * (place + 0.5) / len(some) for place in range(len(some))]
        series = [
            Series(
                f"minus {label.replace(' of it', '')}",
                share,
                sorted(min(max(BESIDE[label](cell), -SHOWN), SHOWN) for cell in some),
                line=False,
            )
            for label in lines
        ]
        level = Series("no difference", (0, 100), (0, 0), color=_GREY)
        panels.append(
            Plot(
                f"epsilon {epsilon:g}",
                "percent of the tables",
                "points of test accuracy",
                [*series, level],
                within=(-1.1 * SHOWN, 1.1 * SHOWN),
            )
        )
    return Picture(
        f"The default minus others on tables that a rule drew, each sorted; cut at -{SHOWN:g} and "
        f"+{SHOWN:g} points",
        panels,
    )


def _points(values: Sequence[float]) -> str:
    mean, error = mean_and_error(values)
    return f"{mean:+.2f} ± {error:.2f}"


def _times(multiple: float) -> str:
    if multiple == 1:
        return "c"
    factor, over = max(multiple, 1 / multiple), multiple < 1
    text = "√2" if math.isclose(factor, ROOT) else f"{factor:g}"
    return f"c/{text}" if over else f"{text} c"


def write(folder: Path | None) -> None:
    """Anew, with cells of the folder in place of older ones."""
    known = [Cell(**each) for each in json.loads(PAGE.read_text())]
    last = {(each.table, each.epsilon): each for each in known}
    if folder:
        for cell, found in lines.read(folder, drawn.VERB, drawn.Cell).items():
            last[cell.table, cell.epsilon] = compact(cell, found)
    cells = [last[key] for key in sorted(last)]
    PAGE.write_text(json_list(json.dumps(asdict(each)) for each in cells))
    write_below(PAGE.with_suffix(".md"), text(cells))
    PAGE.with_suffix(".png").write_bytes(figures.png(picture(cells)))
