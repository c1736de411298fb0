"""A page of all cells, beside the paper's figures, and a picture of them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from dptune.bench.harness import Report
from dptune.bench.outcome import ORACLE
from dptune.bench.store import read, write
from dptune.bench.tables import Table
from dptune.search.linear_scaling import LinearScaling
from dptune.search.random_search import RandomSearch
from experiments.charts import Panel, Picture, Plot, Series
from experiments.pages import draw, with_spread
from experiments.paper import published
from experiments.vision.cells import Cell, Measured, cells_in

PAGE, PICTURE = "vision.md", "vision.png"
_PAPER_NAMES = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "fashion_mnist": "FashionMNIST",
    "emnist": "EMNIST",
    "mnist": "MNIST",
}
_NUMBER = ".2f"
_PAPERS_FEATURES = (
    f"The paper's are of its best backbone, {published.BEST_EXTRACTOR}, pretrained on "
    "ImageNet-21k: other features than any here."
)
Found = Mapping[Cell, Measured]


def write_page(out: Path, report: Report) -> Path:
    """The page and the picture of all that the folder holds."""
    found = cells_in(out)
    drawn = bool(found) and draw(picture(found), out / PICTURE, report)
    compared = _compared(out)
    parts = ["# Vision: the paper's tasks from pictures", _setting(found), *_by_set(found)]
    parts += _gaps(found)
    parts += _on_shifts(found)
    parts += _own_setting(found, compared)
    parts += _searches(compared)
    if drawn:
        parts.append(f"![accuracies over epsilon, and what privacy costs]({PICTURE})")
    write(out / PAGE, "\n\n".join(parts) + "\n")
    return out / PAGE


def paper_name(pictures: str) -> str:
    """What the paper calls a set; a file's name may say more than the set's."""
    known = [key for key in _PAPER_NAMES if pictures.startswith(key)]
    return _PAPER_NAMES[max(known, key=len)] if known else pictures


def _setting(found: Found) -> str:
    limited = sorted({cell.limit for cell in found if cell.limit is not None})
    few = "".join(f" Tried on {limit:,} pictures of each part only." for limit in limited)
    return (
        "Accuracies in percent of the test pictures, means of repeated studies with fresh noise "
        "and their standard deviations. Every study pays for all of its search inside the stated "
        "epsilon, at delta 1e-5, with the default recipe. Infinity: a softmax regression on the "
        f"same rows, without privacy.{few}"
    )


def _by_set(found: Found) -> list[str]:
    budgets = sorted({cell.epsilon for cell in found if cell.epsilon is not None})
    heads = [f"epsilon {budget:g}" for budget in budgets]
    columns = {"set": "", "features": "", "columns": ",d", "rows": ",d"}
    columns |= dict.fromkeys(heads, "") | {"infinity": _NUMBER, "repeats": ""}
    rows: list[list[Any]] = []
    for pictures in _sets(found):
        for features, cells in _rows_of(found, pictures).items():
            one = next(iter(cells.values()))
            plain = cells.get(None)
            private = [cells.get(budget) for budget in budgets]
            texts = [None if each is None else with_spread(each.accuracies) for each in private]
            repeats = {len(each.accuracies) for each in private if each is not None}
            shown = [*texts, plain and plain.mean, ", ".join(map(str, sorted(repeats)))]
            rows.append([paper_name(pictures), features, one.columns, one.rows, *shown])
        rows += _paper_rows(paper_name(pictures), budgets)
    return [
        "## Accuracies, beside Tables 4 and 16",
        Table(columns, rows).markdown().rstrip(),
        _PAPERS_FEATURES,
        *_own_sets(found),
    ]


def _own_sets(found: Found) -> list[str]:
    """Files of weights are called after the set that they were trained on."""
    own = {
        f"{cell.features} on {paper_name(cell.pictures)}"
        for cell in found
        if re.search(rf"{re.escape(cell.pictures)}(?!\d)", cell.backbone)
    }
    if not own:
        return []
    saw = ", ".join(sorted(own))
    return [f"Not private, since the weights were trained on the same pictures: {saw}."]


def _paper_rows(name: str, budgets: Sequence[float]) -> list[list[Any]]:
    rows: list[list[Any]] = []
    best = published.PRIVATE_AND_PLAIN.get((published.BEST_EXTRACTOR, name))
    if best is not None:
        said = {1.0: f"{best[0]:.2f}"}
        said |= {
            b: published.EXTRACTORS[name, b] for b in budgets if (name, b) in published.EXTRACTORS
        }
        at = [said.get(budget) for budget in budgets]
        rows.append(
            [name, f"the paper: {published.BEST_EXTRACTOR}", None, None, *at, best[1], None]
        )
    if name in published.PRIOR_WORK:
        tenth, one, plain = published.PRIOR_WORK[name]
        at = [{0.1: f"{tenth:.2f}", 1.0: f"{one:.2f}"}.get(budget) for budget in budgets]
        rows.append([name, "the paper: Mehta et al.", None, None, *at, plain, None])
    return rows


def _gaps(found: Found) -> list[str]:
    """Between epsilon 1 and infinity, in order of accuracy without privacy."""
    parts = [
        "## What privacy costs by backbone",
        "The paper: the gap between epsilon 1 and infinity shrinks as the backbone gets better.",
    ]
    columns = {"set": "", "features": "", "infinity": _NUMBER, "epsilon 1": _NUMBER, "gap": _NUMBER}
    rows: list[list[Any]] = []
    verdicts = []
    for pictures in _sets(found):
        ours = _gaps_of(found, pictures)
        name = paper_name(pictures)
        rows += [[name, features, plain, one, plain - one] for plain, one, features in ours]
        theirs = sorted(
            (plain, one, f"the paper: {model}")
            for (model, which), (one, plain) in published.PRIVATE_AND_PLAIN.items()
            if which == name
        )
        rows += [[name, features, plain, one, plain - one] for plain, one, features in theirs]
        if len(ours) > 1:
            verdicts.append(f"{name}: {_verdict(ours)}")
    said = f"Here, from the worst backbone to the best: {'; '.join(verdicts)}." if verdicts else ""
    return [*parts, Table(columns, rows).markdown().rstrip(), *([said] if said else [])]


def _gaps_of(found: Found, pictures: str) -> list[tuple[float, float, str]]:
    """(without privacy, at epsilon 1, features), the worst first."""
    gaps = []
    for features, cells in _rows_of(found, pictures).items():
        plain, one = cells.get(None), cells.get(1.0)
        if plain is not None and one is not None:
            gaps.append((plain.mean, one.mean, features))
    return sorted(gaps)


def _verdict(ours: Sequence[tuple[float, float, str]]) -> str:
    gaps = [plain - one for plain, one, _ in ours]
    steps = [later < earlier for earlier, later in pairwise(gaps)]
    figures = ", ".join(f"{gap:.2f}" for gap in gaps)
    if all(steps):
        return f"it shrinks with every step ({figures})"
    whole = "is below" if gaps[-1] < gaps[0] else "is not below"
    return f"it does not shrink with every step; the best's {whole} the worst's ({figures})"


def _on_shifts(found: Found) -> list[str]:
    columns = {"trained on": "", "shift": "", "features": "", "epsilon": "", "itself": _NUMBER}
    columns |= {"shift, mean": _NUMBER, "worst group": _NUMBER, "which": ""}
    rows: list[list[Any]] = []
    for cell, measured in sorted(found.items(), key=lambda pair: _order(pair[0])):
        for shift in measured.shifts:
            budget = "infinity" if cell.epsilon is None else f"{cell.epsilon:g}"
            start = [paper_name(cell.pictures), shift.name, cell.features, budget, measured.mean]
            rows.append([*start, fmean(shift.accuracies), fmean(shift.worst), shift.worst_group])
    if not rows:
        return []
    for name in dict.fromkeys(row[0] for row in rows):
        if name in published.SHIFTS:
            ours, prior = published.SHIFTS[name]
            blur = "Gaussian blur"
            rows.append([name, blur, "the paper", "1", *ours, None, None])
            rows.append([name, blur, "the paper: prior work", "infinity", *prior, None, None])
    return ["## Shifts, beside Table 5", Table(columns, rows).markdown().rstrip()]


def _sets(found: Found) -> list[str]:
    """In the paper's order, others after its."""
    papers = list(_PAPER_NAMES.values())

    def place(pictures: str) -> tuple[int, str]:
        name = paper_name(pictures)
        return papers.index(name) if name in papers else len(papers), pictures

    return sorted({cell.pictures for cell in found}, key=place)


def _order(cell: Cell) -> tuple[str, str, float]:
    budget = float("inf") if cell.epsilon is None else cell.epsilon
    return paper_name(cell.pictures), cell.features, budget


def _own_setting(found: Found, compared: Sequence[Mapping[str, Any]]) -> list[str]:
    """The two settings of Table 2, where their networks are among those measured."""
    at_one = [(cell, m) for cell, m in found.items() if cell.epsilon == 1.0]
    on_cifar = [(c, m) for c, m in at_one if paper_name(c.pictures) == "CIFAR-10"]
    parts = []
    columns = {"what": "", "columns": ",d", "accuracy at epsilon 1": ""}
    public = [
        (c, m) for c, m in on_cifar if c.backbone.startswith("resnet20") and c.kind == "grid4"
    ]
    if public:
        rows: list[list[Any]] = [
            [f"here: {c.features}", m.columns, with_spread(m.accuracies)] for c, m in public
        ]
        rows += [
            ["the paper: its rule", 1024, f"{published.METHODS['paper-line']:.2f}"],
            ["the paper: Koskela & Kulkarni", 1024, f"{published.METHODS['subset']:.2f}"],
            [
                "the paper: Papernot & Steinke",
                1024,
                f"{published.METHODS['private-selection']:.2f}",
            ],
        ]
        parts += [
            "## CIFAR-10 on a ResNet-20 of CIFAR-100, beside Table 2",
            Table(columns, rows).markdown().rstrip(),
        ]
    without = [(c, m) for c, m in on_cifar if c.backbone.startswith("wrn16-4")]
    if without:
        random, oracle, rule, _ = published.RERR["CIFAR-10 without public data"]
        rows = [[f"here: {c.features}", m.columns, with_spread(m.accuracies)] for c, m in without]
        rows += [
            [
                f"here: {row['task']}, {row['method']}",
                None,
                f"{row['mean']:.2f} ± {row['spread']:.2f}",
            ]
            for row in compared
            if "wrn16-4" in row["task"] and row["method"] != LinearScaling.name
        ]
        rows += [
            ["the paper: its rule", 256, f"{rule:.2f}"],
            ["the paper: random search", 256, f"{random:.2f}"],
            ["the paper: oracle, unpaid", 256, f"{oracle:.2f}"],
        ]
        parts += [
            "## CIFAR-10 without public data, beside Tables 2 and 3",
            Table(columns, rows).markdown().rstrip(),
        ]
    return parts


def _compared(out: Path) -> list[Mapping[str, Any]]:
    """Rows of `bench compare`, of every set and backbone that were compared."""
    files = sorted((out / "rerr").glob("*/compare.json"))
    tables: dict[str, Any] = {file.parent.name: read(file, list) for file in files}
    return [{**row, "task": name} for name, table in tables.items() for row in table]


def _searches(compared: Sequence[Mapping[str, Any]]) -> list[str]:
    if not compared:
        return []
    columns = {"features": "", "random search": _NUMBER, "oracle": _NUMBER, "rule": _NUMBER}
    columns |= {"RERR": ""}
    rows: list[list[Any]] = []
    for task in dict.fromkeys(row["task"] for row in compared):
        of = {row["method"]: row for row in compared if row["task"] == task}
        ours = of[LinearScaling.name]
        rerr = "" if ours["rerr"] is None else f"{ours['rerr']:.1f}"
        means = [of[name]["mean"] for name in (RandomSearch.name, ORACLE, LinearScaling.name)]
        rows.append([task, *means, rerr])
    for name in ("CIFAR-10 without public data", "CIFAR-100"):
        rows.append([f"the paper: {name}", *published.RERR[name]])
    return [
        "## How much of the gap between random search and the oracle is closed, beside Table 3",
        Table(columns, rows).markdown().rstrip(),
    ]


def _rows_of(found: Found, pictures: str) -> dict[str, dict[float | None, Measured]]:
    """By features and budget; of cells that differ in their repeats, the one with the most, and
    the rows of a limit apart."""
    rows: dict[str, dict[float | None, Measured]] = {}
    for cell, measured in sorted(found.items(), key=lambda pair: pair[0].repeats):
        if cell.pictures == pictures:
            features = cell.features if cell.limit is None else f"{cell.features} ({cell.limit:,})"
            rows.setdefault(features, {})[cell.epsilon] = measured
    return dict(sorted(rows.items()))


def picture(found: Found) -> Picture:
    """Accuracy over epsilon for every set, and the gaps of all."""
    names = list(dict.fromkeys(cell.features for cell in sorted(found, key=_order)))
    panels: list[Panel] = []
    every = []
    for pictures in _sets(found):
        series = []
        for features, cells in _rows_of(found, pictures).items():
            budgets = sorted(budget for budget in cells if budget is not None)
            chosen = [cells[budget] for budget in budgets]
            if chosen:
                label = features.partition(" (")[0]
                one = Series.of_runs(label, budgets, chosen, color=names.index(label))
                series.append(one)
        panels.append(Plot(paper_name(pictures), "epsilon", "test accuracy, %", series, xlog=True))
        gaps = _gaps_of(found, pictures)
        if gaps:
            plain = [gap[0] for gap in gaps]
            cost = [gap[0] - gap[1] for gap in gaps]
            every.append(Series(f"gap: {paper_name(pictures)}", plain, cost))
    if every:
        first = len(names)  # colours of sets follow those of backbones
        every = [replace(series, color=first + number) for number, series in enumerate(every)]
        panels.append(
            Plot(
                "what privacy costs",
                "accuracy without privacy, %",
                "points lost at epsilon 1",
                every,
            )
        )
    return Picture("Private classifiers of pictures, everything paid", panels)
