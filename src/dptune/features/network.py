"""Backbones on a device, their features side by side."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from dptune import validate
from dptune.errors import InvalidInput
from dptune.features.backbone import Backbone
from dptune.features.loading import Alike

_PRECISIONS = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class Networks:
    """One or several backbones that compute in `precision`."""

    def __init__(self, backbones: Sequence[Backbone], device: str, precision: str) -> None:
        if not backbones:
            raise InvalidInput("features need a backbone; name one with --backbone.")
        validate.one_of(tuple(_PRECISIONS), precision=precision)
        self._backbones, self._device = backbones, torch.device(device)
        self.precision, self._dtype = precision, _PRECISIONS[precision]
        self._modules = [
            backbone.module.to(self._device, memory_format=torch.channels_last)
            for backbone in backbones
        ]
        self.transforms = list(dict.fromkeys(backbone.transform for backbone in backbones))

    @property
    def made_by(self) -> Mapping[str, Any]:
        """Public: all that features depend on besides the pictures."""
        backbones = [
            {
                "name": backbone.name,
                "columns": backbone.columns,
                "digest": backbone.digest,
                "trained_on": backbone.trained_on,
                # As JSON gives it back.
                "transform": {
                    name: list(value) if isinstance(value, tuple) else value
                    for name, value in asdict(backbone.transform).items()
                },
            }
            for backbone in self._backbones
        ]
        return {"backbones": backbones, "precision": self.precision}

    @torch.inference_mode()
    def features(self, views: Sequence[Sequence[Alike]], count: int) -> Tensor:
        """Of `count` pictures, whose pixels come once for each of the transforms."""
        of_transform = dict(zip(self.transforms, views, strict=True))
        blocks = []
        for backbone, module in zip(self._backbones, self._modules, strict=True):
            pictures = self._pictures(backbone, of_transform[backbone.transform], count)
            with torch.autocast(
                self._device.type, self._dtype, enabled=self._dtype != torch.float32
            ):
                block = module(pictures).float()
            if block.shape != (count, backbone.columns):
                raise InvalidInput(
                    f"the backbone {backbone.name} gives features of shape {tuple(block.shape)} "
                    f"for {count} pictures, and promised {backbone.columns} columns."
                )
            blocks.append(block)
        if len(blocks) == 1:
            return blocks[0]
        # Each row by itself: a scale taken from all rows would have to be paid for.
        tiny = torch.finfo(torch.float32).tiny
        lengths = [block.norm(dim=1, keepdim=True).clamp_min(tiny) for block in blocks]
        scaled = [block / length for block, length in zip(blocks, lengths, strict=True)]
        return torch.cat(scaled, 1) / math.sqrt(len(blocks))

    def _pictures(self, backbone: Backbone, view: Sequence[Alike], count: int) -> Tensor:
        """As the backbone takes them; those of one size are prepared at once."""
        ready = [
            backbone.transform.normalised(
                alike.pixels.to(self._device, non_blocking=True), self._dtype
            )
            for alike in view
        ]
        if len(ready) == 1:
            return ready[0]
        size = backbone.transform.size
        pictures = torch.empty(
            (count, 3, size, size),
            dtype=self._dtype,
            device=self._device,
            memory_format=torch.channels_last,
        )
        for alike, pixels in zip(view, ready, strict=True):
            pictures[alike.places.to(self._device)] = pixels
        return pictures


def in_words(made_by: Mapping[str, Any]) -> str:
    """Which backbones."""
    return " and ".join(backbone["name"] for backbone in made_by["backbones"])
