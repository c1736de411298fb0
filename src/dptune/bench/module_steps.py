"""One step of non-private training, and one of private training by the engine for modules."""

import torch
from torch import Tensor, nn

from dptune.bench.networks import row_losses
from dptune.engines.modules.descent import Moves
from dptune.engines.modules.flat_weights import FlatWeights
from dptune.engines.modules.gradients import RowGradients
from dptune.engines.modules.precision import computing
from dptune.engines.randomness import Randomness
from dptune.plan import TrainPlan

Rows = tuple[Tensor, Tensor]


class PlainStep:
    """Adam without privacy."""

    def __init__(self, module: nn.Module, rows: Rows, compute: str) -> None:
        self._module, self._rows, self._compute = module, rows, compute
        self._optimizer = adam(module)

    def __call__(self) -> None:
        features, targets = self._rows
        with computing(self._compute, features.device):
            loss = row_losses(self._module(features), targets).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._optimizer.zero_grad()


class PrivateStep:
    """One step of the engine for modules with one physical batch of rows; other rows trace the
    module first."""

    def __init__(
        self,
        module: nn.Module,
        rows: Rows,
        looked_at: Rows,
        compute: str,
        optimizer: str = "adam",
    ) -> None:
        names = [name for name, one in module.named_parameters() if one.requires_grad]
        features, targets = rows
        flat = FlatWeights(module, names, features.device)
        self._gradients = RowGradients(module, flat.trained, row_losses, compute=compute)
        self._gradients.trace(looked_at[0][:, None], looked_at[1])
        self._plan = TrainPlan(
            rows=len(targets),
            steps=1,
            learning_rate=1e-4,
            noise_multiplier=1.0,
            optimizer=optimizer,
        )
        self._features, self._targets = features[:, None], targets
        self._moves = Moves(self._plan, flat)
        self._total = torch.zeros(len(flat.vector), dtype=torch.float64, device=features.device)

    def __call__(self) -> None:
        self._total.zero_()
        self.gradients_alone()
        self._moves.step(self._total, Randomness().noise(self._total.device, 0), 0)

    def gradients_alone(self) -> None:
        self._gradients.add(self._total, self._features, self._targets, self._plan.clip_norm)


def adam(module: nn.Module) -> torch.optim.Optimizer:
    trained = [one for one in module.parameters() if one.requires_grad]
    return torch.optim.Adam(trained, lr=1e-4, fused=trained[0].is_cuda)
