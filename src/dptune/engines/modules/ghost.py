"""How the gradients of a layer's rows are measured and added up: one row must move the sum AS ADDED
by at most its clip norm.

A row's gradient is a sum over its positions of outer products of two stored vectors: what went into
the layer, and the gradient of what came out. What is measured is also what is added, in one of
these ways:

- `Outer`: stays in its two factors. The norm comes from two small Gram matrices a row, rounded up;
  the sum from matrix products over blocks of few rows ("ghost").
- `Kept`: the gradient itself, where it is no larger than its factors ("per row"); `Remade` where
  it is large and has no factors.
- `Lookup`: the same as `Outer` for an embedding, whose inputs are numbers of words.

The margin by which clipping aims lower, and why it is enough, is in docs/modules-bound.md.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from dptune.engines import sums
from dptune.errors import InvalidInput

HALF_ULP = 2.0**-24  # of float32, in which products are accumulated
# A row's terms may cancel, and what cancels is rounded all the same. With Q the root of the sum of
# its terms' squared norms, over all layers, Q is brought down to so many clip norms.
CANCELLING = 4.0
# By how much rounding one row to bfloat16 factors is expected to lengthen it, at most; a row that
# gets longer is halved.
ROUNDED_FACTORS = 2.0**-8
MOST_ROWS = 2**18  # of one total, and 64 times as many additions to any number of it
_MOST_ROUNDINGS = 20_000.0  # of a block, in Q of one row: see `_roundings`
_ROWS_OF_KEPT = 64  # that one product adds up
_COLUMNS = 512  # of a Gram matrix's inner sums that one product adds up
_LARGEST_LINE = 4096  # numbers whose squares are added in float32
_LARGEST_PART = 2**28  # numbers that are made at once beside what is stored
_ALIGNED = (
    8  # numbers; matrix products of bfloat16 lines of another length are several times slower
)
_SMALLEST_NORMAL = 2.0**-126
# In one total, in the lines of an embedding for one batch, and in the sum of a step's totals.
_IN_FLOAT64 = 2.0**-10 + 2.0**-12 + 2.0**-18


def margin(compute: str) -> float:
    """By how many clip norms, beside its own, a row can move the sum: both sums are rounded."""
    # Tensor cores may cut off instead of rounding to nearest. A hundredth more for rounding of what
    # is rounded.
    cut = 2 if compute == "bfloat16" else 1
    return 2 * 1.01 * cut * CANCELLING * _MOST_ROUNDINGS * HALF_ULP + _IN_FLOAT64


@dataclass(frozen=True)
class Lengths:
    """Of every row's part in one parameter, in float64: (rows,) each."""

    squared: Tensor  # norm, squared, rounded up
    uncancelled: Tensor  # Q, squared: of its terms, as if none cancelled

    def __add__(self, other: "Lengths") -> "Lengths":
        return Lengths(self.squared + other.squared, self.uncancelled + other.uncancelled)

    def multiplied(self, scale: Tensor | None) -> "Lengths":
        if scale is None:
            return self
        return Lengths(self.squared * scale.square(), self.uncancelled * scale.square())


class Kept:
    """The gradients themselves: (rows, *shape of the parameter), at least float32."""

    def __init__(self, gradients: Tensor) -> None:
        self._gradients = gradients
        self._scale: Tensor | None = None
        self._measured: Lengths | None = None

    def lengths(self) -> Lengths:
        if self._measured is None:
            self._measured = self._measure()
        return self._measured.multiplied(self._scale)

    def multiply(self, scale: Tensor) -> None:
        self._scale = scale if self._scale is None else self._scale * scale

    def silence(self, kept: Tensor) -> None:
        self._gradients, self._measured = _where(kept, self._gradients), None

    def add_to(self, total: Tensor, block: int) -> None:
        table = self._gradients.flatten(1)[:, None, None]
        ones = torch.ones(len(table), dtype=table.dtype, device=table.device)
        outputs = ones if self._scale is None else self._scale.to(table.dtype)
        _add_blocks(total.view(1, 1, -1), table, outputs[:, None, None, None], _ROWS_OF_KEPT)

    def _measure(self) -> Lengths:
        table = self._gradients.reshape(len(self._gradients), -1, self._gradients.shape[-1])
        dtype = torch.float64 if table.shape[-1] > _LARGEST_LINE else None
        norms = torch.linalg.vector_norm(table, dim=-1, dtype=dtype).double()
        in_float32 = min(table.shape[-1], _LARGEST_LINE) + 8
        squared = norms.square().sum(1) * (1 + 2 * in_float32 * HALF_ULP)
        return Lengths(squared, squared)


class Remade:
    """Gradients that are too large to be kept: made for some rows at a time, measured, thrown away
    and made again for the sum."""

    def __init__(self, make: Callable[[slice], Tensor], rows: int, numbers: int) -> None:
        """`make` gives what `Kept` takes; `numbers` is how many a row has."""
        self._make, self._rows = make, rows
        self._step = max(1, _LARGEST_PART // numbers)
        self._scale: Tensor | None = None
        self._kept: Tensor | None = None
        self._measured: Lengths | None = None

    def lengths(self) -> Lengths:
        if self._measured is None:
            found = [self._made(part)._measure() for part in self._parts()]
            self._measured = Lengths(
                torch.cat([lengths.squared for lengths in found]),
                torch.cat([lengths.uncancelled for lengths in found]),
            )
        return self._measured.multiplied(self._scale)

    def multiply(self, scale: Tensor) -> None:
        self._scale = scale if self._scale is None else self._scale * scale

    def silence(self, kept: Tensor) -> None:
        self._kept, self._measured = kept, None

    def add_to(self, total: Tensor, block: int) -> None:
        for part in self._parts():
            made = self._made(part)
            if self._scale is not None:
                made.multiply(self._scale[part])
            if self._measured is not None:
                # What a GPU makes a second time may be rounded differently.
                longer = made._measure().squared / self._measured.squared[part]
                made.multiply(longer.nan_to_num(nan=1.0).clamp(min=1.0).rsqrt())
            made.add_to(total, block)

    def _parts(self) -> Iterator[slice]:
        for start in range(0, self._rows, self._step):
            yield slice(start, min(self._rows, start + self._step))

    def _made(self, part: slice) -> Kept:
        made = Kept(self._make(part))
        if self._kept is not None:
            made.silence(self._kept[part])
        return made


def can_be_kept(numbers: int) -> bool:
    """Whether gradients with so many numbers, of all rows, are not too large."""
    return numbers <= _LARGEST_PART


@dataclass(frozen=True)
class Factors:
    """One call of a layer: inputs and gradients of outputs, a row's pieces side by side in both,
    and what turns a few rows of them into (pieces, groups, positions, columns or outputs). Where
    nothing does, they are (pieces, ..., columns or outputs), which is one group of positions."""

    inputs: Tensor
    outputs: Tensor
    as_terms: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None

    def terms(self, some: slice) -> tuple[Tensor, Tensor]:
        if self.as_terms is not None:
            return self.as_terms(self.inputs[some], self.outputs[some])
        left, right = (
            side[some].reshape(some.stop - some.start, 1, -1, side.shape[-1])
            for side in (self.inputs, self.outputs)
        )
        return left, right


class Outer:
    """A row's gradient is the sum over its terms of outputs (x) inputs; `shape` is (groups,
    outputs, columns) of the parameter."""

    def __init__(self, calls: list[Factors], rows: int, shape: tuple[int, int, int]) -> None:
        self._calls, self.rows, self.shape = calls, rows, shape
        groups, outputs, _ = shape
        self.terms = sum(call.outputs.numel() for call in calls) // (rows * groups * outputs)

    @property
    def fits_in_rows(self) -> bool:
        """Whether the gradients are no larger than their factors. Then making them also takes fewer
        operations than Gram matrices do."""
        _, outputs, columns = self.shape
        return outputs * columns <= self.terms * (outputs + columns)

    @property
    def is_bfloat16(self) -> bool:
        return self._calls[0].outputs.dtype == torch.bfloat16

    @property
    def most_rows(self) -> int:
        """That one product may add up."""
        return block_shape(self.terms)[0]

    def as_rows(self, rows: slice | None = None) -> Tensor:
        """The gradients themselves, of all rows or of some."""
        made = []
        for part in self._parts(self._copied, rows or slice(0, self.rows)):
            inputs, outputs = self._terms(part)
            made.append(products(outputs.flatten(0, 1).mT, inputs.flatten(0, 1)))
        return (made[0] if len(made) == 1 else torch.cat(made)).view(-1, *self.shape)

    def lengths(self) -> Lengths:
        groups, outputs, columns = self.shape
        found = []
        made = self._copied + 2 * groups * self.terms**2
        for part in self._parts(made, slice(0, self.rows)):
            left, right = self._terms(part)
            ours, theirs = _gram(left.flatten(0, 1)), _gram(right.flatten(0, 1))
            found.append(_gram_lengths(ours, theirs, columns, outputs))
        squared, uncancelled = (
            torch.cat(kind).view(-1, groups).sum(1) for kind in zip(*found, strict=True)
        )
        return Lengths(squared, uncancelled)

    def multiply(self, scale: Tensor) -> None:
        """From then on the scaled outputs, rounded as they were, are what is measured and added."""
        self._calls = [
            Factors(call.inputs, self._multiplied(call, scale), call.as_terms)
            for call in self._calls
        ]

    def silence(self, kept: Tensor) -> None:
        self._calls = [
            Factors(
                _where(kept, call.inputs, self.rows),
                _where(kept, call.outputs, self.rows),
                call.as_terms,
            )
            for call in self._calls
        ]

    def add_to(self, total: Tensor, block: int) -> None:
        view = total.view(self.shape)
        for part in self._parts(self._copied, slice(0, self.rows), block):
            _add_blocks(view, *self._terms(part), block)

    @property
    def _copied(self) -> int:
        """How many numbers `_terms` makes of one row."""
        if len(self._calls) == 1 and self._calls[0].as_terms is None:
            return 0
        groups, outputs, columns = self.shape
        return groups * self.terms * (outputs + columns)

    def _parts(self, numbers: int, rows: slice, block: int = 1) -> Iterator[slice]:
        """Whole blocks of rows of which so many numbers each may be made at once."""
        step = max(1, _LARGEST_PART // (max(1, numbers) * block)) * block
        for start in range(rows.start, rows.stop, step):
            yield slice(start, min(rows.stop, start + step))

    def _multiplied(self, call: Factors, scale: Tensor) -> Tensor:
        outputs = call.outputs
        size = outputs.shape[-1]
        lines = outputs.reshape(self.rows, -1, size)
        padding = -size % _ALIGNED if self.is_bfloat16 and call.as_terms is None else 0
        made = lines.new_empty(*lines.shape[:2], size + padding)
        made[..., size:] = 0  # a few columns that add nothing
        wide = torch.promote_types(lines.dtype, torch.float32)
        torch.mul(lines, scale.to(wide)[:, None, None], out=made[..., :size])
        return made.view(*outputs.shape[:-1], size + padding)

    def _terms(self, part: slice) -> tuple[Tensor, Tensor]:
        """(rows, groups, terms, columns) and (rows, groups, terms, outputs) of some rows."""
        sides: tuple[list[Tensor], list[Tensor]] = [], []
        for call in self._calls:
            pieces = len(call.outputs) // self.rows
            both = call.terms(slice(part.start * pieces, part.stop * pieces))
            for terms, side in zip(both, sides, strict=True):
                grouped = terms.view(-1, pieces, *terms.shape[1:]).transpose(1, 2)
                side.append(grouped.flatten(2, 3))
        left, right = (side[0] if len(side) == 1 else torch.cat(side, 2) for side in sides)
        return left, right


class Lookup:
    """A row's gradient is the sum over its words of outputs, each in the line of its word."""

    def __init__(self, words: Tensor, outputs: Tensor) -> None:
        """(rows, terms) and (rows, terms, columns)."""
        self._words, self._outputs = words, outputs
        self._scale: Tensor | None = None
        self._measured: Lengths | None = None

    def lengths(self) -> Lengths:
        if self._measured is None:
            self._measured = self._measure()
        return self._measured.multiplied(self._scale)

    def multiply(self, scale: Tensor) -> None:
        self._scale = scale if self._scale is None else self._scale * scale

    def silence(self, kept: Tensor) -> None:
        self._outputs, self._measured = _where(kept, self._outputs), None

    def add_to(self, total: Tensor, block: int) -> None:
        table = total.view(-1, self._outputs.shape[-1])
        rows, terms = self._words.shape
        step = max(1, int(2**19 / terms**0.75))  # rows, whose rounding is within the margin
        for start in range(0, rows, step):
            self._add_lines(table, slice(start, min(rows, start + step)))

    def _add_lines(self, table: Tensor, part: slice) -> None:
        # In float64: on a GPU the order in which lines are added is not the same every time. And on
        # its own first, so that `table` gets one addition, not one a word.
        words = self._words[part].flatten()
        at_once = max(1, _LARGEST_PART // max(len(table), len(words)))
        for start in range(0, table.shape[1], at_once):
            columns = slice(start, start + at_once)
            scaled = self._outputs[part, :, columns].double()
            if self._scale is not None:
                scaled *= self._scale[part, None, None]
            lines = torch.zeros_like(table[:, columns])
            table[:, columns] += lines.index_add_(0, words, scaled.flatten(0, 1))

    def _measure(self) -> Lengths:
        rows, terms, columns = self._outputs.shape
        step = max(1, _LARGEST_PART // (2 * terms**2))
        found = []
        for start in range(0, rows, step):
            part = slice(start, start + step)
            theirs = _gram(self._outputs[part])
            same = self._words[part, :, None] == self._words[part, None, :]
            found.append(_gram_lengths(same.to(theirs.dtype), theirs, 0, columns))
        return Lengths(*(torch.cat(kind) for kind in zip(*found, strict=True)))


Piece = Kept | Remade | Outer | Lookup


def _where(kept: Tensor, values: Tensor, rows: int | None = None) -> Tensor:
    """Zero where a row stays out, whatever was there."""
    by_row = values.reshape(rows or len(values), -1)
    return torch.where(kept[:, None], by_row, 0).view(values.shape)


def _gram(terms: Tensor) -> Tensor:
    """Products of a row's vectors with each other: (rows, terms, columns) to (rows, terms, terms).
    Few numbers are added at once: see `_gram_lengths`."""
    first, *others = torch.split(terms, _COLUMNS, -1)
    sums = products(first, first.mT)
    for part in others:
        sums += products(part, part.mT)
    return sums


def _gram_lengths(left: Tensor, right: Tensor, columns: int, outputs: int) -> tuple[Tensor, Tensor]:
    """Squared norm, rounded up, and squared Q, from Gram matrices of two factors whose inner sums
    had so many numbers; `columns` is 0 where the left one is exact. Overwrites `left`."""
    terms, wide = left.shape[-1], torch.float64
    lefts, rights = (gram.diagonal(dim1=1, dim2=2) for gram in (left, right))
    squares = lefts * rights
    if columns:
        longest = squares.sqrt().sum(1, dtype=wide)  # as if nothing cancelled
        longest *= longest
    else:  # what stands in different lines does not meet
        sizes = rights.sqrt()
        longest = (torch.bmm(left, sizes[..., None])[..., 0] * sizes).sum(1, dtype=wide)
    uncancelled = squares.sum(1, dtype=wide)
    of_left, of_right = lefts.sum(1, dtype=wide) + 1, rights.sum(1, dtype=wide) + 1
    squared = left.mul_(right).sum(-1).sum(-1, dtype=wide)
    # An entry of a Gram matrix is off by a rounding (two, where tensor cores cut off) for every
    # number in one product and every product; a product of two entries by one more, a sum of them
    # by one for each. All of it is relative to what there would be if nothing cancelled.
    inner = sum(min(size, _COLUMNS) + size // _COLUMNS + 1 for size in (columns, outputs))
    rounding = 2.1 * (inner + terms + 8) * HALF_ULP
    # What vanishes is less than the smallest normal number, times the largest factor beside it.
    vanished = 4 * terms * (columns + outputs + terms) * _SMALLEST_NORMAL
    floor = vanished * of_left * of_right
    raised = squared.clamp_(min=0).add_(longest, alpha=rounding).add_(floor)
    return raised, uncancelled.mul_(1 + rounding).add_(floor)


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


def _add_blocks(total: Tensor, inputs: Tensor, outputs: Tensor, block: int) -> None:
    """Add the sum over rows and terms of outputs (x) inputs to `total` (groups, outputs, columns),
    in float64; products are over so many rows."""
    terms = block_shape(inputs.shape[2])[1]
    whole = len(inputs) // block * block
    at_once = max(1, _LARGEST_PART // total.numel()) * block
    sides = torch.split(inputs, terms, 2), torch.split(outputs, terms, 2)
    for left, right in zip(*sides, strict=True):
        for start in range(0, whole, at_once):
            part = slice(start, min(whole, start + at_once))
            _add_products(total, left[part], right[part], block)
        if whole < len(left):
            _add_products(total, left[whole:], right[whole:], len(left) - whole)


def _add_products(total: Tensor, inputs: Tensor, outputs: Tensor, block: int) -> None:
    left, right = (
        side.reshape(-1, block, *side.shape[1:]).transpose(1, 2).flatten(2, 3).flatten(0, 1)
        for side in (inputs, outputs)
    )
    made = products(right.mT, left)
    made = made.view(-1, len(total), *made.shape[1:])[:, :, : total.shape[1]]  # without padding
    total += made[0] if len(made) == 1 else made.sum(0, dtype=torch.float64)


def products(left: Tensor, right: Tensor) -> Tensor:
    """One by one, accumulated and answered in at least float32."""
    if left.dtype == torch.float16:
        raise InvalidInput(
            "gradients of rows are added up from float32 or bfloat16 numbers; a layer of this "
            "module works in float16. Load it in bfloat16."
        )
    return sums.block_products(left, right)
