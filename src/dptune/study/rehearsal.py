"""A study in small, on made-up rows, before anything is paid: what an engine cannot do, it says
here."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from safetensors.torch import load
from torch import Tensor

from dptune.data.rows import MemoryRows
from dptune.engines.base import Engine, Model
from dptune.engines.checkpoint import Checkpoint, steps_kept
from dptune.engines.executors import Executor
from dptune.engines.randomness import Randomness
from dptune.engines.scatter import is_own, must_scatter
from dptune.engines.tensor_files import tensors_as_bytes
from dptune.errors import DptuneError, InvalidInput
from dptune.scratch import scratch_folder
from dptune.study.model_facts import PREPARE
from dptune.study.outline import Outline


def rehearse(planned: Outline, executor: Executor) -> None:
    """Train, store, load, continue, predict and evaluate with the engine of the study, where it
    will train, on three rows that are made up.

    Guarantees: no private row is looked at.
    """
    try:
        _rehearse(planned, executor)
    except DptuneError:
        raise
    except Exception as error:  # whatever a user's engine raises
        raise InvalidInput(
            f"the engine {planned.engine.name} failed on a made-up row, so nothing was paid: "
            f"{type(error).__name__}: {error}"
        ) from error


def _rehearse(planned: Outline, executor: Executor) -> None:
    engine, facts = planned.engine, planned.data
    rows = _made_up(planned)
    engine.inspection.rehearse(facts, rows.device)
    features = rows.features[:, 0]
    model = _fitted(planned, executor, rows)
    logits = model.logits(features).cpu()
    if tuple(logits.shape) != (len(features), facts.width) or not logits.isfinite().all():
        raise InvalidInput(
            f"the engine {engine.name} gives logits of shape {tuple(logits.shape)} for "
            f"{len(features)} rows of these data, or some that are no numbers; they must be of "
            f"shape {(len(features), facts.width)}. Nothing was paid."
        )
    again = stored_and_loaded(engine, model)
    _must_agree(engine, logits, again.logits(features))
    if planned.continues:
        gone_on = [_fitted(planned, executor, rows, start) for start in (model, again)]
        _must_agree(engine, *(one.logits(features) for one in gone_on))
    if engine.traits.checkpoints and not planned.schedule.sealed:
        _must_go_on_from_checkpoints(planned, executor, rows)
    alone = torch.cat([model.logits(features[i : i + 1]) for i in range(len(features))])
    if not _close(engine, logits, alone):
        raise InvalidInput(
            f"what the engine {engine.name} predicts for a row depends on the others in its batch, "
            "so one private row would move the scores of all; leave batch normalisation and the "
            "like out. Nothing was paid."
        )
    engine.evaluate_many([again], rows, loss_bound=1.0)
    if not is_own(engine):
        try:
            must_scatter(engine, facts, rows, _made_up(planned, others=True), planned.recipe)
        except InvalidInput as problem:
            raise InvalidInput(f"{problem} Nothing was paid.") from None


@dataclass(eq=False)
class _CutOff(Checkpoint):
    """Of a run that is killed, as it were, after its first step."""

    def save(self, tensors: Mapping[str, Tensor], steps: int) -> None:
        if steps == 1:
            super().save(tensors, steps)


def _must_go_on_from_checkpoints(planned: Outline, executor: Executor, rows: MemoryRows) -> None:
    """A run of two steps that is interrupted after one ends like one that is not; once it has
    ended, it takes no further step."""
    features, logits, steps = rows.features[:, 0], [], []
    with scratch_folder() as scratch:
        kept = scratch / "run.checkpoint"
        for kind in (_CutOff, Checkpoint, Checkpoint):
            keep = kind(kept, "a rehearsal", seconds=0.0)
            model = _fitted(planned, executor, rows, keep=keep)
            logits.append(model.logits(features).cpu())
            steps.append(steps_kept(kept))
    if steps != [1, 2, 2] or not all(
        _close(planned.engine, logits[0], other) for other in logits[1:]
    ):
        raise InvalidInput(
            f"a run of the engine {planned.engine.name} that is interrupted and goes on from its "
            f"checkpoint ends otherwise than one that is not, or is not kept after every step when "
            f"that is due (of 2 steps, {steps} were kept instead of [1, 2, 2]), so what is trained "
            "would be lost. Nothing was paid; mend fit."
        )


def _made_up(planned: Outline, *, others: bool = False) -> MemoryRows:
    """Rows of the right shape: of any numbers, or, where they are numbers of words, of zeros; or
    `others`, where a row may hold anything."""
    facts = planned.data
    shape = (3, facts.copies, *facts.shape)
    features = torch.full(shape, int(others and facts.has_classes), dtype=torch.int64)
    if not planned.engine.traits.takes_ids:
        features = torch.rand(shape, generator=torch.Generator().manual_seed(int(others)))
    values = torch.float64 if facts.loss == "squared" else torch.int64
    return MemoryRows(
        features,
        torch.full((3,), facts.outputs - 1 if others else 0, dtype=values),
        device=planned.config.device,
        precision=planned.precision,
        augmented=True,
    )


def _must_agree(engine: Engine[Any], before: Tensor, after: Tensor) -> None:
    if not _close(engine, before, after):
        raise InvalidInput(
            f"a model of the engine {engine.name} predicts, or goes on, otherwise once it is "
            "packed and unpacked, so what is trained would be lost. Nothing was paid; mend pack "
            "and unpack."
        )


def _close(engine: Engine[Any], one: Tensor, other: Tensor) -> bool:
    one, other = (logits.detach().cpu().double() for logits in (one, other))
    size = float(one.abs().max()) or 1.0
    return one.shape == other.shape and torch.allclose(
        one, other, rtol=1e-2, atol=engine.traits.rounding * size
    )


def _fitted(
    planned: Outline,
    executor: Executor,
    rows: MemoryRows,
    start: Model | None = None,
    keep: Checkpoint | None = None,
) -> Model:
    # The noise is the same every time: these rows are nobody's.
    streams = [Randomness(noise_seed=0)]
    # A rate from the middle of what is searched: outside of it, networks amplify every rounding.
    plan = replace(planned.recipe, learning_rate=math.sqrt(math.prod(planned.space.learning_rate)))
    if planned.weighs_rows:
        plan = replace(plan, class_weights=(1.0,) * planned.data.outputs)
    kept = []
    if keep is not None:
        plan, kept = replace(plan, steps=2), [[keep]]
    (model,) = executor.fit(planned.engine, [plan], rows, streams, [start], *kept)
    if model is None:
        raise InvalidInput(
            f"a process that was to train with the engine {planned.engine.name} ended before it "
            "had trained on a made-up row, so nothing was paid. Such a process imports the script "
            'that calls tune: put the call under `if __name__ == "__main__":`, and an engine of '
            "your own into a module, not into a notebook. What the process printed says more."
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
