"""What keeps a module from being trained privately, by the names of its layers, and what to do.

A row's gradient must be its own: no layer may look at the other rows of a batch, keep something of
them, or use a weight in two places that are measured apart.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import _SpectralNorm

from dptune.engines.modules.gradients import RowGradients
from dptune.engines.modules.losses import outputs_of
from dptune.engines.modules.made_up import made_up, nothing_near_zero
from dptune.engines.modules.problem import (
    NOTHING_TRAINED,
    WHOLE,
    Names,
    Problem,
    listed,
    must_be_none,
    wanting_gradients,
)
from dptune.engines.modules.row_check import as_it_was, problems_on_rows
from dptune.engines.modules.word_numbers import problems_of_words
from dptune.errors import DptuneError, InvalidInput

_MADE_UP = 4  # rows
_FIX = "dptune.engines.fix_module(module) does that"


@dataclass(frozen=True)
class Layer:
    """A part with parameters; those that an earlier one has too are not counted again. `way`: how
    its rows' gradients are clipped, where that is known; else "frozen" or "shared"."""

    name: str
    kind: str
    parameters: int
    way: str


@dataclass(frozen=True)
class Examination:
    """All that can be said of a module before a row is read."""

    layers: tuple[Layer, ...]
    problems: tuple[Problem, ...]


def problems(module: nn.Module, trained: Names | None = None) -> list[Problem]:
    """All that its layers show, where the parameters called `trained` are (None: those that want a
    gradient)."""
    names = wanting_gradients(module) if trained is None else trained
    found = [*_of_parameters(module, names), *_shared(module, names)]
    for name, layer in module.named_modules():
        found += _of_layer(name or WHOLE, layer)
        if drops_out_inside(layer) and any(
            f"{name}.{own}".lstrip(".") in names for own, _ in layer.named_parameters()
        ):
            found.append(
                Problem(
                    name or WHOLE,
                    "dropout",
                    "it draws its dropout inside of itself, and has to be run twice, which draws "
                    "another",
                    f"set its dropout to 0 ({_FIX}), or freeze it",
                )
            )
    return found


def must_be_sound(module: nn.Module, trained: Names) -> None:
    """Refuse a module whose layers have problems, all of them named."""
    must_be_none(problems(module, trained), " (dptune doctor shows its layers.)")


def examine(
    module: nn.Module, shape: Sequence[int] | None = None, *, ids: bool = False
) -> Examination:
    """Its layers and its problems; given the `shape` of a row, also what made-up rows show. Rows of
    `ids` are token numbers."""
    names = wanting_gradients(module)
    found, routes = problems(module, names), dict[str, str]()
    if shape is not None and not any(each.kind == "lazy" for each in found):
        rows, others = (made_up(module, shape, _MADE_UP, ids=ids, seed=seed) for seed in (0, 1))
        compute = "bfloat16" if _is_coarse(module) else "float32"
        try:
            known = [each.layer for each in found]
            with nothing_near_zero(module, names):
                on_rows = problems_of_words(module, rows) if ids else []
                on_rows = on_rows or problems_on_rows(module, rows, others, compute=compute)
            found += [p for p in on_rows if not any(_is_within(p.layer, it) for it in known)]
            if not found:
                routes = _routes(module, names, rows)
        except DptuneError as error:
            found.append(Problem(WHOLE, "gradients", str(error).rstrip("."), ""))
        except Exception as error:  # code of the user's own may raise anything
            tables = [name for name, part in module.named_modules() if _is_table(part)]
            if tables and not ids and "embedding" in str(error):
                raise InvalidInput(
                    f"the module looks numbers of words up in a table (layer {tables[0]}), and its "
                    "rows are taken for other numbers: give --ids (ids=True in Python)."
                ) from error
            raise InvalidInput(
                f"the module cannot be run on rows of shape {tuple(shape)}: "
                f"{type(error).__name__}: {error}. Give the shape of one row, and say whether rows "
                "are numbers of words (ids)."
            ) from error
    return Examination(tuple(_layers(module, names, routes)), tuple(found))


def _of_parameters(module: nn.Module, trained: Names) -> Iterator[Problem]:
    lazy = [name for name, parameter in module.named_parameters() if is_lazy(parameter)]
    for name in lazy:
        yield Problem(
            name,
            "lazy",
            "its size is not known before a row has passed",
            "call the module once in the factory, on a row of zeros",
        )
    if not trained:
        yield NOTHING_TRAINED
    named = dict(module.named_parameters(remove_duplicate=False))
    for name in trained:
        kind = named[name].dtype
        if name not in lazy and kind != torch.float32:
            yield Problem(
                name,
                "precision",
                f"it is kept in {str(kind).removeprefix('torch.')}, and noise goes to float32",
                "convert it with .float(), or freeze it",
            )


def _shared(module: nn.Module, trained: Names) -> Iterator[Problem]:
    names = defaultdict[int, list[str]](list)
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names[id(parameter)].append(name)
    for same in names.values():
        if len(same) > 1 and set(same) & set(trained):
            yield Problem(
                same[0],
                "shared",
                f"it is the same parameter as {listed(same[1:])}",
                f"untie them ({_FIX}, by copies), or freeze it",
            )


def _of_layer(name: str, layer: nn.Module) -> Iterator[Problem]:
    if isinstance(layer, _BatchNorm):
        yield Problem(
            name,
            "batch norm",
            "batch norm mixes the rows of a batch",
            f"use group norm in its place ({_FIX})",
        )
    elif isinstance(layer, _InstanceNorm) and layer.track_running_stats:
        yield Problem(
            name,
            "running statistics",
            "instance norm keeps statistics of the rows",
            f"make it with track_running_stats=False ({_FIX})",
        )
    elif _is_table(layer) and layer.max_norm is not None:
        yield Problem(
            name,
            "max_norm",
            "with max_norm it rewrites its lines for the words that it meets, so its weights would "
            "tell which words private rows have",
            f"leave max_norm out ({_FIX})",
        )
    elif _keeps_spectra(layer):
        yield Problem(
            name,
            "spectral norm",
            "its weight is divided by a norm that is remembered from pass to pass",
            "leave spectral_norm out; weight_norm keeps nothing",
        )


def drops_out_inside(layer: nn.Module) -> bool:
    """Whether it is a layer of many products that draws dropout between them."""
    inside = isinstance(layer, nn.MultiheadAttention | nn.RNNBase)
    return inside and bool(layer.dropout)


def _keeps_spectra(layer: nn.Module) -> bool:
    from torch.nn.utils.spectral_norm import SpectralNorm  # the older of torch's two

    if any(isinstance(hook, SpectralNorm) for hook in layer._forward_pre_hooks.values()):
        return True
    if not parametrize.is_parametrized(layer):
        return False
    kept: Any = layer.parametrizations
    return any(isinstance(part, _SpectralNorm) for part in kept.modules())


def _is_table(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Embedding | nn.EmbeddingBag)


def _is_within(layer: str, other: str) -> bool:
    """Whether a layer is the other or a part of it, as parts that make its weight are."""
    within = layer.removeprefix("" if other == WHOLE else f"{other}.")
    return layer == other or within.startswith("parametrizations.")


def _is_coarse(module: nn.Module) -> bool:
    """Whether some weights are kept in bfloat16, as those of a frozen base are."""
    return any(parameter.dtype == torch.bfloat16 for parameter in module.parameters())


def _routes(module: nn.Module, trained: Names, rows: Tensor) -> dict[str, str]:
    named = dict(module.named_parameters())
    # Any loss will do: the layers are what is asked for.
    gradients = RowGradients(
        module,
        {name: named[name] for name in trained},
        lambda found, targets: outputs_of(found).float().flatten(1).square().sum(1) / 2,
    )
    with as_it_was(module):
        module.train()
        gradients.trace(rows[:, None], torch.zeros(len(rows)))
    return gradients.ways.by_parameter


def _names_of(layer: str, part: nn.Module) -> list[str]:
    return [f"{layer}.{own}".lstrip(".") for own, _ in part.named_parameters(recurse=False)]


def _layers(module: nn.Module, trained: Names, routes: dict[str, str]) -> Iterator[Layer]:
    named = dict(module.named_parameters(remove_duplicate=False))
    wanted, seen = {named[name] for name in trained}, set[nn.Parameter]()
    for name, part in module.named_modules():
        own = [*part.parameters(recurse=False)]
        if not own:
            continue
        new = [parameter for parameter in own if parameter not in seen]
        seen.update(own)
        ways = {routes[full] for full in _names_of(name, part) if full in routes}
        way = ", ".join(sorted(ways)) if wanted.intersection(own) else "frozen"
        count = sum(0 if is_lazy(parameter) else parameter.numel() for parameter in new)
        yield Layer(name or WHOLE, type(part).__name__, count, way if new else "shared")
