"""A cell by the public API: a whole study with everything paid, or one run on rows that are public
anyway."""

from dataclasses import replace
from time import perf_counter
from typing import Any

import torch

import dptune
from dptune.accounting.calibration import calibrate_direct
from dptune.data import Data
from dptune.engines.base import Engine
from dptune.engines.modules.torch_module import TorchModule
from dptune.engines.modules.zeroth_order import ZerothOrder
from dptune.plan import TrainPlan
from dptune.search.base import SearchMethod
from experiments.lines import Figures
from experiments.modules.cells import Cell
from experiments.modules.sets import rows_of
from experiments.networks import AS_GIVEN, of_study, one_run

METHODS: dict[str, SearchMethod] = {
    "linear-scaling": dptune.LinearScaling(),
    "random-search": dptune.RandomSearch(),
}
RATES = (1e-4, 100.0)  # where searches look
_DRAWS, _LOOKED_AT = 8, 1000  # perturbed weights, and rows whose logits they move


def measure(cell: Cell, root: str | None, device: str) -> Figures:
    return (study if cell.by_search else run)(cell, root, device)


def study(cell: Cell, root: str | None, device: str) -> Figures:
    """A study as anybody would run it."""
    data, began = rows_of(cell.pictures, root, cell.limit), perf_counter()
    engine = engine_of(cell)
    result = dptune.tune(
        data,
        budget=dptune.Budget(cell.epsilon, cell.delta),
        engine=engine,
        search=METHODS[cell.method],
        space=dptune.Space(learning_rate=RATES, steps=(cell.steps, cell.steps)),
        recipe=recipe_of(cell, data),
        seed=cell.seed,
        device=device,
    )
    assert result.test_accuracy is not None
    return {
        "accuracy": 100 * result.test_accuracy,
        **of_study(result),
        "parameters": engine.for_data(data.facts).parameters(data.facts),
        "seconds": perf_counter() - began,
    }


def run(cell: Cell, root: str | None, device: str) -> Figures:
    """One run of the whole budget at a setting that nobody paid for."""
    data, began = rows_of(cell.pictures, root, cell.limit), perf_counter()
    engine = engine_of(cell).for_data(data.facts)
    model, chosen = one_run(engine, plan_of(cell, data), data, cell.seed, device)
    test = data.test_rows(AS_GIVEN, device)
    assert test is not None
    (found,) = engine.evaluate_many([model], test)
    seconds = perf_counter() - began
    some = next(iter(test.chunks())).features[:_LOOKED_AT, 0]
    return {
        "accuracy": 100 * found.correct / test.count,
        "loss": found.loss,
        **chosen,
        **logit_noise(model.module, some, chosen["weight_noise"]),
        "seconds": seconds,
    }


def engine_of(cell: Cell) -> Engine[Any]:
    factory = f"experiments.modules.networks:{cell.network}"
    if cell.directions is not None:
        return ZerothOrder(factory)
    augment = "experiments.modules.augment:crop_and_flip" if cell.copies > 1 else ""
    return TorchModule(factory, compute=cell.compute, augment=augment)


def recipe_of(cell: Cell, data: Data) -> dict[str, Any]:
    """What a search does not decide."""
    recipe: dict[str, Any] = {
        "sampling_rate": min(cell.batch / data.count, 0.5),
        "clip_norm": cell.clip_norm,
        "momentum": cell.momentum,
        "augmentations": cell.copies,
        "averaging": cell.averaging,
    }
    if cell.directions is not None:
        recipe["directions"] = cell.directions
    return recipe


def plan_of(cell: Cell, data: Data) -> TrainPlan:
    """With the noise that the budget asks for, at the cell's rate, or at the one that leaves the
    cell's noise on every weight."""
    recipe = recipe_of(cell, data)
    priced = calibrate_direct(
        epsilon=cell.epsilon,
        delta=cell.delta,
        steps=cell.steps,
        sampling_rate=recipe["sampling_rate"],
    )
    plan = TrainPlan(
        rows=data.count,
        steps=cell.steps,
        learning_rate=cell.learning_rate or 1.0,
        noise_multiplier=priced.noise_multiplier,
        **recipe,
    )
    if cell.noise is None:
        return plan
    return replace(plan, learning_rate=cell.noise / plan.weight_noise)


def logit_noise(module: torch.nn.Module, features: torch.Tensor, noise: float) -> Figures:
    """How much logits move, one standard deviation, where every weight gets this noise; and how
    much they differ from class to class without it. What moves all classes alike is left out, since
    no probability changes."""
    kept = [parameter.detach().clone() for parameter in module.parameters()]
    moved = []
    with torch.no_grad():
        before = _centred(module(features.float()))
        for _ in range(_DRAWS):
            for parameter, start in zip(module.parameters(), kept, strict=True):
                parameter.copy_(start + noise * torch.randn_like(start))
            moved.append((_centred(module(features.float())) - before).square().mean())
        for parameter, start in zip(module.parameters(), kept, strict=True):
            parameter.copy_(start)
    return {
        "logit_noise": float(torch.stack(moved).mean().sqrt()),
        "logit_size": float(before.square().mean().sqrt()),
    }


def _centred(logits: torch.Tensor) -> torch.Tensor:
    return logits - logits.mean(1, keepdim=True)
