"""Low-rank adapters (LoRA, Hu et al. 2021): beside a frozen layer x W, a small x A B is trained.

Of models of the package transformers the package peft puts them in; of all others, `Adapted` does
the same for plain linear layers. Both keep A and B as linear layers called lora_A and lora_B.
"""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from dptune.engines.language.reader import Reader
from dptune.engines.modules.patterns import fits, patterns_in
from dptune.errors import InvalidInput, MissingExtra

_PARTS = ("lora_A", "lora_B")
# New heads of transformers' models, which know nothing yet.
_HEADS = ("classifier", "score")
_ATTENTION = ("attn", "attention", "self_attn", "self_attention")


class Adapted(nn.Module):
    """A linear layer as it was, and x A B beside it, which is nothing at first."""

    def __init__(self, layer: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.base_layer = layer
        kind = {"device": layer.weight.device, "dtype": torch.float32}
        self.lora_A = nn.Linear(layer.in_features, rank, bias=False, **kind)
        self.lora_B = nn.Linear(rank, layer.out_features, bias=False, **kind)
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))  # as peft does
        nn.init.zeros_(self.lora_B.weight)
        self.scale = alpha / rank

    def forward(self, rows: Tensor) -> Tensor:
        beside: Tensor = self.lora_B(self.lora_A(rows))
        found: Tensor = self.base_layer(rows)
        return found + self.scale * beside


def add_adapters(
    module: nn.Module,
    *,
    rank: int,
    alpha: float,
    layers: str = "",
    trained: str = "",
    base_dtype: torch.dtype | None = None,
) -> nn.Module:
    """Put adapters into the module itself, and freeze all but them.

    A's first weights are drawn from torch's own generator; B's are zero.

    Args:
        module: the base.
        rank: columns of A, rows of B.
        alpha: over the rank, what their product counts.
        layers: patterns of the names of linear layers, separated by commas; empty for those that
            peft takes, or of other modules for all.
        trained: patterns of the names of parameters that are trained besides. New heads of
            transformers' classifiers always are.
        base_dtype: in which the weights of frozen layers are kept; None for as they are.

    """
    besides = _besides(module, trained)
    model = _of_transformers(module)
    if model is not None:
        wanted = _wanted_of_transformers(module, model, layers, besides)
        start = "" if model is module else "model."
        _inject(model, [name.removeprefix(start) for name in wanted], rank, alpha)
    else:
        for name in _wanted(module, layers, besides, (nn.Linear,)):
            parent, _, child = name.rpartition(".")
            layer: Any = module.get_submodule(name)
            setattr(module.get_submodule(parent), child, Adapted(layer, rank, alpha))
    names = set(adapter_names(module, trained))
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in names)
    if base_dtype is not None:
        _keep_in(base_dtype, module)
    return module


def adapter_names(module: nn.Module, trained: str = "") -> list[str]:
    """The names of what is trained of a module with adapters."""
    besides = _besides(module, trained)
    names = [name for name, _ in module.named_parameters()]
    if trained and not any(fits(_as_before(name), patterns_in(trained)) for name in names):
        raise InvalidInput(
            f"trained={trained!r} fits none of the module's parameters ("
            f"{', '.join(map(_as_before, names[:6]))}, ...); give patterns of names such as "
            '"head.*", separated by commas.'
        )
    return [
        name
        for name in names
        if not set(_PARTS).isdisjoint(name.split(".")) or fits(_as_before(name), besides)
    ]


def _besides(module: nn.Module, trained: str) -> list[str]:
    """Patterns of what is trained beside adapters."""
    if isinstance(module, Reader):
        return patterns_in(trained) + [_as_before(name) for name in module.heads]
    heads = [] if _of_transformers(module) is None else [f"{head}.*" for head in _HEADS]
    return patterns_in(trained) + heads


def _as_before(name: str) -> str:
    """What a parameter was called before there were adapters."""
    return name.replace(".base_layer.", ".")


def _of_transformers(module: nn.Module) -> nn.Module | None:
    """The model of the package transformers that the module is, or holds, without importing the
    package, which takes seconds."""
    if isinstance(module, Reader):
        model: nn.Module = module.model
        return model
    is_one = any(
        kind.__name__ == "PreTrainedModel" and kind.__module__.startswith("transformers.")
        for kind in type(module).__mro__
    )
    return module if is_one else None


def _wanted(
    module: nn.Module, layers: str, besides: list[str], kinds: tuple[type[nn.Module], ...]
) -> list[str]:
    """The linear layers that `layers` means, by their names; all if it says nothing. Those that are
    trained themselves need no adapter."""
    # A subclass may use its weight in another way than by being called.
    linear = [
        name
        for name, one in module.named_modules()
        if name and type(one) in kinds and not fits(f"{name}.weight", besides)
    ]
    found = [name for name in linear if not layers or fits(name, patterns_in(layers))]
    if not found:
        there = f"it has {', '.join(linear[:8])}" if linear else "it has none inside it"
        raise InvalidInput(
            f"layers={layers!r} fits no linear layer of the module to put an adapter beside; "
            f"{there}."
        )
    return found


def _wanted_of_transformers(
    module: nn.Module, model: nn.Module, layers: str, besides: list[str]
) -> list[str]:
    from transformers.pytorch_utils import Conv1D

    kinds = (nn.Linear, Conv1D)
    if layers:
        return _wanted(module, layers, besides, kinds)
    config: Any = model.config
    usual = _peft().utils.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING.get(config.model_type)
    every = _wanted(module, "", besides, kinds)
    if usual is not None:
        return [name for name in every if name.rpartition(".")[2] in usual]
    attending = [name for name in every if not set(_ATTENTION).isdisjoint(name.split("."))]
    if not attending:
        raise InvalidInput(
            f"peft has no usual layers for models of the kind {config.model_type!r}; say which "
            f'with layers, such as "*.{every[0].rpartition(".")[2]}".'
        )
    return attending


def _inject(module: nn.Module, wanted: list[str], rank: int, alpha: float) -> None:
    peft = _peft()
    turned = type(module.get_submodule(wanted[0])) is not nn.Linear  # GPT-2's, whose weight is W^T
    config = peft.LoraConfig(
        r=rank, lora_alpha=alpha, target_modules=wanted, lora_dropout=0.0, fan_in_fan_out=turned
    )
    peft.inject_adapter_in_model(config, module)


def _peft() -> Any:
    try:
        import peft
    except ImportError:
        raise MissingExtra(
            "adapters of a model of transformers need the package peft: pip install "
            "'dptune[torch-modules]'."
        ) from None
    return peft


def _keep_in(dtype: torch.dtype, module: nn.Module) -> None:
    """The frozen weights of large layers, and what their adapters take. Norms are small, and
    computed in float32 anyway."""
    layers: Iterable[Any] = module.modules()
    for layer in layers:
        if hasattr(layer, "cast_input_dtype_enabled"):
            layer.cast_input_dtype_enabled = False  # peft's: it would only be made narrow again
        large = isinstance(layer, nn.Linear | nn.Embedding | _ConvNd)
        if large or type(layer).__name__ == "Conv1D":
            for parameter in layer.parameters(recurse=False):
                if not parameter.requires_grad:
                    parameter.data = parameter.data.to(dtype)
