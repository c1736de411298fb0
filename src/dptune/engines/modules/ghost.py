"""How the gradients of a layer's rows are measured and added up: one row must move the sum AS ADDED
by at most its clip norm.

A row's gradient is a sum over its positions of outer products of two stored vectors: what went into
the layer, and the gradient of what came out. What is measured is also what is added, in one of
these ways:

- `Outer`: stays in its two factors. The norm comes from two small Gram matrices a row, rounded up;
  the sum from matrix products over blocks of few rows ("ghost").
- `Kept`: the gradient itself, where it is no larger than its factors ("per row"); `Remade` where
  it is large and has no factors.
- `Lookup`: the same as `Outer` for an embedding, whose inputs are token numbers.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor
from torch.nn import functional

from dptune.engines.modules import blocks

_ROWS_OF_KEPT = 64  # that one product adds up
_COLUMNS = 1536  # of a Gram matrix's inner sums that one product adds up
_LARGEST_LINE = 4096  # numbers whose squares are added in float32
# Numbers; matrix products of bfloat16 lines of another length are several times slower.
_ALIGNED = 8
_MANY_TERMS = 64  # of which a few more are cheap
_SMALL = 2**14  # numbers a row; such gradients are put side by side
_LINE = 256  # of the table in which they are
_SMALLEST_NORMAL = 2.0**-126


@dataclass(frozen=True)
class Lengths:
    """Of every row's gradient, in float64: (rows,) each."""

    squared: Tensor  # norm, squared, rounded up
    uncancelled: Tensor  # Q, squared: of its terms, as if none cancelled
    rounded: Tensor  # by how much rounding scaled factors can lengthen it, squared


@dataclass(frozen=True)
class Grams:
    """What is left of two Gram matrices a row, of inputs and of outputs."""

    sums: Tensor  # (3, rows, groups, terms): of lines of their product, and both diagonals
    columns: int  # numbers of an inner sum; 0 where the left one is exact
    outputs: int
    cut_off: bool  # whether tensor cores may have cut off sums instead of rounding them
    rounds: bool  # whether a factor will be rounded to bfloat16 once it is scaled

    @property
    def rounding(self) -> float:
        """By how much the squared norm can be off, in squares of what there would be if nothing
        cancelled."""
        # An entry of a Gram matrix is off by a rounding (two, where tensor cores cut off) for every
        # number in one product and every product; a product of two entries by one more, a sum of
        # them by one for each.
        sizes = (self.columns, self.outputs)
        inner = sum(min(size, _COLUMNS) + size // _COLUMNS + 1 for size in sizes)
        cut = 2 if self.cut_off else 1
        return 1.05 * cut * (inner + self.sums.shape[-1] + 8) * blocks.HALF_ULP

    @property
    def vanished(self) -> float:
        """What vanishes is less than the smallest normal number, times the factor beside it."""
        terms = self.sums.shape[-1]
        return 4 * terms * (self.columns + self.outputs + terms) * _SMALLEST_NORMAL


def lengths(pieces: "Iterable[Piece]") -> Lengths:
    """Of whole rows, whose pieces these are."""
    norms: list[Tensor] = []
    grams: dict[int, list[Grams]] = {}
    for piece in pieces:
        measured = piece.measure()
        if isinstance(measured, Grams):
            grams.setdefault(measured.sums.shape[-1], []).append(measured)
        else:
            norms.append(measured)
    found = [_raised(several) for several in grams.values()]
    if norms:
        squared = torch.stack(norms).sum(0)
        found.append(torch.stack([squared, squared, torch.zeros_like(squared)]))
    return Lengths(*torch.stack(found).sum(0))


def _raised(grams: list[Grams]) -> Tensor:
    """What `Lengths` has, (3, rows), of layers with as many terms: all at once."""
    wide = torch.cat([gram.sums for gram in grams], 2).double()
    constants = [
        [gram.rounding, gram.vanished, blocks.ROUNDED_FACTOR**2 if gram.rounds else 0.0]
        for gram in grams
        for _ in range(gram.sums.shape[2])
    ]
    rounding, vanished, rounded = wide.new_tensor(constants).unbind(1)
    squared, left, right = wide.sum(-1)
    squares = wide[1] * wide[2]
    uncancelled = squares.sum(-1)
    floor = (left + 1) * (right + 1) * vanished
    longest = (squares.sqrt_().sum(-1) + floor.sqrt()).square() * (1 + rounding)  # L, squared
    return torch.stack(
        [
            squared.abs() + longest * rounding + floor,  # -inf is no small number
            uncancelled * (1 + rounding) + floor,
            longest * rounded,
        ]
    ).sum(-1)


class Kept:
    """The gradients themselves: (rows, *shape of the parameter), at least float32."""

    def __init__(self, gradients: Tensor) -> None:
        # A parameter may be a single number (a temperature): a line of one then.
        self.gradients = gradients if gradients.ndim > 1 else gradients[:, None]

    @property
    def is_small(self) -> bool:
        return self.gradients[0].numel() <= _SMALL

    def measure(self) -> Tensor:
        """Squared norms, rounded up."""
        table = self.gradients.reshape(len(self.gradients), -1, self.gradients.shape[-1])
        dtype = torch.float64 if table.shape[-1] > _LARGEST_LINE else None
        norms: Tensor = torch.linalg.vector_norm(table, dim=-1, dtype=dtype).double()
        in_float32 = min(table.shape[-1], _LARGEST_LINE) + 8
        return norms.square().sum(1) * (1 + 2 * in_float32 * blocks.HALF_ULP)

    def silence(self, kept: Tensor) -> None:
        self.gradients = _where(kept, self.gradients)

    def add_to(self, total: Tensor, scale: Tensor, block: int) -> None:
        table = self.gradients.flatten(1)[:, None, None]
        outputs = scale.to(table.dtype)[:, None, None, None]
        blocks.add_blocks(total.view(1, 1, -1), table, outputs, _ROWS_OF_KEPT, together=1)


def side_by_side(several: list[Kept]) -> Kept:
    """One table of them all, with zeros after them: few kernels for many small gradients."""
    tables = [kept.gradients.flatten(1) for kept in several]
    dtype = reduce(torch.promote_types, (table.dtype for table in tables))
    padding = -sum(table.shape[1] for table in tables) % _LINE
    zeros = tables[0].new_zeros(len(tables[0]), padding)
    return Kept(torch.cat([*tables, zeros], 1).to(dtype).view(len(zeros), -1, _LINE))


class Remade:
    """Gradients that are too large to be kept: made for some rows at a time, measured, thrown away
    and made again for the sum."""

    def __init__(self, make: Callable[[slice], Tensor], rows: int, numbers: int) -> None:
        """`make` gives what `Kept` takes; `numbers` is how many a row has."""
        self._make, self._rows = make, rows
        self._step = max(1, blocks.LARGEST_PART // numbers)
        self._kept: Tensor | None = None
        self._measured: Tensor | None = None

    def measure(self) -> Tensor:
        self._measured = torch.cat([self._made(part).measure() for part in self._parts()])
        return self._measured

    def silence(self, kept: Tensor) -> None:
        self._kept = kept

    def add_to(self, total: Tensor, scale: Tensor, block: int) -> None:
        for part in self._parts():
            made, scales = self._made(part), scale[part]
            if self._measured is not None:
                # What a GPU makes a second time may be rounded differently.
                longer = made.measure() / self._measured[part]
                scales = scales * longer.nan_to_num(nan=1.0).clamp(min=1.0).rsqrt()
            made.add_to(total, scales, block)

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
    return numbers <= blocks.LARGEST_PART


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
        return blocks.block_shape(self.terms)[0]

    def as_rows(self, rows: slice | None = None) -> Tensor:
        """The gradients themselves, of all rows or of some."""
        made = []
        for part in self._parts(self._copied, rows or slice(0, self.rows)):
            inputs, outputs = self._terms(part)
            made.append(blocks.products(outputs.flatten(0, 1).mT, inputs.flatten(0, 1)))
        return (made[0] if len(made) == 1 else torch.cat(made)).view(-1, *self.shape)

    def measure(self) -> Grams:
        self._align()
        groups, outputs, columns = self.shape
        found = []
        made = self._copied + 3 * groups * self.terms**2
        for part in self._parts(made, slice(0, self.rows)):
            left, right = (_gram(side.flatten(0, 1)) for side in self._terms(part))
            found.append(_gram_sums(left, right))
        sums = found[0] if len(found) == 1 else torch.cat(found, 1)
        rounds = self.is_bfloat16
        by_row = sums.view(len(sums), self.rows, groups, -1)
        return Grams(by_row, columns, outputs, rounds, rounds)

    def silence(self, kept: Tensor) -> None:
        self._calls = [
            Factors(
                _where(kept, call.inputs, self.rows),
                _where(kept, call.outputs, self.rows),
                call.as_terms,
            )
            for call in self._calls
        ]

    def add_to(self, total: Tensor, scale: Tensor, block: int) -> None:
        self._calls = [self._scaled(call, scale) for call in self._calls]
        view = total.view(self.shape)
        for part in self._parts(self._copied, slice(0, self.rows), block):
            blocks.add_blocks(view, *self._terms(part), block, blocks.most_together(block))

    def _scaled(self, call: Factors, scale: Tensor) -> Factors:
        """The shorter side of the two, rounded as it was; `scale` holds numbers that it could hold,
        see `cut`."""
        inputs, outputs = call.inputs, call.outputs
        if call.as_terms is None and inputs.shape[-1] < outputs.shape[-1]:
            return Factors(self._multiplied(inputs, scale), outputs)
        return Factors(inputs, self._multiplied(outputs, scale), call.as_terms)

    def _multiplied(self, side: Tensor, scale: Tensor) -> Tensor:
        lines = side.reshape(self.rows, -1, side.shape[-1])
        return (lines * scale.to(lines.dtype)[:, None, None]).view(side.shape)

    def _align(self) -> None:
        """Columns, outputs and many terms, with zeros, which add nothing, so that products of
        bfloat16 numbers are fast."""
        call = self._calls[0]
        if not self.is_bfloat16 or len(self._calls) > 1 or call.as_terms is not None:
            return
        after = -self.terms % _ALIGNED if self.terms >= _MANY_TERMS else 0
        sizes = [side.shape[-1] for side in (call.inputs, call.outputs)]
        if after or any(size % _ALIGNED for size in sizes):
            inputs, outputs = (self._padded(side, after) for side in (call.inputs, call.outputs))
            self._calls = [Factors(inputs, outputs)]

    def _padded(self, side: Tensor, after: int) -> Tensor:
        size = side.shape[-1]
        lines = side.reshape(self.rows, -1, size)
        if size % _ALIGNED:
            lines = functional.pad(lines, (0, -size % _ALIGNED))
        if after:  # faster than `pad`
            lines = torch.cat([lines, lines.new_zeros(self.rows, after, lines.shape[-1])], 1)
        return lines

    @property
    def _copied(self) -> int:
        """How many numbers `_terms` makes of one row."""
        if len(self._calls) == 1 and self._calls[0].as_terms is None:
            return 0
        groups, outputs, columns = self.shape
        return groups * self.terms * (outputs + columns)

    def _parts(self, numbers: int, rows: slice, block: int = 1) -> Iterator[slice]:
        """Whole blocks of rows of which so many numbers each may be made at once: a power of two of
        blocks, for `most_together`."""
        step = blocks.power_of_two(blocks.LARGEST_PART // (max(1, numbers) * block)) * block
        for start in range(rows.start, rows.stop, step):
            yield slice(start, min(rows.stop, start + step))

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

    def measure(self) -> Grams:
        rows, terms, columns = self._outputs.shape
        step = max(1, blocks.LARGEST_PART // (3 * terms**2))
        found = []
        for start in range(0, rows, step):
            part = slice(start, start + step)
            theirs = _gram(self._outputs[part])
            same = self._words[part, :, None] == self._words[part, None, :]
            found.append(_gram_sums(same.to(theirs.dtype), theirs))
        sums = torch.cat(found, 1)[:, :, None]
        cut_off = self._outputs.dtype == torch.bfloat16
        return Grams(sums, 0, columns, cut_off, rounds=False)

    def silence(self, kept: Tensor) -> None:
        self._outputs = _where(kept, self._outputs)

    def add_to(self, total: Tensor, scale: Tensor, block: int) -> None:
        table = total.view(-1, self._outputs.shape[-1])
        rows, terms = self._words.shape
        step = max(1, int(2**19 / terms**0.75))  # rows, whose rounding is within the margin
        for start in range(0, rows, step):
            self._add_lines(table, scale, slice(start, min(rows, start + step)))

    def _add_lines(self, table: Tensor, scale: Tensor, part: slice) -> None:
        # In float64: on a GPU the order in which lines are added is not the same every time. And on
        # its own first, so that `table` gets one addition, not one a word.
        words = self._words[part].flatten()
        at_once = max(1, blocks.LARGEST_PART // max(len(table), len(words)))
        for start in range(0, table.shape[1], at_once):
            columns = slice(start, start + at_once)
            scaled = self._outputs[part, :, columns].double() * scale[part, None, None]
            lines = torch.zeros_like(table[:, columns])
            table[:, columns] += lines.index_add_(0, words, scaled.flatten(0, 1))


Piece = Kept | Remade | Outer | Lookup


def are_rounded(pieces: "Iterable[Piece]") -> bool:
    """The precision that a module computes in: layers may have been given bfloat16 weights."""
    return any(isinstance(piece, Outer) and piece.is_bfloat16 for piece in pieces)


def _where(kept: Tensor, values: Tensor, rows: int | None = None) -> Tensor:
    """Zero where a row stays out, whatever was there."""
    by_row = values.reshape(rows or len(values), -1)
    return torch.where(kept[:, None], by_row, 0).view(values.shape)


def _gram(terms: Tensor) -> Tensor:
    """Products of a row's vectors with each other: (rows, terms, columns) to (rows, terms, terms).
    Few numbers are added at once: see `Grams.rounding`."""
    first, *others = torch.split(terms, _COLUMNS, -1)
    sums = blocks.products(first, first.mT)
    for part in others:
        sums += blocks.products(part, part.mT)
    return sums


def _gram_sums(left: Tensor, right: Tensor) -> Tensor:
    """What `Grams` keeps of two of them: (3, rows, terms)."""
    diagonals = (gram.diagonal(dim1=1, dim2=2) for gram in (left, right))
    return torch.stack([(left * right).sum(-1), *diagonals])
