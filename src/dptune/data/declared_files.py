"""Files and folders whose columns are declared, batch by batch as raw codes, and their labels.

Messages show the columns of a file, never its values.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dptune.columns import Coded, Coder, Columns, Encoding, LabelFacts
from dptune.data.classes import Numbered
from dptune.data.declared import Vocabularies
from dptune.data.growing import GrowingTable
from dptune.errors import InvalidInput
from dptune.table_files import (
    as_csv_reads,
    csv_texts,
    must_be_told_apart,
    names_in_csv,
    parquet_schema,
    parquet_tables,
    table_kind,
    without_index,
)


@dataclass(frozen=True)
class Declared:
    """What is declared of all sources of one study: columns, and which of them is the label."""

    columns: Columns
    label: str
    vocabularies: Vocabularies | None = None  # of the private rows, once these were read
    told: Callable[[int], None] | None = None  # receives the number of rows read

    def tell(self, rows: int) -> None:
        if self.told is not None:
            self.told(rows)

    @property
    def facts(self) -> LabelFacts | None:
        """Of the label; None where it is not declared."""
        return self.columns.label_facts(self.label)

    @property
    def features(self) -> Columns:
        return self.columns.without(self.label)

    def after(self, rows: Any) -> "Declared":
        """The same for other rows, whose codes must mean the same."""
        return replace(self, vocabularies=rows.vocabularies)  # all declared rows have them


@dataclass(frozen=True, eq=False, repr=False)  # no repr: it would print rows
class Batches:
    """A table in pieces, each read when it is needed."""

    names: Sequence[str]
    tables: Iterable[Any]
    where: str
    texts: bool  # whether all values are text, and the type of labels is guessed


def batches_of(paths: Sequence[Path], where: str) -> Batches:
    """The batches of a csv, or of Parquet files that make one table."""
    texts = table_kind(paths[0]) == "csv"
    names = names_in_csv(paths[0]) if texts else parquet_schema(paths[0]).names
    must_be_told_apart(names, where)
    tables = csv_texts(paths[0], names) if texts else parquet_tables(paths)
    return Batches(names, tables, where, texts)


def read_labelled(
    batches: Batches, declared: Declared
) -> tuple[Coded, NDArray[Any] | Numbered, bool]:
    """Rows and their labels, and whether some labels are missing."""
    facts, label = declared.facts, declared.label
    if facts is not None:
        coder = _Coding(declared.columns, batches.where, declared.vocabularies, label)
        for table in batches.tables:
            declared.tell(coder.add(table))
        rows, codes = coder.finish()
        targets = as_targets(codes, facts, label, batches.where)
        return rows, targets if facts.classes is None else Numbered(targets), False
    coder = _Coding(declared.features, batches.where, declared.vocabularies)
    columns: list[Any] = []
    for table in batches.tables:
        if label not in table.column_names:
            raise InvalidInput(
                f"a part of {batches.where} lacks the column of labels {label!r}; all its files "
                "need the same columns."
            )
        columns.append(table.select([label]))
        declared.tell(coder.add(table.drop_columns([label])))
    rows, _ = coder.finish()
    column = _one_column(columns, label, batches.where)
    column = as_csv_reads(column) if batches.texts else column
    return rows, column.to_numpy(), column.null_count > 0


def _one_column(tables: Sequence[Any], label: str, where: str) -> Any:
    """One column of all tables; some files may hold whole numbers and others fractions."""
    try:
        return pa.concat_tables(tables, promote_options="permissive").column(label)
    except pa.ArrowException:
        raise InvalidInput(
            f"the column {label!r} of {where} is of another type in one file than in the next; "
            "write all of them alike, or declare it in [columns]."
        ) from None


def read_new(batches: Batches, encoding: Encoding) -> Coded:
    """Rows to predict, without columns that the model does not know, such as labels."""
    coder = _Coding(encoding.columns, batches.where, encoding.categories, new=True)
    for table in batches.tables:
        coder.add(table)
    return coder.finish()[0]


class _Coding:
    """Raw codes of one batch after another, separate from those of a declared `label`."""

    def __init__(
        self,
        columns: Columns,
        where: str,
        vocabularies: Vocabularies | None,
        label: str | None = None,
        *,
        new: bool = False,
    ) -> None:
        self._coder = Coder(columns, where=where, vocabularies=vocabularies, new=new)
        self._columns, self._where = columns, where
        self._features = [n for n, name in enumerate(columns.kept) if name != label]
        self._labels = [n for n, name in enumerate(columns.kept) if name == label]
        self._rows = GrowingTable(len(self._features), np.float32)
        self._codes: list[NDArray[np.float32]] = []

    def add(self, table: Any) -> int:
        """Returns how many rows there are now."""
        names = table.column_names
        hidden = set(names) - {*without_index(names), *self._columns.declared}
        codes = self._coder.add(table.drop_columns(list(hidden)))
        self._rows.add(codes[:, self._features])
        self._codes += [codes[:, number].copy() for number in self._labels]
        return self._rows.count

    def finish(self) -> tuple[Coded, NDArray[np.float32]]:
        """The features, and the codes of labels, if there are any."""
        vocabularies = self._coder.finish()
        if not self._rows.count:
            raise InvalidInput(f"{self._where} holds no rows, only the names of columns.")
        codes = np.concatenate([np.empty(0, np.float32), *self._codes])
        pa.default_memory_pool().release_unused()  # of the batches, which are not needed any more
        return Coded(self._rows.whole(), vocabularies), codes


def as_targets(
    codes: NDArray[np.float32], facts: LabelFacts, label: str, where: str
) -> NDArray[Any]:
    """Numbers of declared classes, or values."""
    if bool(np.isnan(codes).any()):
        raise InvalidInput(
            f"the column {label!r} of {where} has missing values; remove those rows first."
        )
    if facts.classes is None:
        return codes.astype(np.float64)
    numbers = codes.astype(np.int64)
    if bool((numbers >= len(facts.classes)).any()):
        raise InvalidInput(
            f"the column {label!r} of {where} holds labels that are not among its declared values; "
            "declare all of them in [columns], or leave those rows out."
        )
    return numbers
