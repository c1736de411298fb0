"""What a rate of its own for the new last layer would bring where a network is trained with it.

    PYTHONPATH=. python benchmarks/new_layer_rates.py CARRIED --sets trec,subj --device cuda

CARRIED is what `python -m reproduction language prepare` made. The new layer, n of N weights, is
moved SHARE * sqrt((N - n) / n) times as far as all others: with a share of 1, noise moves it in all
as far as it moves the network. All else is a run of `python -m reproduction language finetune`, by
the three middle rates of its grid. Nobody pays for the choice of a rate: take public rows. Prints
test accuracies in percent.
"""

import argparse
import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dptune.bench.tables import Table
from dptune.engines.language.reader import Reader
from dptune.engines.modules import descent
from dptune.engines.modules.flat_weights import FlatWeights
from dptune.plan import TrainPlan
from reproduction.language.cells import GRID, Cell, grid
from reproduction.language.measure import measure
from reproduction.language.sets import LENGTHS, private_rows

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


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    asked.add_argument("carried")
    asked.add_argument("--sets", default="trec,newsgroups20,subj,ag_news")
    asked.add_argument("--ways", default="lora,full")
    asked.add_argument("--epsilon", default="0.1,0.7,8")
    asked.add_argument("--share", type=float, default=1.0)
    asked.add_argument("--device", default="cpu")
    given = asked.parse_args()
    descent.Moves = own_rate(given.share)  # type: ignore[misc]
    shown: list[list[Any]] = []
    for name in given.sets.split(","):
        rows = private_rows(name, given.carried, LENGTHS[name], None).count
        for way in given.ways.split(","):
            for epsilon in map(float, given.epsilon.split(",")):
                cell = Cell(
                    verb="finetune", texts=name, way=way, method=GRID, epsilon=epsilon,
                    delta=1 / (2 * rows), seed=0, batch=SAMPLE, steps=STEPS, length=LENGTHS[name],
                    compute="float32" if given.device == "cpu" else "bfloat16",
                )  # fmt: skip
                for rate in grid(cell, rows)[1:-1]:
                    run = replace(cell, learning_rate=rate)
                    found = measure(run, given.carried, given.device)
                    shown.append([name, way, epsilon, rate, found["accuracy"]])
    headings = {"set": "", "trained": "", "epsilon": "g", "rate": "g", "accuracy": ".1f"}
    print(Table(headings, shown).markdown(), end="")


if __name__ == "__main__":
    main()
