"""Which cells are measured, in the order of what they are worth."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from dptune.errors import InvalidInput
from reproduction.lines import Figures

DEFAULT, PAPER, RANDOM = "default", "paper-line", "random"
GRID, LINE, PLAIN = "grid", "line", "plain"  # nobody pays for these searches
SEARCHES = (DEFAULT, PAPER, RANDOM)
METHODS = (DEFAULT, PAPER, RANDOM, "oracle", LINE)
FULL, LORA, PROBE = "full", "lora", "probe"
WAYS = (FULL, LORA, PROBE)
RANK = 8
# Where searches look, and the grid of the oracle: two decades that hold the best rates.
RATES: Mapping[str, tuple[float, float]] = {FULL: (1e-4, 1e-2), LORA: (3e-4, 3e-2)}
GRID_RATES = 5
PLAIN_RATES: Mapping[str, tuple[float, ...]] = {
    FULL: (1e-4, 2e-4, 4e-4),
    LORA: (5e-4, 1e-3, 2e-3),
}
PLAIN_BATCH, PLAIN_PASSES = 512, 5
# The line of the paper's Tables 6 and 8 goes through the best r of these two.
FIRST, SECOND = 0.1, 0.2


@dataclass(frozen=True)
class Cell:
    """One run or study. `epsilon` is None without privacy; `learning_rate` is set where no search
    chooses; `unit` is what is protected."""

    verb: str
    texts: str
    way: str
    method: str
    epsilon: float | None
    delta: float
    seed: int
    batch: int
    steps: int
    length: int
    clip_norm: float | None = 0.1
    optimizer: str = "adam"
    schedule: str = "linear"
    compute: str = "bfloat16"
    learning_rate: float | None = None
    unit: str = "row"
    limit: int | None = None

    @property
    def r(self) -> float | None:
        """The paper's total step size, of the rate that a run begins with."""
        return None if self.learning_rate is None else self.learning_rate * self.steps


def cells_of(
    base: Cell, epsilons: Iterable[float | None], methods: Iterable[str], rows: int, repeats: int
) -> list[Cell]:
    """Everything but the line, which needs the grid first. `base` says what all share."""
    asked = list(methods)
    found: list[Cell] = []
    for epsilon in epsilons:
        if epsilon is None:
            found += _plain(base, rows)
            continue
        cell = replace(base, epsilon=epsilon)
        for method in asked:
            if method == "oracle":
                found += [
                    replace(cell, method=GRID, learning_rate=rate) for rate in grid(base.way)
                ]
            elif method in SEARCHES:
                found += [replace(cell, method=method, seed=seed) for seed in range(repeats)]
            elif method != LINE:
                raise InvalidInput(f"methods are {', '.join(METHODS)}; got {method!r}.")
    return found


def grid(way: str) -> list[float]:
    """Rates, evenly over their logarithms."""
    if way == PROBE:  # whose searches are compared elsewhere
        return []
    return [float(f"{rate:.3g}") for rate in np.geomspace(*RATES[way], GRID_RATES)]


def _plain(base: Cell, rows: int) -> list[Cell]:
    """Without privacy smaller batches do better."""
    if base.way == PROBE:
        return [replace(base, method=PLAIN, epsilon=None)]
    batch = min(PLAIN_BATCH, base.batch, max(1, rows // 8))
    steps = max(1, PLAIN_PASSES * rows // batch)
    plain = replace(
        base, method=PLAIN, epsilon=None, batch=batch, steps=steps, clip_norm=None, delta=0.0
    )
    return [replace(plain, learning_rate=rate) for rate in PLAIN_RATES[base.way]]


def best_of_grid(found: Mapping[Cell, Figures], like: Cell) -> tuple[Cell, Figures] | None:
    """The best cell of the grid that `like` would be in, by what is reported, as oracles do."""
    same = [(cell, figures) for cell, figures in found.items() if _key(cell) == _key(like)]
    return max(same, key=lambda pair: _quality(pair[1]), default=None)


def line_cells(found: Mapping[Cell, Figures]) -> list[Cell]:
    """Runs at the r of the line through the best r at epsilon 0.1 and 0.2, for every larger epsilon
    that has a grid."""
    cells: dict[Cell, None] = {}
    for cell in found:
        if cell.method != GRID or cell.epsilon is None or cell.epsilon <= SECOND:
            continue
        ends = [best_of_grid(found, replace(cell, epsilon=end)) for end in (FIRST, SECOND)]
        if ends[0] is None or ends[1] is None:
            continue
        (r_first, r_second) = (end[0].r or 0.0 for end in ends if end is not None)
        r = r_first + (r_second - r_first) / (SECOND - FIRST) * (cell.epsilon - FIRST)
        least = 0.1 * RATES[cell.way][0]  # a line may fall
        rate = float(f"{max(r / cell.steps, least):.4g}")
        cells[replace(cell, method=LINE, learning_rate=rate)] = None
    return list(cells)


def _key(cell: Cell) -> Cell:
    return replace(cell, method=GRID, learning_rate=None, seed=0)


def _quality(figures: Figures) -> float:
    return float(figures["accuracy"] if "accuracy" in figures else -figures["perplexity"])
