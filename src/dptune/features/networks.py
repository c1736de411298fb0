"""Architectures of networks whose weights come as a file without code.

Each has `maps`: the feature maps of its blocks, in order; the last one is pooled.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import ceil

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ResNet20(nn.Module):
    """ResNet-20 for pictures of 32 pixels (He et al. 2016): 64 features. The shortcut into a
    wider block takes every second pixel and pads channels with zeros on both sides."""

    columns = 64

    def __init__(self) -> None:
        super().__init__()
        widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
        self.c = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.b = nn.BatchNorm2d(16)
        self.body = nn.Sequential(
            *(_BasicBlock(before, after) for before, after in pairwise(widths))
        )

    def maps(self, pictures: Tensor) -> list[Tensor]:
        maps = [F.relu(self.b(self.c(pictures)))]
        for block in self.body:
            maps.append(block(maps[-1]))
        return maps[1:]

    def forward(self, pictures: Tensor) -> Tensor:
        return self.maps(pictures)[-1]


class _BasicBlock(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.stride = 1 if before == after else 2
        self.c1 = nn.Conv2d(before, after, 3, self.stride, padding=1, bias=False)
        self.b1 = nn.BatchNorm2d(after)
        self.c2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.b2 = nn.BatchNorm2d(after)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.b2(self.c2(F.relu(self.b1(self.c1(x)))))
        if self.stride == 2:
            more = (inner.shape[1] - x.shape[1]) // 2
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, more, more))
        return F.relu(inner + x)


class WideResNet(nn.Module):
    """WideResNet-16-4 for pictures of 32 pixels (Zagoruyko and Komodakis 2016): three groups of
    two blocks, four times as wide as a ResNet; 256 features."""

    columns = 256

    def __init__(self) -> None:
        super().__init__()
        widths = [16, 64, 64, 128, 128, 256, 256]
        strides = [1, 1, 2, 1, 2, 1]
        self.stem = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.blocks = nn.Sequential(
            *(
                _WideBlock(before, after, stride)
                for (before, after), stride in zip(pairwise(widths), strides, strict=True)
            )
        )
        self.norm = nn.BatchNorm2d(256)

    def maps(self, pictures: Tensor) -> list[Tensor]:
        maps = [self.stem(pictures)]
        for block in self.blocks:
            maps.append(block(maps[-1]))
        # The next block normalises the sum of a block; the last has no next one.
        return [*maps[1:-1], F.relu(self.norm(maps[-1]))]

    def forward(self, pictures: Tensor) -> Tensor:
        return self.maps(pictures)[-1]


class _WideBlock(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(before)
        self.conv1 = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.shortcut = None if before == after else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.norm1(x))
        short = x if self.shortcut is None else self.shortcut(active)
        inner: Tensor = self.conv2(F.relu(self.norm2(self.conv1(active))))
        return torch.add(inner, short)


@dataclass(frozen=True)
class MobileStage:
    """Consecutive blocks of one map size; the first of them may halve it."""

    expansion: int
    width: int
    repeats: int
    stride: int
    kernel: int = 3


class MobileNet(nn.Module):
    """Networks of inverted residual blocks (Sandler et al. 2018): MobileNetV2, EfficientNet-Lite.

    `padded_after`: padding of a halved map goes first after the last pixel, then before the first,
    as in TensorFlow; otherwise it is the same on both sides.
    """

    def __init__(
        self,
        stages: list[MobileStage],
        *,
        stem: int = 32,
        columns: int = 1280,
        epsilon: float = 1e-5,
        padded_after: bool = False,
    ) -> None:
        super().__init__()

        def layer(before: int, after: int, kernel: int, stride: int, groups: int = 1) -> nn.Module:
            convolution = _Convolution(before, after, kernel, stride, groups, padded_after)
            return nn.Sequential(convolution, nn.BatchNorm2d(after, eps=epsilon))

        self.stem = layer(3, stem, 3, 2)
        self.blocks = nn.ModuleList()
        before = stem
        for stage in stages:
            for number in range(stage.repeats):
                inner = before * stage.expansion
                stride = stage.stride if number == 0 else 1
                widen = [layer(before, inner, 1, 1)] if stage.expansion > 1 else []
                spread = layer(inner, inner, stage.kernel, stride, groups=inner)
                narrow = layer(inner, stage.width, 1, 1)
                added = stride == 1 and before == stage.width
                self.blocks.append(_InvertedBlock([*widen, spread], narrow, added))
                before = stage.width
        self.top = layer(before, columns, 1, 1)

    def maps(self, pictures: Tensor) -> list[Tensor]:
        maps = [F.relu6(self.stem(pictures))]
        for block in self.blocks:
            maps.append(block(maps[-1]))
        return [*maps[1:], F.relu6(self.top(maps[-1]))]

    def forward(self, pictures: Tensor) -> Tensor:
        return self.maps(pictures)[-1]


class _InvertedBlock(nn.Module):
    def __init__(self, active: list[nn.Module], narrow: nn.Module, added: bool) -> None:
        super().__init__()
        self.active = nn.ModuleList(active)
        self.narrow = narrow
        self.added = added

    def forward(self, x: Tensor) -> Tensor:
        inner = x
        for layer in self.active:
            inner = F.relu6(layer(inner))
        narrow: Tensor = self.narrow(inner)
        return x + narrow if self.added else narrow


class _Convolution(nn.Conv2d):
    def __init__(
        self, before: int, after: int, kernel: int, stride: int, groups: int, padded_after: bool
    ) -> None:
        self.padded_after = padded_after and stride > 1
        padding = 0 if self.padded_after else kernel // 2
        super().__init__(before, after, kernel, stride, padding, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.padded_after:
            x = F.pad(x, [*self._padding(x.shape[3]), *self._padding(x.shape[2])])
        return super().forward(x)

    def _padding(self, length: int) -> tuple[int, int]:
        """The padding before and after that gives length / stride, rounded up."""
        stride, kernel = self.stride[0], self.kernel_size[0]
        needed = max((ceil(length / stride) - 1) * stride + kernel - length, 0)
        return needed // 2, needed - needed // 2
