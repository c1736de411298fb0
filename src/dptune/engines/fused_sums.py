"""Products of clipped residuals and features in one pass over both, for GPUs.

The sum of every block of rows (see sums.py) would fill more memory than the operands. This kernel
keeps it in registers: tensor cores add up a block's products of bfloat16, and a few such sums are
added in float32. float32 is multiplied and added in float64 instead, by tensor cores that do so as
fast as others multiply float32. What is written is added in float64. The plain path is the
reference.
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

_ROWS_OF_A_SUM = 2048  # 16 blocks of 128, or 32 of 64
_ROWS_AT_ONCE = 2**16  # so that few float64 additions make a part
_MANY = 2**21  # numbers that torch takes long to add in float64
_ROOMY = 200_000  # bytes of shared memory that a large tile needs
_FAST_FLOAT64 = ((8, 0), (9, 0), (10, 0))  # compute capabilities


def available(left: Tensor, copies: int) -> bool:
    """Whether the kernel can do this product."""
    return triton is not None and left.is_cuda and copies == 1 and _serves(left.device, left.dtype)


@cache
def _serves(device: torch.device, dtype: torch.dtype) -> bool:
    if dtype == torch.float32:
        return torch.cuda.get_device_capability(device) in _FAST_FLOAT64
    return dtype == torch.bfloat16


def products(left: Tensor, right: Tensor) -> Iterator[Tensor]:
    """Parts of left @ right, (outputs, rows) and (rows, columns), in float64."""
    for start in range(0, len(right), _ROWS_AT_ONCE):
        yield _part(left, right, start, min(len(right), start + _ROWS_AT_ONCE))


def _part(left: Tensor, right: Tensor, start: int, end: int) -> Tensor:
    outputs, columns = len(left), right.shape[1]
    sums = -(-(end - start) // _ROWS_OF_A_SUM)
    wide = left.dtype == torch.float32
    partial = torch.empty(
        (sums, outputs, columns),
        dtype=torch.float64 if wide else torch.float32,
        device=left.device,
    )
    tile = _tile(left.device, left.dtype, outputs)
    height, width = tile["height"], tile["width"]
    _multiply_kernel[(-(-columns // width), -(-outputs // height), sums)](
        left, right, partial, outputs, columns, left.stride(0), start, end, 1.0,
        rows=_ROWS_OF_A_SUM, wide=wide, **tile,
    )  # fmt: skip
    if partial.numel() < _MANY:
        return partial.sum(0, dtype=torch.float64)  # sooner launched
    total = torch.empty((outputs, columns), dtype=torch.float64, device=left.device)
    size = total.numel()
    _add_kernel[(-(-size // 1024),)](partial, total, size, sums, width=1024)
    return total


@cache
def _tile(device: torch.device, dtype: torch.dtype, outputs: int) -> dict[str, int]:
    """What one program makes, outputs and columns, and how many rows it loads at once: a block, if
    of bfloat16."""
    properties: Any = torch.cuda.get_device_properties(device)
    roomy = properties.shared_memory_per_block_optin >= _ROOMY
    if dtype == torch.float32:
        height, width, depth, warps = 64 if outputs > 256 else 32, 64, 16, 4
    elif outputs <= 16:
        height, width, depth, warps = 16, 64, 128, 4
    elif outputs <= 64:
        height, width, depth, warps = 64, 64, 128, 4
    elif outputs <= 2048 or not roomy:
        height, width, depth, warps = 64, 128, 64, 4
    else:
        height, width, depth, warps = 128, 128, 128, 8
    shape = {"height": height, "width": width, "depth": depth}
    return {**shape, "num_warps": warps, "num_stages": 3}


# Triton reads these annotations itself; they are never evaluated.
def _multiply(  # type: ignore[no-untyped-def]
    left, right, partial, outputs, columns, stride, start, end, one,
    height: tl.constexpr, width: tl.constexpr, depth: tl.constexpr,
    rows: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    """One tile of the sum of `rows` rows."""
    column = tl.program_id(0) * width + tl.arange(0, width)
    output = tl.program_id(1) * height + tl.arange(0, height)
    number = tl.program_id(2).to(tl.int64)
    first = start + number * rows
    row = tl.arange(0, depth)
    lefts = left + output.to(tl.int64)[:, None] * stride + (first + row)[None, :]
    rights = right + (first + row)[:, None] * columns + column[None, :]
    total = tl.zeros((height, width), partial.dtype.element_ty)
    for position in range(0, rows, depth):
        inside = row < end - first - position
        some = tl.load(lefts, mask=(output < outputs)[:, None] & inside[None, :], other=0.0)
        others = tl.load(rights, mask=inside[:, None] & (column < columns)[None, :], other=0.0)
        if wide:
            some, others = some.to(tl.float64), others.to(tl.float64)
            total = tl.dot(some, others, total, out_dtype=tl.float64)
        else:
            # A block. Without the factor the compiler would let the tensor cores add to the total:
            # one long sum.
            total += tl.dot(some, others) * one
        lefts += depth
        rights += depth * columns
    place = (number * outputs + output[:, None]) * columns + column[None, :]
    inside = (output < outputs)[:, None] & (column < columns)[None, :]
    tl.store(partial + place, total, mask=inside)


def _add(partial, total, size, sums, width: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sums of a few numbers each, in float64."""
    place = tl.program_id(0).to(tl.int64) * width + tl.arange(0, width)
    inside = place < size
    source = partial + place
    added = tl.zeros((width,), tl.float64)
    for _ in range(sums):
        added += tl.load(source, mask=inside, other=0.0)
        source += size
    tl.store(total + place, added, mask=inside)


_multiply_kernel: Any = triton.jit(_multiply) if triton is not None else None
_add_kernel: Any = triton.jit(_add) if triton is not None else None
