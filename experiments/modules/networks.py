"""The networks that are trained from scratch; none mixes rows."""

from itertools import pairwise

import torch.nn.functional as F
from torch import Tensor, nn

from dptune.engines.modules.standardized import StandardizedConv2d

GROUPS = 16  # of a group norm


def small_convolutional() -> nn.Module:
    """The network of Papernot et al. 2020 and Tramèr & Boneh 2021 for pictures of 28 x 28 in grey:
    26,010 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.Tanh(),
        nn.Linear(32, 10),
    )


def pooled_linear() -> nn.Module:
    """A linear model of 7 x 7 means of 4 x 4 pixels: 500 parameters, as few as zeroth order can
    find its way among in hundreds of steps."""
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(49, 10))


def small_perceptron() -> nn.Module:
    """For the 64 features of the bundled data set: 4,810 parameters."""
    return nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))


def wide_resnet() -> nn.Module:
    """WRN-16-4 for pictures of 32 x 32 in colour, with group norm and standardised weights, as De
    et al. 2022 train it."""
    widths = (16, 64, 128, 256)
    blocks = [
        _Block(width if number == 0 else wider, wider, stride if number == 0 else 1)
        for (width, wider), stride in zip(pairwise(widths), (1, 2, 2), strict=True)
        for number in range(2)
    ]
    return nn.Sequential(
        StandardizedConv2d(3, widths[0], 3, padding=1, bias=False),
        *blocks,
        nn.GroupNorm(GROUPS, widths[-1]),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(widths[-1], 10),
    )


class _Block(nn.Module):
    """Norm before each convolution; the way around is one itself where the width changes."""

    def __init__(self, width: int, wider: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(GROUPS, width)
        self.conv1 = StandardizedConv2d(width, wider, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(GROUPS, wider)
        self.conv2 = StandardizedConv2d(wider, wider, 3, padding=1, bias=False)
        self.around = (
            None
            if width == wider
            else StandardizedConv2d(width, wider, 1, stride=stride, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        begun = F.relu(self.norm1(x))
        straight = x if self.around is None else self.around(begun)
        changed: Tensor = self.conv2(F.relu(self.norm2(self.conv1(begun))))
        return straight + changed
