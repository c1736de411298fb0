"""The kinds of rows that a data set is made of: arrays, frames whose columns are declared, and
rows on disk. Each reads the private rows first, and then those beside them so that they match."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.columns import Columns, Encoding
from dptune.data.arrays import as_features, names_of, places
from dptune.data.declared import Vocabularies, coded, facts_in_words, fingerprint_declared
from dptune.data.disk import DiskRows
from dptune.data.fingerprint import fingerprint_arrays, fingerprint_folder
from dptune.data.made_by import is_of_texts, is_of_words
from dptune.data.parquet_rows import ParquetRows
from dptune.data.preprocess import LARGEST
from dptune.data.row_sources import RowSource
from dptune.data.targets import TAKEN, Targets, TokenTargets
from dptune.errors import InvalidInput

_NO_CODES: Vocabularies = {}


class Kind(ABC):
    """Rows of one kind, which are read once: `private` says what the rest is."""

    names: tuple[str, ...] = ()  # of the columns, where they have some
    shape: tuple[int, ...]  # of a row's features
    copies = 1  # of each row
    encoding: Encoding | None = None  # of declared columns, or of the named ones of a table
    vocabularies: Vocabularies = _NO_CODES  # what codes stand for, which is private

    @abstractmethod
    def private(self, labels: Any, targets: Targets) -> RowSource:
        """The private rows with their targets."""

    @abstractmethod
    def fingerprint(self, targets: Targets) -> str:
        """Of the private rows and their labels."""

    def facts(self, made_by: Mapping[str, Any] | None) -> list[str]:
        """What is public about features."""
        facts = []
        if not is_of_words(made_by):
            shape = " x ".join(map(str, self.shape))
            of_table = f"the number of columns ({math.prod(self.shape):,}), {TAKEN}"
            facts.append(
                of_table if len(self.shape) == 1 else f"the shape of a row ({shape}), {TAKEN}"
            )
        if self.copies > 1 and not is_of_texts(made_by):
            facts.append(f"the number of copies of a row ({self.copies:,}), {TAKEN}")
        if self.names:
            facts.append(f"the names of the columns, {TAKEN}")
        return facts

    def beside(self, given: Any, which: str, targets: Targets) -> RowSource:
        """The rows called `which`: a pair (features, labels), or chunks on disk."""
        if isinstance(given, DiskRows):
            return self._chunks_beside(given, which, targets)
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise InvalidInput(
                f"{which} must be a pair (features, labels); got {type(given).__name__}."
            )
        table, augmented = self._table_beside(given[0], which)
        return targets.beside(given[1], table, augmented, which)

    def _chunks_beside(self, rows: DiskRows, which: str, targets: Targets) -> RowSource:
        self._must_have_our_shape(rows.shape, which)
        return targets.on_disk(rows, f"the {which} labels")

    def _table_beside(self, given: Any, which: str) -> tuple[NDArray[Any], bool]:
        """The features, and whether each row has copies."""
        names = names_of(given)
        features = as_features(given, f"the {which} features", names or self.names)
        if self.names and names and names != self.names:
            features = features[:, places(self.names, names, f"the table of {which} rows")]
        augmented = features.ndim == len(self.shape) + 2
        self._must_have_our_shape(features.shape[2 if augmented else 1 :], which)
        return features, augmented

    def _must_have_our_shape(self, shape: tuple[int, ...], which: str) -> None:
        if shape != self.shape:
            theirs, ours = (
                f"{s[0]} columns" if len(s) == 1 else f"rows of shape {s}"
                for s in (shape, self.shape)
            )
            raise InvalidInput(
                f"the {which} features have {theirs}, the private ones {ours}; they need the same."
            )


class PlainRows(Kind):
    """Arrays: a table of numbers, or rows of another shape. `columns` are those of a table that
    names them, where nothing else is declared."""

    def __init__(
        self,
        features: Any,
        *,
        column_names: Sequence[str] = (),
        augmented: bool = False,
        columns: Columns | None = None,
    ) -> None:
        if isinstance(features, DiskRows):
            raise InvalidInput("rows on disk are taken by Data.from_disk(rows), with their labels.")
        self._given, self._names = features, column_names
        self._augmented = validate.flag(augmented=augmented)
        self.encoding = None if columns is None else Encoding(columns)

    def private(self, labels: Any, targets: Targets) -> RowSource:
        table = as_features(self._given, "the features", self._names)
        if self._augmented and table.ndim < 3:
            raise InvalidInput(
                f"augmented features have shape (rows, copies, columns); got {table.shape}."
            )
        rows = targets.private(labels, table, self._augmented)
        if table.ndim > 2 and np.abs(table).max() > LARGEST:  # refused before it is paid for
            raise InvalidInput(f"the features hold numbers beyond {LARGEST:g}; scale them.")
        self._table, self.shape, self.copies = table, rows.shape, rows.copies
        self.names = _checked_names(self._names, names_of(self._given), math.prod(rows.shape))
        return rows

    def fingerprint(self, targets: Targets) -> str:
        labels = targets.labels
        if labels is None:
            return fingerprint_arrays(self._table)
        # Ledgers know classes given as floats by their whole numbers.
        whole = targets.loss == "softmax" and labels.dtype.kind == "f"
        return fingerprint_arrays(self._table, labels.astype(np.int64) if whole else labels)


class ChunkRows(Kind):
    """Chunks in a folder, which hold their labels and copies."""

    def __init__(self, chunks: DiskRows, *, column_names: Sequence[str] = ()) -> None:
        self._chunks, self.shape, self.copies = chunks, chunks.shape, chunks.copies
        self.names = _checked_names(column_names, (), chunks.columns)

    def private(self, labels: Any, targets: Targets) -> RowSource:
        return targets.private_on_disk(self._chunks)

    def fingerprint(self, targets: Targets) -> str:
        return fingerprint_folder(self._chunks.folder)


class ColumnRows(Kind):
    """A frame whose columns are declared by name. Its rows are kept as raw codes, one number a
    column; engines see the features that the encoding makes of them."""

    encoding: Encoding

    def __init__(self, frame: Any, columns: Columns, *, column_names: Sequence[str] = ()) -> None:
        self._frame, self._names = frame, column_names
        self.names, self.encoding = columns.kept, Encoding(columns)
        self.shape = (self.encoding.width,)

    def private(self, labels: Any, targets: Targets) -> RowSource:
        if isinstance(self._frame, DiskRows) or isinstance(targets, TokenTargets):
            raise InvalidInput(
                "columns are declared of a table in memory, and these rows are chunks on disk, or "
                "tokens of texts; use Data.from_disk or Data.from_texts."
            )
        codes = coded(self._frame, self.encoding.columns, "the features", self._names)
        self.vocabularies = codes.vocabularies
        return targets.private(labels, codes.rows)

    def fingerprint(self, targets: Targets) -> str:
        assert targets.labels is not None
        return fingerprint_declared(self._frame, self._names, targets.labels)

    def facts(self, made_by: Mapping[str, Any] | None) -> list[str]:
        return [facts_in_words(self.encoding)]

    def _table_beside(self, given: Any, which: str) -> tuple[NDArray[Any], bool]:
        what, columns = f"the {which} features", self.encoding.columns
        return coded(given, columns, what, self.names, self.vocabularies).rows, False


class ParquetColumnRows(ColumnRows):
    """Parquet files whose columns and label are declared, read anew in every step."""

    def __init__(self, rows: ParquetRows) -> None:
        super().__init__(rows, rows.features)
        self._rows, self.vocabularies = rows, rows.vocabularies

    def private(self, labels: Any, targets: Targets) -> RowSource:
        return targets.private_on_disk(self._rows)

    def fingerprint(self, targets: Targets) -> str:
        return fingerprint_folder(self._rows.folder)


def _checked_names(declared: Sequence[str], own: tuple[str, ...], columns: int) -> tuple[str, ...]:
    """The names of columns, as declared, or the table's own."""
    names = tuple(declared)
    if not names:
        # A name that occurs twice identifies no column.
        return own if len(set(own)) == len(own) else ()
    text = not isinstance(declared, str) and all(isinstance(name, str) for name in names)
    if not text or len(names) != columns or len(set(names)) != columns:
        raise InvalidInput(
            f"column_names must be {columns} different names, one a column; got {len(names)}."
        )
    return names
