"""Networks that tests train, as a user would have them in a file of their own."""

from torch import nn


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 2), nn.GroupNorm(1, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3)
    )


def of_words() -> nn.Module:
    return nn.Sequential(nn.Embedding(10, 5), nn.Flatten(), nn.Linear(20, 3))
