"""Any PyTorch module, trained by DP-SGD on clipped gradients of single rows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from dptune.data.placed_rows import at_their_places
from dptune.data.rows import DataFacts, Rows
from dptune.engines.checkpoint import Checkpoint
from dptune.engines.modules import descent
from dptune.engines.modules.inspection import GradientInspection
from dptune.engines.modules.module_engine import ModuleEngine, samples_of
from dptune.engines.modules.module_model import ModuleModel
from dptune.engines.modules.tracing import traced, traced_shorter
from dptune.engines.randomness import Randomness
from dptune.engines.registry import register_engine
from dptune.plan import TrainPlan

_MOST_ROWS_AT_ONCE = 8192


@register_engine
@dataclass(frozen=True)
class TorchModule(ModuleEngine):
    """Trains any nn.Module.

    Attributes:
        factory: a function without arguments that makes the module, or where it lies:
            "path.py:name" or "package.module:name"; or "hf:NAME@REVISION" or "hf:FOLDER", a
            language model of the Hugging Face hub or in a folder, whose head is made for the loss.
        loss: what a row's loss is: softmax or squared, or words, spans or inside where rows hold
            what is asked, as the data need; or a function of one's own (outputs, targets) that
            gives one number a row, or where it lies.
        trained: which parameters: all; body, which is all but embeddings; biases, last block,
            first and last block, or patterns of their names, separated by commas. Empty for body of
            language models, else all.
        compute: float32, or bfloat16 for products of matrices; weights stay in float32.
        rows_at_once: how many rows are in a physical batch; None for as many as fit, which is tried
            with made-up rows.
        checkpointed: patterns of the names of layers whose insides are computed again when
            gradients are taken, which takes less memory and more time.
        augment: a function that changes pictures (n, ...) at random, each for itself, or where it
            lies; a plan's augmentations are then made anew in every step.
        ids: whether rows are token numbers; one that is in no embedding of the module is read as
            the embedding's last line.
        outputs: how many numbers the module gives for a row; None for what the data need.

    """

    name: ClassVar[str] = "torch-module"

    @property
    def inspection(self) -> GradientInspection:
        return GradientInspection(self)

    def usual_recipe(self, facts: DataFacts, *, unit_rows: bool, mu: float) -> Mapping[str, Any]:
        """Clipped far below their gradients, all rows push alike."""
        clipped = {} if facts.loss == "squared" else {"clip_norm": 0.1}
        return {**samples_of(facts, self.source.batch), **clipped, **self.source.recipe}

    def fit(
        self,
        plan: TrainPlan,
        randomness: Randomness,
        start: ModuleModel | None,
        *,
        rows: Rows,
        keep: Checkpoint | None = None,
    ) -> ModuleModel:
        rows = at_their_places(rows)
        module, facts = self.made(randomness), self.facts_of(rows)
        flat, gradients = traced(self, module, facts, rows.device, plan.augmentations)

        def attempt(features: Tensor, targets: Tensor) -> None:
            scratch = torch.zeros(len(flat.vector), dtype=torch.float64, device=rows.device)
            gradients.add(scratch, features, targets, plan.clip_norm)

        at_once = self.physical(attempt, module, rows, plan, _MOST_ROWS_AT_ONCE)
        by_width = {facts.shape[-1]: gradients}
        # A GPU that takes a sample at once waits for more passes longer than for padding.
        if rows.device.type == "cpu" or at_once < plan.divisor:
            by_width = traced_shorter(self, flat, facts, plan.augmentations) | by_width
        weights = descent.train(
            plan,
            rows,
            randomness,
            flat,
            by_width,
            rows_at_once=at_once,
            dtype=self.taken,
            augment=self.own_augment,
            keep=keep,
        )
        return self.model(self.released_module(flat, weights, randomness), rows.shape)
