"""What layers took in and gave out in one pass, and the gradients of what they gave out.

No layer's own gradient is asked of autograd: only what flows into the outputs of the layers that
are recorded. Outputs themselves are not kept, only their places in autograd's graph.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils import _pytree as pytree


@dataclass
class Call:
    """One call of a layer. Tensors among its arguments and outputs, in the order of pytree."""

    arguments: list[Any]  # (args, kwargs), flat; tensors are detached
    structure: pytree.TreeSpec
    edges: list[GradientEdge | None]
    gradients: list[Tensor | None] = field(default_factory=list)  # of outputs, once they are known

    @property
    def input(self) -> Tensor:
        """The one that layers of a known kind have."""
        return next(value for value in self.arguments if isinstance(value, Tensor))

    @property
    def gradient(self) -> Tensor:
        """Of their one output."""
        gradient = self.gradients[0]
        assert gradient is not None
        return gradient


@dataclass(frozen=True)
class _Narrowed:
    """A copy of a tensor in another precision, which does not keep the tensor alive."""

    original: ref[Tensor]
    version: int
    copy: Tensor

    def is_of(self, tensor: Tensor, dtype: torch.dtype) -> bool:
        unchanged = self.original() is tensor and self.version == tensor._version
        return unchanged and self.copy.dtype == dtype


class Recording:
    """All calls of some layers while it is on."""

    def __init__(self) -> None:
        self.calls: dict[str, list[Call]] = {}
        self.on = True
        self._last: _Narrowed | None = None

    def hook(self, name: str, narrow: bool) -> Callable[..., Any]:
        def record(
            layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
        ) -> Any:
            if not self.on:
                return None
            output = _independent(output)
            arguments, structure = pytree.tree_flatten((args, kwargs))
            outputs = [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)]
            stored = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in arguments]
            if narrow:
                stored = [self._narrowed(leaf, outputs[0].dtype) for leaf in arguments]
            call = Call(
                stored,
                structure,
                [get_gradient_edge(leaf) if leaf.requires_grad else None for leaf in outputs],
            )
            self.calls.setdefault(name, []).append(call)
            return output

        return record

    def _narrowed(self, input: Tensor, dtype: torch.dtype) -> Tensor:
        """Queries, keys and values are made of the same input: one copy serves them all."""
        if self._last is None or not self._last.is_of(input, dtype):
            self._last = _Narrowed(ref(input), input._version, input.detach().to(dtype))
        return self._last.copy

    def differentiate(self, objective: Tensor, leaves: Sequence[Tensor]) -> list[Tensor | None]:
        """Fill in the gradients of all outputs; returns those of `leaves`."""
        calls = [call for several in self.calls.values() for call in several]
        places: list[Any] = [edge for call in calls for edge in call.edges if edge is not None]
        found = torch.autograd.grad(objective, [*places, *leaves], allow_unused=True)
        gradients = iter(found)
        for call in calls:
            call.gradients = [None if edge is None else next(gradients) for edge in call.edges]
            call.edges = []
        return list(gradients)


@contextmanager
def recorded(
    layers: Mapping[str, nn.Module],
    widened: Mapping[str, Callable[[Tensor], Tensor]],
    narrowed: Collection[str] = (),
) -> Iterator[Recording]:
    """Record the calls of `layers`, by name. Inputs of those in `widened` are changed before:
    until the end, as blocks that are computed again in the backward pass must be the same. Inputs
    of those in `narrowed` are stored in the precision of their outputs."""
    recording = Recording()
    with ExitStack() as stack:
        for name, layer in layers.items():
            if name in widened:
                handle = layer.register_forward_pre_hook(_widen(widened[name]))
                stack.callback(handle.remove)
            record = recording.hook(name, name in narrowed)
            handle = layer.register_forward_hook(record, with_kwargs=True)
            stack.callback(handle.remove)
        yield recording


def _independent(output: Any) -> Any:
    """Several outputs of one call, none of which is made of another, as the hidden state of an
    LSTM's cell is of the cell's: else what flows into the first would count in the second, too."""
    leaves, structure = pytree.tree_flatten(output)
    if sum(isinstance(leaf, Tensor) for leaf in leaves) < 2:
        return output
    apart = [leaf.view_as(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    return pytree.tree_unflatten(apart, structure)


def _widen(change: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    def hook(layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return change(args[0]), *args[1:]

    return hook


@contextmanager
def replaced(module: nn.Module, parameters: Mapping[str, Tensor]) -> Iterator[None]:
    """`module` with other tensors in the place of some parameters."""
    with ExitStack() as stack:
        for name, tensor in parameters.items():
            owner, _, own = name.rpartition(".")
            table: dict[str, Any] = module.get_submodule(owner)._parameters
            stack.callback(table.__setitem__, own, table[own])
            table[own] = tensor
        yield
