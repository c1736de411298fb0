"""Any PyTorch module, trained without gradients (DP-ZO; Tang et al. 2024).

A step draws public random directions, moves all weights a little way along one and against it, and
asks every row how its loss differs. What a row adds is one number a direction, clipped; what gets
noise is their sum; and weights move along directions that anybody may know. Only passes forward are
taken, and directions are drawn again from their numbers and never stored, so memory is that of
using the module.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dptune import validate
from dptune.data.rows import DataFacts, Rows
from dptune.engines.checkpoint import Checkpoint
from dptune.engines.modules import descent
from dptune.engines.modules.flat_weights import FlatWeights
from dptune.engines.modules.inspection import ModuleInspection
from dptune.engines.modules.losses import outputs_of, row_loss
from dptune.engines.modules.module_engine import ModuleEngine, samples_of
from dptune.engines.modules.module_model import ModuleModel
from dptune.engines.modules.module_state import ModuleState
from dptune.engines.modules.precision import computing
from dptune.engines.modules.source import Source
from dptune.engines.modules.tracing import MADE_UP, functions_take_rows_apart
from dptune.engines.per_row import ClippedSum, add_noise_, drawn_rows, read_rows
from dptune.engines.randomness import Passes, Randomness, Stream
from dptune.engines.registry import register_engine
from dptune.engines.traits import Traits
from dptune.errors import InvalidInput
from dptune.plan import TrainPlan
from dptune.prior import ZEROTH_ORDER

_PIECE = 2**22  # numbers of a direction that are drawn at once: what moving needs beside weights
_MOST_ROWS_AT_ONCE = 2**14  # without gradients there is room for many
_CLIP_NORM = 1.0


@register_engine
@dataclass(frozen=True)
class ZerothOrder(ModuleEngine):
    """Trains any nn.Module by comparing losses.

    The module is in eval() all the time, so that both passes see the same function: there is no
    dropout, and batch norm keeps the statistics that it came with. Options are those of
    `TorchModule`, and:

    Attributes:
        scale: how far weights are moved along a direction to compare losses.

    """

    name: ClassVar[str] = "zeroth-order"
    scale: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        # Far from it, differences of losses drown in rounding, or are no derivatives.
        validate.store(self, scale=validate.strictly_between(1e-6, 1, scale=self.scale))
        if self.checkpointed:
            raise InvalidInput(
                "without gradients nothing is kept that could be computed again; leave "
                "checkpointed out."
            )

    @property
    def traits(self) -> Traits:
        return replace(
            super().traits,
            trains="PyTorch module, without gradients",
            prior=ZEROTH_ORDER,
            usual_space={"learning_rate": (1e-7, 100.0), "steps": (1000, 1000)},
            weighs_rows=False,
            compares_losses=True,
        )

    @property
    def inspection(self) -> "LossInspection":
        return LossInspection(self)

    def usual_recipe(self, facts: DataFacts, *, unit_rows: bool, mu: float) -> Mapping[str, Any]:
        sampled = samples_of(facts, Source.batch)
        return {**sampled, "directions": 1, "momentum": 0.0, "clip_norm": _CLIP_NORM}

    def check(self, plan: TrainPlan) -> None:
        super().check(plan)
        found = [plan.optimizer] if plan.optimizer != "sgd" else []
        found += [f"momentum {plan.momentum:g}"] if plan.momentum else []
        found += [f"averaging {plan.averaging}"] if plan.averaging != "none" else []
        if found:
            raise InvalidInput(
                "zeroth-order steps go along their directions and keep nothing as large as the "
                f"weights; the plan asks for {' and '.join(found)}. Use sgd with momentum 0 and no "
                "averaging."
            )

    def fit(
        self,
        plan: TrainPlan,
        randomness: Randomness,
        start: ModuleModel | None,
        *,
        rows: Rows,
        keep: Checkpoint | None = None,
    ) -> ModuleModel:
        module = self.made(randomness)
        flat = FlatWeights(module, self.names(module), rows.device)
        # Nothing is recorded, and no weight in another precision outlives a move of the weights.
        flat.module.requires_grad_(False).eval()
        attempt = partial(self._losses, flat.module)
        rows_at_once = self.physical(attempt, module, rows, plan, _MOST_ROWS_AT_ONCE)
        state = ModuleState(flat.module, flat)

        def losses(passes: Passes, chosen: Tensor | None) -> Tensor:
            state.after_step()  # or a move along a direction
            found = [torch.empty(0, dtype=torch.float64, device=rows.device)]
            with descent.own_numbers(rows.device):
                passes.begin()  # every pass of a step sees rows in the same copies
                for chunk in read_rows(rows, chosen):
                    for part in descent.pieces(chunk, rows_at_once):
                        copies = descent.with_copies(
                            part.features, plan.augmentations, self.own_augment
                        )
                        given = copies.to(self.taken, copy=True)  # which may be written into
                        found.append(self._losses(flat.module, given, part.targets))
            state.must_be_unchanged()
            return torch.cat(found)

        def restore(tensors: dict[str, Tensor]) -> None:
            flat.vector.copy_(tensors["weights"])

        for step in descent.steps_left(plan, flat, keep, lambda: {"weights": flat.vector}, restore):
            chosen = drawn_rows(plan, rows, randomness.sampling(rows.device, step))
            of_rows = partial(losses, randomness.passes(step, rows.device), chosen)
            take_step(plan, flat.vector, randomness, step, self.scale, of_rows)
        return self.model(self.released_module(flat, flat.vector, randomness), rows.shape)

    def _losses(self, module: nn.Module, features: Tensor, targets: Tensor) -> Tensor:
        """Of each row in features (rows, copies, ...), the mean over its copies, in float64."""
        copies = features.shape[1]
        with torch.no_grad(), computing(self.compute, features.device):
            outputs = outputs_of(module(features.flatten(0, 1)))
            losses = row_loss(self.loss)(outputs.float(), targets.repeat_interleave(copies, 0))
        return losses.double().view(-1, copies).mean(1)


class LossInspection(ModuleInspection):
    """Where losses are compared: modules stay in eval()."""

    engine: ZerothOrder

    def rehearse(self, facts: DataFacts, device: torch.device) -> None:
        """Refuse a module whose rows cannot be separated, by what made-up rows show."""
        module = self.engine.made()
        self.must_be_repeated(module)
        self.words_must_be_bound(module, facts)
        FlatWeights(module, self.engine.names(module), device)
        self.rows_must_be_apart(module, facts, modes=(False,))
        rows, targets = self.engine.made_up(module, facts, device, MADE_UP, 1)
        with torch.no_grad():
            row_loss(self.engine.loss)(outputs_of(module.eval()(rows[:, 0])), targets)
        functions_take_rows_apart(self.engine, module, rows[:, 0], targets)

    def describe(self, facts: DataFacts) -> tuple[str, ...]:
        return ("no gradients: losses are compared along random directions, which are public",)


def take_step(
    plan: TrainPlan,
    weights: Tensor,
    randomness: Randomness,
    step: int,
    scale: float,
    losses: Callable[[], Tensor],
) -> None:
    """Move `weights`, in place, along the directions of a step by how losses differ on them;
    `losses()` are those of the step's rows, (rows,) in float64, with the weights as they are.

    Guarantees: the priced step. One row moves the sum that gets noise by at most the clip norm.
    """
    count = plan.directions or 1
    slopes: list[Tensor] = []
    for number in range(count):
        _move_(weights, randomness, step, number, scale)
        ahead = losses()
        _move_(weights, randomness, step, number, -2 * scale)
        slopes.append((ahead - losses()) / (2 * scale))
        _move_(weights, randomness, step, number, scale)
    total = ClippedSum(count, plan.clip_norm, weights.device)
    total.add(torch.stack(slopes, 1), len(slopes[0]))
    noisy = add_noise_(total.value(), plan.noise, randomness.noise(weights.device, step))
    rate = plan.rate_at(step)
    if plan.weight_decay:
        weights.mul_(1 - rate * plan.weight_decay)
    for number, slope in enumerate((noisy / plan.divisor).tolist()):
        _move_(weights, randomness, step, number, -rate * slope / count)


def _move_(
    weights: Tensor, randomness: Randomness, step: int, number: int, distance: float
) -> None:
    """So far along a direction of a step, which is drawn again every time, a piece at a time."""
    key = randomness.public_number(f"direction {number} of step {step}")
    stream = Stream(key, weights.device)
    for start in range(0, len(weights), _PIECE):
        part = weights[start : start + _PIECE]
        part.add_(stream.normal_(torch.empty_like(part)), alpha=distance)
