"""How clipped rows are added up: one row must move the sum AS ADDED by at most its clip norm.

A rounded sum of n rows is off by up to n times the rounding of n clip norms, and without one row
all others are rounded differently. So no rounded sum may grow long: a block of rows is multiplied
at once, a few blocks are added in float32, and everything else in float64, pairwise. What is left
is a small public constant, `margin`, by which clipping aims lower. The proof is in
docs/design/engine.md.
"""

import platform
from collections.abc import Iterator

import torch
from torch import Tensor

from dptune.engines import fused_sums
from dptune.errors import InvalidInput

MOST_COPIES = 128  # of a row, which must lie in one block
LARGEST_COUNT = 2**29  # rows, for which the float64 sums' part of the margin is computed
_BLOCK, _CPU_BLOCK = 128, 256
_ROWS_IN_FLOAT32 = 4096  # of blocks that are added pairwise
_FEW = 1024  # numbers, which are added sooner in float64
_LARGEST_BLOCKS = 2**26  # numbers in all of them together
_IN_ANY_ORDER = 2**16  # rows that are added in float64, as torch likes
# Half units in the last place by which a sum can be off, in clip norms. On a GPU 128^2 * 2 inside a
# block of 128 rows and 128 * (1 + 2 + ... + 16) in the sums that it enters; elsewhere less.
_ROUNDINGS = 50_176
_HALF_ULP = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}
_IN_FLOAT64 = 2.0**-16
# Whether small products with a transposed operand take up to ten times as long as with a copy of it
# (measured; larger ones do not).
_SLOW_TURNED = platform.machine() == "aarch64"


def margin(accumulator: torch.dtype) -> float:
    """By how many clip norms, beside its own, a row can move a sum: both sums are rounded."""
    # A hundredth more for rounding of what is rounded.
    return 2 * 1.01 * _ROUNDINGS * _HALF_ULP[accumulator] + _IN_FLOAT64


class Total:
    """The sum of many float64 tensors, which are given away to it: each is added to a sum of as
    many others, so that none passes more than two roundings for every doubling of their number."""

    def __init__(self, *shape: int, device: torch.device) -> None:
        self._shape, self._device = shape, device
        self._sums: list[tuple[int, Tensor]] = []

    def add(self, part: Tensor) -> None:
        size, added = 1, part
        while self._sums and self._sums[-1][0] == size:
            added = self._sums.pop()[1].add_(added)
            size *= 2
        self._sums.append((size, added))

    def value(self) -> Tensor:
        """The sum; nothing can be added after it was asked for."""
        if not self._sums:
            return torch.zeros(self._shape, dtype=torch.float64, device=self._device)
        total = self._sums.pop()[1]
        while self._sums:
            total = self._sums.pop()[1].add_(total)
        return total


def products(left: Tensor, right: Tensor, copies: int) -> Iterator[Tensor]:
    """Parts of left @ right, (outputs, rows * copies) and (rows * copies, columns), that add up to
    it and keep the margin when a `Total` adds them; in float64."""
    if fused_sums.available(left, copies):
        yield from fused_sums.products(left, right)
        return
    block = _BLOCK // copies * copies  # whole rows
    if copies == 1 and not left.is_cuda:
        block = _CPU_BLOCK
    numbers = len(left) * right.shape[1]
    together = _IN_ANY_ORDER if numbers <= _FEW else _ROWS_IN_FLOAT32
    blocks = max(1, min(together // block, _LARGEST_BLOCKS // numbers))
    whole = len(right) // block * block
    for start in range(0, whole, blocks * block):
        part = slice(start, min(whole, start + blocks * block))
        lefts = left[:, part].reshape(len(left), -1, block).transpose(0, 1)
        yield _pairwise(block_products(lefts, right[part].reshape(-1, block, right.shape[1])))
    if whole < len(right):
        yield block_products(left[None, :, whole:], right[None, whole:])[0].double()


def totals(left: Tensor) -> Iterator[Tensor]:
    """The same for the column of ones that a bias sees: parts of the sums of each line."""
    for part in torch.split(left, _IN_ANY_ORDER, 1):
        yield part.sum(1, keepdim=True, dtype=torch.float64)


def must_be_exact() -> None:
    """Refuse products that round their operands, for which no bound was proven."""
    if not products_are_exact():
        raise InvalidInput(
            "torch was set to round float32 products (TF32 or bfloat16), which would break the "
            "bound on a row's contribution; restore the default, for example with "
            "torch.set_float32_matmul_precision('highest')."
        )


def products_are_exact() -> bool:
    """Whether float32 products use their operands as they are, on every device."""
    try:
        default = torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # settings that contradict each other
        return False
    cpu = getattr(getattr(torch.backends.mkldnn, "matmul", None), "fp32_precision", "none")
    return default and cpu in ("none", "ieee")


def _pairwise(blocks: Tensor) -> Tensor:
    """Their sum."""
    if blocks[0].numel() <= _FEW:
        return blocks.sum(0, dtype=torch.float64)
    count = len(blocks)
    while count > 1:
        half = count // 2
        blocks[:half] += blocks[count - half : count]
        count -= half
    return blocks[0].to(torch.float64, copy=True)


def block_products(left: Tensor, right: Tensor) -> Tensor:
    """Block by block, accumulated and answered in at least float32."""
    if left.dtype != torch.bfloat16:
        copied = _SLOW_TURNED and not left.is_cuda and 8 < right.shape[-1] <= 64
        return torch.bmm(left, right.contiguous() if copied else right)
    if left.is_cuda:
        return torch.bmm(left, right, out_dtype=torch.float32)
    return torch.bmm(left.float(), right.float())  # exact products of the same numbers
