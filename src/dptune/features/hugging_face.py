"""`hf:NAME_OR_FOLDER[@REVISION]`: vision models of the Hugging Face hub, or of a folder.

Weights are read from safetensors files only, and no code of a repository is ever run.
"""

import inspect
import json
from collections.abc import Mapping
from math import isqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dptune.errors import InvalidInput
from dptune.features.backbone import Network, Way
from dptune.features.maps import grid, mean_over
from dptune.features.processors import read_processor
from dptune.features.transform import Transform
from dptune.hub import ModelPlace, quiet, transformers_package

_CLASS_TOKENS = ("cls_token", "class_embedding")
_FILES = "config.json, model.safetensors and preprocessor_config.json"


def open_hugging_face(rest: str, size: int | None) -> Network:
    place = ModelPlace.of(rest)
    module, config, unfilled = load(place, _FILES, "vision")
    transform = _transform(place)
    reader = _Reader(module, config, size or transform.size)
    return Network(
        module=module,
        ways=reader.ways(pooler=not unfilled),
        transform=transform,
        made_of=made_of(config),
    )


class _Reader:
    """Computes features of each kind from a model's output: feature maps, or tokens (a class token,
    if there is one, then the patches of the picture)."""

    def __init__(self, module: nn.Module, config: Any, size: int) -> None:
        takes = inspect.signature(module.forward).parameters
        own = getattr(config, "image_size", size)
        self.more: dict[str, bool] = {}
        if own not in (size, [size, size]) and "interpolate_pos_encoding" in takes:
            self.more["interpolate_pos_encoding"] = True
        names = [name.rpartition(".")[2] for name, _ in module.named_parameters()]
        self.has_class = any(name in _CLASS_TOKENS for name in names)
        self.before_patches = (
            int(self.has_class)
            + int("distillation_token" in names)
            + int(getattr(config, "num_register_tokens", 0) or 0)
        )
        try:
            with torch.no_grad():
                picture = torch.zeros(1, 3, size, size)
                self.sample = module(picture, output_hidden_states=True, **self.more)
        except (RuntimeError, ValueError, TypeError) as problem:
            raise InvalidInput(
                f"The model {config.model_type} cannot be run on one picture of {size} pixels: "
                f"{problem}. Use a vision model, at the size that it was made for."
            ) from problem

    def ways(self, pooler: bool) -> Mapping[str, Way]:
        last = self.sample.last_hidden_state
        pooled = self.sample.get("pooler_output")
        ways: dict[str, Way] = {}
        if pooler and pooled is not None:
            ways["pooled"] = self._pooler
        elif last.ndim == 3 and self.has_class:
            ways["pooled"] = self._class_token  # the state that such models classify
        else:
            ways["pooled"] = self._mean
        if last.ndim == 3 and self.has_class:
            ways["class-token"] = self._class_token
        if self.sample.get("hidden_states"):
            ways["blocks"] = self._blocks
        patches = 0 if last.ndim == 4 else self._patches(last).shape[1]
        if isqrt(patches) ** 2 == patches:
            ways["grid4"] = self._grid4
        return ways

    def _last(self, module: nn.Module, pictures: Tensor) -> Tensor:
        last: Tensor = module(pictures, **self.more).last_hidden_state
        return last

    def _pooler(self, module: nn.Module, pictures: Tensor) -> Tensor:
        pooled: Tensor = module(pictures, **self.more).pooler_output
        return pooled.flatten(1)

    def _class_token(self, module: nn.Module, pictures: Tensor) -> Tensor:
        return self._last(module, pictures)[:, 0]

    def _mean(self, module: nn.Module, pictures: Tensor) -> Tensor:
        return self._pooled(self._last(module, pictures))

    def _blocks(self, module: nn.Module, pictures: Tensor) -> Tensor:
        states = module(pictures, output_hidden_states=True, **self.more).hidden_states
        # The first state is the input of the first block.
        return torch.cat([self._pooled(state) for state in states[1:]], dim=1)

    def _grid4(self, module: nn.Module, pictures: Tensor) -> Tensor:
        last = self._last(module, pictures)
        if last.ndim == 3:
            patches = self._patches(last)
            side = isqrt(patches.shape[1])
            last = patches.transpose(1, 2).reshape(len(patches), -1, side, side)
        return grid(last)

    def _pooled(self, state: Tensor) -> Tensor:
        """The mean over a feature map or over the patches of a picture."""
        return mean_over(state) if state.ndim == 4 else self._patches(state).mean(1)

    def _patches(self, tokens: Tensor) -> Tensor:
        return tokens[:, self.before_patches :]


def load(place: ModelPlace, files: str, extra: str) -> tuple[nn.Module, Any, bool]:
    """Load the model, its configuration, and whether its pooler is missing in the file. A missing
    pooler would have random weights, so it is removed; any other missing array is refused. `files`
    are those that a folder must hold; `extra` is the extra of dptune to install."""
    transformers = transformers_package(extra)
    try:
        with quiet(transformers):
            model, report = transformers.AutoModel.from_pretrained(
                place.where,
                **place.options,
                use_safetensors=True,
                dtype=torch.float32,
                output_loading_info=True,
            )
    except Exception as problem:  # transformers fails in more ways than can be listed
        raise place.unreachable(problem, files) from problem
    missing = sorted(report["missing_keys"])
    model = getattr(model, "vision_model", model)  # for models of pictures and texts
    lacks = [name for name in missing if "pooler" not in name]
    if lacks:
        raise InvalidInput(
            f"The weights of {place.where} are not complete: {len(lacks)} arrays are missing, the "
            f"first is {lacks[0]}, and would be random. Use a model with all of its weights."
        )
    if missing:
        model.pooler = None
    return model.eval(), model.config, bool(missing)


def _transform(place: ModelPlace) -> Transform:
    cached_file = transformers_package("vision").utils.cached_file
    for name in ("preprocessor_config.json", "processor_config.json"):
        try:
            path = cached_file(
                place.where, name, **place.options, _raise_exceptions_for_missing_entries=False
            )
        except (OSError, ValueError) as problem:
            raise place.unreachable(problem, _FILES) from problem
        if path is not None:
            return read_processor(Path(path))
    raise InvalidInput(
        f"{place.where} has no preprocessor_config.json, which says how to prepare pictures. "
        'Put one beside its weights, with "size", "image_mean" and "image_std".'
    )


def made_of(config: Any) -> str:
    settings = config.to_dict()
    for name in ("transformers_version", "_name_or_path", "dtype", "torch_dtype", "architectures"):
        settings.pop(name, None)
    return json.dumps(settings, sort_keys=True, default=str)
