"""How clipped gradients of rows are added up: in blocks of few rows, which float32 adds with little
rounding, and float64 between them. The margin by which clipping aims lower, and why it is enough,
is in docs/design/modules-bound.md.
"""

import math
from functools import cache

import torch
from torch import Tensor

from dptune.engines import sums
from dptune.errors import InvalidInput

HALF_ULP = 2.0**-24  # of float32, in which products are accumulated
# A row's terms may cancel, and what cancels is rounded all the same. With Q the root of the sum of
# its terms' squared norms, over all layers, Q is brought down to so many clip norms.
CANCELLING = 4.0
# By how much of itself a number is off, at most, when it is rounded to bfloat16 (8 binary digits).
ROUNDED_FACTOR = 2.0**-8
MOST_ROWS = 2**18  # of one total, and 64 times as many additions to any number of it
_MOST_ROUNDINGS = 20_000.0  # of a block, in Q of one row: see `_roundings`
# Half units, in clip norms, by which adding blocks in float32 may be off.
_BETWEEN_BLOCKS = 2**12
LARGEST_PART = 2**28  # numbers that are made at once beside what is stored
# In one total, in the lines of an embedding for one batch, and in the sum of a step's totals.
_IN_FLOAT64 = 2.0**-10 + 2.0**-12 + 2.0**-18


def margin(compute: str) -> float:
    """By how many clip norms, beside its own, a row can move the sum: both sums are rounded."""
    # Tensor cores may cut off instead of rounding to nearest, and their factors were rounded. A
    # hundredth more for rounding of what is rounded.
    cut = 2 * (1 + ROUNDED_FACTOR) if compute == "bfloat16" else 1
    roundings = cut * CANCELLING * _MOST_ROUNDINGS + _BETWEEN_BLOCKS
    return 2 * 1.01 * roundings * HALF_ULP + _IN_FLOAT64


def _roundings(rows: int, terms: int) -> float:
    """By how many half units, in Q of one row, a product of so many rows of so many terms is off.

    A number that passes d roundings is off by d half units of itself. The squares of all d add up
    to most where numbers are added one after another: less than n^3 / 3 + 4 n^2 for n numbers.
    """
    numbers = rows * terms
    return math.sqrt((numbers**3 / 3 + 4 * numbers**2) * rows)


@cache
def block_shape(terms: int) -> tuple[int, int]:
    """How many rows of so many terms one product may add up, and how many terms of each."""
    rows = 1
    while _roundings(rows + 1, terms) <= _MOST_ROUNDINGS:
        rows += 1
    if _roundings(rows, terms) <= _MOST_ROUNDINGS:
        return rows, terms
    # A row in parts: their errors add up to those of the parts' Q, at most the root of their number
    # times the row's own.
    parts = 2
    while _roundings(1, -(-terms // parts)) * math.sqrt(parts) > _MOST_ROUNDINGS:
        parts += 1
    return 1, -(-terms // parts)


def cut(scale: Tensor) -> Tensor:
    """Float32 numbers made smaller, to ones that bfloat16 has: products of two numbers of the same
    kind are several times faster on a GPU."""
    return scale.view(torch.int32).bitwise_and(-(2**16)).view(torch.float32)


def power_of_two(most: int) -> int:
    """The largest that is not above it, and 1 at least."""
    return 1 << max(1, most).bit_length() - 1


def most_together(block: int) -> int:
    """How many blocks of so many rows are added in float32: a power of two, so that sums of
    different layers lie within each other."""
    return power_of_two(math.isqrt(_BETWEEN_BLOCKS // block))


def add_blocks(total: Tensor, inputs: Tensor, outputs: Tensor, block: int, together: int) -> None:
    """Add the sum over rows and terms of outputs (x) inputs to `total` (groups, outputs, columns),
    in float64; products are over so many rows, and so many of them are added in float32."""
    terms = block_shape(inputs.shape[2])[1]
    if terms < inputs.shape[2]:
        together = 1  # parts of a row may be longer than the row
    whole = len(inputs) // block * block
    room = max(1, LARGEST_PART // total.numel())
    together = min(together, power_of_two(room))
    at_once = room // together * together * block
    sides = torch.split(inputs, terms, 2), torch.split(outputs, terms, 2)
    for left, right in zip(*sides, strict=True):
        for start in range(0, whole, at_once):
            part = slice(start, min(whole, start + at_once))
            _add_products(total, left[part], right[part], block, together)
        if whole < len(left):
            _add_products(total, left[whole:], right[whole:], len(left) - whole, 1)


def _add_products(
    total: Tensor, inputs: Tensor, outputs: Tensor, block: int, together: int
) -> None:
    left, right = (
        side.reshape(-1, block, *side.shape[1:]).transpose(1, 2).flatten(2, 3).flatten(0, 1)
        for side in (inputs, outputs)
    )
    made = products(right.mT, left)
    made = made.view(-1, len(total), *made.shape[1:])[:, :, : total.shape[1], : total.shape[2]]
    for several in torch.split(made, together):  # without what was padded
        # Adding float32 numbers to float64 ones makes no copy of them; `sum` would.
        total += several[0] if len(several) == 1 else several.sum(0)


def products(left: Tensor, right: Tensor) -> Tensor:
    """One by one, accumulated and answered in at least float32."""
    if left.dtype == torch.float16:
        raise InvalidInput(
            "gradients of rows are added up from float32 or bfloat16 numbers; a layer of this "
            "module works in float16. Load it in bfloat16."
        )
    return sums.block_products(left, right)
