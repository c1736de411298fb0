"""Gradients of the parameters of any layer, row by row: the layer is run again on what it took in,
by torch.func for many rows at once, or else one by one."""

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.utils import _pytree as pytree

from dptune.engines.modules.recording import Call
from dptune.engines.modules.recurrent import step_by_step


def row_gradients(
    layer: nn.Module,
    names: Sequence[str],
    call: Call,
    by_row: Sequence[bool],
    rows: int,
    looped: bool,
    some: slice = slice(None),
) -> dict[str, Tensor]:
    """(rows, *shape) for every parameter in `names`, of all rows or of some. `by_row` says which of
    the call's arguments have a part for every row; `looped` is for layers that torch.func cannot
    run for many rows."""

    def split(values: Tensor) -> Tensor:
        return values.reshape(rows, -1, *values.shape[1:])[some]

    given = [
        split(value) if has_rows else value
        for value, has_rows in zip(call.arguments, by_row, strict=True)
    ]
    flowing = [split(gradient) for gradient in call.gradients if gradient is not None]
    own = dict(layer.named_parameters())
    parameters = {name: own[name].detach() for name in names}

    def run(weights: dict[str, Tensor], values: list[Any]) -> list[Tensor]:
        args, kwargs = pytree.tree_unflatten(values, call.structure)
        answer = functional_call(layer, weights, args, kwargs)
        outputs = (leaf for leaf in pytree.tree_leaves(answer) if isinstance(leaf, Tensor))
        flows = (gradient is not None for gradient in call.gradients)
        return [output for output, counts in zip(outputs, flows, strict=True) if counts]

    def of_one(values: list[Any], outputs: list[Tensor]) -> dict[str, Tensor]:
        backward = vjp(lambda weights: run(weights, values), parameters)[1]
        found: dict[str, Tensor] = backward(outputs)[0]
        return found

    with torch.enable_grad():
        if not looped:
            sides = [0 if has_rows else None for has_rows in by_row]
            with step_by_step(layer):
                many: dict[str, Tensor] = vmap(of_one, (sides, 0))(given, flowing)
            return many
        leaves = {name: parameter.requires_grad_() for name, parameter in parameters.items()}
        each = []
        for row in range(len(flowing[0])):
            parts = zip(given, by_row, strict=True)
            values = [value[row] if has_rows else value for value, has_rows in parts]
            outputs = run(leaves, values)
            gradients = [gradient[row] for gradient in flowing]
            each.append(
                torch.autograd.grad(
                    outputs, list(leaves.values()), gradients, materialize_grads=True
                )
            )
        return dict(zip(names, map(torch.stack, zip(*each, strict=True)), strict=True))


def must_be_looped(
    layer: nn.Module, names: Sequence[str], call: Call, by_row: Sequence[bool], rows: int
) -> bool:
    """Whether torch.func cannot run it for many rows at once, or only with a warning."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            row_gradients(layer, names, call, by_row, rows, looped=False)
    except (RuntimeError, ValueError, NotImplementedError, UserWarning):
        return True
    return False
