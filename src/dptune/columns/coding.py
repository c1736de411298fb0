"""Code a table: one float32 per column and row, NaN for a missing value; each row by itself.

    number    the number
    boolean   0 or 1
    date      whole hours since 1970-01-01
    category  with declared values, the index of the value (the number of values for any other);
              with buckets, the number of its bucket; with values = "paid", its index in a
              vocabulary that is as private as the rows (-1 for a value that is not in it)

All problems of a file are reported together, by column. No message shows a value.
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
NOT_THERE = -1  # for a value that its category does not have
_ADVICE_FOR_NEW_ROWS = "put a value there, or leave those rows out."
_EXACT = 1 << 24  # float32 holds whole numbers exactly up to here


@dataclass(frozen=True, eq=False)
class Coded:
    """Rows of codes, and the PRIVATE vocabularies of categories with values = "paid"."""

    rows: NDArray[np.float32] = field(repr=False)
    vocabularies: dict[str, tuple[str, ...]] = field(repr=False)


class Coder:
    """Codes the batches of one table in turn, with the result of coding the whole table.

    Args:
        columns: the declared columns, without the label.
        where: the name of the table in messages.
        vocabularies: of the categories with values = "paid"; given ones do not grow.
        new: whether the rows are to be predicted by a trained model; columns that the model was
            not trained on are then ignored.

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
        """Return the codes of a batch. Use them only after `finish`, which raises its problems."""
        kept = self._columns.kept
        rows = np.full((table.num_rows, len(kept)), np.nan, dtype=np.float32)
        self._check_names(table.column_names)
        for number, name in enumerate(kept):
            if table.column_names.count(name) == 1:
                with np.errstate(over="ignore"):  # too large for float32 becomes infinite
                    rows[:, number] = self._code(table.column(name), name)
        return rows

    def finish(self) -> dict[str, tuple[str, ...]]:
        """Return the vocabularies, or raise the problems of all batches."""
        schema = (
            "the columns that the model was trained on" if self._new else "the declared columns"
        )
        self._problems.raise_any(f"{self._where} does not fit {schema}")
        return {name: tuple(names.to_pylist()) for name, names in self._vocabularies.items()}

    def _check_names(self, names: Sequence[str]) -> None:
        missing = "is declared but missing; add it, or remove its declaration."
        if self._new:
            missing = "is missing; the model needs it."
        for name in self._columns.kept:
            if name not in names:
                self._problems.add(name, missing)
        for name, times in Counter(names).items():
            if name not in self._columns.declared:
                if self._new:
                    continue
                self._problems.add(name, 'is not declared; declare it, at least as "drop".')
            elif times > 1:
                self._problems.add(name, "appears twice; remove one of the two.")

    def _code(self, column: Any, name: str) -> NDArray[np.float64]:
        declared = self._columns.declared[name]
        try:
            codes = self._read(values.flat(column), declared, name)
        except Unfit as error:
            self._refuse(name, error)
        except pa.ArrowException:  # a type that Arrow cannot convert; its message may show values
            self._refuse(name, values.wrong_type(column.type, f"a {declared.kind}"))
        else:
            for unfit in _problems_of(codes, declared):
                self._refuse(name, unfit)
            return codes
        return np.full(len(column), np.nan)

    def _refuse(self, name: str, error: Unfit) -> None:
        for_new = f"{error.found}, and the model was trained without: {_ADVICE_FOR_NEW_ROWS}"
        self._problems.add(name, for_new if self._new else str(error))

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
            codes = _find_places(texts, pa.array(declared.values, pa.large_string()))
            gaps &= codes == NOT_THERE  # a declared value never counts as missing
            codes[codes == NOT_THERE] = len(declared.values)
        elif declared.buckets is not None:
            hashed = [bucket(text or "", declared.buckets) for text in texts.to_pylist()]
            codes = np.array(hashed, dtype=np.float64)
        else:
            codes = self._find_in_vocabulary(texts, gaps, name)
        codes[gaps] = np.nan
        return values.take_codes(codes, which)

    def _find_in_vocabulary(
        self, texts: Any, gaps: NDArray[np.bool_], name: str
    ) -> NDArray[np.float64]:
        vocabulary = self._vocabularies[name]
        codes = _find_places(texts, vocabulary)
        if not self._grows:
            return codes
        new = pc.unique(texts.filter(pa.array((codes == NOT_THERE) & ~gaps)))
        if len(vocabulary) + len(new) > _EXACT:
            raise Unfit(
                "has too many different values to estimate privately",
                "declare it with buckets or its values",
            )
        self._vocabularies[name] = pa.concat_arrays([vocabulary, new])
        return _find_places(texts, self._vocabularies[name])


def code(
    table: Any,
    columns: Columns,
    *,
    where: str,
    vocabularies: Vocabularies | None = None,
    new: bool = False,
) -> Coded:
    """Code a whole table at once."""
    coder = Coder(columns, where=where, vocabularies=vocabularies, new=new)
    rows = coder.add(table)
    return Coded(rows, coder.finish())


def _find_places(texts: Any, among: Any) -> NDArray[np.float64]:
    indices = pc.fill_null(pc.index_in(texts, value_set=among), NOT_THERE)
    places: NDArray[np.float64] = indices.to_numpy(zero_copy_only=False).astype(np.float64)
    return places


def bucket(text: str, buckets: int) -> int:
    """The bucket of a value by a public hash, the same in every program."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % buckets


def _problems_of(codes: NDArray[np.float64], declared: Column) -> Iterator[Unfit]:
    """Why codes that could be read cannot be used as declared."""
    if isinstance(declared, Number) and declared.range is None:
        with np.errstate(over="ignore"):
            infinite = np.isinf(codes.astype(np.float32))
        if bool(infinite.any()):
            yield Unfit(
                "holds numbers that are infinite or too large",
                'clip them by declaring a range or range = "paid"',
            )
    if isinstance(declared, Number | Boolean | Date):
        undeclared = declared.fill is None and not declared.indicator
        if undeclared and bool(np.isnan(codes).any()):
            yield Unfit(
                "has missing values",
                "declare fill (the value to use instead), or indicator = true (one more feature "
                "that marks them)",
            )
