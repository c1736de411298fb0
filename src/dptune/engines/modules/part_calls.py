"""Calls of the parts of a module: watched, changed, or answered with what was recorded before."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from dptune.engines.modules.problem import WHOLE


@dataclass(frozen=True)
class PartCall:
    """One call of a part: shapes of all that it was given and gave, and of one row the numbers."""

    part: str
    shapes: tuple[torch.Size, ...]
    given: list[Tensor]
    gave: list[Tensor]


@contextmanager
def watched(module: nn.Module, row: int) -> Iterator[list[PartCall]]:
    """All calls of parts, the innermost first."""
    calls: list[PartCall] = []
    names = {part: name or WHOLE for name, part in module.named_modules()}

    def note(part: nn.Module, *sides: Any) -> None:
        tensors = [[*_tensors(side)] for side in sides]
        shapes = tuple(tensor.shape for side in tensors for tensor in side)
        given, gave = ([one[row].float() for one in side if row < len(one)] for side in tensors)
        calls.append(PartCall(names[part], shapes, given, gave))

    with _hooked(module.modules(), note):
        yield calls


@contextmanager
def first_numbers_changed(
    module: nn.Module, rows: int, change: Callable[[Tensor], Tensor]
) -> Iterator[None]:
    """What layers make of token numbers is changed before anything else sees it."""

    def changed(part: nn.Module, given: Any, gave: Any) -> Tensor | None:
        taken = [*_tensors(given)]
        reads_words = any(len(one) == rows for one in taken) and not any(
            one.is_floating_point() for one in taken
        )
        if not reads_words or not _has_rows(gave, rows) or not gave.is_floating_point():
            return None
        return change(gave)

    with _hooked((part for part in module.modules() if not [*part.children()]), changed):
        yield


class Tape:
    """What every part gave for the first row of a batch, to be handed on when that row is alone:
    so the rounding of one part never reaches the next."""

    def __init__(self, module: nn.Module, rows: int) -> None:
        self._module, self._rows = module, rows
        self._names = {part: name or WHOLE for name, part in module.named_modules()}
        self._recorded: list[tuple[nn.Module, list[Tensor | None]]] = []
        self._place = 0
        self.is_in_step = True  # whether parts are called in the same order both times
        self.apart: dict[str, float] = {}  # by how much of itself a part gives something else

    @contextmanager
    def recording(self) -> Iterator[None]:
        with _hooked(self._module.modules(), self._record):
            yield

    @contextmanager
    def forcing(self) -> Iterator[None]:
        with _hooked(self._module.modules(), self._force):
            yield
        self.is_in_step &= self._place == len(self._recorded)

    def _record(self, part: nn.Module, given: Any, gave: Any) -> None:
        leaves = pytree.tree_leaves(gave)
        firsts = [one[:1].clone() if _has_rows(one, self._rows) else None for one in leaves]
        self._recorded.append((part, firsts))

    def _force(self, part: nn.Module, given: Any, gave: Any) -> Any:
        leaves, structure = pytree.tree_flatten(gave)
        known, firsts = (
            self._recorded[self._place] if self._place < len(self._recorded) else (None, [])
        )
        self._place += 1
        if known is not part or len(leaves) != len(firsts):
            self.is_in_step = False
        if not self.is_in_step:
            return None
        for place, (leaf, first) in enumerate(zip(leaves, firsts, strict=True)):
            if first is not None and leaf.shape == first.shape:
                name = self._names[part]
                self.apart[name] = max(self.apart.get(name, 0.0), apart(first, leaf))
                leaves[place] = first
        return pytree.tree_unflatten(leaves, structure)


def apart(one: Tensor, other: Tensor) -> float:
    """0 where two tensors are the same bit for bit; else their largest difference, as a share of
    the largest number."""
    same = (one == other) | (one.isnan() & other.isnan())
    if bool(same.all()):
        return 0.0
    difference, size = float((one - other).abs().max()), float(one.abs().max())
    return difference / size if size > 0 and difference < torch.inf else torch.inf


@contextmanager
def _hooked(
    parts: Iterator[nn.Module], hook: Callable[[nn.Module, Any, Any], Any]
) -> Iterator[None]:
    with ExitStack() as stack:
        for part in [*parts]:
            stack.callback(part.register_forward_hook(hook).remove)
        yield


def _tensors(found: Any) -> Iterator[Tensor]:
    for leaf in pytree.tree_leaves(found):
        if isinstance(leaf, Tensor) and leaf.ndim and not leaf.is_complex():
            yield leaf


def _has_rows(leaf: Any, rows: int) -> bool:
    return isinstance(leaf, Tensor) and leaf.ndim > 0 and len(leaf) == rows
