"""Run backbones on a device and concatenate their features."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

import torch
from torch import Tensor, nn

from dptune import validate
from dptune.data.made_by import recorded_backbones
from dptune.data.rows import find_device
from dptune.errors import DptuneError, InvalidInput
from dptune.features.backbone import Backbone
from dptune.features.find import find_backbone
from dptune.features.loading import Alike, Batch, batches
from dptune.features.local_module import own_functions
from dptune.features.transform import Transform
from dptune.own_code import must_be_given
from dptune.pictures.pictures import Pictures

_PRECISIONS = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_USUAL = {"cpu": "float32", "cuda": "bfloat16"}
_BATCH = {"cpu": 64, "cuda": 256}  # pictures at once


class Networks:
    """One or several backbones that compute in `precision`: by default float32 on a CPU, bfloat16
    on a GPU."""

    def __init__(
        self, backbones: Sequence[Backbone], *, device: str = "cpu", precision: str | None = None
    ) -> None:
        if not backbones:
            raise InvalidInput("features need a backbone; name one with --backbone.")
        self.backbones, self._device = backbones, find_device(device)
        self.device = self._device.type
        self.batch = _BATCH[self.device]
        precision = precision or _USUAL[self.device]
        validate.one_of(tuple(_PRECISIONS), precision=precision)
        self.precision, self._dtype = precision, _PRECISIONS[precision]
        self._modules = [
            backbone.module.to(self._device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            for backbone in backbones
        ]
        self.transforms = list(dict.fromkeys(backbone.transform for backbone in backbones))

    def batches(self, items: Pictures, spans: Iterable[Sequence[int]]) -> Iterator[Batch]:
        """Yield the pictures of each span, in order, loaded for these networks."""
        return batches(items, cast(list[Transform], self.transforms), spans, self.device)

    @property
    def things(self) -> str:
        """The kind of items: "pictures" or "texts"."""
        return self.transforms[0].things

    @property
    def made_by(self) -> Mapping[str, Any]:
        """Everything that features depend on besides the pictures; it is public."""
        backbones = [
            {
                "name": backbone.name,
                "kind": backbone.kind,
                "columns": backbone.columns,
                "digest": backbone.digest,
                "trained_on": backbone.trained_on,
                # Lists, as JSON reads them back.
                "transform": {
                    name: list(value) if isinstance(value, tuple) else value
                    for name, value in asdict(backbone.transform).items()
                },
            }
            for backbone in self.backbones
        ]
        name = " and ".join(short_name(backbone.name) for backbone in self.backbones)
        return {"name": name, "backbones": backbones, "precision": self.precision}

    @torch.inference_mode()
    def features(self, batch: Batch, *, filled: bool = False) -> Tensor:
        """Compute features of the pictures that could be read. A black picture replaces each of the
        others: a batch of another size might be computed in another order, and one picture would
        change the last digits of the features of others. With `filled`, batches are filled up to
        the usual size, so that copies of a picture in different parts have equal features."""
        count = self.batch if filled else len(batch.digests)
        blocks = self.forward(self.prepared(batch, count))
        if len(batch.kept) < count:
            blocks = [block[batch.places] for block in blocks]
        if len(blocks) == 1:
            return blocks[0]
        # Each row is scaled by itself: a scale from all rows would have to be paid for.
        tiny = torch.finfo(torch.float32).tiny
        lengths = [block.norm(dim=1, keepdim=True).clamp_min(tiny) for block in blocks]
        scaled = [block / length for block, length in zip(blocks, lengths, strict=True)]
        return torch.cat(scaled, 1) / math.sqrt(len(blocks))

    @torch.inference_mode()
    def prepared(self, batch: Batch, count: int) -> list[Tensor]:
        """Prepare `count` pictures on the device for each backbone."""
        of_transform = dict(zip(self.transforms, batch.views, strict=True))
        return [
            self._prepare(backbone, of_transform[backbone.transform], count)
            for backbone in self.backbones
        ]

    @torch.inference_mode()
    def forward(self, prepared: Sequence[Tensor]) -> list[Tensor]:
        """Compute the features of each backbone."""
        blocks = []
        for backbone, module, pictures in zip(self.backbones, self._modules, prepared, strict=True):
            with torch.autocast(
                self._device.type, self._dtype, enabled=self._dtype != torch.float32
            ):
                block = _run(backbone, module, pictures)
            count = len(pictures)
            if block.shape != (count, backbone.columns):
                raise InvalidInput(
                    f"the backbone {backbone.name} must give {backbone.columns} columns for "
                    f"{count} {self.things}; it gave features of shape {tuple(block.shape)}."
                )
            blocks.append(block)
        return blocks

    def _prepare(self, backbone: Backbone, view: Sequence[Alike], count: int) -> Tensor:
        """Prepare pictures for a backbone, those of one size together."""
        ready = [
            backbone.transform.normalised(
                alike.pixels.to(self._device, non_blocking=True), self._dtype
            )
            for alike in view
        ]
        if len(ready) == 1 and len(ready[0]) == count:
            return ready[0]
        filled = backbone.transform.blank(count, self._dtype, self._device)
        for alike, pixels in zip(view, ready, strict=True):
            filled[alike.places.to(self._device)] = pixels
        return filled


def _run(backbone: Backbone, module: nn.Module, pictures: Tensor) -> Tensor:
    try:
        features: Tensor = module(pictures)
        return features.float()
    except DptuneError:
        raise
    except Exception as problem:  # out of memory, or any error of your own code
        what = str(problem).split("\n")[0]
        raise InvalidInput(
            f"the backbone {backbone.name} failed on {len(pictures)} {backbone.transform.things}: "
            f"{type(problem).__name__}: {what}"
        ) from problem


def short_name(backbone: str) -> str:
    """The name without folders, for screens and file names."""
    return ":".join(part.rsplit("/", 1)[-1] for part in backbone.split(":"))


def found_again(
    made_by: Mapping[str, Any], *, device: str = "cpu", precision: str | None = None
) -> Networks:
    """Open the networks that made the features of a trained model; they must be unchanged."""
    must_be_given(own_functions(made_by), "the record of what made the model's features")
    backbones = [
        find_backbone(each["name"], features=each["kind"], size=each["transform"]["size"])
        for each in recorded_backbones(made_by)
    ]
    must_not_have_changed(backbones, made_by)
    return Networks(backbones, device=device, precision=precision)


def must_not_have_changed(backbones: Sequence[Backbone], made_by: Mapping[str, Any]) -> None:
    """Refuse backbones that differ from the record `made_by` of a model's features."""
    for backbone, recorded in zip(backbones, made_by["backbones"], strict=True):
        if backbone.digest != recorded["digest"]:
            raise InvalidInput(
                f"the backbone {backbone.name} is not the one that made the features of the model: "
                f"its weights or its preparation of {backbone.transform.things} have changed. "
                "Install the earlier version, or train again."
            )
