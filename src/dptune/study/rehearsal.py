"""A study in small, on made-up rows, before anything is paid: what an engine cannot do, it says
here."""

from typing import Any

import torch
from safetensors.torch import load

from dptune.data.rows import IDS, MemoryRows
from dptune.engines.base import Engine, Model
from dptune.engines.executors import Executor
from dptune.engines.randomness import Randomness
from dptune.errors import DptuneError, InvalidInput
from dptune.study.outline import Outline
from dptune.study.run_folder import tensors_as_bytes
from dptune.study.trained_model import PREPARE


def rehearse(planned: Outline, executor: Executor) -> None:
    """Train, store, load, continue, predict and evaluate with the engine of the study, where it
    will train, on one empty row.

    Guarantees: no private row is looked at.
    """
    try:
        _rehearse(planned, executor)
    except DptuneError:
        raise
    except Exception as error:  # whatever somebody's engine raises
        raise InvalidInput(
            f"the engine {planned.engine.name} failed on a made-up row, so nothing was paid: "
            f"{type(error).__name__}: {error}"
        ) from error


def _rehearse(planned: Outline, executor: Executor) -> None:
    engine, facts, config = planned.engine, planned.data, planned.config
    number = torch.int64 if engine.takes_ids else torch.float32
    target = torch.int64 if facts.has_classes else torch.float64
    rows = MemoryRows(
        torch.zeros((1, facts.copies, *facts.shape), dtype=number),
        torch.zeros(1, dtype=target),
        device=config.device,
        precision=IDS if engine.takes_ids else config.precision,
        augmented=True,
    )
    model = _fitted(planned, executor, rows, None)
    again = stored_and_loaded(engine, model)
    if planned.continues:
        model = _fitted(planned, executor, rows, again)
        again = stored_and_loaded(engine, model)
    features = rows.features[:, 0]
    before, after = model.logits(features).cpu(), again.logits(features.cpu())
    if tuple(after.shape) != (1, facts.outputs):
        raise InvalidInput(
            f"the engine {engine.name} gives logits of shape {tuple(after.shape)} for one row of "
            f"these data; they must be {(1, facts.outputs)}. Nothing was paid."
        )
    if not torch.allclose(before.double(), after.double(), rtol=1e-3, atol=1e-6, equal_nan=True):
        raise InvalidInput(
            f"a model of the engine {engine.name} predicts otherwise once it is packed and "
            "unpacked, so what is trained would be lost. Nothing was paid; mend pack and unpack."
        )
    engine.evaluate_many([again], rows, loss_bound=1.0)


def _fitted(planned: Outline, executor: Executor, rows: MemoryRows, start: Model | None) -> Model:
    (model,) = executor.fit(planned.engine, [planned.recipe], rows, [Randomness()], [start])
    if model is None:
        raise InvalidInput(
            f"a process that was to train with the engine {planned.engine.name} died on a made-up "
            "row, so nothing was paid. It must be able to import the engine: put its class in a "
            "module, not in a notebook."
        )
    fitted: Model = model
    return fitted


def stored_and_loaded(engine: Engine[Any], model: Model) -> Model:
    """The model as it will be read from disk, on the CPU."""
    tensors = engine.pack(model)
    for name in tensors:
        if name.startswith(PREPARE):
            raise InvalidInput(
                f"the engine {engine.name} packs a tensor {name!r}; names that begin with "
                f"{PREPARE!r} are taken. Give it another."
            )
    again: Model = engine.unpack(load(tensors_as_bytes(tensors)))
    return again
