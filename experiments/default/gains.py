"""Pages of what the default gains: over plain DP-GD, and on sets kept out of every choice.

What is needed of the folders that `dptune bench compare` wrote is kept in `compare/PAGE.json`.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from dptune.bench.outcome import ORACLE, Runs
from experiments import figures
from experiments.charts import Dots, Picture, Plot, Series
from experiments.pages import COMPARED, by_budget, json_list, markdown, with_spread, write_below

DEFAULT, GUESS, RANDOM = "linear-scaling", "unit-noise", "random-search"
BEFORE = "before"  # the default, with the constants of before
_NARROW = 1.0  # points between random search and oracle, of which a few test rows are a large part

# (set, epsilon): what the default should reach, and the best setting of plain DP-GD on rows of unit
# length, which nobody paid for; both were written down before the recipe was.
AIMS = {
    ("cifar10_resnet20", 0.1): (68.3, 66.9),
    ("cifar10_resnet20", 1.0): (71.7, 71.1),
    ("cifar10_resnet20", 8.0): (72.1, 72.1),
    ("cifar10_lite0", 0.1): (81.9, 81.2),
    ("cifar10_lite0", 1.0): (86.1, 85.7),
    ("cifar10_lite0", 8.0): (87.0, 86.9),
    ("cifar100_lite0", 0.1): (34.2, 33.7),
    ("cifar100_lite0", 1.0): (60.2, 58.5),
    ("cifar100_lite0", 8.0): (66.2, 65.3),
    ("newsgroups20_minilm", 0.1): (48.0, 48.0),
    ("newsgroups20_minilm", 1.0): (67.9, 67.5),
    ("newsgroups20_minilm", 8.0): (70.6, 70.4),
    ("trec_minilm", 0.1): (58.0, 58.3),
    ("trec_minilm", 1.0): (85.3, 84.2),
    ("trec_minilm", 8.0): (90.8, 89.8),
    ("diamonds", 0.3): (61.5, None),
    ("diamonds", 1.0): (63.0, None),
    ("diamonds", 8.0): (64.0, None),
}
SETS = tuple(dict.fromkeys(name for name, _ in AIMS))

_REMARKS = """
- Below `unit-noise` by more than 0.1 points: {below}.
- RERR is left out where a few test rows would decide it: a setting drawn at random is within
  {narrow:g} point of the oracle in {flat}.
- Means of the default that fall with more budget: {falls} (in bold where by more than the standard
  error).

"""


@dataclass(frozen=True)
class Studies(Runs):
    """One method on one set at one budget."""

    task: str
    epsilon: float
    method: str
    r: float  # geometric mean

    @property
    def text(self) -> str:
        return with_spread(self.accuracies)


Found = Mapping[tuple[str, float, str], Studies]
Pairs = Sequence[tuple[Studies, Studies]]


def gather(folders: Iterable[Path], default: str = DEFAULT) -> list[Studies]:
    """What a page needs of tables that `dptune bench compare` wrote; `default` is what the page
    calls the default search in them."""
    return [
        Studies(
            tuple(row["accuracies"]),
            row["task"],
            row["epsilon"],
            default if row["method"] == DEFAULT else row["method"],
            math.exp(fmean(math.log(r) for r in row["total_step_sizes"])),
        )
        for folder in folders
        for row in json.loads((folder / "compare.json").read_text())
    ]


def recipe_text(found: Found) -> str:
    heads = ("set", "epsilon", "mean ± standard deviation", "worst", "runs", "aim", "plain, unpaid",
             "gain")  # fmt: skip
    rows = []
    for task in SETS:
        for studies in _over_budgets(found, task):
            aim, old = AIMS.get((task, studies.epsilon), (None, None))
            met = "met" if aim is not None and studies.mean >= aim else "**not met**"
            rows.append([
                task, f"{studies.epsilon:g}", studies.text, f"{min(studies.accuracies):.2f}",
                str(len(studies.accuracies)), "" if aim is None else f"{aim:.1f}: {met}",
                "" if old is None else f"{old:.1f}",
                "" if old is None else f"{studies.mean - old:+.2f}",
            ])  # fmt: skip
    return markdown(heads, rows) + _recipe_remarks(found)


def _recipe_remarks(found: Found) -> str:
    gains = _gains(found)
    least, most = min(gains, key=gains.__getitem__), max(gains, key=gains.__getitem__)
    of_budgets = []
    for epsilon in (0.1, 1.0, 8.0):
        some = [gain for (_, at), gain in gains.items() if at == epsilon]
        of_budgets.append(
            f"{fmean(some):.2f} at epsilon {epsilon:g} ({min(some):+.2f} to {max(some):+.2f})"
        )
    worse = [
        f"{_at((task, studies.epsilon))} ({studies.mean - min(studies.accuracies):.1f})"
        for task in SETS
        for studies in _over_budgets(found, task)
        if studies.mean - min(studies.accuracies) > 2
    ]
    return (
        "\n**Gain.** Over plain DP-GD at its best setting, for which nobody paid: "
        f"{gains[least]:+.2f} ({_at(least)}) to {gains[most]:+.2f} points ({_at(most)}), "
        f"{fmean(gains.values()):+.2f} on average of {len(gains)} rows. By budget: "
        f"{', '.join(of_budgets)}.\n\n"
        "**Monotone?** Means that fall from one budget to the next, over epsilon 0.1, 0.3, 1, 3, 8 "
        f"and 30: {_falls(found) or 'none'} (in bold where by more than the standard error). Means "
        "at 3 and 30 are of 10 runs.\n\n"
        f"**Worst run.** More than 2 points below its mean: {', '.join(worse)}. The aim, within 2 "
        "points, is for the worst of 20 runs on 10,000 rows or more, which TREC (5,452) has not; "
        "these are the worst of 40.\n\n"
    )


@dataclass(frozen=True)
class Judged:
    """The default beside other methods, on one set at one budget."""

    task: str
    epsilon: float
    default: Studies
    guess: Studies
    drawn: Studies
    best: Studies
    before: Studies | None

    @property
    def gap(self) -> float:
        return self.best.mean - self.drawn.mean

    @property
    def rerr(self) -> float:
        return 100 * (self.default.mean - self.drawn.mean) / self.gap

    @property
    def rerr_error(self) -> float:
        """Its standard error, by those of the three means."""
        part = self.rerr / 100
        moved = math.hypot(
            self.default.error, (1 - part) * self.drawn.error, part * self.best.error
        )
        return 100 * moved / self.gap

    @property
    def told(self) -> bool:
        """Whether RERR says anything."""
        return self.gap >= _NARROW

    def __str__(self) -> str:
        return f"{self.task} at {self.epsilon:g}"


def judged(found: Found) -> list[Judged]:
    return [
        Judged(
            task,
            epsilon,
            found[task, epsilon, DEFAULT],
            found[task, epsilon, GUESS],
            found[task, epsilon, RANDOM],
            found[task, epsilon, ORACLE],
            found.get((task, epsilon, BEFORE)),
        )
        for task, epsilon in sorted({(task, epsilon) for task, epsilon, _ in found})
    ]


def kept_text(found: Found) -> str:
    every = judged(found)
    earlier = any(one.before for one in every)
    heads = ["set", "epsilon", "default", "unit-noise", "random search", "oracle", "RERR"]
    heads += ["default - unit-noise"] + ["before", "default - before"] * earlier
    rows = []
    for one in every:
        methods = (one.default, one.guess, one.drawn, one.best)
        row = [one.task, f"{one.epsilon:g}", *(studies.text for studies in methods)]
        row += [f"{one.rerr:.0f} ± {one.rerr_error:.0f}" if one.told else ""]
        row += [_difference([(one.default, one.guess)])]
        if one.before:
            row += [one.before.text, _difference([(one.default, one.before)])]
        rows.append(row)
    text = markdown(heads, rows) + "\n" + _totals(every, earlier)
    below = [
        f"{one} by {one.guess.mean - one.default.mean:.2f} (standard error "
        f"{_error(one.default, one.guess):.2f})"
        for one in every
        if one.default.mean < one.guess.mean - 0.1
    ]
    return text + _REMARKS.format(
        below="; ".join(below) or "nowhere",
        narrow=_NARROW,
        flat=", ".join(str(one) for one in every if not one.told) or "no cell",
        falls=_falls(found) or "none",
    )


def _totals(every: Sequence[Judged], earlier: bool) -> str:
    heads = ["epsilon", "mean RERR", "at 95 or more", "mean below the oracle"]
    heads += ["mean gain over before", "better by two standard errors", "worse"] * earlier
    rows = []
    for epsilon, some in by_budget(every).items():
        telling = [one for one in some if one.told]
        rerrs = [one.rerr for one in telling]
        off = math.hypot(*(one.rerr_error for one in telling)) / max(len(telling), 1)
        row = [
            f"{epsilon:g}",
            f"{fmean(rerrs):.1f} ± {off:.1f}" if rerrs else "",
            f"{sum(rerr >= 95 for rerr in rerrs)} of {len(rerrs)}",
            _difference([(one.best, one.default) for one in some]),
        ]
        if earlier:
            both = [(one.default, one.before) for one in some if one.before]
            gains = [(now.mean - before.mean, 2 * _error(now, before)) for now, before in both]
            row += [
                _difference(both),
                str(sum(gain > sure for gain, sure in gains)),
                str(sum(gain < -sure for gain, sure in gains)),
            ]
        rows.append(row)
    return markdown(heads, rows)


def _difference(pairs: Pairs) -> str:
    """The mean of differences over sets, with the standard error that runs leave on it."""
    mean = fmean(one.mean - other.mean for one, other in pairs)
    error = math.hypot(*(_error(one, other) for one, other in pairs)) / len(pairs)
    return f"{mean:+.2f} ± {error:.2f}"


def recipe_picture(found: Found) -> Picture:
    gains = _gains(found)
    errors = [found[task, epsilon, DEFAULT].error for task, epsilon in gains]
    aims = [aim - old for aim, old in AIMS.values() if old is not None]
    gained = Dots(
        title="gain, and its standard error",
        xlabel="points of test accuracy above plain DP-GD at its best, unpaid",
        categories=[f"{task}, {epsilon:g}" for task, epsilon in gains],
        series=[("default, all paid", [*gains.values()], errors), ("aim", aims, [])],
        levels=[(0.0, "plain DP-GD, unpaid")],
    )
    series = []
    for number, task in enumerate(SETS):
        over = _over_budgets(found, task)
        epsilons = [studies.epsilon for studies in over]
        series.append(Series.of_runs(task, epsilons, over, color=2 + number))
    budgets = Plot(
        title="accuracy over the budget, standard deviation",
        xlabel="total epsilon at delta 1e-5",
        ylabel="test accuracy (%)",
        series=series,
        xlog=True,
    )
    return Picture("The default recipe and search, everything paid", [gained, budgets])


def kept_picture(found: Found) -> Picture:
    panels = []
    for epsilon, some in by_budget(judged(found)).items():
        shown = {
            "default": [one.default for one in some],
            "unit-noise": [one.guess for one in some],
            "random search": [one.drawn for one in some],
        }
        below = [
            (
                label,
                [one.best.mean - own.mean for one, own in zip(some, studies, strict=True)],
                [own.error for own in studies],
            )
            for label, studies in shown.items()
        ]
        panels.append(
            Dots(
                title=f"epsilon {epsilon:g}, mean and standard error",
                xlabel="points of test accuracy below the oracle",
                categories=[one.task for one in some],
                series=below,
                levels=[(0.0, "oracle (unpaid)")],
            )
        )
    return Picture("Sets kept out of every choice, one recipe for all methods", panels)


def _over_budgets(found: Found, task: str) -> list[Studies]:
    return sorted(
        (one for (name, _, method), one in found.items() if (name, method) == (task, DEFAULT)),
        key=lambda studies: studies.epsilon,
    )


def _falls(found: Found) -> str:
    """Where the default is worse with more budget; in bold by more than the standard error."""
    parts = []
    for task in dict.fromkeys(task for task, _, _ in found):
        for before, after in pairwise(_over_budgets(found, task)):
            by, error = before.mean - after.mean, _error(before, after)
            if by > 0:
                by_much = f"**{by:.3f}**" if by > error else f"{by:.3f}"
                parts.append(
                    f"{task} from epsilon {before.epsilon:g} to {after.epsilon:g} by {by_much} "
                    f"(standard error {error:.3f})"
                )
    return "; ".join(parts)


def _gains(found: Found) -> dict[tuple[str, float], float]:
    return {
        (task, epsilon): found[task, epsilon, DEFAULT].mean - old
        for (task, epsilon), (_, old) in AIMS.items()
        if old is not None
    }


def _error(one: Studies, other: Studies) -> float:
    """Of the difference of their means."""
    return math.hypot(one.error, other.error)


def _at(cell: tuple[str, float]) -> str:
    return f"{cell[0]} at epsilon {cell[1]:g}"


PAGES = {
    "recipe": (recipe_text, recipe_picture),
    **dict.fromkeys(("kept", "classic", "later"), (kept_text, kept_picture)),
}


def write_page(name: str, folders: Sequence[Path], before: Sequence[Path]) -> None:
    """Anew from folders, or from what was kept of them."""
    stored = COMPARED / f"{name}.json"
    if folders:
        gathered = [*gather(before, BEFORE), *gather(folders)]
        stored.write_text(json_list(json.dumps(asdict(studies)) for studies in gathered))
    every = [Studies(**row) for row in json.loads(stored.read_text())]
    found = {(studies.task, studies.epsilon, studies.method): studies for studies in every}
    text, picture = PAGES[name]
    write_below(stored.with_suffix(".md"), f"{text(found)}![{name}]({name}.png)\n")
    stored.with_suffix(".png").write_bytes(figures.png(picture(found)))
