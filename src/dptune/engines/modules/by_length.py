"""Rows that end in padding, passed in groups of about one length: most of the padding, which is
often most of a text's row, is not computed."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from dptune.data.rows import Chunk

_HALVINGS = 2
_LEAST = 8  # columns: less is no quicker


def widths(longest: int) -> list[int]:
    """To which shorter rows of so many columns are cut, public numbers, ascending."""
    halves = [-(-longest // 2**times) for times in range(_HALVINGS, 0, -1)]
    return [width for width in halves if width >= _LEAST]


def grouped(chunk: Chunk, to: Sequence[int]) -> Iterator[Chunk]:
    """For each of these widths the rows that it is the least for, cut to it. A row's group depends
    on the row alone: it meets the same numbers whatever the others are."""
    if len(to) == 1:
        yield chunk
        return
    ends = torch.tensor(to, device=chunk.features.device)
    group = torch.searchsorted(ends, _lengths(chunk.features))
    counts = group.bincount(minlength=len(ends)).tolist()
    for width, some in zip(to, torch.split(group.argsort(stable=True), counts), strict=True):
        taken = chunk.taken(some)
        yield replace(taken, features=taken.features[..., :width])


def _lengths(features: Tensor) -> Tensor:
    """Of rows (rows, ..., columns): up to the last column that is not padding."""
    told = (features >= 0).flatten(1, -2).any(1)
    places = torch.arange(1, told.shape[1] + 1, device=told.device)
    return (told * places).amax(1)
