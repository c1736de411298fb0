"""Products of clipped residuals and features in one pass over both, for GPUs.

The sum of every block of rows (see sums.py) would fill more memory than the operands. This kernel
keeps it in registers: a block's products are added up by the tensor cores, a few blocks in float32,
and only those sums are written, to be added in float64. The plain path is its reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # a build of torch without GPU
    triton = None

_BLOCK = 128
_BLOCKS = 16
_ROWS_AT_ONCE = 2**16  # so that few float64 additions make a part
_ROOMY = 200_000  # bytes of shared memory that a large tile needs


def available(left: Tensor, copies: int) -> bool:
    """Whether the kernel can do this product."""
    known = left.dtype in (torch.bfloat16, torch.float32)
    return triton is not None and left.is_cuda and known and copies == 1


def products(left: Tensor, right: Tensor) -> Iterator[Tensor]:
    """Parts of left @ right, (outputs, rows) and (rows, columns), in float64."""
    for start in range(0, len(right), _ROWS_AT_ONCE):
        yield _part(left, right, start, min(len(right), start + _ROWS_AT_ONCE))


def _part(left: Tensor, right: Tensor, start: int, end: int) -> Tensor:
    outputs, columns = len(left), right.shape[1]
    sums = triton.cdiv(end - start, _BLOCKS * _BLOCK)
    partial = torch.empty((sums, outputs, columns), dtype=torch.float32, device=left.device)
    tile = _tile(left.device, left.dtype, outputs)
    height, width = tile["height"], tile["width"]
    _multiply_kernel[(triton.cdiv(columns, width), triton.cdiv(outputs, height), sums)](
        left, right, partial, outputs, columns, left.stride(0), start, end, 1.0,
        block=_BLOCK, blocks=_BLOCKS, **tile,
    )  # fmt: skip
    total = torch.empty((outputs, columns), dtype=torch.float64, device=left.device)
    size = total.numel()
    _add_kernel[(triton.cdiv(size, 1024),)](partial, total, size, sums, width=1024)
    return total


@cache
def _tile(device: torch.device, dtype: torch.dtype, outputs: int) -> dict[str, int]:
    """What one program makes: outputs, columns, and how many rows a load takes."""
    properties = torch.cuda.get_device_properties(device)
    roomy = properties.shared_memory_per_block_optin >= _ROOMY
    if dtype == torch.float32:  # no tensor cores
        if roomy and outputs > 128:
            return dict(height=64, width=128, depth=16, num_warps=8, num_stages=3)
        height = 16 if outputs <= 16 else 32
        return dict(height=height, width=64, depth=32, num_warps=4, num_stages=3 if roomy else 2)
    if outputs <= 16:
        return dict(height=16, width=64, depth=128, num_warps=4, num_stages=3)
    if roomy and outputs > 64:
        return dict(height=128, width=128, depth=128, num_warps=8, num_stages=3)
    return dict(height=64, width=64, depth=128, num_warps=4, num_stages=3)


# Triton reads these annotations itself; they are never evaluated.
def _multiply(  # type: ignore[no-untyped-def]
    left, right, partial, outputs, columns, stride, start, end, one,
    height: tl.constexpr, width: tl.constexpr, depth: tl.constexpr,
    block: tl.constexpr, blocks: tl.constexpr,
):  # fmt: skip
    """One tile of one sum: `blocks` blocks, added one after another."""
    column = tl.program_id(0) * width + tl.arange(0, width)
    output = tl.program_id(1) * height + tl.arange(0, height)
    number = tl.program_id(2).to(tl.int64)
    first = start + number * (blocks * block)
    row = tl.arange(0, depth)
    lefts = left + output.to(tl.int64)[:, None] * stride + (first + row)[None, :]
    rights = right + (first + row)[:, None] * columns + column[None, :]
    total = tl.zeros((height, width), tl.float32)
    for position in range(blocks):
        remaining = end - first - position * block
        block_sum = tl.zeros((height, width), tl.float32)
        for offset in tl.static_range(0, block, depth):
            inside = offset + row < remaining
            some = tl.load(
                lefts + offset, mask=(output < outputs)[:, None] & inside[None, :], other=0.0
            )
            others = tl.load(
                rights + offset * columns, mask=inside[:, None] & (column < columns)[None, :],
                other=0.0,
            )  # fmt: skip
            block_sum = tl.dot(some, others, block_sum, input_precision="ieee")
        # Without the factor the compiler would let the tensor cores add to the total: one long sum.
        total += block_sum * one
        lefts += block
        rights += block * columns
    place = (number * outputs + output[:, None]) * columns + column[None, :]
    inside = (output < outputs)[:, None] & (column < columns)[None, :]
    tl.store(partial + place, total, mask=inside)


def _add(partial, total, size, sums, width: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sums of a few numbers each, in float64."""
    place = tl.program_id(0).to(tl.int64) * width + tl.arange(0, width)
    added = tl.zeros((width,), tl.float64)
    for number in range(sums):
        added += tl.load(partial + number.to(tl.int64) * size + place, mask=place < size, other=0.0)
    tl.store(total + place, added, mask=place < size)


_multiply_kernel: Any = triton.jit(_multiply) if triton is not None else None
_add_kernel: Any = triton.jit(_add) if triton is not None else None
