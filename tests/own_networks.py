"""Networks, losses and augmentations that tests train with, as a user has them in a file."""

import numpy as np
import torch
from torch import Tensor, nn


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 2), nn.GroupNorm(1, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3)
    )


def of_words() -> nn.Module:
    return nn.Sequential(nn.Embedding(10, 5), nn.Flatten(), nn.Linear(20, 3))


def with_batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))


class Amplified(nn.Module):
    """Makes something else of every rounding."""

    def forward(self, rows: Tensor) -> Tensor:
        return torch.sin(1e7 * rows)


def diverged() -> nn.Module:
    """As networks are whose training went astray."""
    return nn.Sequential(nn.Linear(4, 3), Amplified())


class Mixing(nn.Module):
    """Subtracts what the rows of a batch have in common."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(features - features.mean(0))


class Tied(nn.Module):
    """Uses one weight twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.head = nn.Linear(4, 3)

    def forward(self, features: Tensor) -> Tensor:
        return self.head(self.second(self.first(features)))


class Blocks(nn.Module):
    """Like a small transformer in its names."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 6)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(3))
        self.head = nn.Linear(6, 3)

    def forward(self, features: Tensor) -> Tensor:
        found = self.stem(features)
        for block in self.blocks:
            found = found + block(found)
        return self.head(found)


def one_output() -> nn.Module:
    return nn.Linear(4, 1)


def no_module() -> str:
    return "a network"


def broken() -> nn.Module:
    raise ZeroDivisionError("no layers")


def smoothed(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none", label_smoothing=0.1)


def mean_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets)


def jitter(rows: Tensor) -> Tensor:
    return rows + 0.1 * torch.randn_like(rows)


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 3))


def mean_for_all(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets).expand(len(targets))


def by_number_of_rows(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none") / len(targets)


def by_counts_of_classes(outputs: Tensor, targets: Tensor) -> Tensor:
    losses = nn.functional.cross_entropy(outputs, targets, reduction="none")
    return losses / targets.bincount()[targets]


def mixed_up(rows: Tensor) -> Tensor:
    return 0.9 * rows + 0.1 * rows.roll(1, 0)


def halved(rows: Tensor) -> Tensor:
    return rows[: len(rows) // 2]


def another_each_time() -> nn.Module:
    layer = nn.Linear(4, 3)
    layer.weight.data = torch.from_numpy(np.random.default_rng().normal(size=(3, 4))).float()
    return layer
