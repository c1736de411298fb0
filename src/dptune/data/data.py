"""A private data set: rows that open only with a receipt, and the facts about them that are public.

Everything is checked when a `Data` is made, before anything is paid for. What the rest of dptune
may know without a receipt (how many rows and columns, which classes, the range of a target) is
declared by the user or taken from the rows; `public_facts` says which, one by one. A target's
range is never taken from the rows: its ends would be the values of two people.
"""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from dptune import validate
from dptune.columns import Columns, Encoding
from dptune.data import remarks
from dptune.data.apart import must_hold_no_private_rows, must_hold_no_reporting_rows
from dptune.data.batches import gather, read_bunch
from dptune.data.classes import WITH_CLASSES
from dptune.data.declared import Vocabularies
from dptune.data.disk import DiskRows
from dptune.data.kinds import (
    ChunkRows,
    ColumnRows,
    Kind,
    ParquetColumnRows,
    PlainRows,
    must_be_plain,
)
from dptune.data.made_by import facts_of_maker, facts_of_texts, rows_in_words
from dptune.data.origin import OF_ARRAYS, Origin
from dptune.data.paid import must_be_paid
from dptune.data.parquet_rows import ParquetRows
from dptune.data.placed_rows import RowsWithGaps, numbers_of_kept
from dptune.data.preprocess import Preprocessing
from dptune.data.row_sources import ArraySource, RowSource
from dptune.data.rows import CLASSES_UNTIL_BOUGHT, IDS, MOST_COLUMNS_IN_DOUBT, DataFacts, Rows
from dptune.data.shift import Shift, checked_shifts, shifted
from dptune.data.targets import DECLARED, TAKEN, facts_of_classes, targets_of
from dptune.errors import InvalidInput
from dptune.privacy import Receipt

_Cache = WeakKeyDictionary[Preprocessing, dict[tuple[str, str, str], Rows]]


class Data:
    """Private training rows. Test rows beside them only report results; public rows may score
    trials.

    This constructor takes arrays (NumPy, torch, lists, pandas). Other rows have their own:
    `from_table` (named columns, copies of rows), `from_columns` (texts, dates, gaps), `from_disk`,
    `from_texts` (tokens), `from_batches` (PyTorch), `of` (scikit-learn); files: `load_data`.
    Arrays are not copied, so do not change them afterwards.

    Args:
        features: a table of numbers, or rows of another shape, such as pictures.
        labels: one label a row: whole numbers, texts or booleans; numbers with task="values".
        name: what reports call the data set.
        test: a pair (features, labels), or `DiskRows`; refused if it holds copies of private rows.
        public: the same, of rows that need no protection.
        shifts: rows of other origins, by name, which report results as test rows do.
        task: "classes" or "values" (`from_texts` has more).
        classes: all classes in order; "paid" estimates their names privately, "public" takes those
            that occur. Default: "paid" for texts, since a mistyped name would be published
            otherwise; "public" for numbers and booleans.
        target_range: (low, high), to which values are clipped. It must be declared.
        rows: the public number of rows. Default: taken from the data, and reported so.

    """

    def __init__(
        self,
        features: Any,
        labels: Any = None,
        *,
        name: str = "data",
        test: Any = None,
        public: Any = None,
        shifts: Mapping[str, Shift] | None = None,
        task: str = "classes",
        classes: Sequence[Any] | str | None = None,
        target_range: tuple[float, float] | None = None,
        rows: int | None = None,
        **moved: Any,
    ) -> None:
        validate.text(name=name)
        must_be_plain(features, task, moved)
        kind = features if isinstance(features, Kind) else PlainRows(features)
        origin, targets = kind.origin, targets_of(task, classes, target_range)
        train = kind.read(labels, targets)
        self.name, self.made_by = name, origin.made_by
        self.fingerprint = origin.fingerprint or kind.fingerprint(targets)
        self.loss, self.classes, self._secret = targets.loss, targets.classes, targets.secret
        self.target_range = targets.range
        self.shape, self.copies, self.column_names = kind.shape, kind.copies, kind.names
        self.columns = math.prod(self.shape)
        self.encoding, self.as_given = kind.encoding, False
        self.declared = kind.columns if isinstance(kind, ColumnRows) else None
        self._vocabularies = kind.vocabularies or {}
        plain = self.loss in ("softmax", "squared") and self.copies == 1 and self.made_by is None
        few = len(self.shape) == 1 and self.columns <= MOST_COLUMNS_IN_DOUBT
        if self.encoding is None and plain and few:  # perhaps a table, not what a network made
            numbered = (f"column {number}" for number in range(1, self.columns + 1))
            self.encoding, self.as_given = Encoding(Columns.of_numbers(numbered)), True
        self.count = train.count if rows is None else validate.whole(1, rows=rows)
        self._numbers = origin.numbers_of(train.count)
        self.outputs = CLASSES_UNTIL_BOUGHT if self.has_secret_classes else len(self.classes) or 1
        in_words = {
            "rows": TAKEN if rows is None else DECLARED,
            "classes": TAKEN if classes is None or isinstance(classes, str) else DECLARED,
        } | dict(origin.in_words or {})
        self._origin_of_classes = in_words["classes"]
        self.public_facts = (
            f"the number of {rows_in_words(self.made_by)} ({self.count:,}), {in_words['rows']}",
            *facts_of_texts(self.made_by),
            *kind.facts(),
            *facts_of_maker(self.made_by),
            *targets.facts(self._origin_of_classes),
        )
        self._parts: dict[str, RowSource] = {"train": train}
        self._groups: dict[str, dict[str, NDArray[np.bool_]]] = {}
        others = {"test": test, "public": public}
        shifts = checked_shifts(shifts, task)
        others |= {shifted(shift): rows_of.pair() for shift, rows_of in shifts.items()}
        for which, given in others.items():
            if given is not None:
                self._parts[which] = kind.beside(given, which, targets)
                must_hold_no_private_rows(self._parts[which], which, train)
        for shift, about in shifts.items():
            self._groups[shifted(shift)] = about.masks(self._parts[shifted(shift)].count)
        self.shifts = tuple(shifts)  # their names
        self.left_out: dict[str, int] = {}
        self.unused_test_rows = False  # in the file of the private rows, which `load_data` knows
        self._built = _Cache()

    @classmethod
    def from_table(
        cls,
        features: Any,
        labels: Any,
        *,
        column_names: Sequence[str] = (),
        augmented: bool = False,
        origin: Origin = OF_ARRAYS,
        **facts: Any,
    ) -> "Data":
        """Arrays with named columns or copies. A model finds its columns by `column_names`, by
        default those of a frame. With `augmented`, the second axis holds copies of each row."""
        return cls(PlainRows(features, column_names, augmented, origin), labels, **facts)

    @classmethod
    def from_columns(
        cls,
        frame: Any,
        labels: Any,
        columns: Columns | Mapping[str, Any],
        *,
        column_names: Sequence[str] = (),
        origin: Origin = OF_ARRAYS,
        **facts: Any,
    ) -> "Data":
        """A frame (pandas, polars, Arrow, a mapping of arrays) of numbers, texts, dates and gaps,
        whose columns are declared by name. All other rows are such frames, too. An array is taken
        with `column_names`."""
        return cls(ColumnRows(frame, Columns.of(columns), column_names, origin), labels, **facts)

    @classmethod
    def from_disk(
        cls,
        chunks: DiskRows | str | Path,
        *,
        column_names: Sequence[str] = (),
        origin: Origin = OF_ARRAYS,
        **facts: Any,
    ) -> "Data":
        """Chunks that `write_chunks` wrote. They hold their labels: class numbers, or values."""
        rows = chunks if isinstance(chunks, DiskRows) else DiskRows(chunks)
        if isinstance(rows, ParquetRows):
            return cls(ParquetColumnRows(rows, origin), **facts)
        return cls(ChunkRows(rows, column_names, origin), **facts)

    @classmethod
    def from_texts(
        cls,
        tokens: Any,
        labels: Any = None,
        *,
        augmented: bool = False,
        origin: Origin = OF_ARRAYS,
        **facts: Any,
    ) -> "Data":
        """Texts as numbers of tokens (`dptune.texts`); `load_data(text=...)` makes them. With task
        "words" (next tokens), "spans" (answers in contexts) or "inside" (completions out of
        `classes`), rows hold what is asked of them, so there are no labels."""
        return cls(PlainRows(tokens, augmented=augmented, origin=origin), labels, **facts)

    @classmethod
    def from_batches(
        cls, batches: Any, *, test: Any = None, public: Any = None, **facts: Any
    ) -> "Data":
        """Rows of anything that gives (features, labels) and has a length: a torch DataLoader, a
        Dataset of single rows, a list of pairs. So are `test` and `public`, or they are `DiskRows`.
        `facts` are those of `Data`.

        All rows are read once, here, and kept in memory. A row's number is its place in what was
        read. So a loader that shuffles, or augments at random, makes another data set each time:
        a ledger that serves several studies, and `resume`, need the same rows in the same order.
        """
        for which, given in (("test", test), ("public", public)):
            if given is not None:
                facts[which] = given if isinstance(given, DiskRows) else gather(given, which)
        return cls(*gather(batches, "private"), **facts)

    @classmethod
    def of(cls, bunch: Any, **facts: Any) -> "Data":
        """From a scikit-learn Bunch; `facts` are those of `Data`. Where it names its classes, the
        names become the labels."""
        features, labels, facts = read_bunch(bunch, facts)
        return cls(features, labels, **facts)

    @property
    def facts(self) -> DataFacts:
        """What an engine may know before anything is paid."""
        return DataFacts(
            self.count,
            self.shape,
            self.copies,
            self.outputs,
            self.loss,
            None if self.encoding is None else self.encoding.columns,
            self.as_given,
            self.has_secret_classes,
        )

    @property
    def has_secret_classes(self) -> bool:
        """Whether the names of classes are still secret; until they are estimated `classes` is
        empty."""
        return self._secret is not None

    @property
    def learns_classes(self) -> bool:
        """Whether every row has a class, or holds one among what is asked of it."""
        return self.has_secret_classes or bool(self.classes)

    def __repr__(self) -> str:
        shape = f"of shape {' x '.join(map(str, self.shape))}"
        facts = [f"{self.count:,} rows", f"{self.columns:,} columns"]
        if not self.facts.is_table:
            facts[1] = shape
        if self.classes:
            facts.append(f"{len(self.classes):,} classes")
        if self.has_secret_classes:
            facts.append("classes to be bought")
        return f"Data({self.name!r}, {', '.join(facts)})"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_built": None}  # heavy to send, quickly built again

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"_built": _Cache()})

    def open(
        self,
        receipt: Receipt,
        preprocessing: Preprocessing,
        *,
        device: str = "cpu",
        precision: str = "float32",
    ) -> Rows:
        """The private rows. The ledger that gave the `receipt` must confirm that its payment is for
        these rows and was started. Opening them again is cheap."""
        must_be_paid(receipt, self.fingerprint)
        rows = self._rows("train", preprocessing, device, precision)
        if self._numbers is None or rows.count == self.count:
            return rows
        places = max(self.count, int(self._numbers[-1]) + 1)  # fewer rows may be declared
        return RowsWithGaps(rows, torch.from_numpy(self._numbers), places)

    def tables_for(
        self, receipt: Receipt, preprocessing: Preprocessing | None = None
    ) -> Iterator[NDArray[Any]]:
        """The private features, preprocessed, for a private statistic; without `preprocessing` as
        they were given, or as raw codes of declared columns. Paid as for `open`."""
        must_be_paid(receipt, self.fingerprint)
        prepare = _read_only if preprocessing is None else self._with_names(preprocessing).apply
        return map(prepare, self._parts["train"].tables())

    def vocabularies_for(self, receipt: Receipt) -> Vocabularies:
        """The names behind the codes of undeclared categories; paid as for `open`."""
        must_be_paid(receipt, self.fingerprint)
        return dict(self._vocabularies)

    def labels_for(self, receipt: Receipt) -> tuple[NDArray[Any], tuple[Any, ...]]:
        """The number of each row's label, and the labels they number; paid as for `open`."""
        must_be_paid(receipt, self.fingerprint)
        train = self._parts["train"]
        assert self._secret is not None and isinstance(train, ArraySource)
        return train.targets, tuple(self._secret.private)

    def unprotected_rows(
        self, preprocessing: Preprocessing, *, device: str = "cpu", precision: str = "float32"
    ) -> Rows:
        """The training rows without payment, if they are public anyway, as in benchmarks: no
        guarantee covers what is made of them."""
        return self._rows("train", preprocessing, device, precision)

    def test_rows(
        self, preprocessing: Preprocessing, device: str = "cpu", precision: str = "float32"
    ) -> Rows | None:
        """Rows that report results; nothing may be chosen by them."""
        if not self.has_test_rows:
            return None
        return self._rows("test", preprocessing, device, precision)

    def public_rows(
        self, preprocessing: Preprocessing, device: str = "cpu", precision: str = "float32"
    ) -> Rows | None:
        """Rows that score trials at no privacy cost."""
        if "public" not in self._parts:
            return None
        return self._rows("public", preprocessing, device, precision)

    def shifted_rows(
        self,
        shift: str,
        preprocessing: Preprocessing,
        device: str = "cpu",
        precision: str = "float32",
    ) -> dict[str, Rows]:
        """The rows of a shift by group, to report results; all of them under "" if it has no
        groups."""
        rows = self._rows(shifted(shift), preprocessing, device, precision)
        masks = self._groups[shifted(shift)].items()
        return {name: rows.taken(torch.from_numpy(mask)) for name, mask in masks} or {"": rows}

    @property
    def has_test_rows(self) -> bool:
        return "test" in self._parts

    def check_public_rows(self) -> None:
        """Refuse public rows that are missing, or that report results as well."""
        if "public" not in self._parts:
            raise InvalidInput(
                "a public score needs public rows; give them with --public (public= in Python), "
                "or pay for noisy scores."
            )
        others = {which: part for which, part in self._parts.items() if which != "train"}
        must_hold_no_reporting_rows(others.pop("public"), others.items())

    def public_features(self) -> NDArray[Any]:
        """The public features, encoded if columns are declared, to standardise by."""
        if "public" not in self._parts:
            raise InvalidInput(
                "columns are standardised by public rows, and there are none; give them with "
                "--public (public= in Python)."
            )
        features = np.concatenate(list(self._parts["public"].tables()))
        if self.encoding is None or self.as_given:
            return features
        return self.encoding.apply(features)

    def remarks(self) -> tuple[str, ...]:
        """What the holder of the rows should know before paying. It is computed from the rows, so
        it is for a screen, and never stored or released."""
        train = self._parts["train"]
        if not isinstance(train, ArraySource) or self.facts.asks_inside:
            return ()
        signs = list(remarks.of_targets(train.targets, classes=self.learns_classes))
        if self.encoding is not None and not self.as_given:
            signs += remarks.of_columns(train.features, self.encoding)
        return tuple(signs)

    def with_classes(self, classes: Sequence[Any]) -> "Data":
        """The same data with classes that were estimated. Private rows with another label count as
        empty; other rows with one are left out, and counted in `left_out`."""
        made = copy.copy(self)
        made.classes, made.outputs, made._secret = tuple(classes), len(classes), None
        made._parts, made._groups, made.left_out, made._built = {}, {}, {}, _Cache()
        for which, part in self._parts.items():
            assert self._secret is not None and isinstance(part, ArraySource)
            targets = self._secret.as_classes(part.targets, classes)
            made._parts[which], kept = replace(part, targets=targets), targets >= 0
            if not kept.all():
                made._parts[which] = made._parts[which].taken(kept)
                made.left_out[which] = int((~kept).sum())
            if which == "train":
                made._numbers = numbers_of_kept(kept, self._numbers)
            if which in self._groups:
                masks = self._groups[which].items()
                made._groups[which] = {group: mask[kept] for group, mask in masks}
        made.left_out.pop("train", None)  # which is private
        return made

    def with_public_classes(self) -> "Data":
        """The same data with all labels of private rows as public classes; the public facts say
        so."""
        assert self._secret is not None
        made = self.with_classes(self._secret.private)
        made.public_facts += tuple(facts_of_classes(made.classes, self._origin_of_classes))
        return made

    def held_out(self, every: int) -> tuple["Data", "Data"]:
        """(the rest, every `every`-th row), by row number alone. Each row is in one part only, so
        events on the two parts compose in parallel."""
        every = validate.whole(2, every=every)
        train = self._parts["train"]
        if self.count < 2 or train.count < 2:
            raise InvalidInput("rows can be held out of two or more; this data set has one.")
        kept, held = self.facts.not_held_out(every), np.zeros(train.count, dtype=bool)
        if self._numbers is None:
            held[::every] = True
        else:
            held[:] = self._numbers % every == 0
        rest, part = self._with(~held, kept, every), self._with(held, self.count - kept, every)
        if self._numbers is not None:  # their places in each part
            rest._numbers = self._numbers[~held] - self._numbers[~held] // every - 1
            part._numbers = self._numbers[held] // every
        return rest, part

    def _with(self, taken: NDArray[np.bool_], count: int, every: int) -> "Data":
        part, train = copy.copy(self), self._parts["train"].taken(taken)
        part._parts, part.count = self._parts | {"train": train}, count
        part.public_facts = (*self.public_facts, f"which rows are held out (one in {every})")
        return part

    def _rows(self, which: str, preprocessing: Preprocessing, device: str, precision: str) -> Rows:
        if self.has_secret_classes:
            raise InvalidInput(
                "the names of these classes are not estimated yet, so their rows cannot be trained "
                f"on; tune does that. Or declare all classes {WITH_CLASSES}."
            )
        if not isinstance(preprocessing, Preprocessing):
            raise InvalidInput(
                f"preprocessing must be a dptune Preprocessing; got {type(preprocessing).__name__}."
            )
        if self.declared is not None and preprocessing.encoding is None:
            raise InvalidInput(
                "the columns of these rows are declared, so they are encoded first; use "
                "Preprocessing(encoding=data.encoding)."
            )
        built = self._built.setdefault(preprocessing, {})
        key = (which, device, precision)
        if key not in built:
            applied = preprocessing if self.facts.is_table and precision != IDS else None
            if applied is None and not preprocessing.changes_nothing:
                raise InvalidInput(
                    "only tables of numbers are preprocessed, and these are rows of shape "
                    f"{self.shape}; use Preprocessing(unit_rows=False)."
                )
            applied = applied and self._with_names(applied)
            built[key] = self._parts[which].rows(applied, device=device, precision=precision)
        return built[key]

    def _with_names(self, preprocessing: Preprocessing) -> Preprocessing:
        """The same, which knows the private names of categories behind the codes of these rows."""
        encoding = preprocessing.encoding
        if encoding is None or not self._vocabularies:
            return preprocessing
        return preprocessing.with_encoding(encoding.reading(self._vocabularies))


def _read_only(table: NDArray[Any]) -> NDArray[Any]:
    view = table.view()
    view.setflags(write=False)
    return view
