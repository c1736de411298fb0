"""Made-up rows, on which a module is tried before private ones pass."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from dptune.engines.language.reader import Reader
from dptune.engines.modules.problem import Names
from dptune.engines.modules.word_numbers import TABLES, largest_size
from dptune.errors import InvalidInput

_SOMETHING, _NEAR_ZERO = 0.02, 1e-3


def made_up(
    module: nn.Module, shape: Sequence[int], rows: int, *, ids: bool, seed: int = 0
) -> Tensor:
    """Rows of such a shape, always the same for one `seed`; of `ids`, numbers that every embedding
    has a line for. A module with tables of its own takes any numbers, of which most are small here,
    because the table may be."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(module, Reader):
        return module.made_up(shape, rows, generator)
    words = [m.num_embeddings for m in module.modules() if isinstance(m, TABLES)]
    try:
        if ids and words:
            return torch.randint(min(words), (rows, *shape), generator=generator)
        numbers = torch.rand((rows, *shape), generator=generator)
        return ((largest_size(module) + 1) ** numbers).long() - 1 if ids else numbers
    except (RuntimeError, MemoryError):
        raise InvalidInput(
            f"{rows} made-up rows of shape {tuple(shape)} do not fit into memory: one has "
            f"{math.prod(shape):,} numbers. Give the shape of one row."
        ) from None


@contextmanager
def nothing_near_zero(module: nn.Module, trained: Names) -> Iterator[None]:
    """Weights that begin at or near zero, as those of new heads, adapters and gated branches do,
    would hide what lies before them: while made-up rows pass they are larger."""
    named = dict(module.named_parameters())
    hiding = [named[name] for name in trained if _is_near_zero(named[name])]
    kept = [parameter.detach().clone() for parameter in hiding]
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in hiding:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * _SOMETHING)
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, before in zip(hiding, kept, strict=True):
                parameter.copy_(before)


def _is_near_zero(parameter: nn.Parameter) -> bool:
    return parameter.numel() > 0 and bool(parameter.detach().abs().max() < _NEAR_ZERO)
