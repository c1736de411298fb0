"""Rules for the layers that are known: which terms each row's gradient is made of.

A layer is known by the function that it runs, so that a subclass with a forward pass of its own is
not taken for what it is not.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from dptune.engines.modules.ghost import Factors, Kept, Lookup, Outer, Piece, Remade, can_be_kept
from dptune.engines.modules.recording import Call
from dptune.engines.modules.standardized import StandardizedConv2d, pull_back

# Calls of a layer, how many rows they have, and which of its parameters are trained; the answer has
# a piece for each of these.
Rule = Callable[[Any, list[Call], int, set[str]], dict[str, Piece]]


def rule_of(layer: nn.Module) -> Rule | None:
    """None for layers of unknown kind."""
    kind = type(layer)
    if (kind.__module__, kind.__name__) == ("transformers.pytorch_utils", "Conv1D"):
        return _transposed_linear
    if isinstance(layer, nn.Embedding) and layer.scale_grad_by_freq:
        return None
    return _RULES.get(kind.forward)


def multiplies(rule: Rule) -> bool:
    """Whether a layer needs its inputs no more precise than its outputs are."""
    return rule in (_linear, _transposed_linear, _convolution, _standardized_convolution)


def _linear(layer: Any, calls: list[Call], rows: int, wanted: set[str]) -> dict[str, Piece]:
    found = _bias(calls, rows, wanted, channels=-1)
    if "weight" in wanted:
        factors = [Factors(call.input, call.gradient) for call in calls]
        found["weight"] = _cheaper(Outer(factors, rows, (1, *layer.weight.shape)))
    return found


def _transposed_linear(
    layer: Any, calls: list[Call], rows: int, wanted: set[str]
) -> dict[str, Piece]:
    """Conv1D of transformers: its weight is (columns, outputs)."""
    found = _bias(calls, rows, wanted, channels=-1)
    if "weight" in wanted:
        factors = [Factors(call.gradient, call.input) for call in calls]
        found["weight"] = _cheaper(Outer(factors, rows, (1, *layer.weight.shape)))
    return found


def _convolution(layer: Any, calls: list[Call], rows: int, wanted: set[str]) -> dict[str, Piece]:
    found = _bias(calls, rows, wanted, channels=1)
    if "weight" in wanted:
        found["weight"] = _cheaper(_convolved(layer, calls, rows))
    return found


def _convolved(layer: Any, calls: list[Call], rows: int) -> Outer:
    def as_terms(inputs: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
        grouped = outputs.reshape(
            len(outputs), layer.groups, layer.out_channels // layer.groups, -1
        )
        return _windows(layer, inputs), grouped.mT

    shape = layer.groups, layer.out_channels // layer.groups, layer.weight[0].numel()
    return Outer([Factors(call.input, call.gradient, as_terms) for call in calls], rows, shape)


def _standardized_convolution(
    layer: Any, calls: list[Call], rows: int, wanted: set[str]
) -> dict[str, Piece]:
    """Gradients with respect to the standardised weights, taken back to the weights row by row
    before they are measured."""
    found = _bias(calls, rows, wanted, channels=1)
    if "weight" in wanted:
        factors = _convolved(layer, calls, rows)

        def make(part: slice) -> Tensor:
            return pull_back(layer.weight, factors.as_rows(part))

        kept = can_be_kept(rows * layer.weight.numel())
        found["weight"] = (
            Kept(make(slice(0, rows))) if kept else Remade(make, rows, layer.weight.numel())
        )
    return found


def _windows(layer: Any, inputs: Tensor) -> Tensor:
    """What each position of the output sees: (pictures, groups, positions, columns)."""
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    seen = functional.pad(inputs, layer._reversed_padding_repeated_twice, mode)
    steps = zip(layer.kernel_size, layer.dilation, layer.stride, strict=True)
    for place, (size, apart, stride) in enumerate(steps, 2):
        seen = seen.unfold(place, apart * (size - 1) + 1, stride)[..., ::apart]
    kernel = len(layer.kernel_size)
    positions = seen.shape[2 : 2 + kernel].numel()
    grouped = seen.reshape(len(seen), layer.groups, seen.shape[1] // layer.groups, positions, -1)
    return grouped.transpose(2, 3).flatten(3)


def _embedding(layer: Any, calls: list[Call], rows: int, wanted: set[str]) -> dict[str, Piece]:
    words = torch.cat([call.input.reshape(rows, -1) for call in calls], 1)
    gradients = [call.gradient.reshape(rows, -1, layer.embedding_dim) for call in calls]
    gradient = torch.cat(gradients, 1)
    if layer.padding_idx is not None:  # never trained
        gradient = gradient.masked_fill((words == layer.padding_idx)[..., None], 0)
    return {"weight": Lookup(words, gradient)}


def _norm(normalise: Callable[[Any, Tensor], Tensor], by_channel: bool) -> Rule:
    """For layers that multiply what they have normalised by a weight and add a bias."""

    def rule(layer: Any, calls: list[Call], rows: int, wanted: set[str]) -> dict[str, Piece]:
        sums: dict[str, list[Tensor]] = {own: [] for own in wanted}
        for call in calls:
            gradient = _at_least_float32(call.gradient)
            for own in wanted:
                terms = gradient
                if own == "weight":
                    terms = gradient * normalise(layer, call.input.to(gradient.dtype))
                if by_channel:
                    channels = terms.reshape(rows, -1, terms.shape[1], terms[0, 0].numel())
                    sums[own].append(channels.sum((1, 3)))
                else:
                    sums[own].append(terms.reshape(rows, -1, *layer.normalized_shape).sum(1))
        return {own: Kept(_total(parts)) for own, parts in sums.items()}

    return rule


def _layer_norm(layer: nn.LayerNorm, inputs: Tensor) -> Tensor:
    return functional.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)


def _rms_norm(layer: nn.RMSNorm, inputs: Tensor) -> Tensor:
    return functional.rms_norm(inputs, layer.normalized_shape, eps=layer.eps)


def _group_norm(layer: nn.GroupNorm, inputs: Tensor) -> Tensor:
    return functional.group_norm(inputs, layer.num_groups, eps=layer.eps)


def _instance_norm(layer: nn.InstanceNorm2d, inputs: Tensor) -> Tensor:
    return functional.instance_norm(inputs, eps=layer.eps)


_RULES: Mapping[Callable[..., Any], Rule] = {
    nn.Linear.forward: _linear,
    nn.Conv1d.forward: _convolution,
    nn.Conv2d.forward: _convolution,
    nn.Conv3d.forward: _convolution,
    StandardizedConv2d.forward: _standardized_convolution,
    nn.Embedding.forward: _embedding,
    nn.LayerNorm.forward: _norm(_layer_norm, by_channel=False),
    nn.RMSNorm.forward: _norm(_rms_norm, by_channel=False),
    nn.GroupNorm.forward: _norm(_group_norm, by_channel=True),
    nn.InstanceNorm2d.forward: _norm(_instance_norm, by_channel=True),  # 1d and 3d run the same
}


def _bias(calls: list[Call], rows: int, wanted: set[str], channels: int) -> dict[str, Piece]:
    """Where `channels` is 1 positions come after them, where it is -1 before."""
    if "bias" not in wanted:
        return {}
    sums = []
    for call in calls:
        size = call.gradient.shape[channels]
        after = call.gradient[0, 0].numel() if channels == 1 else 1
        terms = call.gradient.reshape(rows, -1, size, after)
        sums.append(terms.sum((1, 3), dtype=torch.promote_types(terms.dtype, torch.float32)))
    return {"bias": Kept(_total(sums))}


def _cheaper(factors: Outer) -> Piece:
    return Kept(factors.as_rows()) if factors.fits_in_rows else factors


def _at_least_float32(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _total(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)
