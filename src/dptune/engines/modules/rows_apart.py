"""Made-up rows show what layers do not say: whether one row's gradient depends on the others."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from dptune.engines.language.reader import Reader
from dptune.engines.modules.losses import outputs_of
from dptune.engines.modules.problem import WHOLE, Names, Problem

# What rounding makes of a number, with something to spare: in float32, and in bfloat16.
_FINE, _COARSE = 1e-3, 0.05
_SOMETHING = 0.02


def problems_on_rows(module: nn.Module, rows: Tensor, trained: Names) -> list[Problem]:
    """What made-up rows (at least two, whose first axis they are) show besides: what changes when
    rows pass, and whether a row's outputs and gradients depend on the others."""
    named = dict(module.named_parameters())
    with as_it_was(module), _computing(module, rows.device):
        module.train()
        found = [*_changed(module, rows), *_mixing(module, rows, [named[name] for name in trained])]
    return found


def problems_without_gradients(module: nn.Module, rows: Tensor) -> list[Problem]:
    """The same where the module is only used, in eval(), and outputs are all that counts."""
    with as_it_was(module), torch.no_grad():
        module.eval()
        return [*_changed(module, rows), *_mixing(module, rows, [])]


def made_up(module: nn.Module, shape: Sequence[int], rows: int, *, ids: bool) -> Tensor:
    """Rows that are nobody's; of `ids`, numbers that every embedding knows."""
    generator = torch.Generator().manual_seed(0)
    if isinstance(module, Reader):
        return module.made_up(shape, rows, generator)
    if not ids:
        return torch.rand((rows, *shape), generator=generator)
    words = [m.num_embeddings for m in module.modules() if isinstance(m, nn.Embedding)]
    return torch.randint(min(words, default=1), (rows, *shape), generator=generator)


@contextmanager
def none_at_zero(module: nn.Module, trained: Names) -> Iterator[None]:
    """Matrices that begin at zero, as new heads and adapters do, would hide what lies before them:
    while made-up rows pass they are something."""
    named = dict(module.named_parameters())
    at_zero = [named[n] for n in trained if named[n].ndim > 1 and not bool(named[n].any())]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in at_zero:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * _SOMETHING)
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter in at_zero:
                parameter.zero_()


def _buffers(module: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.detach().clone() for name, buffer in module.named_buffers()}


@contextmanager
def as_it_was(module: nn.Module) -> Iterator[None]:
    """Passes leave no trace in the module, nor in torch's random numbers."""
    training = {part: part.training for part in module.modules()}
    buffers = _buffers(module)
    devices = {parameter.device for parameter in module.parameters() if parameter.is_cuda}
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            for part, was in training.items():
                part.training = was
            with torch.no_grad():
                for name, buffer in module.named_buffers():
                    buffer.copy_(buffers[name])


def _is_coarse(module: nn.Module) -> bool:
    """Whether some weights are kept in bfloat16, as those of a frozen base are."""
    return any(parameter.dtype == torch.bfloat16 for parameter in module.parameters())


def _computing(module: nn.Module, device: torch.device) -> AbstractContextManager[Any]:
    return torch.autocast(device.type, torch.bfloat16, enabled=_is_coarse(module))


def _changed(module: nn.Module, rows: Tensor) -> Iterator[Problem]:
    """Buffers that are not what they were once rows have passed."""
    before = _buffers(module)
    with torch.no_grad():
        module(rows)
    known = {
        name: isinstance(one, _BatchNorm | _InstanceNorm) for name, one in module.named_modules()
    }
    for name, buffer in module.named_buffers():
        layer, _, word = name.rpartition(".")
        if not known[layer] and not torch.equal(buffer, before[name]):
            yield Problem(
                layer or WHOLE,
                "buffer",
                f"its buffer {word} changes when rows pass, so it would keep something of them",
                "leave that out, or freeze it while in train()",
            )


def _mixing(module: nn.Module, rows: Tensor, trained: list[nn.Parameter]) -> list[Problem]:
    """Whether the first row's outputs and gradients depend on the others: on what they are, and,
    where nothing is drawn at random, on whether they are there."""
    others = rows.square().neg() if rows.is_floating_point() else rows.roll(1, 0)
    changed = torch.cat([rows[:1], others[1:]])
    error = _COARSE if _is_coarse(module) else _FINE
    mine, calls = _first_row(module, rows, trained)
    theirs, calls_beside = _first_row(module, changed, trained)
    if not _close(mine, theirs, error):
        names = {id(part): name or WHOLE for name, part in module.named_modules()}
        places = zip(calls, calls_beside, strict=False)
        place = next((one for one, other in places if one.begins_mixing(other, error)), None)
        return [_mixed(WHOLE if place is None else names[place.part])]
    again, _ = _first_row(module, rows, trained, seed=1)
    alone, _ = _first_row(module, rows[:1], trained)
    if _close(mine, again, error) and not _close(mine, alone, error):
        return [_mixed(WHOLE)]
    return []


def _mixed(layer: str) -> Problem:
    return Problem(
        layer,
        "mixes rows",
        "what it gives for a row depends on the other rows of the batch",
        "let it compute every row by itself",
    )


@dataclass(frozen=True)
class _Call:
    """The first row in what a part was given and gave, of what has rows along its first axis."""

    part: int
    given: list[Tensor]
    gave: list[Tensor]

    def begins_mixing(self, beside: "_Call", error: float) -> bool:
        same = _close(self.given, beside.given, error)
        return same and not _close(self.gave, beside.gave, error)


def _first_row(
    module: nn.Module, rows: Tensor, trained: list[nn.Parameter], *, seed: int = 0
) -> tuple[list[Tensor], list[_Call]]:
    """Its outputs and its gradient, and the calls that made them, the innermost first."""
    calls: list[_Call] = []

    def note(part: nn.Module, given: Any, gave: Any) -> None:
        calls.append(_Call(id(part), _firsts(given, len(rows)), _firsts(gave, len(rows))))

    hooks = [part.register_forward_hook(note) for part in module.modules()]
    try:
        torch.manual_seed(seed)
        output = outputs_of(module(rows))[0].float().flatten()
    finally:
        for hook in hooks:
            hook.remove()
    weights = torch.linspace(
        1, 2, len(output), device=output.device
    )  # so that nothing cancels, as in a softmax
    found = [output.detach()]
    if output.requires_grad:
        gradients = torch.autograd.grad(output @ weights, trained, allow_unused=True)
        # In one piece: one that is all rounding, as before a norm, is small beside the others.
        found.append(torch.cat([each.flatten() for each in gradients if each is not None]))
    return found, calls


def _firsts(found: Any, rows: int) -> list[Tensor]:
    if isinstance(found, Tensor):
        whole = found.ndim > 0 and len(found) == rows and not found.is_complex()
        return [found[0].detach().float()] if whole else []
    if isinstance(found, dict):
        found = tuple(found.values())
    return (
        [one for each in found for one in _firsts(each, rows)] if isinstance(found, tuple) else []
    )


def _close(some: Sequence[Tensor], others: Sequence[Tensor], error: float) -> bool:
    """Up to rounding, in shares of the largest number of each."""
    return len(some) == len(others) and all(
        float((one - other).abs().max()) <= error * float(one.abs().max())
        for one, other in zip(some, others, strict=True)
        if one.numel()
    )
