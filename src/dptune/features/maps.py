"""Kinds of features from feature maps: (batch, channels, height, width)."""

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dptune.features.backbone import Way

GRID = 4  # squares of a side


class Mapped(Protocol):
    """A network that gives the feature maps of its blocks; the last one is pooled."""

    def maps(self, pictures: Tensor) -> Sequence[Tensor]: ...


def mean_over(each: Tensor) -> Tensor:
    return each.mean((2, 3))


def grid(last: Tensor) -> Tensor:
    """A map pooled to 4 x 4."""
    return F.adaptive_avg_pool2d(last, GRID).flatten(1)


def side_by_side(maps: Sequence[Tensor]) -> Tensor:
    return torch.cat([mean_over(each) for each in maps], dim=1)


def _pooled(network: nn.Module, pictures: Tensor) -> Tensor:
    return mean_over(network(pictures))


def _grid4(network: nn.Module, pictures: Tensor) -> Tensor:
    return grid(network(pictures))


def _blocks(network: nn.Module, pictures: Tensor) -> Tensor:
    return side_by_side(cast(Mapped, network).maps(pictures))


LAST_MAP: Mapping[str, Way] = {"pooled": _pooled, "grid4": _grid4}
ALL_MAPS: Mapping[str, Way] = {**LAST_MAP, "blocks": _blocks}
