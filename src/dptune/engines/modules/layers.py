"""Rules for the layers that are known: which terms each row's gradient is made of.

A layer is known by the function that it runs, so that a subclass with a forward pass of its own is
not taken for what it is not.
"""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from dptune.engines.modules.ghost import Factors, Kept, Lookup, Outer, Piece
from dptune.engines.modules.recording import Call
from dptune.engines.modules.standardized import StandardizedConv2d, pull_back

Rule = Callable[[nn.Module, list[Call], int, set[str]], dict[str, Piece]]


def rule_of(layer: nn.Module) -> Rule | None:
    """For layers of known kinds: calls of it, how many rows, which of its parameters, to what their
    gradients are made of."""
    kind = type(layer)
    if (kind.__module__, kind.__name__) == ("transformers.pytorch_utils", "Conv1D"):
        return _transposed_linear
    if isinstance(layer, nn.InstanceNorm1d | nn.InstanceNorm2d | nn.InstanceNorm3d):
        return None if layer.track_running_stats else _instance_norm
    if isinstance(layer, nn.Embedding) and (layer.max_norm or layer.scale_grad_by_freq):
        return None
    return _RULES.get(kind.forward)


def _linear(layer: nn.Module, calls: list[Call], rows: int, wanted: set[str]) -> dict[str, Piece]:
    def as_terms(inputs: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
        return _positions(inputs.to(outputs.dtype)), _positions(outputs)

    outputs, columns = _shape(layer.weight)
    return _outer_and_bias(calls, rows, wanted, as_terms, (1, outputs, columns), -1)


def _transposed_linear(
    layer: nn.Module, calls: list[Call], rows: int, wanted: set[str]
) -> dict[str, Piece]:
    """Conv1D of transformers: its weight is (columns, outputs)."""

    def as_terms(outputs: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return _positions(outputs), _positions(inputs.to(outputs.dtype))

    found: dict[str, Piece] = {}
    known = [(call, call.gradient) for call in calls if call.gradient is not None]
    columns, outputs = _shape(layer.weight)
    if "weight" in wanted and known:
        factors = [Factors(gradient, call.input, as_terms) for call, gradient in known]
        found["weight"] = _cheaper(Outer(factors, rows, (1, columns, outputs)))
    if "bias" in wanted and known:
        found["bias"] = Kept(sum(_bias(gradient, rows, -1) for _, gradient in known))
    return found


def _convolution(
    layer: nn.Module, calls: list[Call], rows: int, wanted: set[str]
) -> dict[str, Piece]:
    assert isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d)

    def as_terms(inputs: Tensor, outputs: Tensor) -> tuple[Tensor, Tensor]:
        windows = _windows(layer, inputs.to(outputs.dtype))
        grouped = outputs.flatten(2).unflatten(1, (layer.groups, -1))
        return windows, grouped.mT

    shape = layer.groups, layer.out_channels // layer.groups, layer.weight[0].numel()
    return _outer_and_bias(calls, rows, wanted, as_terms, shape, 1)


def _standardized_convolution(
    layer: nn.Module, calls: list[Call], rows: int, wanted: set[str]
) -> dict[str, Piece]:
    """Gradients with respect to the standardised weights, taken back to the weights row by row
    before they are measured."""
    assert isinstance(layer, StandardizedConv2d)
    found = _convolution(layer, calls, rows, wanted)
    piece = found.get("weight")
    if piece is not None:
        kept = piece.as_rows() if isinstance(piece, Outer) else piece
        assert isinstance(kept, Kept)
        found["weight"] = kept.changed(partial(pull_back, layer.weight))
    return found


def _windows(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, inputs: Tensor) -> Tensor:
    """What each position of the output sees: (pictures, groups, positions, columns)."""
    if layer.padding_mode == "zeros":
        padded = functional.pad(inputs, _padding(layer))
    else:
        padded = functional.pad(inputs, _padding(layer), layer.padding_mode)
    steps = zip(layer.kernel_size, layer.dilation, layer.stride, strict=True)
    for place, (size, apart, stride) in enumerate(steps, 2):
        padded = padded.unfold(place, apart * (size - 1) + 1, stride)[..., ::apart]
    spatial = len(layer.kernel_size)
    grouped = padded.unflatten(1, (layer.groups, -1))  # channels, positions..., windows...
    positions = grouped.flatten(3, 2 + spatial).flatten(4)
    return positions.transpose(2, 3).flatten(3)


def _padding(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d) -> list[int]:
    return list(layer._reversed_padding_repeated_twice)


def _embedding(
    layer: nn.Module, calls: list[Call], rows: int, wanted: set[str]
) -> dict[str, Piece]:
    assert isinstance(layer, nn.Embedding)
    words, gradients = [], []
    for call in calls:
        if call.gradient is None:
            continue
        ids, gradient = call.input, call.gradient
        if layer.padding_idx is not None:  # never trained
            gradient = gradient.masked_fill((ids == layer.padding_idx)[..., None], 0)
        words.append(ids.reshape(rows, -1))
        gradients.append(gradient.reshape(rows, -1, gradient.shape[-1]))
    if not words:
        return {}
    return {"weight": Lookup(torch.cat(words, 1), torch.cat(gradients, 1), rows)}


def _layer_norm(layer: nn.LayerNorm, inputs: Tensor) -> Tensor:
    return functional.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)


def _rms_norm(layer: nn.RMSNorm, inputs: Tensor) -> Tensor:
    return functional.rms_norm(inputs, layer.normalized_shape, eps=layer.eps)


def _group_norm(layer: nn.GroupNorm, inputs: Tensor) -> Tensor:
    return functional.group_norm(inputs, layer.num_groups, eps=layer.eps)


def _instances(layer: nn.InstanceNorm2d, inputs: Tensor) -> Tensor:
    return functional.instance_norm(inputs, eps=layer.eps)


def _normalised(
    normalise: Callable[[nn.Module, Tensor], Tensor],
    by_channel: bool,
    layer: nn.Module,
    calls: list[Call],
    rows: int,
    wanted: set[str],
) -> dict[str, Piece]:
    """Layers that multiply what they normalised by a weight and add a bias."""
    found: dict[str, Tensor] = {}
    for call in calls:
        if call.gradient is None:
            continue
        gradient = call.gradient.float()
        parts = {"bias": gradient}
        if "weight" in wanted:
            parts["weight"] = gradient * normalise(layer, call.input.float())
        for own in wanted:
            summed = _summed(parts[own], rows, _shape(getattr(layer, own)), by_channel)
            found[own] = found[own] + summed if own in found else summed
    return {own: Kept(gradients) for own, gradients in found.items()}


def _summed(terms: Tensor, rows: int, shape: torch.Size, by_channel: bool) -> Tensor:
    """Sums over all of a row's positions: (rows, *shape)."""
    if by_channel:
        return terms.reshape(rows, -1, shape[0], terms[0, 0].numel()).sum((1, 3))
    return terms.reshape(rows, -1, *shape).sum(1)


_instance_norm: Rule = partial(_normalised, _instances, True)
_RULES: Mapping[Callable[..., object], Rule] = {
    nn.Linear.forward: _linear,
    nn.Conv1d.forward: _convolution,
    nn.Conv2d.forward: _convolution,
    nn.Conv3d.forward: _convolution,
    StandardizedConv2d.forward: _standardized_convolution,
    nn.Embedding.forward: _embedding,
    nn.LayerNorm.forward: partial(_normalised, _layer_norm, False),
    nn.RMSNorm.forward: partial(_normalised, _rms_norm, False),
    nn.GroupNorm.forward: partial(_normalised, _group_norm, True),
}


def _outer_and_bias(
    calls: list[Call],
    rows: int,
    wanted: set[str],
    as_terms: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    shape: tuple[int, int, int],
    channels: int,
) -> dict[str, Piece]:
    known = [(call, call.gradient) for call in calls if call.gradient is not None]
    found: dict[str, Piece] = {}
    if "weight" in wanted and known:
        factors = [Factors(call.input, gradient, as_terms) for call, gradient in known]
        found["weight"] = _cheaper(Outer(factors, rows, shape))
    if "bias" in wanted and known:
        found["bias"] = Kept(sum(_bias(gradient, rows, channels) for _, gradient in known))
    return found


def _cheaper(factors: Outer) -> Piece:
    return factors.as_rows() if factors.fits_in_rows else factors


def _bias(gradient: Tensor, rows: int, channels: int) -> Tensor:
    wide = torch.promote_types(gradient.dtype, torch.float32)
    if channels == -1:
        return gradient.reshape(rows, -1, gradient.shape[-1]).sum(1, dtype=wide)
    pieces = gradient.reshape(rows, -1, gradient.shape[1], gradient[0, 0].numel())
    return pieces.sum((1, 3), dtype=wide)


def _positions(values: Tensor) -> Tensor:
    """(pieces, ..., columns) as one group of positions."""
    return values.reshape(len(values), 1, -1, values.shape[-1])


def _shape(parameter: Tensor) -> torch.Size:
    return parameter.shape
