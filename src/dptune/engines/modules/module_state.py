"""Whether the tensors of a module are still what they were.

What a module writes into its parameters or buffers while private rows pass would be released
without noise: so made-up rows must change nothing before anything is paid, and every step of a
paid run is verified before its noise is drawn.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from dptune.engines.digests import as_line
from dptune.engines.modules.flat_weights import FlatWeights
from dptune.errors import OwnCodeProblem

_TRAINED = "the trained weights"
# Integers of the size of a number, to read its bits.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_Mark = tuple[int, int, int]  # which object, how often torch wrote to it, where its numbers are


class ModuleState:
    """What the tensors of a module are at one moment.

    A change shows by another object, by torch's count of writes, or by other bits. Each misses
    something that the others see: writes to `x.data` are not counted, and a write of the same
    number has the same bits.
    """

    def __init__(self, module: nn.Module, flat: FlatWeights | None = None) -> None:
        """`flat`, where there is one, holds the module's trained parameters."""
        self._module, self._flat = module, flat
        every = tensors_of(module)
        self._marks = _marks(every)
        self._sums = {name: checksum(tensor) for name, tensor in self._summed(every).items()}

    def after_step(self) -> None:
        """A noisy step has moved the vector of trained weights, which is expected from now on."""
        assert self._flat is not None
        self._sums[_TRAINED] = checksum(self._flat.vector)

    def changed(self) -> list[str]:
        """The names of all tensors that are not what they were, new and lost ones included."""
        every = tensors_of(self._module)
        marks = _marks(every)
        if marks == self._marks:
            return self._with_other_bits(every)
        names = {**self._marks, **marks}
        return [name for name in names if marks.get(name) != self._marks.get(name)]

    def must_be_unchanged(self) -> None:
        """End a paid run in which rows left something behind, before noise is drawn."""
        if names := self.changed():
            raise OwnCodeProblem(
                "the module wrote into its own parameters or buffers while private rows passed "
                f"({', '.join(names[:6])}), which would release them without noise. The run was "
                "stopped and nothing of it is released; its payment counts as spent. Let forward() "
                "write into nothing that the module keeps."
            )

    def _with_other_bits(self, every: Mapping[str, Tensor]) -> list[str]:
        by_device: dict[torch.device, list[tuple[str, Tensor]]] = {}
        for name, tensor in self._summed(every).items():
            by_device.setdefault(tensor.device, []).append((name, checksum(tensor)))
        found = []
        for several in by_device.values():  # a GPU is waited for once
            before = torch.stack([self._sums[name] for name, _ in several])
            other = torch.stack([now for _, now in several]) != before
            found += [several[place][0] for place in other.nonzero().flatten().tolist()]
        return found

    def _summed(self, every: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        if self._flat is None:
            return every
        trained = {id(parameter) for parameter in self._flat.trained.values()}
        fixed = {name: tensor for name, tensor in every.items() if id(tensor) not in trained}
        return fixed | {_TRAINED: self._flat.vector}


def _marks(tensors: Mapping[str, Tensor]) -> dict[str, _Mark]:
    return {
        name: (id(tensor), tensor._version, tensor.data_ptr()) for name, tensor in tensors.items()
    }


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; one that stands in several places has several names."""
    named: dict[str, Tensor] = dict(module.named_parameters(remove_duplicate=False))
    return named | dict(module.named_buffers(remove_duplicate=False))


def checksum(tensor: Tensor) -> Tensor:
    """The sum of a tensor's bits, read as integers: it changes when any single number does."""
    plain = tensor.detach()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    bits = as_line(plain).view(_BITS[plain.element_size()])
    if bits.numel() * bits.element_size() % 8 == 0 and bits.data_ptr() % 8 == 0:
        bits = bits.view(torch.int64)  # several times faster on a CPU
    return bits.sum(dtype=torch.int64)
