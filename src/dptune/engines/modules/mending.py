"""Modules made fit for private training: batch norm replaced, shared weights untied."""

import copy
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from dptune.engines.modules.doctor import drops_out_inside, problems
from dptune.engines.modules.problem import WHOLE, Problem

_GROUPS = 32  # at most, as is usual for group norm
# What is known to do nothing but batch norm: a subclass may do more.
_PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


@dataclass(frozen=True)
class Fixed:
    """A module after `fix`: what was put in the place of what, and what is left to do by hand."""

    module: nn.Module
    replaced: tuple[str, ...]
    left: tuple[Problem, ...]


def fix(module: nn.Module) -> Fixed:
    """Replace batch norm by group norm with the same weights, let instance norm and embeddings keep
    nothing of rows, and untie parameters that want gradients; the module itself is changed. What is
    new must be trained: group norm computes something else than batch norm did."""
    replaced: list[str] = []
    _untie_layers(module, replaced)
    for name, parent in [*module.named_modules()]:
        for child, layer in [*parent.named_children()]:
            setattr(parent, child, _mended(f"{name}.{child}" if name else child, layer, replaced))
    module = _mended(WHOLE, module, replaced)
    _untie_parameters(module, replaced)
    return Fixed(module, tuple(replaced), tuple(problems(module)))


def fix_module(module: nn.Module) -> nn.Module:
    """The module with batch norm replaced by group norm and shared weights untied, for the end of a
    factory: `return fix_module(module)`. `dptune doctor --fix` shows what that does."""
    return fix(module).module


def untie(module: nn.Module) -> None:
    """Give every place its own copy of a parameter that stands in several."""
    _untie_parameters(module, [])


def _mended(name: str, layer: nn.Module, replaced: list[str]) -> nn.Module:
    if type(layer) in _PLAIN:
        assert isinstance(layer, _BatchNorm)
        norm = _group_norm(layer)
        replaced.append(
            f"{name}: {type(layer).__name__}({layer.num_features}) by "
            f"GroupNorm({norm.num_groups}, {norm.num_channels})"
        )
        return norm
    if isinstance(layer, _InstanceNorm) and layer.track_running_stats and layer.num_features:
        layer.track_running_stats = False
        layer.running_mean = layer.running_var = layer.num_batches_tracked = None
        replaced.append(f"{name}: {type(layer).__name__} keeps no running statistics")
    if drops_out_inside(layer) and any(own.requires_grad for own in layer.parameters()):
        vars(layer)["dropout"] = 0.0  # a plain number, whatever torch's types say
        replaced.append(f"{name}: {type(layer).__name__} without dropout inside of it")
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm is not None:
        layer.max_norm = None
        replaced.append(f"{name}: {type(layer).__name__} without max_norm")
    return layer


def _group_norm(layer: _BatchNorm) -> nn.GroupNorm:
    channels = layer.num_features
    groups = max(g for g in range(1, min(_GROUPS, channels) + 1) if channels % g == 0)
    if isinstance(layer, nn.BatchNorm1d):
        groups = 1  # a row may be one number a channel, and a number by itself has no variance
    norm = nn.GroupNorm(groups, channels, layer.eps, layer.affine)
    if layer.affine:
        norm.weight, norm.bias = layer.weight, layer.bias
    return norm.train(layer.training)


def _untie_layers(module: nn.Module, replaced: list[str]) -> None:
    """A layer that stands in two places becomes two."""
    first: dict[nn.Module, str] = {}
    for name, layer in [*module.named_modules(remove_duplicate=False)]:
        known = first.setdefault(layer, name)
        wants = any(parameter.requires_grad for parameter in layer.parameters())
        if known == name or not wants or not _is_there(module, name, layer):
            continue
        parent, _, child = name.rpartition(".")
        setattr(module.get_submodule(parent), child, copy.deepcopy(layer))
        replaced.append(f"{name}: the layer {known} by a copy of it")


def _is_there(module: nn.Module, name: str, layer: nn.Module) -> bool:
    """Not inside of what was copied since."""
    return module.get_submodule(name) is layer


def _untie_parameters(module: nn.Module, replaced: list[str]) -> None:
    first: dict[nn.Parameter, str] = {}
    for name, parameter in [*module.named_parameters(remove_duplicate=False)]:
        known = first.setdefault(parameter, name)
        if known == name or not parameter.requires_grad:
            continue
        owner, _, word = name.rpartition(".")
        setattr(module.get_submodule(owner), word, nn.Parameter(parameter.detach().clone()))
        replaced.append(f"{name}: the parameter {known} by a copy of it")
        config: Any = getattr(module, "config", None)
        if getattr(config, "tie_word_embeddings", False):
            config.tie_word_embeddings = False  # or transformers would tie them again
