"""The pictures to learn from: a mixture of random processes, made once and kept as bytes."""

from collections.abc import Callable
from types import MappingProxyType

import torch
from torch import Generator, Tensor

from experiments.synthetic.leaves import dead_leaves
from experiments.synthetic.networks import random_networks
from experiments.synthetic.spectra import normal, spectra, uniform, wavelets

SIZE = 64  # pixels: crops of a quarter of the picture are still sharp at 32
CHUNK = 500  # pictures at a time: some 12 GB while they are drawn
Process = Callable[[int, int, Generator], Tensor]

# Of every ten pictures. The generators lead because they were the best by far in Baradad et al.
MIXTURE: MappingProxyType[Process, int] = MappingProxyType(
    {random_networks: 6, dead_leaves: 2, spectra: 1, wavelets: 1}
)


def pictures(count: int, random: Generator, size: int = SIZE) -> Tensor:
    """Bytes (count, 3, size, size) in a random order, on the device of `random`."""
    made = torch.empty((count, 3, size, size), dtype=torch.uint8, device=random.device)
    places = torch.randperm(count, generator=random, device=random.device)
    parts = sum(MIXTURE.values())
    start = begun = 0
    for process, share in MIXTURE.items():
        begun += share
        end = round(count * begun / parts)
        for first in range(start, end, CHUNK):
            here = places[first : min(first + CHUNK, end)]
            made[here] = _as_bytes(process(len(here), size, random), random)
        start = end
    return made


def _as_bytes(values: Tensor, random: Generator) -> Tensor:
    """Channels that hang together more or less, as those of pictures do, each with a random mean
    and contrast."""
    own = uniform((len(values), 1, 1, 1), random).mul(2).clamp(max=1)
    values = _standardised(values)
    values = _standardised(own * values + (1 - own) * values.mean(1, keepdim=True))
    shape = (*values.shape[:2], 1, 1)
    mean = 0.5 + 0.15 * normal(shape, random)
    contrast = (0.22 + 0.06 * normal(shape, random)).clamp(min=0.05)
    return ((values * contrast + mean).clamp(0, 1) * 255).round().to(torch.uint8)


def _standardised(values: Tensor) -> Tensor:
    centred = values - values.mean((2, 3), keepdim=True)
    return centred / centred.std((2, 3), keepdim=True).clamp(min=1e-6)
