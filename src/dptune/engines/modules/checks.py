"""What is found out about a module on made-up rows before it is trained on real ones."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from dptune.errors import InvalidInput

FEWEST_ROWS = 3  # to tell what is a row's from what is not
_AGREES = {"float32": 1e-3, "bfloat16": 0.05}  # with autograd, relative
_NEGLIGIBLE = {"float32": 1e-5, "bfloat16": 1e-3}  # the same, beside all parameters' gradient
# How much of a row's gradient others may seem to change: kernels need not repeat themselves.
_ALONE = {"float32": 1e-4, "bfloat16": 0.02}


def parameters_are_their_own(module: nn.Module, trained: Mapping[str, nn.Parameter]) -> None:
    """No parameter that is trained belongs to two layers."""
    homes: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        homes.setdefault(id(parameter), []).append(name)
    for name, parameter in trained.items():
        places = homes.get(id(parameter), [])
        if len(places) > 1:
            raise InvalidInput(
                f"a parameter that is trained belongs to one layer; {name!r} is shared by "
                f"{' and '.join(map(repr, places))}. Untie them (a copy for each), or freeze it."
            )


def no_batch_norm(module: nn.Module) -> None:
    for name, layer in module.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.training:
            raise InvalidInput(
                f"rows must not see each other; layer {name!r} ({type(layer).__name__}) "
                "normalises each by the others of its batch. Replace it by torch.nn.GroupNorm."
            )


@contextmanager
def undisturbed(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Random numbers are afterwards as they were, and so are buffers; refuses modules that write
    what they see into these."""
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        changed = []
        for name, buffer in module.named_buffers():
            if name in before and not torch.equal(buffer, before[name]):
                buffer.copy_(before[name])
                changed.append(name)
    if changed:
        raise InvalidInput(
            f"buffers {', '.join(map(repr, changed))} change with the rows that are seen, which "
            "would carry private rows into the model unpaid. Switch running statistics off "
            "(track_running_stats=False)."
        )


def all_take_part(gradients: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """Autograd's gradients, if there is one for every parameter."""
    idle = [name for name, gradient in gradients.items() if gradient is None]
    if idle:
        raise InvalidInput(
            "every parameter that is trained takes part in the loss; these do not: "
            f"{', '.join(map(repr, idle))}. Freeze them: noise would be all that they learn."
        )
    return {name: gradient for name, gradient in gradients.items() if gradient is not None}


def disagreeing(
    found: Tensor, wanted: Mapping[str, Tensor], places: Mapping[str, slice], compute: str
) -> list[str]:
    """Parameters whose sum over rows is not what autograd has."""
    whole = torch.stack([gradient.double().norm() for gradient in wanted.values()]).norm()
    wrong = []
    for name, gradient in wanted.items():
        apart = (found[places[name]] - gradient.flatten().double()).norm()
        allowed = _AGREES[compute] * gradient.double().norm() + _NEGLIGIBLE[compute] * whole
        if not apart <= allowed:
            wrong.append(name)
    return wrong


def agrees(wrong: list[str]) -> None:
    if wrong:
        raise InvalidInput(
            "the sum of rows' gradients must be the gradient of the summed loss; it is not for "
            f"{', '.join(map(repr, wrong))}: the parameter is used outside of its layer, or "
            "something random (dropout) is inside a layer that has to be run twice. Give the "
            "layer a forward of its own, set its dropout to 0, or freeze it."
        )


def rows_are_alone(
    sums: Callable[[Tensor, Tensor, Tensor], Tensor],
    features: Tensor,
    targets: Tensor,
    places: Mapping[str, slice],
    compute: str,
) -> None:
    """A row's gradient stays as it is when the other rows of its batch are others."""
    rows = len(features)
    for row in (0, rows - 1):
        order = list(range(rows))
        others = [other for other in order if other != row]
        for place, other in zip(others, others[1:] + others[:1], strict=True):
            order[place] = other
        order[others[0]] = row  # and one is left out altogether
        alone = torch.zeros(rows, dtype=torch.float64, device=features.device)
        alone[row] = 1.0
        one = sums(features, targets, alone)
        two = sums(features[order], targets[order], alone)
        allowed = _ALONE[compute] * one.norm()
        mixed = [
            name
            for name, place in places.items()
            if not (one[place] - two[place]).norm() <= allowed
        ]
        if mixed:
            raise InvalidInput(
                "a row's gradient must not depend on the other rows of its batch; it does for "
                f"{', '.join(map(repr, mixed[:8]))}. Something before or in these layers mixes "
                "rows, as batch norm does: replace it by a layer that treats rows one by one "
                "(torch.nn.GroupNorm)."
            )
