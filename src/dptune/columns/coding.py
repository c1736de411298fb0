"""From a table to codes, one float32 a column and row, NaN for a gap; each row by itself.

    number    the number
    boolean   0 or 1
    date      whole hours since 1970-01-01
    category  the place of its name among the values, the number of values for any other name; the
              number of its bucket; or, where names are paid for, its place in a vocabulary that is
              as private as the rows, -1 for a name that is not in it

All problems of a file are named at once, by column; no message shows a value.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptune.columns import values
from dptune.columns.kinds import Boolean, Category, Column, Date, Number
from dptune.columns.problems import Problems, Unfit
from dptune.columns.spec import Columns

Vocabularies = Mapping[str, Sequence[str]]
NOT_THERE = -1  # among the names of a category
_OF_NEW = "put a value there, or leave those rows out."
_EXACT = 1 << 24  # whole numbers that float32 tells apart


@dataclass(frozen=True, eq=False)
class Coded:
    """Rows of codes, and the names of categories that are not declared, which are PRIVATE."""

    rows: NDArray[np.float32] = field(repr=False)
    vocabularies: dict[str, tuple[str, ...]] = field(repr=False)


class Coder:
    """Codes the batches of one table after another, as if they were one.

    Args:
        columns: as declared, the label's not among them.
        where: the table's name in messages.
        vocabularies: of the categories whose names are paid for; where given, they do not grow.
        new: rows to predict, for a model of which nothing can be declared any more: columns that
            it does not know are left out.

    """

    def __init__(
        self,
        columns: Columns,
        *,
        where: str,
        vocabularies: Vocabularies | None = None,
        new: bool = False,
    ) -> None:
        self._columns, self._where, self._new = columns, where, new
        self._problems = Problems()
        self._grows = vocabularies is None
        self._vocabularies = {
            name: pa.array((vocabularies or {}).get(name, ()), pa.large_string())
            for name, column in columns.declared.items()
            if isinstance(column, Category) and column.paid
        }

    def add(self, table: Any) -> NDArray[np.float32]:
        """The codes of a batch. What is wrong with it `finish` says: they are not to be used
        before."""
        kept = self._columns.kept
        rows = np.full((table.num_rows, len(kept)), np.nan, dtype=np.float32)
        self._must_have_the_columns(table.column_names)
        for number, name in enumerate(kept):
            if table.column_names.count(name) == 1:
                with np.errstate(over="ignore"):  # beyond float32 is infinite
                    rows[:, number] = self._coded(table.column(name), name)
        return rows

    def finish(self) -> dict[str, tuple[str, ...]]:
        """The vocabularies, or all problems of all batches."""
        known = "the columns that the model was trained on" if self._new else "the declared columns"
        self._problems.raise_any(f"{self._where} does not fit {known}")
        return {name: tuple(names.to_pylist()) for name, names in self._vocabularies.items()}

    def _must_have_the_columns(self, found: Sequence[str]) -> None:
        missing = "is declared, and is not there; add it, or declare it no more."
        if self._new:
            missing = "is not there; the model needs it."
        for name in self._columns.kept:
            if name not in found:
                self._problems.add(name, missing)
        for name, times in Counter(found).items():
            if name not in self._columns.declared:
                if self._new:
                    continue
                self._problems.add(name, 'is not declared; declare it, if only as "drop".')
            elif times > 1:
                self._problems.add(name, "is there twice; leave one of them out.")

    def _coded(self, column: Any, name: str) -> NDArray[np.float64]:
        declared = self._columns.declared[name]
        try:
            codes = self._read(values.flat(column), declared, name)
        except Unfit as error:
            self._refuse(name, error)
        except pa.ArrowException:  # a type that Arrow itself knows little of; it may show values
            self._refuse(name, values.refused(column.type, f"a {declared.kind}"))
        else:
            for unfit in _unusable(codes, declared):
                self._refuse(name, unfit)
            return codes
        return np.full(len(column), np.nan)

    def _refuse(self, name: str, error: Unfit) -> None:
        said = f"{error.found}, and the model was trained without: {_OF_NEW}"
        self._problems.add(name, said if self._new else str(error))

    def _read(self, column: Any, declared: Column, name: str) -> NDArray[np.float64]:
        if isinstance(declared, Number):
            return values.numbers(column)
        if isinstance(declared, Boolean):
            return values.booleans(column)
        if isinstance(declared, Date):
            return values.hours(column)
        assert isinstance(declared, Category)
        return self._category(column, declared, name)

    def _category(self, column: Any, declared: Category, name: str) -> NDArray[np.float64]:
        texts, which = values.category_texts(column)
        gaps = values.is_gap(texts)
        if isinstance(declared.values, tuple):
            codes = _places(texts, pa.array(declared.values, pa.large_string()))
            gaps &= codes == NOT_THERE  # a value that is declared is no gap
            codes[codes == NOT_THERE] = len(declared.values)
        elif declared.buckets is not None:
            hashed = [bucket(text or "", declared.buckets) for text in texts.to_pylist()]
            codes = np.array(hashed, dtype=np.float64)
        else:
            codes = self._places_in_vocabulary(texts, gaps, name)
        codes[gaps] = np.nan
        return values.chosen(codes, which)

    def _places_in_vocabulary(
        self, texts: Any, gaps: NDArray[np.bool_], name: str
    ) -> NDArray[np.float64]:
        vocabulary = self._vocabularies[name]
        codes = _places(texts, vocabulary)
        if not self._grows:
            return codes
        new = pc.unique(texts.filter(pa.array((codes == NOT_THERE) & ~gaps)))
        if len(vocabulary) + len(new) > _EXACT:
            raise Unfit(
                "has too many different names to buy", "declare it with buckets or its values"
            )
        self._vocabularies[name] = pa.concat_arrays([vocabulary, new])
        return _places(texts, self._vocabularies[name])


def code(
    table: Any,
    columns: Columns,
    *,
    where: str,
    vocabularies: Vocabularies | None = None,
    new: bool = False,
) -> Coded:
    """The whole table at once."""
    coder = Coder(columns, where=where, vocabularies=vocabularies, new=new)
    rows = coder.add(table)
    return Coded(rows, coder.finish())


def _places(texts: Any, among: Any) -> NDArray[np.float64]:
    found = pc.fill_null(pc.index_in(texts, value_set=among), NOT_THERE)
    places: NDArray[np.float64] = found.to_numpy(zero_copy_only=False).astype(np.float64)
    return places


def bucket(text: str, buckets: int) -> int:
    """The same for everybody: a hash without a secret."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % buckets


def _unusable(codes: NDArray[np.float64], declared: Column) -> Iterator[Unfit]:
    """What forbids numbers that could be read."""
    if isinstance(declared, Number) and declared.range is None:
        with np.errstate(over="ignore"):
            infinite = np.isinf(codes.astype(np.float32))
        if bool(infinite.any()):
            yield Unfit(
                "holds numbers that are infinite or too large",
                'give it a range, or range = "paid", to which they are clipped',
            )
    if isinstance(declared, Number | Boolean | Date):
        silent = declared.fill is None and not declared.indicator
        if silent and bool(np.isnan(codes).any()):
            yield Unfit(
                "has gaps",
                "say with fill what stands for one, or with indicator = true that a column says "
                "where they are",
            )
