"""How the gradients of a layer's rows are measured and added up: one row must move the sum AS ADDED
by at most its clip norm.

A row's gradient is a sum over its positions of outer products of two stored vectors: what went into
the layer, and the gradient of what came out. What is measured is also what is added, in one of
three ways:

- `Outer`: stays in its two factors. The norm comes from two small Gram matrices a row, rounded up;
  the sum from matrix products over blocks of few rows ("ghost").
- `Kept`: the gradient itself, where it is no larger than its factors ("per row").
- `Lookup`: the same as `Outer` for an embedding, whose inputs are numbers of words.

The margin by which clipping aims lower, and why it is enough, is in docs/modules-bound.md.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

HALF_ULP = 2.0**-24  # of float32, in which products are accumulated
# A row's terms may cancel, and what cancels is rounded all the same. With Q the root of the sum of
# its terms' squared norms, over all layers, a row is scaled so that Q is at most so many clip norms.
CANCELLING = 4.0
# Roundings of a block, in units of HALF_ULP and of its rows' Q: see `_roundings`.
_MOST_ROUNDINGS = 20_000.0
_COLUMNS = 512  # of a Gram matrix's inner sums that one product adds up
_LARGEST_ROW = 4096  # numbers whose squares are added in float32
_LARGEST_PART = 2**26  # numbers that are made at once beside what is stored
_SMALLEST_NORMAL = 2.0**-126
_IN_FLOAT64 = 2.0**-12
# Rounding a row's scaled factors to bfloat16 seldom lengthens it by more; if it does, it is halved.
ROUNDED_FACTORS = 2.0**-8


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


class Kept:
    """The gradients themselves: (rows, *shape of the parameter), at least float32."""

    def __init__(self, gradients: Tensor) -> None:
        self._gradients = gradients

    def changed(self, change: Callable[[Tensor], Tensor]) -> "Kept":
        """Each row's gradient by a function of its own numbers."""
        return Kept(change(self._gradients))

    def lengths(self, scale: Tensor | None = None) -> Lengths:
        table = self._gradients.reshape(len(self._gradients), -1, self._gradients.shape[-1])
        dtype = torch.float64 if table.shape[-1] > _LARGEST_ROW else None
        norms = torch.linalg.vector_norm(table, dim=-1, dtype=dtype).double()
        squared = norms.square().sum(1) * (1 + 4 * _LARGEST_ROW * HALF_ULP)
        if scale is not None:
            squared *= scale.square()
        return Lengths(squared, squared)

    def silence(self, kept: Tensor) -> None:
        self._gradients = _where(kept, self._gradients)

    def add_to(self, total: Tensor, scale: Tensor) -> None:
        table = self._gradients.flatten(1)
        columns = scale.to(table.dtype)[:, None, None, None]
        _add_blocks(total.view(1, 1, -1), table[:, None, None], columns)


@dataclass(frozen=True)
class Factors:
    """One call of a layer: inputs and gradients of outputs, a row's pieces side by side in both,
    and what turns a few rows of them into (pieces, groups, positions, columns or outputs)."""

    inputs: Tensor
    outputs: Tensor
    as_terms: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


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

    def as_rows(self) -> Kept:
        made = []
        for part in self._parts(self.terms * sum(self.shape[1:])):
            inputs, outputs = self._terms(part)
            made.append(_products(outputs.flatten(0, 1).mT, inputs.flatten(0, 1)))
        return Kept(torch.cat(made).view(self.rows, *self.shape))

    def lengths(self, scale: Tensor | None = None) -> Lengths:
        groups, outputs, columns = self.shape
        found = []
        for part in self._parts(self.terms * (2 * self.terms + outputs + columns)):
            left, right = self._terms(part, scale)
            ours, theirs = _gram(left.flatten(0, 1)), _gram(right.flatten(0, 1))
            found.append(_gram_lengths(ours, theirs, columns, outputs))
        squared, uncancelled = (torch.cat(kind).view(-1, groups).sum(1) for kind in zip(*found))
        return Lengths(squared, uncancelled)

    def silence(self, kept: Tensor) -> None:
        self._calls = [
            Factors(
                _where(kept, call.inputs, self.rows),
                _where(kept, call.outputs, self.rows),
                call.as_terms,
            )
            for call in self._calls
        ]

    def add_to(self, total: Tensor, scale: Tensor) -> None:
        view = total.view(self.shape)
        for part in self._parts(self.terms * sum(self.shape[1:])):
            inputs, outputs = self._terms(part, scale)
            _add_blocks(view, inputs, outputs)

    def _parts(self, numbers: int) -> Iterator[slice]:
        """Rows of which so many numbers each may be made at once."""
        step = max(1, _LARGEST_PART // (numbers * self.shape[0]))
        for start in range(0, self.rows, step):
            yield slice(start, min(self.rows, start + step))

    def _terms(self, part: slice, scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(rows, groups, terms, columns) and (rows, groups, terms, outputs) of some rows, the
        outputs scaled where there is a `scale`."""
        count, lefts, rights = part.stop - part.start, [], []
        for call in self._calls:
            pieces = len(call.outputs) // self.rows
            some = slice(part.start * pieces, part.stop * pieces)
            for terms, sides in zip(
                call.as_terms(call.inputs[some], call.outputs[some]), (lefts, rights)
            ):
                grouped = terms.unflatten(0, (count, pieces)).transpose(1, 2)
                sides.append(grouped.flatten(2, 3))
        left = lefts[0] if len(lefts) == 1 else torch.cat(lefts, 2)
        right = rights[0] if len(rights) == 1 else torch.cat(rights, 2)
        if scale is not None:
            wide = torch.promote_types(right.dtype, torch.float32)
            right = (right * scale[part].to(wide)[:, None, None, None]).to(right.dtype)
        return left, right


class Lookup:
    """A row's gradient is the sum over its words of outputs, each in the line of its word."""

    def __init__(self, words: Tensor, outputs: Tensor, rows: int) -> None:
        self._words, self._outputs = words.reshape(rows, -1), outputs
        self._outputs = outputs.reshape(rows, -1, outputs.shape[-1])

    def lengths(self, scale: Tensor | None = None) -> Lengths:
        rows, terms, columns = self._outputs.shape
        step = max(1, _LARGEST_PART // (terms * (2 * terms + columns)))
        found = []
        for start in range(0, rows, step):
            part = slice(start, start + step)
            theirs = _gram(self._outputs[part])
            same = self._words[part, :, None] == self._words[part, None, :]
            found.append(_gram_lengths(same.to(theirs.dtype), theirs, 0, columns))
        squared, uncancelled = (torch.cat(kind) for kind in zip(*found))
        if scale is not None:
            squared, uncancelled = squared * scale.square(), uncancelled * scale.square()
        return Lengths(squared, uncancelled)

    def silence(self, kept: Tensor) -> None:
        self._outputs = _where(kept, self._outputs)

    def add_to(self, total: Tensor, scale: Tensor) -> None:
        # In float64: on a GPU the order in which lines are added is not the same every time.
        table = total.view(-1, self._outputs.shape[-1])
        step = max(1, _LARGEST_PART // self._outputs[0].numel())
        for start in range(0, len(self._outputs), step):
            part = slice(start, start + step)
            scaled = self._outputs[part].double() * scale[part, None, None]
            table.index_add_(0, self._words[part].flatten(), scaled.flatten(0, 1))


Piece = Kept | Outer | Lookup


def _where(kept: Tensor, values: Tensor, rows: int | None = None) -> Tensor:
    """Zero where a row stays out, whatever was there."""
    by_row = values.reshape(rows or len(values), -1)
    return torch.where(kept[:, None], by_row, 0).view(values.shape)


def _gram(terms: Tensor) -> Tensor:
    """Products of a row's vectors with each other: (rows, terms, columns) to (rows, terms, terms).
    Few numbers are added at once: see `_gram_lengths`."""
    sums = None
    for part in terms.split(_COLUMNS, -1):
        found = _products(part, part.mT)
        sums = found if sums is None else sums.add_(found)
    assert sums is not None
    return sums


def _gram_lengths(left: Tensor, right: Tensor, columns: int, outputs: int) -> tuple[Tensor, Tensor]:
    """Squared norm, rounded up, and squared Q, from Gram matrices of two factors whose inner sums
    had so many numbers; `columns` is 0 where the left one is exact."""
    terms = left.shape[-1]
    lefts, rights = (gram.diagonal(dim1=1, dim2=2).double() for gram in (left, right))
    if columns:
        longest = (lefts * rights).sqrt().sum(1).square()  # as if nothing cancelled
    else:
        sizes = rights.sqrt()[..., None]
        longest = (sizes * (left.double() @ sizes)).sum((1, 2))
    squared = (left * right).sum(-1).sum(-1, dtype=torch.float64)
    # An entry of a Gram matrix is off by a rounding (two, where tensor cores cut off) for every
    # number in one product and every product; a product of two entries by one more, a sum of them
    # by one for each. All of it is relative to what there would be if nothing cancelled.
    inner = sum(min(size, _COLUMNS) + size // _COLUMNS + 1 for size in (columns, outputs))
    rounding = 2.1 * (inner + terms + 8) * HALF_ULP
    # What vanishes is less than the smallest normal number, times the largest factor beside it.
    of_left, of_right = lefts.sum(1), rights.sum(1)
    vanished = (columns + outputs + terms) * (1 + of_left) * (1 + of_right)
    floor = 4 * terms * _SMALLEST_NORMAL * vanished
    uncancelled = (lefts * rights).sum(1) * (1 + rounding) + floor
    return squared.clamp(min=0) + rounding * longest + floor, uncancelled


def _roundings(rows: int, terms: int) -> float:
    """By how many half units, in Q of one row, a product of so many rows of so many terms is off.

    A number that passes d roundings is off by d half units of itself. The squares of all d add up
    to most where numbers are added one after another: less than n^3 / 3 + 2 n^2 for n numbers.
    """
    numbers = rows * terms
    return math.sqrt((numbers**3 / 3 + 2 * numbers**2) * rows)


@cache
def block_shape(terms: int) -> tuple[int, int]:
    """How many rows of so many terms one product may add up, and how many terms of them."""
    rows = 1
    while _roundings(rows + 1, terms) <= _MOST_ROUNDINGS:
        rows += 1
    if _roundings(rows, terms) <= _MOST_ROUNDINGS:
        return rows, terms
    # A row in parts: their errors, too, are bounded by its Q (Cauchy-Schwarz).
    part = 1
    while _roundings(1, part + 1) * math.sqrt(-(-terms // (part + 1))) <= _MOST_ROUNDINGS:
        part += 1
    return 1, part


def _add_blocks(total: Tensor, inputs: Tensor, outputs: Tensor) -> None:
    """Add sum over rows and terms of outputs (x) inputs to `total` (groups, outputs, columns), in
    float64; each block is one product."""
    rows_at_once, terms_at_once = block_shape(inputs.shape[2])
    for left, right in _split_terms(inputs, outputs, terms_at_once):
        whole = len(left) // rows_at_once * rows_at_once
        at_once = max(1, _LARGEST_PART // total.numel()) * rows_at_once
        for start in range(0, whole, at_once):
            part = slice(start, min(whole, start + at_once))
            _add_products(total, left[part], right[part], rows_at_once)
        if whole < len(left):
            _add_products(total, left[whole:], right[whole:], len(left) - whole)


def _split_terms(left: Tensor, right: Tensor, at_once: int) -> Iterator[tuple[Tensor, Tensor]]:
    if at_once == left.shape[2]:
        yield left, right
    else:
        yield from zip(left.split(at_once, 2), right.split(at_once, 2), strict=True)


def _add_products(total: Tensor, inputs: Tensor, outputs: Tensor, block: int) -> None:
    groups = len(total)
    left, right = (
        side.unflatten(0, (-1, block)).transpose(1, 2).flatten(2, 3).flatten(0, 1)
        for side in (inputs, outputs)
    )
    made = _products(right.mT, left).unflatten(0, (-1, groups))
    total += made[0] if len(made) == 1 else made.sum(0, dtype=torch.float64)


def _products(left: Tensor, right: Tensor) -> Tensor:
    """Block by block, accumulated and answered in at least float32."""
    if left.dtype != torch.bfloat16:
        return torch.bmm(left, right)
    if left.is_cuda:
        return torch.bmm(left, right, out_dtype=torch.float32)
    return torch.bmm(left.float(), right.float())  # exact products of the same numbers
