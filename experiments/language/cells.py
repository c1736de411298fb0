"""Which cells are measured, in the order of what they are worth."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dptune.accounting import calibrate_full_batch
from dptune.accounting.calibration import calibrate_direct
from dptune.errors import InvalidInput
from dptune.gdp import mu_from_epsilon
from dptune.plan import TrainPlan
from experiments.lines import Figures

DEFAULT, PAPER, RANDOM = "default", "paper-line", "random"
GRID, LINE, PLAIN = "grid", "line", "plain"  # nobody pays for these searches
SEARCHES = (DEFAULT, PAPER, RANDOM)
METHODS = (DEFAULT, PAPER, RANDOM, "oracle", LINE)
FULL, LORA, PROBE = "full", "lora", "probe"
WAYS = (FULL, LORA, PROBE)
RANK = 8
# Where searches look, and the grid of the oracle: two decades that hold the best rates of Adam.
RATES: Mapping[str, tuple[float, float]] = {FULL: (1e-4, 1e-2), LORA: (3e-4, 3e-2)}
GRID_RATES = 5
# Rates of SGD follow the noise, so its grid is one of noise on weights: around what the law of
# modules says of so many weights as our networks, or their adapters, have.
SGD_RATES = (1e-4, 1e4)
SGD_STEP = 2.5
_LAW: Mapping[str, float] = {FULL: 15 / 10.6e6**0.5, LORA: 15 / 0.26e6**0.5}
PLAIN_RATES: Mapping[str, tuple[float, ...]] = {
    FULL: (1e-4, 2e-4, 4e-4, 8e-4),
    LORA: (5e-4, 1e-3, 2e-3),
}
PLAIN_BATCH = 512  # at most, and a 64th of the rows
PLAIN_PASSES = {"finetune": 5, "lm": 10}
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
                    replace(cell, method=GRID, learning_rate=rate) for rate in grid(cell, rows)
                ]
            elif method in SEARCHES:
                found += [replace(cell, method=method, seed=seed) for seed in range(repeats)]
            elif method != LINE:
                raise InvalidInput(f"methods are {', '.join(METHODS)}; got {method!r}.")
    return found


def grid(cell: Cell, rows: int) -> list[float]:
    """Rates, evenly over their logarithms."""
    if cell.way == PROBE:  # whose searches are compared elsewhere
        return []
    if cell.optimizer != "sgd":
        return [_rounded(rate) for rate in np.geomspace(*RATES[cell.way], GRID_RATES)]
    unit = plan_of(replace(cell, learning_rate=1.0), rows).weight_noise
    middle = GRID_RATES // 2
    noises = [_LAW[cell.way] * SGD_STEP ** (place - middle) for place in range(GRID_RATES)]
    return [_rounded(noise / unit) for noise in noises]


def _rounded(rate: float) -> float:
    """A cell is found again by its rate."""
    return float(f"{rate:.3g}")


def plan_of(cell: Cell, rows: int, copies: int = 1) -> TrainPlan:
    """With the noise that the budget asks for; none where there is no budget."""
    recipe, noise = recipe_of(cell, rows, copies), 0.0
    if cell.epsilon is not None:
        noise = _noise(cell, recipe.get("sampling_rate"))
    assert cell.learning_rate is not None
    return TrainPlan(
        rows=rows,
        steps=cell.steps,
        learning_rate=cell.learning_rate,
        noise_multiplier=noise,
        **recipe,
    )


def recipe_of(cell: Cell, rows: int, copies: int = 1) -> dict[str, Any]:
    """What a search does not decide; `copies` are the pieces of a unit."""
    recipe: dict[str, Any] = {
        "clip_norm": cell.clip_norm,
        "optimizer": cell.optimizer,
        "schedule": cell.schedule,
        "augmentations": copies,
    }
    if cell.batch < rows:
        recipe["sampling_rate"] = min(cell.batch / rows, 0.5)
    return recipe


def _noise(cell: Cell, sampling_rate: float | None) -> float:
    assert cell.epsilon is not None
    if sampling_rate is None:
        mu = mu_from_epsilon(cell.epsilon, cell.delta)
        return calibrate_full_batch(mu=mu, steps=cell.steps).noise_multiplier
    return calibrate_direct(
        epsilon=cell.epsilon, delta=cell.delta, steps=cell.steps, sampling_rate=sampling_rate
    ).noise_multiplier


def _plain(base: Cell, rows: int) -> list[Cell]:
    """Without privacy smaller batches do better."""
    if base.way == PROBE:
        return [replace(base, method=PLAIN, epsilon=None)]
    batch = min(PLAIN_BATCH, max(1, rows // 64))
    steps = PLAIN_PASSES[base.verb] * rows // batch
    plain = replace(
        base,
        method=PLAIN,
        epsilon=None,
        delta=0.0,
        batch=batch,
        steps=steps,
        clip_norm=None,
        optimizer="adam",
        schedule="linear",
    )
    return [replace(plain, learning_rate=rate) for rate in PLAIN_RATES[base.way]]


def best_of_grid(found: Mapping[Cell, Figures], like: Cell) -> tuple[Cell, Figures] | None:
    """The best cell of the grid that `like` would be in, by what is reported, as oracles do; None
    where some of the grid is not measured."""
    return _bests(found).get(_key(like))


def _bests(found: Mapping[Cell, Figures]) -> dict[Cell, tuple[Cell, Figures]]:
    """Of all grids that are complete."""
    grids: dict[Cell, list[tuple[Cell, Figures]]] = defaultdict(list)
    for cell, figures in found.items():
        if cell.method == GRID:
            grids[_key(cell)].append((cell, figures))
    return {
        key: max(rates, key=lambda pair: _quality(pair[1]))
        for key, rates in grids.items()
        if len(rates) >= GRID_RATES
    }


def line_cells(found: Mapping[Cell, Figures]) -> list[Cell]:
    """Runs at the r of the line through the best r at epsilon 0.1 and 0.2, for every larger epsilon
    that has a grid; where a run of the grid is at that r, it is the line's, too."""
    cells: dict[Cell, None] = {}
    bests = _bests(found)
    for cell in found:
        if cell.method != GRID or cell.epsilon is None or cell.epsilon <= SECOND:
            continue
        ends = [bests.get(_key(replace(cell, epsilon=end))) for end in (FIRST, SECOND)]
        if ends[0] is None or ends[1] is None:
            continue
        (r_first, r_second) = (end[0].r or 0.0 for end in ends if end is not None)
        r = r_first + (r_second - r_first) / (SECOND - FIRST) * (cell.epsilon - FIRST)
        rate = _rounded(max(r, 0.1 * r_first) / cell.steps)  # a line may fall
        of_grid = replace(cell, learning_rate=rate)
        cells[of_grid if of_grid in found else replace(of_grid, method=LINE)] = None
    return list(cells)


def _key(cell: Cell) -> Cell:
    return replace(cell, method=GRID, learning_rate=None, seed=0)


def _quality(figures: Figures) -> float:
    return float(figures["accuracy"] if "accuracy" in figures else -figures["perplexity"])
