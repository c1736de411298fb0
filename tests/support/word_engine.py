"""An engine whose rows are numbers of words: the mean of their vectors, and a linear layer."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from dptune.data import DataFacts, Rows
from dptune.engines import Engine, Randomness, Traits, descend, register_engine
from dptune.plan import TrainPlan

WORDS, WIDTH = 10, 3


@dataclass(frozen=True)
class WordModel:
    weights: Tensor
    velocity: Tensor

    def logits(self, words: Tensor, weights: Tensor | None = None) -> Tensor:
        flat = self.weights if weights is None else weights
        vectors, layer = flat[: WORDS * WIDTH].view(WORDS, WIDTH), flat[WORDS * WIDTH :]
        return vectors[words].mean(-2) @ layer.view(WIDTH, -1)


@register_engine
@dataclass(frozen=True, kw_only=True)
class WordEngine(Engine[WordModel]):
    name: ClassVar[str] = "words"
    traits = Traits(takes_ids=True)
    outputs: int | None = None
    loss: str = "softmax"

    def for_data(self, facts: DataFacts) -> "WordEngine":
        return replace(self, outputs=facts.outputs)

    def parameters(self, facts: DataFacts) -> int:
        return WIDTH * (WORDS + facts.outputs)

    def can_continue(self, plan: TrainPlan) -> bool:
        return plan.optimizer == "sgd" and plan.schedule == "constant"

    def fit(
        self, plan: TrainPlan, randomness: Randomness, start: WordModel | None, *, rows: Rows
    ) -> WordModel:
        drawn = randomness.initial().normal_(torch.empty(WIDTH * (WORDS + (self.outputs or 1))))
        begun = start or WordModel(drawn, torch.zeros_like(drawn))

        def loss(weights: Tensor, copies: Tensor, target: Tensor) -> Tensor:
            logits = begun.logits(copies, weights)
            return nn.functional.cross_entropy(logits, target.expand(len(logits)))

        gradients = vmap(grad(loss), (None, 0, 0))
        return WordModel(*descend(plan, rows, randomness, begun.weights, begun.velocity, gradients))

    def pack(self, model: WordModel) -> dict[str, Tensor]:
        return {"weights": model.weights, "velocity": model.velocity}

    def unpack(self, tensors: Mapping[str, Tensor]) -> WordModel:
        return WordModel(tensors["weights"], tensors["velocity"])
