"""Networks written out here: those whose weights come as a file of numbers without their code.

Each gives `maps`: what its blocks make of pictures, in order; the last is what is pooled.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ResNet20(nn.Module):
    """ResNet-20 for pictures of 32 pixels (He et al. 2016): 64 features. The shortcut into a
    wider block takes every second pixel and adds channels of zeros."""

    columns = 64

    def __init__(self) -> None:
        super().__init__()
        widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
        self.c = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.b = nn.BatchNorm2d(16)
        self.body = nn.Sequential(
            *(_BasicBlock(before, after) for before, after in zip(widths, widths[1:], strict=False))
        )

    def maps(self, pictures: Tensor) -> list[Tensor]:
        found = [F.relu(self.b(self.c(pictures)))]
        for block in self.body:
            found.append(block(found[-1]))
        return found[1:]

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
            more = inner.shape[1] - x.shape[1]
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, more // 2, more - more // 2))
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
                for before, after, stride in zip(widths, widths[1:], strides, strict=False)
            )
        )
        self.norm = nn.BatchNorm2d(256)

    def maps(self, pictures: Tensor) -> list[Tensor]:
        found = [self.stem(pictures)]
        for block in self.blocks:
            found.append(block(found[-1]))
        # A block leaves its sum as it is for the next; after the last there is none.
        return [*found[1:-1], F.relu(self.norm(found[-1]))]

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
