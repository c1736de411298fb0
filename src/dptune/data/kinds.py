"""The kinds of rows that a data set is made of: arrays, chunks on disk, and frames or Parquet files
whose columns are declared. Each reads the private rows, and then those beside them to match."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.columns import Columns, Encoding
from dptune.data.arrays import as_features, names_of, places
from dptune.data.declared import Vocabularies, code_frame, facts_in_words, fingerprint_declared
from dptune.data.disk import DiskRows
from dptune.data.fingerprint import fingerprint_arrays, fingerprint_folder
from dptune.data.made_by import is_of_texts, is_of_words
from dptune.data.origin import OF_ARRAYS, Origin
from dptune.data.parquet_rows import ParquetRows
from dptune.data.preprocess import LARGEST
from dptune.data.row_sources import RowSource
from dptune.data.rows import ASKED_IN_ROWS
from dptune.data.targets import PRIVATE, TAKEN, Targets, TokenTargets
from dptune.errors import InvalidInput

# Arguments that only some kinds of rows take, and the constructors of those.
_MOVED = {
    "columns": "Data.from_columns(frame, labels, columns)",
    "column_names": "Data.from_table(features, labels, column_names=[...])",
    "augmented": "Data.from_table(features, labels, augmented=True)",
    **dict.fromkeys(
        ("fingerprint", "made_by", "numbers", "origins"),
        "Data.from_table(features, labels, origin=Origin(...))",
    ),
}


class Kind(ABC):
    """Private rows of one kind. What is said of their features holds once they are read."""

    origin: Origin
    names: tuple[str, ...] = ()  # of the columns, where they have some
    shape: tuple[int, ...]  # of a row's features
    copies = 1  # of each row
    encoding: Encoding | None = None  # of declared columns, or of those that a table names
    vocabularies: Vocabularies | None = None  # what codes stand for, which is private

    @abstractmethod
    def read(self, labels: Any, targets: Targets) -> RowSource:
        """The rows with their targets."""

    @abstractmethod
    def fingerprint(self, targets: Targets) -> str:
        """Of the rows and their labels."""

    def facts(self) -> list[str]:
        """What is public about features."""
        facts, made_by = [], self.origin.made_by
        if not is_of_words(made_by):
            shape = " x ".join(map(str, self.shape))
            of_table = f"the number of columns ({self.shape[0]:,}), {TAKEN}"
            facts += [
                of_table if len(self.shape) == 1 else f"the shape of a row ({shape}), {TAKEN}"
            ]
        if self.copies > 1 and not is_of_texts(made_by):
            facts.append(f"the number of copies of a row ({self.copies:,}), {TAKEN}")
        if self.names:
            facts.append(f"the names of the columns, {TAKEN}")
        return facts

    def beside(self, given: Any, which: str, targets: Targets) -> RowSource:
        """The rows called `which`: a pair (features, labels), or chunks on disk."""
        if isinstance(given, DiskRows):
            self._must_have_our_shape(given.shape, which)
            return targets.on_disk(given, which)
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise InvalidInput(
                f"{which} must be a pair (features, labels); got {type(given).__name__}."
            )
        table, augmented = self._table_beside(given[0], which)
        return targets.source(given[1], table, augmented, which)

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


@dataclass(eq=False, repr=False)  # no repr: it would print rows
class PlainRows(Kind):
    """Arrays: a table of numbers, or rows of another shape. `columns` are those of a table that
    names them, of which nothing else is declared."""

    given: Any
    column_names: Sequence[str] = ()
    augmented: bool = False
    origin: Origin = OF_ARRAYS
    columns: Columns | None = None

    def __post_init__(self) -> None:
        if isinstance(self.given, DiskRows):
            raise InvalidInput("rows on disk are taken by Data.from_disk(rows), with their labels.")
        validate.flag(augmented=self.augmented)
        self.encoding = None if self.columns is None else Encoding(self.columns)

    def read(self, labels: Any, targets: Targets) -> RowSource:
        self._table = table = as_features(self.given, "the features", self.column_names)
        if self.augmented and table.ndim < 3:
            raise InvalidInput(
                f"augmented features have shape (rows, copies, columns); got {table.shape}."
            )
        rows = targets.source(labels, table, self.augmented, PRIVATE)
        if table.ndim > 2 and np.abs(table).max() > LARGEST:  # refused before it is paid for
            raise InvalidInput(f"the features hold numbers beyond {LARGEST:g}; scale them.")
        self.shape, self.copies = rows.shape, rows.copies
        self.names = _checked_names(self.column_names, names_of(self.given), math.prod(rows.shape))
        return rows

    def fingerprint(self, targets: Targets) -> str:
        labels = targets.labels
        if labels is None:
            return fingerprint_arrays(self._table)
        # Ledgers know classes given as floats by their whole numbers.
        whole = targets.loss == "softmax" and labels.dtype.kind == "f"
        return fingerprint_arrays(self._table, labels.astype(np.int64) if whole else labels)


@dataclass(eq=False, repr=False)  # no repr: it would print rows
class ChunkRows(Kind):
    """Chunks in a folder, which hold their labels and copies."""

    chunks: DiskRows
    column_names: Sequence[str] = ()
    origin: Origin = OF_ARRAYS

    def __post_init__(self) -> None:
        self.shape, self.copies = self.chunks.shape, self.chunks.copies
        self.names = _checked_names(self.column_names, (), self.chunks.columns)

    def read(self, labels: Any, targets: Targets) -> RowSource:
        return targets.on_disk(self.chunks, PRIVATE)

    def fingerprint(self, targets: Targets) -> str:
        return fingerprint_folder(self.chunks.folder)


@dataclass(eq=False, repr=False)  # no repr: it would print rows
class ColumnRows(Kind):
    """A frame whose columns are declared by name. Its rows are kept as raw codes, one number a
    column; engines see the features that the encoding makes of them."""

    frame: Any
    columns: Columns
    column_names: Sequence[str] = ()
    origin: Origin = OF_ARRAYS

    def __post_init__(self) -> None:
        self.names, self.encoding = self.columns.kept, Encoding(self.columns)
        self.shape = (self.encoding.width,)

    def read(self, labels: Any, targets: Targets) -> RowSource:
        if isinstance(self.frame, DiskRows) or isinstance(targets, TokenTargets):
            raise InvalidInput(
                "columns are declared of a table in memory, and these rows are chunks on disk, or "
                "tokens of texts; use Data.from_disk or Data.from_texts."
            )
        codes = code_frame(self.frame, self.columns, "the features", self.column_names)
        self.vocabularies = codes.vocabularies
        return targets.source(labels, codes.rows, False, PRIVATE)

    def fingerprint(self, targets: Targets) -> str:
        assert targets.labels is not None
        return fingerprint_declared(self.frame, self.column_names, targets.labels)

    def facts(self) -> list[str]:
        return [facts_in_words(Encoding(self.columns))]

    def _table_beside(self, given: Any, which: str) -> tuple[NDArray[Any], bool]:
        what = f"the {which} features"
        return code_frame(given, self.columns, what, self.names, self.vocabularies).rows, False


class ParquetColumnRows(ColumnRows):
    """Parquet files whose columns and label are declared, read anew in every step."""

    def __init__(self, rows: ParquetRows, origin: Origin = OF_ARRAYS) -> None:
        super().__init__(rows, rows.features, origin=origin)
        self.vocabularies = rows.vocabularies

    def read(self, labels: Any, targets: Targets) -> RowSource:
        return targets.on_disk(self.frame, PRIVATE)

    def fingerprint(self, targets: Targets) -> str:
        return fingerprint_folder(self.frame.folder)


def must_be_plain(features: object, task: object, moved: Mapping[str, object]) -> None:
    """Refuse what another constructor takes."""
    if task in ASKED_IN_ROWS and not isinstance(features, Kind):
        raise InvalidInput(f"rows of task={task!r} are taken by Data.from_texts(tokens, task=...).")
    for name in moved:
        if name not in _MOVED:
            raise TypeError(f"Data() got an unexpected keyword argument {name!r}")
        raise InvalidInput(f"these rows are taken without {name}; use {_MOVED[name]}.")


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
