"""What is found out about a module on made-up rows before it is trained on real ones."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn

import torch
from torch import Tensor, nn

from dptune.engines.modules.module_state import ModuleState
from dptune.engines.modules.row_check import as_it_was
from dptune.errors import InvalidInput

FEWEST_ROWS = 3  # to tell what is a row's from what is not
_AGREES = {"float32": 1e-3, "bfloat16": 0.05}  # with autograd, relative
_NEGLIGIBLE = {"float32": 1e-5, "bfloat16": 1e-3}  # the same, beside all parameters' gradient
# What others may seem to change: so many times what two equal passes differ by, or what sums in
# float64 are rounded by, as a share of a row's gradient.
_REPEATED, _FLOAT64 = 4.0, 1e-12
_MORE_REPEATS = 8


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
def undisturbed(module: nn.Module) -> Iterator[None]:
    """Everything is afterwards as it was; refuses modules that write what they see into their
    parameters or buffers."""
    before = ModuleState(module)
    with as_it_was(module):
        yield
        changed = before.changed()
    if changed:
        raise InvalidInput(
            f"parameters or buffers {', '.join(map(repr, changed))} change with the rows that are "
            "seen, which would carry private rows into the model unpaid. Switch running statistics "
            "off (track_running_stats=False), and let forward() write into nothing else."
        )


def all_take_part(gradients: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """Autograd's gradients, if there is one for every parameter."""
    idle = [name for name, gradient in gradients.items() if gradient is None]
    if idle:
        raise InvalidInput(
            "these parameters are trained and take no part in the loss, so noise would be all "
            f"that they learn: {', '.join(map(repr, idle))}. Freeze them with "
            "requires_grad_(False), or use them in forward()."
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


def refuse_disagreeing(wrong: list[str]) -> NoReturn:
    raise InvalidInput(
        "the sum of rows' gradients must be the gradient of the summed loss; it is not for "
        f"{', '.join(map(repr, wrong))}, whose layers have to be run twice, and give something "
        "else then, as dropout inside of them does. Set that dropout to 0, or freeze them."
    )


def rows_are_alone(
    sums: Callable[[Tensor, Tensor, Tensor], Tensor],
    features: Tensor,
    targets: Tensor,
    places: Mapping[str, slice],
    compute: str,
) -> None:
    """The first row's gradient, and the last one's, stay as they are when the other rows of the
    batch are others: bit for bit, but for what two equal passes differ by."""

    def changing(row: int) -> list[str]:
        """The parameters in whose gradients `row` is not alone."""
        alone = torch.zeros(len(features), dtype=torch.float64, device=features.device)
        alone[row] = 1.0
        one = sums(features, targets, alone)
        least, most = (share * float(one.norm()) for share in (_FLOAT64, _AGREES[compute]))

        def apart(features: Tensor, targets: Tensor) -> dict[str, float]:
            two = sums(features, targets, alone)
            if not bool(two.isfinite().all()):  # other rows overflow: steps leave such rows out
                return dict.fromkeys(places, 0.0)
            return {name: float((one[at] - two[at]).norm()) for name, at in places.items()}

        noise = apart(features, targets)
        for others in _others(features, targets, row):
            differences, repeats = apart(*others), 0
            while mixed := [
                name
                for name, difference in differences.items()
                if difference > min(max(_REPEATED * noise[name], least), most)
            ]:
                if repeats == _MORE_REPEATS:
                    return mixed
                again, repeats = apart(features, targets), repeats + 1  # equal by luck, perhaps
                noise = {name: max(noise[name], off) for name, off in again.items()}
        return []

    for row in (0, len(features) - 1):
        if mixed := changing(row):
            raise InvalidInput(
                "a row's gradient must not depend on the other rows of its batch; it does for "
                f"{', '.join(map(repr, mixed[:8]))}. Something before or in these layers mixes "
                "rows, as batch norm does: replace it by a layer that treats rows one by one "
                "(torch.nn.GroupNorm)."
            )


def _others(features: Tensor, targets: Tensor, row: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches in which `row` is as it was, and the others are not."""
    order = list(range(len(features)))
    others = [other for other in order if other != row]
    for place, other in zip(others, others[1:] + others[:1], strict=True):
        order[place] = other
    order[others[0]] = row  # and one is left out altogether
    yield features[order], targets[order]
    if features.is_floating_point():
        larger = features * 2.0**10
        larger[row] = features[row]
        yield larger, targets[order]
