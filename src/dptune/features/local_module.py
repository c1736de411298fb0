"""`module:PATH.py:FACTORY[:WEIGHTS.safetensors]`: a network from your own file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dptune.errors import InvalidInput
from dptune.features.backbone import Network, Way
from dptune.features.maps import ALL_MAPS, LAST_MAP
from dptune.features.transform import Transform
from dptune.features.weights import put_weights, read_weights
from dptune.own_code import made, reference

KIND = "module:"
_FORM = "module:PATH.py:FACTORY or module:PATH.py:FACTORY:WEIGHTS.safetensors"


def own_functions(made_by: Mapping[str, Any]) -> list[str]:
    """The factories of your own networks among the backbones that made features."""
    names = [str(backbone["name"]) for backbone in made_by.get("backbones", ())]
    rests = [name.removeprefix(KIND) for name in names if name.startswith(KIND)]
    return [reference(":".join(rest.split(":")[:2]), "factory") for rest in rests]


def open_local_module(rest: str, size: int | None) -> Network:
    """Open the module of FACTORY(), which returns features (batch, columns) or maps (batch,
    channels, height, width), which are pooled. Its attribute `transform`, or `size`, `mean` and
    `deviation`, describes its pictures. A method `maps` gives the maps of its blocks."""
    path, _, factory = rest.partition(":")
    factory, _, weights = factory.partition(":")
    if not path or not factory:
        raise InvalidInput(f"A network of your own is named {_FORM}; got module:{rest}.")
    module = made(reference(f"{path}:{factory}", "factory")).eval()
    transform = _transform(module, rest)
    if weights:
        put_weights(module, read_weights(weights)[0], weights)
    return Network(
        module=module,
        ways=_ways(module, rest, size or transform.size),
        transform=transform,
        made_of=Path(path).read_text(encoding="utf-8") + "\n" + factory,
        trained_on=str(getattr(module, "trained_on", "")),
    )


def _transform(module: nn.Module, name: str) -> Transform:
    own = getattr(module, "transform", None)
    if isinstance(own, Transform):
        return own
    lacks = [each for each in ("size", "mean", "deviation") if not hasattr(module, each)]
    if lacks:
        raise InvalidInput(
            f"The module of {name} must describe its pictures; it lacks {' and '.join(lacks)}. "
            "Give it the attributes size (pixels), mean and deviation (three numbers each, for "
            "colours from 0 to 1), or `transform`."
        )
    size, mean, deviation = module.size, module.mean, module.deviation
    return Transform(size=size, mean=_plain(mean), deviation=_plain(deviation))  # type: ignore[arg-type]


def _plain(values: object) -> object:
    return values.flatten().tolist() if isinstance(values, Tensor) else values


def _ways(module: nn.Module, name: str, size: int) -> Mapping[str, Way]:
    """The kinds of features, from its output for one picture."""
    try:
        with torch.no_grad():
            output = module(torch.zeros(1, 3, size, size))
    except Exception as problem:
        raise InvalidInput(
            f"The module of {name} cannot be run on a picture of {size} pixels: "
            f"{type(problem).__name__}: {problem}."
        ) from problem
    if not isinstance(output, Tensor) or output.ndim not in (2, 4):
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise InvalidInput(
            f"The module of {name} must return features (batch, columns) or maps (batch, channels, "
            f"height, width); for one picture it returned {shape}."
        )
    if output.ndim == 4:
        return ALL_MAPS if callable(getattr(module, "maps", None)) else LAST_MAP
    return {"pooled": lambda network, pictures: network(pictures)}
