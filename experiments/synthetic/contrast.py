"""Learning without labels: two views of a picture should lie close together, and all pictures far
apart on the sphere (alignment and uniformity, Wang and Isola 2020)."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from experiments.synthetic.views import SIZE, random_views

WIDTH = 512  # of the hidden layer between features and the sphere
DIMENSIONS = 128  # of the sphere's space
RATE = 0.12 / 256  # of learning, per picture of a batch
MOMENTUM, DECAY = 0.9, 1e-4
TEMPERATURE = 2.0
WARM_UP = 0.05  # the share of all steps in which the rate rises


@dataclass(frozen=True)
class Loss:
    """Both parts weigh the same; with both at their best a network separates all pictures."""

    alignment: Tensor
    uniformity: Tensor

    @property
    def total(self) -> Tensor:
        return self.alignment + self.uniformity


def contrastive_loss(first: Tensor, second: Tensor) -> Loss:
    """Of two views' places on the sphere, row by row."""
    alignment = (first - second).square().sum(1).mean()
    return Loss(alignment, (_uniformity(first) + _uniformity(second)) / 2)


def _uniformity(places: Tensor) -> Tensor:
    """The logarithm of the mean of exp(-t distance^2) over pairs of different rows."""
    count = len(places)
    exponents = 2 * TEMPERATURE * (places @ places.T - 1)
    itself = torch.eye(count, dtype=torch.bool, device=places.device)
    every = exponents.masked_fill(itself, -math.inf).flatten()
    return torch.logsumexp(every, dim=0) - math.log(count * (count - 1))


class OnSphere(nn.Module):
    """A network's pooled features, through a hidden layer that is thrown away afterwards."""

    def __init__(self, network: nn.Module, columns: int) -> None:
        super().__init__()
        self.network = network
        self.head = nn.Sequential(
            nn.Linear(columns, WIDTH, bias=False),
            nn.BatchNorm1d(WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, DIMENSIONS),
        )

    def forward(self, views: Tensor) -> Tensor:
        features: Tensor = self.network(views).mean((2, 3))
        return F.normalize(self.head(features).float(), dim=1)


class Learner:
    """A network whose output is maps (batch, columns, height, width), and what trains it."""

    def __init__(
        self, network: nn.Module, columns: int, random: Generator, *, size: int = SIZE
    ) -> None:
        self.random, self.size = random, size
        self.module = OnSphere(network, columns).to(random.device)
        # Convolutions on a GPU want channels last, of pictures and of weights.
        self.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.run: Callable[[Tensor], Tensor] = self.module  # or a faster one that does the same
        self.optimizer = torch.optim.SGD(
            self.module.parameters(), lr=0.0, momentum=MOMENTUM, weight_decay=DECAY
        )

    def step(self, pictures: Tensor, progress: float) -> Loss:
        """One step on a batch of bytes; `progress` goes from 0 to 1."""
        for group in self.optimizer.param_groups:
            group["lr"] = RATE * len(pictures) * _schedule(progress)
        views = torch.cat([random_views(pictures, self.random, self.size) for _ in range(2)])
        views = views.contiguous(memory_format=torch.channels_last)
        with torch.autocast(views.device.type, torch.bfloat16, enabled=views.is_cuda):
            places = self.run(views)
        loss = contrastive_loss(*places.chunk(2))
        self.optimizer.zero_grad()
        torch.autograd.backward(loss.total)
        self.optimizer.step()
        return loss


def _schedule(progress: float) -> float:
    """Half a cosine from 1 to 0, after a short rise."""
    return min(1.0, progress / WARM_UP) * (1 + math.cos(math.pi * min(1.0, progress))) / 2
