"""Is the law right on sets that it never saw? Runs at multiples of its `c`, on rows split anew.

Runs are a file of one set and budget, beside the folder of studies that `dptune bench compare`
wrote. What the page needs is kept in `compare/unseen.json`.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev

from dptune.accounting import Budget
from dptune.bench.harness import accuracies
from dptune.bench.tasks import load_task
from experiments import figures
from experiments.charts import Dots, Picture
from experiments.law.multiples import Prepared
from experiments.pages import COMPARED, by_budget, json_list, markdown, write_below

PAGE = COMPARED / "unseen.json"
MULTIPLES = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4)
LAW, TIMES = MULTIPLES.index(1), 2

VERDICT = """**The law is right on average**: of its multiples none is better by more than
{most:.2f} points on average of the sets at any budget. The best setting of every set, known from
other rows of it, is {best} points above the law at epsilon {budgets}, and the default, which pays
for its trials, {default}. So what it leaves is {left} points. Most of that is of small sets whose
classes are told apart well and which want twice the law's `c`, as `chess` does: without `cities`
and `leaves` it is {without}. No public number and no trial at these prices tells them from others
([what was tried](../../experiments/notes/law-tried.md))."""


@dataclass(frozen=True)
class Scan:
    """Means of one set at one budget, a list over splits each; `runs` has one list a multiple."""

    task: str
    epsilon: float
    noise: float  # the law's
    averaged: bool
    runs: list[list[float]]
    studies: list[float]

    def over_law(self, values: list[float]) -> list[float]:
        return [value - law for value, law in zip(values, self.runs[LAW], strict=True)]

    @property
    def known(self) -> list[float]:
        """Of every split, what the multiple reaches that is best on the others."""
        found = []
        for split in range(len(self.studies)):
            others = [fmean(each[:split] + each[split + 1 :]) for each in self.runs]
            found.append(self.runs[others.index(max(others))][split])
        return found

    @property
    def error(self) -> float:
        errors = [
            stdev(self.over_law(each)) / math.sqrt(len(each))
            for number, each in enumerate(self.runs)
            if number != LAW
        ]
        return sorted(errors)[len(errors) // 2]


def measure(out: Path, epsilon: float, files: Sequence[Path], device: str) -> None:
    """Single runs on each of some splits of a set."""
    found = []
    for file in sorted(files):
        task = load_task(str(file), device=device)
        for _ in range(TIMES):
            made = Prepared.of(task, Budget(epsilon, 1e-5), seed=0)
            plans = [made.at(multiple * made.law) for multiple in MULTIPLES]
            right = accuracies(made.engine, made.rows, plans)
            facts = {"split": file.stem, "noise": made.law, "averaged": made.averaged}
            found.append(facts | {"runs": right})
    out.write_text(json.dumps({"epsilon": epsilon, "found": found}))


def scan(runs: Path, studies: Path) -> Scan:
    read = json.loads(runs.read_text())
    whole = {row["task"]: row["mean"] for row in json.loads((studies / "compare.json").read_text())}
    by_split: dict[str, list[list[float]]] = {}
    for each in read["found"]:
        by_split.setdefault(each["split"], []).append(each["runs"])
    means = [[fmean(each) for each in zip(*some, strict=True)] for some in by_split.values()]
    return Scan(
        next(iter(by_split)).rpartition("-")[0],
        read["epsilon"],
        fmean(each["noise"] for each in read["found"]),
        read["found"][0]["averaged"],
        [list(each) for each in zip(*means, strict=True)],
        [whole[split] for split in by_split],
    )


def text(scans: Sequence[Scan]) -> str:
    heads = ["set", "epsilon", "law's c", "released", "at the law", *map(_times, MULTIPLES)]
    heads += ["best", "default", "error"]
    rows = [
        [
            each.task,
            f"{each.epsilon:g}",
            f"{each.noise:.2g}",
            "mean" if each.averaged else "last",
            f"{fmean(each.runs[LAW]):.2f}",
            *(f"{fmean(each.over_law(some)):+.2f}" for some in each.runs),
            f"{fmean(each.over_law(each.known)):+.2f}",
            f"{fmean(each.over_law(each.studies)):+.2f}",
            f"{each.error:.2f}",
        ]
        for each in scans
    ]
    for epsilon, some in by_budget(scans).items():
        means = (_over_law(some, number) for number in range(len(MULTIPLES)))
        rows.append(
            [
                f"**mean of {len(some)}**",
                f"{epsilon:g}",
                *[""] * 3,
                *(f"{mean:+.2f}" for mean in means),
                f"{_mean(some, 'known'):+.2f}",
                f"{_mean(some, 'studies'):+.2f}",
                "",
            ]
        )
    return _verdict(scans) + "\n\n" + markdown(heads, rows) + "\n![unseen](unseen.png)\n"


def _verdict(scans: Sequence[Scan]) -> str:
    every = list(by_budget(scans).values())
    easy = [[each for each in some if each.task not in ("cities", "leaves")] for some in every]
    return VERDICT.format(
        most=max(_over_law(some, n) for some in every for n in range(len(MULTIPLES))),
        budgets=_listed([f"{epsilon:g}" for epsilon in by_budget(scans)]),
        best=_listed([f"{_mean(some, 'known'):.2f}" for some in every]),
        default=_listed([f"{_mean(some, 'studies'):+.2f}" for some in every]),
        left=_listed([f"{_left(some):.2f}" for some in every]),
        without=_listed([f"{_left(some):.2f}" for some in easy]),
    )


def _left(scans: Sequence[Scan]) -> float:
    return _mean(scans, "known") - _mean(scans, "studies")


def _mean(scans: Sequence[Scan], what: str) -> float:
    return fmean(fmean(each.over_law(getattr(each, what))) for each in scans)


def _over_law(scans: Sequence[Scan], number: int) -> float:
    """Mean of some sets, at the multiple of this number."""
    return fmean(fmean(each.over_law(each.runs[number])) for each in scans)


def picture(scans: Sequence[Scan]) -> Picture:
    panels = []
    for epsilon, some in by_budget(scans).items():
        shown = {
            "c / 4": [each.runs[LAW - 2] for each in some],
            "4 c": [each.runs[LAW + 2] for each in some],
            "best of other rows": [each.known for each in some],
            "default": [each.studies for each in some],
        }
        panels.append(
            Dots(
                title=f"epsilon {epsilon:g}",
                xlabel="points of test accuracy over the law's c",
                categories=[each.task for each in some],
                series=[
                    (label, [fmean(a.over_law(b)) for a, b in zip(some, own, strict=True)], [])
                    for label, own in shown.items()
                ],
                levels=[(0.0, "the law's c")],
            )
        )
    return Picture("Sets that the law never saw, each split eight times", panels)


def _times(multiple: float) -> str:
    return f"{multiple:g} c" if multiple > 1 else "c" if multiple == 1 else f"c/{1 / multiple:g}"


def _listed(parts: list[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def write_page(pairs: Sequence[Path]) -> None:
    """Anew from runs and studies, in turn, or from what was kept of them."""
    if pairs:
        scans = [scan(*pair) for pair in zip(pairs[::2], pairs[1::2], strict=True)]
        scans.sort(key=lambda each: (each.task, each.epsilon))
        PAGE.write_text(json_list(json.dumps(asdict(each)) for each in scans))
    scans = [Scan(**row) for row in json.loads(PAGE.read_text())]
    write_below(PAGE.with_suffix(".md"), text(scans))
    PAGE.with_suffix(".png").write_bytes(figures.png(picture(scans)))
