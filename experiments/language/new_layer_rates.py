"""What a rate of its own for the new last layer would bring where a network is trained with it.

The new layer, n of N weights, is moved SHARE * sqrt((N - n) / n) times as far as all others: with a
share of 1, noise moves it in all as far as it moves the network. All else is a run of `language
finetune`, by the three middle rates of its grid. Nobody pays for the choice of a rate: take public
rows.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dptune.bench.tables import Table
from dptune.engines.language.reader import Reader
from dptune.engines.modules import descent
from dptune.engines.modules.flat_weights import FlatWeights
from dptune.plan import TrainPlan
from experiments.language.cells import GRID, Cell, grid
from experiments.language.measure import measure
from experiments.language.sets import LENGTHS, private_rows

STEPS, SAMPLE = 100, 512


def own_rate(share: float) -> type[descent.Moves]:
    """Moves that take the new layer further."""

    class Further(descent.Moves):
        def __init__(self, plan: TrainPlan, flat: FlatWeights) -> None:
            super().__init__(plan, flat)
            assert isinstance(flat.module, Reader)
            heads = set(flat.module.heads)
            new = [name in heads for name in flat.trained]
            count = sum(size for size, is_new in zip(flat.sizes, new, strict=True) if is_new)
            factor = max(1.0, share * math.sqrt((sum(flat.sizes) - count) / count))
            parts = [
                torch.full((size,), factor if is_new else 1.0, device=flat.vector.device)
                for size, is_new in zip(flat.sizes, new, strict=True)
            ]
            for rule, factors in zip(
                self._rules, torch.split(torch.cat(parts), self._sizes), strict=True
            ):
                _lengthen(rule, factors)

    return Further


def _lengthen(rule: Any, factors: Tensor) -> None:
    before = rule.direction
    rule.direction = lambda *given: before(*given) * factors


@contextmanager
def _moved_by(share: float) -> Iterator[None]:
    before = descent.Moves
    descent.Moves = own_rate(share)  # type: ignore[misc]
    try:
        yield
    finally:
        descent.Moves = before  # type: ignore[misc]


def measure_rates(
    carried: str,
    sets: Sequence[str],
    ways: Sequence[str],
    epsilons: Sequence[float],
    share: float,
    device: str,
) -> Table:
    """Test accuracies in percent."""
    shown: list[list[Any]] = []
    for name in sets:
        rows = private_rows(name, carried, LENGTHS[name], None).count
        for way in ways:
            for epsilon in epsilons:
                cell = Cell(
                    verb="finetune", texts=name, way=way, method=GRID, epsilon=epsilon,
                    delta=1 / (2 * rows), seed=0, batch=SAMPLE, steps=STEPS, length=LENGTHS[name],
                    compute="float32" if device == "cpu" else "bfloat16",
                )  # fmt: skip
                for rate in grid(cell, rows)[1:-1]:
                    with _moved_by(share):
                        found = measure(replace(cell, learning_rate=rate), carried, device)
                    shown.append([name, way, epsilon, rate, found["accuracy"]])
    headings = {"set": "", "trained": "", "epsilon": "g", "rate": "g", "accuracy": ".1f"}
    return Table(headings, shown)
