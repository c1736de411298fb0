"""Softmax residuals and clipping in one pass over the logits, for GPUs.

The plain path (`clipping.residuals_` and `clipping.clip_`) reads and writes the logits about ten
times. This kernel reads them once and writes the clipped residuals once, in the precision of the
product. Same formulas, same margin, same rule for rows that stay out; the plain path is its
reference.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dptune.data.rows import Chunk
from dptune.engines import clipping

try:
    import triton
    import triton.language as tl
except ImportError:  # a build of torch without GPU
    triton = None

_LARGEST_OUTPUTS = 2048
_TILE = 4096  # numbers


def available(logits: Tensor, chunk: Chunk, loss: str) -> bool:
    """Whether the kernel can do this chunk."""
    usual = loss == "softmax" and chunk.features.shape[1] == 1
    small = logits.shape[1] <= _LARGEST_OUTPUTS and logits.dtype == torch.float32
    return triton is not None and logits.is_cuda and usual and small


def clipped_residuals(logits: Tensor, chunk: Chunk, clip_norms: Tensor) -> Tensor:
    """What `clip_(residuals_(logits))` returns; logits (trials, outputs, rows)."""
    trials, outputs, rows = logits.shape
    product = chunk.features.dtype
    result = torch.empty_like(logits, dtype=product)
    padded = 1 << (outputs - 1).bit_length()
    # Memory is written 32 bytes at a time, and one warp does 1024 to 2048 numbers well.
    width = max(32 // result.element_size(), min(_TILE // padded, max(64, 1024 // padded)))
    _kernel[(-(-rows // width), trials)](
        logits, chunk.targets, chunk.norms, clip_norms, result, rows,
        1 - clipping.margin(logits, product), outputs=outputs, padded=padded, width=width,
        smallest_size=clipping.SMALLEST_SIZE, smallest=clipping.SMALLEST,
        num_warps=max(1, padded * width // 2048),
    )  # fmt: skip
    return result


# Triton reads these annotations itself; they are never evaluated.
def _clip(  # type: ignore[no-untyped-def]
    logits, targets, norms, clip_norms, result, rows, aim,
    outputs: tl.constexpr, padded: tl.constexpr, width: tl.constexpr,
    smallest_size: tl.constexpr, smallest: tl.constexpr,
):  # fmt: skip
    """One tile: all outputs of `width` rows of one trial."""
    trial = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * width + tl.arange(0, width)
    output = tl.arange(0, padded)
    inside = (output < outputs)[:, None] & (row < rows)[None, :]
    place = trial * outputs * rows + output.to(tl.int64)[:, None] * rows + row[None, :]
    values = tl.load(logits + place, mask=inside, other=-float("inf"))
    values = tl.exp(values - tl.max(values, 0)[None, :])
    values = values / tl.sum(values, 0)[None, :]
    target = tl.load(targets + row, mask=row < rows, other=0)
    values = values - (output[:, None] == target[None, :]).to(tl.float32)
    values = tl.where(inside, values, 0.0)
    size = tl.sqrt(tl.sum(values * values, 0))
    bound = tl.load(clip_norms + trial) * aim
    norm = tl.load(norms + row, mask=row < rows, other=0.0)
    scale = bound / tl.maximum(size * norm, bound)
    # Not a number, or too small to be rounded safely: the row stays out.
    stays = (size >= smallest_size) & (scale >= smallest) & (scale * size >= smallest)
    clipped = tl.where(stays[None, :], values * scale[None, :], 0.0)
    tl.store(result + place, clipped.to(result.dtype.element_ty), mask=inside)


_kernel: Any = triton.jit(_clip) if triton is not None else None
