"""An engine of one's own: a small PyTorch network, with per-row gradients by torch.func.

`python examples/module_engine.py` tunes it, and a linear model, on labels that only it can learn.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

import dptune
from dptune.data import DataFacts, Rows
from dptune.engines import Engine, Prior, Randomness, Traits, descend, register_engine


@dataclass(frozen=True)
class Network:
    """Weights in one row, with sgd's buffer for a run that goes on."""

    module: nn.Module
    weights: Tensor
    velocity: Tensor

    def logits(self, features: Tensor, weights: Tensor | None = None) -> Tensor:
        flat = (self.weights if weights is None else weights).to(features.device)
        shapes = {name: like.shape for name, like in self.module.named_parameters()}
        parts = flat.split([shape.numel() for shape in shapes.values()])
        named = {name: part.view(shapes[name]) for name, part in zip(shapes, parts, strict=True)}
        return functional_call(self.module, named, (features.float(),))


@register_engine
@dataclass(frozen=True, kw_only=True)
class SmallNetwork(Engine[Network]):
    name: ClassVar[str] = "small-network"
    traits = Traits(prior=Prior(noise=0.1))  # a guess, around which its searches look
    hidden: int = 16
    inputs: int | None = None
    outputs: int | None = None
    loss: str = "softmax"

    def for_data(self, facts: DataFacts) -> "SmallNetwork":
        if not facts.has_classes:
            raise dptune.errors.InvalidInput("small-network learns classes; these are values.")
        return replace(self, inputs=facts.columns, outputs=facts.outputs)

    def can_continue(self, plan: dptune.TrainPlan) -> bool:
        return plan.optimizer == "sgd" and plan.schedule == "constant"

    def parameters(self, facts: DataFacts) -> int:
        return self._new(Randomness()).weights.numel()

    def fit(
        self, plan: dptune.TrainPlan, randomness: Randomness, start: Network | None, *, rows: Rows
    ) -> Network:
        begun = start or self._new(randomness)

        def loss(weights: Tensor, copies: Tensor, target: Tensor) -> Tensor:
            logits = begun.logits(copies, weights)
            return nn.functional.cross_entropy(logits, target.expand(len(logits)))

        gradients = vmap(grad(loss), (None, 0, 0))
        end = descend(plan, rows, randomness, begun.weights, begun.velocity, gradients)
        return Network(begun.module, *end)

    def pack(self, model: Network) -> dict[str, Tensor]:
        return {"weights": model.weights, "velocity": model.velocity}

    def unpack(self, tensors: Mapping[str, Tensor]) -> Network:
        return replace(self._new(Randomness()), **tensors)

    def _new(self, randomness: Randomness) -> Network:
        layers = nn.Linear(self.inputs, self.hidden), nn.Linear(self.hidden, self.outputs)
        module = nn.Sequential(nn.Flatten(), layers[0], nn.Tanh(), layers[1])
        stream = randomness.initial()  # public, and the same after a resume
        drawn = [stream.normal_(torch.empty_like(like)) for like in module.parameters()]
        weights = torch.cat([part.flatten() * part.shape[-1] ** -0.5 for part in drawn])
        return Network(module, weights, torch.zeros_like(weights))


if __name__ == "__main__":
    rows = torch.randn(7000, 4)
    labels = (rows[:, 0] * rows[:, 1] > 0).long()  # which no plane parts
    data = dptune.Data(rows[:5000], labels[:5000], test=(rows[5000:], labels[5000:]))
    space = dptune.Space(learning_rate=(0.05, 5.0), steps=(20, 60))
    for engine in (dptune.LinearEngine(), SmallNetwork()):
        result = dptune.tune(data, budget=dptune.Budget(3.0, 1e-5), engine=engine, space=space)
        print(f"{engine.name}: {result}")
