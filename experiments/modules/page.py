"""A page of all lines, beside the figures of papers."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from dptune.bench.store import write
from dptune.bench.tables import Table
from experiments import lines
from experiments.lines import Figures
from experiments.modules.cells import FREE, LITERATURE, OURS, RANDOM, Cell
from experiments.pages import ends, with_spread
from experiments.paper import published

PAGE = "modules.md"
Found = Mapping[Cell, Figures]
_TITLES = {
    "cnn": "The small convolutional network, from scratch",
    "wrn": "WRN-16-4 on CIFAR-10, from scratch",
}
_PAPERS = {OURS: "our search", RANDOM: "random search", FREE: "best of a grid, unpaid"}
_ACCURACY = ".2f"


def write_page(folder: Path) -> Path:
    """The page of all that the folder holds."""
    parts = [
        "# Whole networks, trained privately from scratch",
        "Accuracies in percent of the test rows: means over seeds, with fresh noise in each, and "
        "their standard deviations. Studies pay for all of their search inside the stated epsilon, "
        "at delta 1e-5. Written by `python -m experiments modules page`.",
    ]
    for verb in _TITLES:
        parts += _studies(verb, lines.read(folder, verb, Cell))
    parts += _zeroth_order(lines.read(folder, "zeroth-order", Cell))
    parts += _law(lines.read(folder, "law", Cell))
    write(folder / PAGE, "\n\n".join(parts) + "\n")
    return folder / PAGE


def _studies(verb: str, found: Found) -> list[str]:
    if not found:
        return []
    columns = {"set": "", "epsilon": "g", "steps": ",d", "batch": ",d", "copies": "d"}
    columns |= {"accuracy": "", "papers": _ACCURACY, "rate": "", "c": "", "seconds": ".0f"}
    rows = []
    for cell, several in _by_setting(found, "seed").items():
        literature = LITERATURE.get((cell.pictures, cell.epsilon))
        rows.append([
            _set(cell), cell.epsilon, cell.steps, cell.batch, cell.copies, _accuracy(several),
            literature, _range(several, "learning_rate"), _range(several, "weight_noise"),
            fmean(each["seconds"] for each in several),
        ])  # fmt: skip
    parameters = ", ".join(f"{count:,}" for count in sorted(_all(found.values(), "parameters")))
    return [
        f"## {_TITLES[verb]}",
        f"{parameters} parameters. Rate and c, the noise on every weight, are those of the final "
        "runs, as the search chose them; seconds are those of a whole study.",
        Table(columns, rows).markdown().rstrip(),
    ]


def _zeroth_order(found: Found) -> list[str]:
    if not found:
        return []
    columns = {"set": "", "epsilon": "g", "search": "", "accuracy": "", "rate": ""}
    columns |= {"the paper's Table 9": ""}
    rows = []
    for cell, all_rates in _by_setting(found, "seed", "learning_rate").items():
        several = _best_rate(found, cell) if cell.method == FREE else all_rates
        mean, spread = published.ZEROTH_ORDER[cell.method]
        rows.append([
            _set(cell), cell.epsilon, _PAPERS[cell.method], _accuracy(several),
            _range(several, "learning_rate"), f"{mean:.2f} ({spread:.2f})",
        ])  # fmt: skip
    return [
        "## Zeroth order: three searches",
        "A linear model of 49 pooled pixels from scratch. The paper states neither task nor "
        "epsilon of its table: only the order of the three can be compared.",
        Table(columns, rows).markdown().rstrip(),
    ]


def _best_rate(found: Found, method: Cell) -> list[Figures]:
    """Of the free grid, the rate with the best mean."""
    rates = {
        cell: several
        for cell, several in _by_setting(found, "seed").items()
        if _without(cell, "learning_rate") == _without(method, "learning_rate")
    }
    return max(rates.values(), key=_mean)


def _law(found: Found) -> list[str]:
    if not found:
        return []
    columns = {"set": "", "parameters": ",d", "epsilon": "g", "c": "g", "rate": ".3g"}
    columns |= {"accuracy": "", "noise per logit": ".3g", "size of logits": ".3g", "": ""}
    rows, peaks = [], []
    scans: dict[Cell, list[tuple[Cell, list[Figures]]]] = defaultdict(list)
    for cell, several in _by_setting(found, "seed").items():
        scans[_without(cell, "noise")].append((cell, several))
    for scan in scans.values():
        best = max(scan, key=lambda pair: _mean(pair[1]))
        for cell, several in sorted(scan, key=lambda pair: pair[0].noise or 0.0):
            rows.append([
                _set(cell), several[0]["parameters"], cell.epsilon, cell.noise,
                several[0]["learning_rate"], _accuracy(several), _middle(several, "logit_noise"),
                _middle(several, "logit_size"), "best" if cell is best[0] else None,
            ])  # fmt: skip
        peaks.append((best[0].noise or 0.0, _middle(best[1], "logit_noise")))
    weights, logits = zip(*peaks, strict=True)
    return [
        "## Where accuracy is best over the noise on weights",
        "Single runs on public rows, at rates that leave noise c on every weight. Noise per logit: "
        "how much logits move, one standard deviation, where the final weights get that noise. "
        f"Accuracy is best at c from {min(weights):g} to {max(weights):g} and at noise per logit "
        f"from {min(logits):.2g} to {max(logits):.2g}.",
        Table(columns, rows).markdown().rstrip(),
    ]


def _by_setting(found: Found, *but: str) -> dict[Cell, list[Figures]]:
    """The figures of all cells that differ in nothing `but` these."""
    settings: dict[Cell, list[Figures]] = defaultdict(list)
    for cell, figures in found.items():
        settings[_without(cell, *but)].append(figures)
    return settings


def _without(cell: Cell, *names: str) -> Cell:
    return Cell(**{**asdict(cell), **{name: 0 if name == "seed" else None for name in names}})


def _set(cell: Cell) -> str:
    few = "" if cell.limit is None else f" (tried on {cell.limit:,})"
    return f"{cell.pictures}{few}"


def _accuracy(several: Sequence[Figures]) -> str:
    return with_spread([each["accuracy"] for each in several])


def _mean(several: Sequence[Figures]) -> float:
    return _middle(several, "accuracy")


def _middle(several: Sequence[Figures], name: str) -> float:
    return fmean(each[name] for each in several)


def _range(several: Sequence[Figures], name: str) -> str:
    return ends([each[name] for each in several], 2)


def _all(several: Iterable[Figures], name: str) -> set[Any]:
    return {each[name] for each in several}
