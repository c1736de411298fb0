"""How good the law of best noise is on the sets it was fitted to, from best-noise.json.

`report` prints the tables of law-fit.md: points lost at the law's c, at other laws' and at that of
a law fitted to all other sets; how far the best c lies from the law, and whether it lies as far at
another budget.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dptune.bench.tables import Table
from dptune.prior import LINEAR
from experiments.law.best_noise import UNFELT, Scan, load
from experiments.pages import BENCHMARKS

Numbers = NDArray[np.float64]
_MOST = 3.0  # points of one cell that count: more is one lost cell, not a better or worse law
_FITTED_FROM = 0.1  # the least epsilon that constants were fitted on
_EPSILONS = (0.03, 0.1, 0.3, 1.0, 3.0, 8.0, 30.0)
NOW = np.array([math.log(LINEAR.noise), math.log(LINEAR.reach), LINEAR.reach_power,
                 math.log(LINEAR.averaged), math.log(LINEAR.averaged_from)])  # fmt: skip


class Cells:
    """Some scans as columns of numbers, because a fit asks for their regret thousands of times."""

    def __init__(self, scans: Iterable[Scan]) -> None:
        self.scans = list(scans)
        self.rows, self.columns, self.mu = (
            np.array([getattr(one, name) for one in self.scans], float)
            for name in ("rows", "columns", "mu")
        )
        self.averaged = np.array([one.averaged for one in self.scans])
        self.signal = np.array([one.signal for one in self.scans])
        classes = np.array([one.classes for one in self.scans], float)
        self.beyond_two = 1 - 2 / classes
        narrow = self.columns < LINEAR.wide
        self.of_columns = np.where(narrow, np.minimum(LINEAR.few_classes / classes, 1), 1)
        self.curves = np.array([one.smooth() for one in self.scans])
        (noises,) = {one.noises for one in self.scans}
        self.grid = np.log(noises)
        sources = [one.source for one in self.scans]
        self.weights = np.array([sources.count(source) ** -0.5 for source in sources])

    def where(self, wanted: Callable[[Scan], bool]) -> "Cells":
        return Cells(filter(wanted, self.scans))

    def law(self, numbers: Numbers) -> Numbers:
        """In log c, as `dptune.search.law.best_noise` says it for other numbers."""
        noise, reach, reach_power, averaged, averaged_from = numbers
        counted = self.of_columns * np.log(self.columns)
        counted += (1 - self.of_columns) * np.log(LINEAR.wide)
        near = noise + LINEAR.columns_power * counted
        converged = self.averaged * np.exp(near) * self.signal
        longer = converged / np.exp(averaged_from) * self.beyond_two
        narrow = self.columns <= LINEAR.wide
        near = near + np.log1p(longer * narrow) / 2
        far = reach + reach_power * np.log(self.rows / self.columns) - np.log(self.mu)
        far = far + np.log(LINEAR.averaged_reach) * (self.averaged & narrow)
        times = 1 + np.expm1(averaged) * converged / (converged + LINEAR.averaged_half)
        times *= np.where(self.averaged & (self.beyond_two == 0), LINEAR.averaged_of_two, 1)
        log_noise: Numbers = np.log(times) - np.logaddexp(-2 * near, -2 * far) / 2
        return log_noise

    def regret(self, log_noise: Numbers) -> Numbers:
        places = np.interp(log_noise, self.grid, np.arange(len(self.grid)))
        left = np.minimum(places.astype(int), len(self.grid) - 2)
        cell = np.arange(len(self.scans))
        start, end = self.curves[cell, left], self.curves[cell, left + 1]
        reached = start + (places - left) * (end - start)
        lost: Numbers = self.curves.max(1) - reached
        return np.minimum(lost, _MOST)

    def fitted(self) -> Numbers:
        """The numbers of least regret; sets of many cells count for less than all of them."""

        def loss(numbers: Numbers) -> float:
            regret = np.maximum(self.regret(self.law(numbers)), 0.0)
            return float(np.average(regret**1.3, weights=self.weights))

        found = []
        for moved in (0.0, 0.3, -0.3):
            at = NOW + moved * np.array([1.0, 0.5, 0.2, 0.3, 0.3])
            for _ in range(3):
                result = minimize(loss, at, method="Nelder-Mead", options={"maxiter": 2000})
                at = result.x
            found.append((result.fun, tuple(at)))
        return np.array(min(found)[1])


def report() -> None:
    scans = load(BENCHMARKS / "best-noise.json")
    cells = Cells(one for one in scans if one.learned)
    at_the_end = sum(
        one.near_best(0.0)[0] in (one.noises[0], one.noises[-1]) for one in cells.scans
    )
    print(
        f"{len(scans)} cells; {len(cells.scans)} learn anything, {at_the_end} of them are best "
        "where the grid ends\n"
    )
    print(_regrets(cells).markdown())
    print(_spreads(cells).markdown())
    print(_told(cells).markdown())


def _old_law(cells: Cells) -> Numbers:
    classes = np.array([one.classes for one in cells.scans])
    signal = np.log(cells.mu * cells.rows / cells.columns)
    log_noise: Numbers = math.log(0.5) + 0.15 * signal + np.log(classes / 10) / 16
    return log_noise


def _regrets(cells: Cells) -> Table:
    heads = ("cells", "law", "90 %", "left out", "90 % ", "c = 1", "old law")
    rows = []
    budgets = cells.where(lambda one: one.epsilon >= _FITTED_FROM)
    smallest = cells.where(lambda one: one.epsilon < _FITTED_FROM)
    everywhere = budgets.fitted()
    apart: dict[str, Numbers] = {}
    for source in sorted({one.source for one in cells.scans}):
        apart[source] = Cells(one for one in budgets.scans if one.source != source).fitted()
        own = Cells(one for one in budgets.scans if one.source == source)
        rows.append(_row(source, own, apart))
    rows.append(_row(f"all, epsilon from {_FITTED_FROM:g}", budgets, apart))
    rows.append(_row("all, epsilon 0.03", smallest, apart))
    rows.append(_row("all", cells, apart))
    best = budgets.regret(budgets.law(everywhere))
    print(
        f"fitted to all sets at once: {_in_words(everywhere)}; "
        f"regret {best.mean():.2f}, 90 % {np.quantile(best, 0.9):.2f}"
    )
    spread = np.array(list(apart.values()))
    print(f"left out, least: {_in_words(spread.min(0))}; most: {_in_words(spread.max(0))}\n")
    return Table({"set": "", **dict.fromkeys(heads, ".2f"), "cells": "d"}, rows)


def _row(name: str, cells: Cells, apart: dict[str, Numbers]) -> list[object]:
    law = cells.regret(cells.law(NOW))
    guesses = [cells.law(apart[one.source])[i] for i, one in enumerate(cells.scans)]
    outside = cells.regret(np.array(guesses))
    unit = cells.regret(np.zeros(len(cells.scans)))
    old = cells.regret(_old_law(cells))
    figures = [law.mean(), _most(law), outside.mean(), _most(outside), unit.mean(), old.mean()]
    return [name, len(cells.scans), *figures]


def _most(regret: Numbers) -> float:
    """Which nine of ten cells do not exceed."""
    return float(np.quantile(regret, 0.9))


def _in_words(numbers: Numbers) -> str:
    noise, reach, power, averaged, averaged_from = numbers
    return (
        f"noise {math.exp(noise):.3g}, reach {math.exp(reach):.3g}, reach_power {power:.2f}, "
        f"averaged {math.exp(averaged):.2f}, averaged_from {math.exp(averaged_from):.3g}"
    )


def _offset(one: Scan) -> float:
    """In log c, from the law to the middle of all that is as good as the best."""
    _, low, high = one.near_best(UNFELT)
    return math.log(math.sqrt(low * high) / one.law)


def _spreads(cells: Cells) -> Table:
    heads = ("mean", "spread of best", "spread of middle")
    styles = {"number": "d", **dict.fromkeys(heads, ".2f"), "law among the good": ".0f"}
    rows = []
    for name, some in (
        ("all", cells),
        ("last iterate", cells.where(lambda one: not one.averaged)),
        ("averaged", cells.where(lambda one: one.averaged)),
        ("signal from 0.1 to 8", cells.where(lambda one: 0.1 <= one.signal < 8)),
    ):
        middle = np.array([_offset(one) for one in some.scans])
        best = np.array([math.log(one.near_best(UNFELT)[0] / one.law) for one in some.scans])
        good = 100 * np.mean(some.regret(some.law(NOW)) < UNFELT)
        rows.append([name, len(some.scans), middle.mean(), best.std(), middle.std(), float(good)])
    return Table({"cells": "", **styles}, rows)


def _told(cells: Cells) -> Table:
    """Offsets of the same task at two budgets, and what the dearer run gains by the cheaper one's:
    moved by that part of it which is found again."""
    by_task: dict[str, dict[float, Scan]] = defaultdict(dict)
    for one in cells.scans:
        by_task[one.task][one.epsilon] = one
    heads = ("correlation", "exponent", "regret at the law", "regret if told")
    styles = {"pairs": "d", "price ratio": ".0f", **dict.fromkeys(heads, ".2f")}
    rows: list[list[object]] = []
    for apart in (1, 2, 3):
        pairs = [
            (own[low], own[high])
            for own in by_task.values()
            for low, high in zip(_EPSILONS, _EPSILONS[apart:], strict=False)
            if low in own and high in own
        ]
        last = [pair for pair in pairs if not pair[1].averaged]
        rows.append([f"{apart}", *_told_by(pairs)])
        rows.append([f"{apart}, last iterates", *_told_by(last)])
    return Table({"budgets apart": "", **styles}, rows)


def _told_by(pairs: Sequence[tuple[Scan, Scan]]) -> list[object]:
    ratio = math.exp(np.mean([2 * math.log(high.mu / low.mu) for low, high in pairs]))
    cheap, dear = np.array([(_offset(low), _offset(high)) for low, high in pairs]).T
    correlation = float(np.corrcoef(cheap, dear)[0, 1])
    finals = Cells(high for _, high in pairs)
    law = finals.law(NOW)
    regrets = [finals.regret(at).mean() for at in (law, law + correlation * cheap)]
    exponent = -math.log(correlation) / math.log(ratio)
    return [len(pairs), ratio, correlation, exponent, *regrets]
