"""An engine whose runs are kept on disk while they go on: the example's network, step by step."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from module_engine import Network, SmallNetwork
from torch import Tensor, nn
from torch.func import grad, vmap

from dptune.data import Rows
from dptune.engines import ClippedSum, Randomness, register_engine
from dptune.engines.checkpoint import Checkpoint
from dptune.engines.optimizers import KINDS
from dptune.plan import TrainPlan


@dataclass(frozen=True)
class KeptModel(Network):
    """With the number of all noisy steps that are in it, those of earlier segments included."""

    steps: Tensor


@register_engine
@dataclass(frozen=True, kw_only=True)
class KeptNetwork(SmallNetwork):
    name: ClassVar[str] = "kept-network"
    traits = replace(SmallNetwork.traits, checkpoints=True)

    def fit(
        self,
        plan: TrainPlan,
        randomness: Randomness,
        start: Network | None,
        *,
        rows: Rows,
        keep: Checkpoint | None = None,
    ) -> KeptModel:
        new, begun = self._new(randomness), self.unpack(self.pack(start)) if start else None
        model = begun or KeptModel(
            new.module, new.weights, new.velocity, torch.zeros((), dtype=torch.int64)
        )
        done = 0
        if keep is not None and (kept := keep.load()):
            model, done = self.unpack(kept[0]), kept[1]

        def loss(weights: Tensor, copies: Tensor, target: Tensor) -> Tensor:
            logits = model.logits(copies, weights)
            return nn.functional.cross_entropy(logits, target.expand(len(logits)))

        gradients = vmap(grad(loss), (None, 0, 0))
        moved = model.weights.clone()[None, None]
        optimizer = KINDS[plan.optimizer]([plan], moved)
        optimizer.first.copy_(model.velocity)
        for step in range(done, plan.steps):
            chosen = torch.arange(rows.count)
            if plan.sampling_rate is not None:
                drawn = randomness.sampling(rows.device, step).uniform(rows.count)
                chosen = (drawn < plan.sampling_rate).nonzero().squeeze(1)
            chunk, total = rows.pick(chosen), ClippedSum(moved.numel(), plan.clip_norm, rows.device)
            total.add(gradients(moved[0, 0], chunk.features, chunk.targets), len(chosen))
            noisy = total.value()
            stream = randomness.noise(rows.device, step)
            noisy += plan.noise * stream.normal_(torch.empty_like(noisy))
            optimizer.update_(moved, (noisy / plan.divisor).to(moved.dtype)[None, None], step)
            model = replace(
                model, weights=moved[0, 0], velocity=optimizer.first[0, 0], steps=model.steps + 1
            )
            if keep is not None:
                keep.tell(step + 1)
                if keep.due() or step + 1 == plan.steps:
                    keep.save(self.pack(model), step + 1)
        return model

    def pack(self, model: Any) -> dict[str, Tensor]:
        return {**super().pack(model), "steps": model.steps}

    def unpack(self, tensors: Mapping[str, Tensor]) -> KeptModel:
        new = self._new(Randomness())
        return KeptModel(new.module, **{name: tensor.clone() for name, tensor in tensors.items()})
