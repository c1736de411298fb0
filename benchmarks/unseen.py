r"""Is the law right on sets that it never saw? Runs at multiples of its `c`, on rows split anew.

    python benchmarks/make_sets.py resplit SETS/kept/NAME.npz SPLITS 8    # of every set
    PYTHONPATH=. python benchmarks/unseen.py measure RUNS EPSILON SPLITS/NAME-*.npz [--device cuda]
    dptune bench compare --methods linear-scaling --data SPLITS/NAME-0.npz,... --epsilon EPSILON \
        --repeats 2 --out STUDIES
    PYTHONPATH=. python benchmarks/unseen.py page [RUNS STUDIES ...]

`RUNS` is a file of one set and budget, `STUDIES` the folder beside it. What the page needs is kept
in `compare/unseen.json`, and without files it is made again from there.
"""

import argparse
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev

from dptune.accounting import Budget
from dptune.bench.harness import accuracies, outline_of, prepared
from dptune.bench.tasks import load_task
from dptune.search.base import calibrated, draft
from dptune.search.law import best_noise, setting_at
from dptune.search.unit_noise import UnitNoise
from reproduction import figures
from reproduction.charts import Dots, Picture

PAGE = Path(__file__).parent / "compare" / "unseen.json"
MULTIPLES = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4)
LAW, TIMES = MULTIPLES.index(1), 2

TEXT = """# The law's `c`, on sets that it never saw

The third lot of kept sets ([later.md](later.md)), each split eight times anew: test accuracy of
single runs at all of the budget that preparing rows leaves, at multiples of the `c` that the law
says ([law.md](../../docs/law.md)), two runs of each split and multiple; and of whole studies by the
default, two of each split. In points over the law's own `c`; the last column is the standard error
of a difference, from the eight splits, in the median over multiples. "Best" is the multiple that
was best on the seven other splits: what somebody would have who knew the set, but not these rows.
One NVIDIA H200, studies on 16 cores, delta 1e-5, 2026-11-18. Written by `benchmarks/unseen.py`,
which names the commands, from `unseen.json`.

{verdict}

"""
VERDICT = """**The law is right on average**: of its multiples none is better by more than
{most:.2f} points on average of the sets at any budget. The best setting of every set, known from
other rows of it, is {best} points above the law at epsilon {budgets}, and the default, which pays
for its trials, {default}. So what it leaves is {left} points. Most of that is of small sets whose
classes are told apart well and which want twice the law's `c`, as `chess` does: without `cities`
and `leaves` it is {without}. No public number and no trial at these prices tells them from others
([what was tried](../../docs/law-tried.md))."""


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


def measure(out: Path, epsilon: float, files: list[Path], device: str) -> None:
    found = []
    for file in sorted(files):
        task = load_task(str(file), device=device)
        for _ in range(TIMES):
            rows, known = prepared(
                task, outline_of(task, UnitNoise(), Budget(epsilon, 1e-5), seed=0)
            )
            stage = known.final
            situation = known.situation(stage, [], None)
            noise = best_noise(stage.mu, situation.recipe, situation.facts, None)
            settings = [setting_at(each * noise, stage.mu, situation) for each in MULTIPLES]
            plans = [
                calibrated(draft(situation.recipe, setting), stage.mu_squared, 0.0)
                for setting in settings
            ]
            right = accuracies(known.engine, rows, plans)
            averaged = situation.recipe.averaging == "swa"
            found.append({"split": file.stem, "noise": noise, "averaged": averaged, "runs": right})
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


def page(scans: list[Scan]) -> str:
    heads = ["set", "epsilon", "law's c", "released", "at the law", *map(_times, MULTIPLES)]
    heads += ["best", "default", "error"]
    lines = [_line(heads), _line(["---"] * len(heads))]
    for each in scans:
        lines.append(
            _line(
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
            )
        )
    for epsilon in _budgets(scans):
        some = [each for each in scans if each.epsilon == epsilon]
        means = [fmean(fmean(each.over_law(each.runs[n])) for each in some) for n in range(9)]
        lines.append(
            _line(
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
        )
    return TEXT.format(verdict=_verdict(scans)) + "".join(lines) + "\n![unseen](unseen.png)\n"


def _verdict(scans: list[Scan]) -> str:
    by_budget = [[each for each in scans if each.epsilon == e] for e in _budgets(scans)]
    easy = [[each for each in some if each.task not in ("cities", "leaves")] for some in by_budget]
    return VERDICT.format(
        most=max(
            fmean(fmean(each.over_law(each.runs[n])) for each in some)
            for some in by_budget
            for n in range(len(MULTIPLES))
        ),
        budgets=_listed([f"{epsilon:g}" for epsilon in _budgets(scans)]),
        best=_listed([f"{_mean(some, 'known'):.2f}" for some in by_budget]),
        default=_listed([f"{_mean(some, 'studies'):+.2f}" for some in by_budget]),
        left=_listed([f"{_left(some):.2f}" for some in by_budget]),
        without=_listed([f"{_left(some):.2f}" for some in easy]),
    )


def _left(scans: list[Scan]) -> float:
    return _mean(scans, "known") - _mean(scans, "studies")


def _mean(scans: list[Scan], what: str) -> float:
    return fmean(fmean(each.over_law(getattr(each, what))) for each in scans)


def picture(scans: list[Scan]) -> Picture:
    panels = []
    for epsilon in _budgets(scans):
        some = [each for each in scans if each.epsilon == epsilon]
        shown = {"c / 4": LAW - 2, "4 c": LAW + 2}
        series = [
            (label, [fmean(each.over_law(each.runs[n])) for each in some], [])
            for label, n in shown.items()
        ]
        whole = [fmean(each.over_law(each.studies)) for each in some]
        known = [fmean(each.over_law(each.known)) for each in some]
        panels.append(
            Dots(
                title=f"epsilon {epsilon:g}",
                xlabel="points of test accuracy over the law's c",
                categories=[each.task for each in some],
                series=[*series, ("best of other rows", known, []), ("default", whole, [])],
                levels=[(0.0, "the law's c")],
            )
        )
    return Picture("Sets that the law never saw, each split eight times", panels)


def _budgets(scans: list[Scan]) -> list[float]:
    return sorted({each.epsilon for each in scans})


def _times(multiple: float) -> str:
    return f"{multiple:g} c" if multiple > 1 else "c" if multiple == 1 else f"c/{1 / multiple:g}"


def _listed(parts: list[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    measuring = verbs.add_parser("measure")
    measuring.add_argument("out", type=Path)
    measuring.add_argument("epsilon", type=float)
    measuring.add_argument("files", type=Path, nargs="+")
    measuring.add_argument("--device", default="cpu")
    verbs.add_parser("page").add_argument("files", type=Path, nargs="*")
    asked = parser.parse_args()
    if asked.verb == "measure":
        measure(asked.out, asked.epsilon, asked.files, asked.device)
        return
    if asked.files:
        scans = [scan(*pair) for pair in zip(asked.files[::2], asked.files[1::2], strict=True)]
        scans.sort(key=lambda each: (each.task, each.epsilon))
        rows = (json.dumps(asdict(each)) for each in scans)
        PAGE.write_text("[\n" + ",\n".join(rows) + "\n]\n")
    scans = [Scan(**row) for row in json.loads(PAGE.read_text())]
    PAGE.with_suffix(".md").write_text(page(scans))
    PAGE.with_suffix(".png").write_bytes(figures.png(picture(scans)))


if __name__ == "__main__":
    main()
