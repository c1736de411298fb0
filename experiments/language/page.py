"""A page and a picture of all cells, beside the paper's tables; from however many there are."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

import numpy as np

from dptune.bench.store import write
from dptune.bench.tables import Table
from dptune.gdp import mu_from_epsilon
from dptune.prior import PRETRAINED
from experiments import lines
from experiments.charts import Picture, Plot, Series
from experiments.language.cells import (
    DEFAULT,
    GRID,
    PAPER,
    PLAIN,
    PROBE,
    RANDOM,
    Cell,
    best_of_grid,
    line_cells,
)
from experiments.lines import Figures
from experiments.pages import ends, with_spread
from experiments.paper import published

PAGE, PICTURE = "language.md", "language.png"
Found = Mapping[Cell, Figures]
_BestR = tuple[float, float, float]  # epsilon, mu, r
# What was aimed at on SST-2, everything paid.
AIMS: Mapping[float | None, float] = {0.7: 83.5, 3.0: 86.0, 8.0: 86.8, None: 90.0}
# Of log c: studies whose trials lie farther from today's law began from another.
_SAME_LAW = 0.1
_MARK = " †"
_LAWS = "../../experiments/notes/law-measured.md#pretrained-language-models"
_OTHER_LAW = f"†: the study began from a law of before ([law-measured.md]({_LAWS}))."
_WAYS = {"full": "all layers", "lora": "adapters, rank 8", PROBE: "linear probe"}


def write_page(folder: Path) -> Path:
    """The page of all that the folder holds."""
    tuned, mails = (lines.read(folder, verb, Cell) for verb in ("finetune", "lm"))
    parts = [
        "# Language models, tuned privately",
        "Studies pay for all of their search inside the stated epsilon; what is called unpaid was "
        "chosen by what is reported here, for free. r is the learning rate that a run begins with "
        "times its steps. Written by `python -m experiments language page`.",
    ]
    parts += _aims(tuned) + _tuned(tuned) + _mails(mails) + _not_here(tuned)
    if (folder / PICTURE).exists():
        parts.append(f"![accuracy, perplexity and the best r over epsilon]({PICTURE})")
    write(folder / PAGE, "\n\n".join(parts) + "\n")
    return folder / PAGE


def draw_picture(folder: Path) -> Path | None:
    """Accuracies, perplexities and the best r over epsilon."""
    tuned, mails = (lines.read(folder, verb, Cell) for verb in ("finetune", "lm"))
    shown = picture(tuned, mails)
    if not shown.panels:
        return None
    from experiments.figures import png

    write(folder / PICTURE, png(shown))
    return folder / PICTURE


def _aims(found: Found) -> list[str]:
    """The best of all ways on SST-2, beside what was aimed at."""
    rows = []
    for epsilon, aim in AIMS.items():
        ways = {
            _trained(found, cell): _mean(several, "accuracy")
            for cell, several in _paid(found, "sst2").items()
            if cell.epsilon == epsilon
        }
        if ways:
            best = max(ways, key=ways.__getitem__)
            rows.append([_budget(epsilon), ways[best], best, aim, _met(ways[best] >= aim)])
    if not rows:
        return []
    columns = {"epsilon": "", "accuracy": ".2f", "by": "", "aim": ".1f", "": ""}
    return ["## SST-2: aims", Table(columns, rows).markdown().rstrip()]


def _paid(found: Found, name: str) -> dict[Cell, list[Figures]]:
    """Default studies of a set, and its runs without privacy at the rate that rows between training
    and test chose."""
    groups = _groups(found, lambda cell: cell.texts == name and cell.method in (DEFAULT, PLAIN))
    chosen: dict[Cell, list[Figures]] = {}
    for cell, several in groups.items():
        if cell.method == DEFAULT:
            chosen[cell] = several
            continue
        key = replace(cell, learning_rate=None)
        if key not in chosen or _judged(several) > _judged(chosen[key]):
            chosen[key] = several
    return chosen


def _tuned(found: Found) -> list[str]:
    if not found:
        return []
    columns = {
        "set": "", "trained": "", "epsilon": "", "accuracy": "", "r": "", "oracle, unpaid": ".2f",
        "its r": "", "random search": ".2f", "RERR": ".0f", "line, unpaid": "",
        "the paper's search": "", "the paper (r)": "", "seconds": ".0f",
    }  # fmt: skip
    sets = _by_set(found)
    rows = [
        _tuned_row(of_set, cell)
        for of_set in sets.values()
        for cell in sorted(_settings(of_set), key=_order)
    ]
    return [
        "## Fine-tuning all-MiniLM-L6-v2",
        "Test accuracy in percent; by several studies the mean and the standard deviation. 22.7 "
        "million weights; tables of words are frozen. Poisson samples, clipping norm 0.1, Adam "
        f"with a rate that falls to nothing, delta 1 / (2 rows){_samples(found)}. Training rows "
        "are cut at a public length (SST-2: 32 words, where 5.5 % are longer), test rows are "
        "whole. Oracle: the best of five rates over two decades, by test accuracy. Random search: "
        "one draw from them, that is their mean; one run a rate. RERR: what part of the gap "
        "between the two the default closes. Line: through the oracle's r at epsilon 0.1 and 0.2. "
        "Without privacy: the best of a few rates, chosen by SST-2's own development rows (on "
        "other sets by test rows). The paper's figures are those of Table 6: RoBERTa-base, five "
        "times as many weights and far more pretraining, search unpaid; compare what privacy "
        "costs, not accuracies.",
        *_marked(Table(columns, rows).markdown().rstrip()),
        *_together(sets.values()),
        *_growth(sets, _OF_ADAM),
    ]


def _tuned_row(found: Found, cell: Cell) -> list[Any]:
    default = _of(found, cell, DEFAULT if cell.epsilon is not None else PLAIN)
    if cell.epsilon is None and default:
        default = [max(default, key=lambda figures: _judged([figures]))]
    oracle, random, line, papers = _rivals(found, cell)
    printed = published.GLUE.get(cell.texts, {}).get(cell.epsilon) if cell.epsilon else None
    reported = oracle["accuracy"] if oracle else None
    return [
        _name(cell), _trained(found, cell), _budget(cell.epsilon),
        _study(found, cell, default, "accuracy"), _range(default, "r"),
        reported, _range([oracle] if oracle else [], "r"), random,
        _rerr(default, random, reported), _result(line, "accuracy"), _result(papers, "accuracy"),
        f"{printed[0]:.2f} ({printed[1]:g})" if printed and cell.way != PROBE else None,
        _mean(default, "seconds") if default else None,
    ]  # fmt: skip


def _study(found: Found, cell: Cell, several: Sequence[Figures], name: str) -> str | None:
    """What studies reached, with a mark where they began elsewhere than one would today."""
    if not several:
        return None
    return _spread(several, name) + (_MARK if _began_elsewhere(found, cell, several) else "")


def _began_elsewhere(found: Found, cell: Cell, several: Sequence[Figures]) -> bool:
    sizes = (
        figures["parameters"]
        for other, figures in found.items()
        if (other.texts, other.way) == (cell.texts, cell.way) and "parameters" in figures
    )
    size = next(sizes, None)
    if size is None:  # a probe, or nothing but studies of mails
        return False
    law = PRETRAINED.near(1, size)
    middles = [trials[len(trials) // 2]["c"] for one in several if (trials := one.get("trials"))]
    return any(abs(math.log(c / law)) > _SAME_LAW for c in middles)


def _marked(table: str) -> list[str]:
    """A table, and what its marks mean."""
    return [table, _OTHER_LAW] if _MARK in table else [table]


def _mails(found: Found) -> list[str]:
    if not found:
        return []
    columns = {
        "protected": "", "trained": "", "epsilon": "", "perplexity": "", "r": "",
        "with SGD (r)": "", "grid, unpaid": ".2f", "its r": "", "line, unpaid": "",
        "the paper (r)": "", "seconds": ".0f",
    }  # fmt: skip
    rows = []
    for cell in sorted(_settings(found), key=_order):
        default = _of(found, cell, DEFAULT if cell.epsilon is not None else PLAIN, "adam")
        if cell.epsilon is None and default:
            default = [min(default, key=lambda figures: float(figures["perplexity"]))]
        grid, _, line, _ = _rivals(found, cell)
        ppl, r = published.ENRON.get(cell.epsilon, (None, None))
        printed = None if ppl is None else f"{ppl:.2f}" + (f" ({r:g})" if r else "")
        rows.append([
            "a mail" if cell.unit == "row" else "a mailbox", _WAYS[cell.way],
            _budget(cell.epsilon), _study(found, cell, default, "perplexity"),
            _range(default, "r"), _result(_of(found, cell, DEFAULT, "sgd"), "perplexity"),
            grid["perplexity"] if grid else None,
            _range([grid] if grid else [], "r"), _result(line, "perplexity"),
            printed if cell.unit == "row" else None,
            _mean(default, "seconds") if default else None,
        ])  # fmt: skip
    before = fmean(figures["perplexity_before"] for figures in found.values())
    return [
        "## Enron mails by a small GPT-2",
        "Perplexity of 1,000 mails that were held back; 5,000 others train. The network has 14 "
        "million weights and was pretrained by us for 40 s of an H200 on 15 MB of public text, "
        f"where its perplexity of these mails is {before:.2f}. Mails are cut at a public length "
        f"({_lengths(found)} words). "
        "The default study trains with Adam; the same search was paid for with SGD, too. Grid and "
        "line are of SGD at a constant rate, as the paper's Table 8 is, over five noises on "
        "weights around the law's, a factor of 2.5 apart. Another vocabulary (8,192 words, not "
        "50,257) and a far smaller network than the paper's: perplexities cannot be compared, only "
        "how they and r change with epsilon.",
        *_marked(Table(columns, rows).markdown().rstrip()),
        *_growth(_by_set(found), _OF_SGD),
        *_boxes(found),
    ]


def _not_here(found: Found) -> list[str]:
    """What the paper has and nobody can measure from public files at hand."""
    if not found:
        return []
    return [
        "## Not measured",
        "PersonaChat (Tables 7 and 20), QQP, MNLI, the training file of QNLI (ours are the rows of "
        "its development file, which MiniLM's pretraining has seen in part), WikiText-2's training "
        "file, SQuAD with OPT-13B: their texts or weights are not here. Table 9 (DP-ZO: random "
        "search 82.53, its rule 83.02, grid 83.87) names neither task nor epsilon; ours is in "
        "[modules.md](../modules/modules.md).",
    ]


def _samples(found: Found) -> str:
    """How sets were trained on, but for linear probes, and runs without privacy."""
    sizes: dict[tuple[int, int], dict[str, None]] = defaultdict(dict)
    for cell in found:
        if cell.way != PROBE and cell.epsilon is not None:
            sizes[cell.steps, cell.batch][cell.texts] = None
    return "".join(
        f"; {steps} steps of {batch:,} rows on {', '.join(names)}"
        for (steps, batch), names in sizes.items()
    )


def _lengths(found: Found) -> str:
    return " or ".join(str(length) for length in sorted({cell.length for cell in found}))


def _boxes(found: Found) -> list[str]:
    if not any(cell.unit == "mailbox" for cell in found):
        return []
    return [
        "Where a mailbox is the unit there are six of them: the noise of one step is as large as "
        "what one of six says, so no budget of this table can teach anything. It shows that the "
        "price is right, not that anything was learned; hundreds of people are needed."
    ]


# Of both, the noise that is left on weights is best near one size at every budget (docs/law.md).
_OF_ADAM = (
    "Adam divides a step by the size of its noisy gradients, so one rate leaves one noise on "
    "weights at every budget, and the best r has no reason to grow."
)
_OF_SGD = (
    "SGD's steps leave noise in proportion to the noise of gradients, so its best r grows as one "
    "over that."
)


def _growth(sets: Mapping[str, Found], why: str) -> list[str]:
    """How the grid's best r changes with the budget."""
    said = []
    for (name, way), points in _best_r(sets).items():
        if len(points) < 3:
            continue
        epsilons, mus, rs = (np.log([point[i] for point in points]) for i in range(3))
        by_epsilon, by_mu = (float(np.polyfit(x, rs, 1)[0]) for x in (epsilons, mus))
        budgets = f"{points[0][0]:g} to {points[-1][0]:g}"
        said.append(
            f"- {name}, {_WAYS[way]}: from epsilon {budgets} the grid's best r goes from "
            f"{points[0][2]:.3g} to {points[-1][2]:.3g}, as epsilon to the power "
            f"{by_epsilon:z.2f} and mu to the power {by_mu:z.2f} (a line through zero would be 1)."
        )
    return [f"**Does r grow linearly?** {why}", "\n".join(said)] if said else []


def _best_r(sets: Mapping[str, Found]) -> dict[tuple[str, str], list[_BestR]]:
    """Of every budget with a grid, by set and way."""
    points: dict[tuple[str, str], list[_BestR]] = defaultdict(list)
    for name, found in sets.items():
        for cell in sorted(_settings(found), key=_order):
            best = _oracle(found, cell)
            if cell.epsilon is not None and best is not None and cell.unit == "row":
                mu = mu_from_epsilon(cell.epsilon, cell.delta)
                points[name, cell.way].append((cell.epsilon, mu, best["r"]))
    return points


def picture(tuned: Found, mails: Found) -> Picture:
    """Accuracy and perplexity over epsilon, and the best r."""
    panels: list[Plot] = []
    sets = _by_set(tuned)
    for name, of_set in sets.items():
        series = _over_epsilon(of_set, "accuracy")
        if series:
            panels.append(Plot(name, "epsilon", "test accuracy, %", series, xlog=True))
    series = _over_epsilon(mails, "perplexity")
    if series:
        panels.append(Plot("Enron", "epsilon", "perplexity", series, xlog=True))
    grids = {
        "the oracles' r by Adam, mean over sets": _best_r(sets),
        "the oracle's r by SGD, Enron": _best_r(_by_set(mails)),
    }
    for title, best in grids.items():
        series = _means_over_sets(best)
        if series:
            panels.append(Plot(title, "epsilon", "r", series, xlog=True, ylog=True))
    labels = list(dict.fromkeys(one.label for panel in panels for one in panel.series))
    coloured = [
        replace(panel, series=[replace(one, color=labels.index(one.label)) for one in panel.series])
        for panel in panels
    ]
    return Picture("Language models: studies with everything paid, and unpaid oracles", coloured)


def _means_over_sets(grids: Mapping[tuple[str, str], Sequence[_BestR]]) -> list[Series]:
    """Of the best r, for every way that sets were trained in."""
    ways: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (_, way), points in grids.items():
        for epsilon, _, r in points:
            ways[way][epsilon].append(r)
    return [
        Series(
            f"{_WAYS[way]}, oracle",
            sorted(found),
            [geometric_mean(found[e]) for e in sorted(found)],
        )
        for way, found in ways.items()
        if len(found) > 1
    ]


def _over_epsilon(found: Found, figure: str) -> list[Series]:
    """Of one set."""
    ways: dict[str, dict[float, float]] = defaultdict(dict)
    for cell, several in _groups(
        found, lambda cell: cell.method == DEFAULT and cell.unit == "row"
    ).items():
        if cell.epsilon is not None:
            rule = ", SGD" if cell.optimizer == "sgd" else ""
            ways[_trained(found, cell) + rule][cell.epsilon] = _mean(several, figure)
    for cell in _settings(found):
        best = _oracle(found, cell)
        if cell.epsilon is not None and best is not None and cell.unit == "row":
            ways[f"{_WAYS[cell.way]}, oracle"][cell.epsilon] = best[figure]
            for line in _line(found, cell):
                ways[f"{_WAYS[cell.way]}, line"][cell.epsilon] = line[figure]
    return [
        Series(way, sorted(points), [points[epsilon] for epsilon in sorted(points)])
        for way, points in ways.items()
    ]


def _by_set(found: Found) -> dict[str, Found]:
    """What was measured on each set: no row of a page looks beyond its own."""
    sets: dict[str, dict[Cell, Figures]] = defaultdict(dict)
    for cell, figures in found.items():
        sets[cell.texts][cell] = figures
    return dict(sets)


def _settings(found: Found) -> list[Cell]:
    """One cell for every way, unit and budget."""
    return list({_setting(cell): None for cell in found})


def _setting(cell: Cell) -> Cell:
    return Cell(
        verb=cell.verb, texts=cell.texts, way=cell.way, method="", epsilon=cell.epsilon,
        delta=cell.delta, seed=0, batch=cell.batch, steps=cell.steps, length=cell.length,
        unit=cell.unit, limit=cell.limit,
    )  # fmt: skip


def _of(found: Found, setting: Cell, method: str, optimizer: str = "") -> list[Figures]:
    return [
        figures
        for cell, figures in found.items()
        if cell.method == method and _setting(cell) == setting and optimizer in ("", cell.optimizer)
    ]


def _rivals(
    found: Found, setting: Cell
) -> tuple[Figures | None, float | None, list[Figures], list[Figures]]:
    """Oracle, random search, the line and the paper's search."""
    drawn = _of(found, setting, GRID) or _of(found, setting, RANDOM)
    random = _mean(drawn, "accuracy") if drawn and "accuracy" in drawn[0] else None
    return (
        _oracle(found, setting), random, _line(found, setting), _of(found, setting, PAPER)
    )  # fmt: skip


def _line(found: Found, setting: Cell) -> list[Figures]:
    cells = [cell for cell in line_cells(found) if _setting(cell) == setting]
    return [found[cell] for cell in cells if cell in found]


def _oracle(found: Found, setting: Cell) -> Figures | None:
    grids = [cell for cell in found if cell.method == GRID and _setting(cell) == setting]
    best = best_of_grid(found, grids[0]) if grids else None
    return None if best is None else best[1]


def _rerr(default: Sequence[Figures], random: float | None, oracle: float | None) -> float | None:
    if not default or random is None or oracle is None or oracle <= random:
        return None
    return 100 * (_mean(default, "accuracy") - random) / (oracle - random)


def _together(sets: Iterable[Found]) -> list[str]:
    """RERR of all cells of a way: a gap that is chance weighs as little as it is wide."""
    ways: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for found in sets:
        for setting in _settings(found):
            default = _of(found, setting, DEFAULT)
            oracle, random, _, _ = _rivals(found, setting)
            if default and oracle is not None and random is not None:
                gap = oracle["accuracy"] - random
                ways[setting.way].append((_mean(default, "accuracy") - random, gap))
    said = [
        f"{_WAYS[way]} {100 * sum(closed) / sum(gaps):.0f} ({len(gaps)} cells)"
        for way, pairs in ways.items()
        for closed, gaps in [zip(*pairs, strict=True)]
    ]
    if not said:
        return []
    return [f"RERR of all cells together, what was closed by what there was: {', '.join(said)}."]


def _groups(found: Found, wanted: Callable[[Cell], bool]) -> dict[Cell, list[Figures]]:
    groups: dict[Cell, list[Figures]] = defaultdict(list)
    for cell, figures in found.items():
        if wanted(cell):
            groups[replace(cell, seed=0)].append(figures)
    return groups


def _judged(several: Sequence[Figures]) -> float:
    """By which a rate without privacy is chosen."""
    name = "dev_accuracy" if "dev_accuracy" in several[0] else "accuracy"
    return _mean(several, name)


def _mean(several: Sequence[Figures], name: str) -> float:
    return fmean(figures[name] for figures in several)


def _spread(several: Sequence[Figures], name: str) -> str:
    return with_spread([figures[name] for figures in several])


def _range(several: Sequence[Figures], name: str) -> str | None:
    values = [figures[name] for figures in several if name in figures]
    return ends(values, 3) if values else None


def _result(several: Sequence[Figures], name: str) -> str | None:
    return f"{_spread(several, name)} ({_range(several, 'r')})" if several else None


def _name(cell: Cell) -> str:
    few = "" if cell.limit is None else f" (tried on {cell.limit:,})"
    return f"{cell.texts}{few}"


def _trained(found: Found, cell: Cell) -> str:
    """What is trained, and for how long where others of the set were trained for fewer steps."""
    fewest = min(
        (
            other.steps
            for other in found
            if (other.texts, other.way) == (cell.texts, cell.way) and other.epsilon is not None
        ),
        default=cell.steps,
    )
    longer = cell.epsilon is not None and cell.steps > fewest
    return _WAYS[cell.way] + (f", {cell.steps} steps" if longer else "")


def _budget(epsilon: float | None) -> str:
    return "infinity" if epsilon is None else f"{epsilon:g}"


def _met(met: bool) -> str:
    return "met" if met else "missed"


def _order(cell: Cell) -> tuple[str, str, str, float, int]:
    epsilon = math.inf if cell.epsilon is None else cell.epsilon
    return cell.texts, cell.unit, cell.way, epsilon, cell.steps
