"""A study in small, on made-up rows, before anything is paid: what an engine cannot do, it says
here."""

from typing import Any

import torch

from dptune.data.rows import IDS, MemoryRows
from dptune.engines.base import Engine, Model
from dptune.engines.randomness import Randomness
from dptune.errors import DptuneError, InvalidInput
from dptune.study.outline import Outline


def rehearse(planned: Outline) -> None:
    """Train, store, load, continue, predict and evaluate with the engine of the study, on one empty
    row.

    Guarantees: no private row is looked at, and an engine that passes can do everything that the
    study will ask of it.
    """
    try:
        _rehearse(planned)
    except DptuneError:
        raise
    except Exception as error:  # whatever somebody's engine raises
        raise InvalidInput(
            f"the engine {planned.engine.name} failed on a made-up row, so nothing was paid: "
            f"{type(error).__name__}: {error}"
        ) from error


def _rehearse(planned: Outline) -> None:
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
    (model,) = engine.fit_many([planned.recipe], rows, [Randomness()])
    again = stored_and_loaded(engine, model)
    if planned.continues:
        (model,) = engine.fit_many([planned.recipe], rows, [Randomness()], [again])
        again = stored_and_loaded(engine, model)
    features = rows.features[:, 0]
    before, after = (
        one.logits(features.to(device)).cpu()
        for one, device in ((model, rows.device), (again, torch.device("cpu")))
    )
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


def stored_and_loaded(engine: Engine[Any], model: Model) -> Model:
    """The model as it will be read from disk, on the CPU."""
    tensors = {name: tensor.detach().cpu() for name, tensor in engine.pack(model).items()}
    again: Model = engine.unpack(tensors)
    return again
