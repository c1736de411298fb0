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
from typing import Any, TypedDict, Unpack
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from dptune import validate
from dptune.columns import Columns, Encoding
from dptune.data import remarks
from dptune.data.batches import gather
from dptune.data.classes import WITH_CLASSES, name_classes
from dptune.data.copies import has_copies
from dptune.data.declared import Vocabularies
from dptune.data.disk import DiskRows
from dptune.data.kinds import ChunkRows, ColumnRows, Kind, ParquetColumnRows, PlainRows
from dptune.data.made_by import facts_of_maker, facts_of_texts, rows_in_words
from dptune.data.origin import Origin
from dptune.data.parquet_rows import ParquetRows
from dptune.data.placed_rows import RowsWithGaps, numbers_of_kept
from dptune.data.preprocess import Preprocessing
from dptune.data.row_sources import ArraySource, RowSource
from dptune.data.rows import (
    ASKED_IN_ROWS,
    CLASSES_UNTIL_BOUGHT,
    IDS,
    MOST_COLUMNS_IN_DOUBT,
    DataFacts,
    Rows,
)
from dptune.data.shift import Shift, checked_shifts, shifted
from dptune.data.targets import DECLARED, TAKEN, facts_of_classes, targets_of
from dptune.errors import InvalidInput
from dptune.privacy import Receipt

_Cache = WeakKeyDictionary[Preprocessing, dict[tuple[str, str, str], Rows]]
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


class Facts(TypedDict, total=False):
    """What every constructor of `Data` takes beside the rows; `Data` explains them."""

    name: str
    test: Any
    public: Any
    shifts: Mapping[str, Shift] | None
    task: str
    classes: Sequence[Any] | str | None
    target_range: tuple[float, float] | None
    rows: int | None


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
        public: the same, of rows that nobody needs to protect.
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
        _must_be_plain(task, moved)
        self._read(
            PlainRows(features),
            labels,
            name=name,
            test=test,
            public=public,
            shifts=shifts,
            task=task,
            classes=classes,
            target_range=target_range,
            rows=rows,
        )

    @classmethod
    def from_table(
        cls,
        features: Any,
        labels: Any,
        *,
        column_names: Sequence[str] = (),
        columns: Columns | None = None,
        augmented: bool = False,
        origin: Origin | None = None,
        **facts: Unpack[Facts],
    ) -> "Data":
        """Arrays of which more is known. A model finds its columns by `column_names`, by default
        those of a frame. With `augmented`, the second axis holds copies of each row."""
        kind = PlainRows(features, column_names=column_names, augmented=augmented, columns=columns)
        return cls.__new__(cls)._read(kind, labels, origin, **facts)

    @classmethod
    def from_columns(
        cls,
        frame: Any,
        labels: Any,
        columns: Columns | Mapping[str, Any],
        *,
        column_names: Sequence[str] = (),
        origin: Origin | None = None,
        **facts: Unpack[Facts],
    ) -> "Data":
        """A frame (pandas, polars, Arrow, a mapping of arrays) of numbers, texts, dates and gaps,
        whose columns are declared by name. All other rows are such frames, too. An array is taken
        with `column_names`."""
        kind = ColumnRows(frame, Columns.of(columns), column_names=column_names)
        return cls.__new__(cls)._read(kind, labels, origin, **facts)

    @classmethod
    def from_disk(
        cls,
        chunks: DiskRows | str | Path,
        *,
        column_names: Sequence[str] = (),
        origin: Origin | None = None,
        **facts: Unpack[Facts],
    ) -> "Data":
        """Chunks that `write_chunks` wrote. They hold their labels: class numbers, or values."""
        rows = chunks if isinstance(chunks, DiskRows) else DiskRows(chunks)
        kind: Kind
        if isinstance(rows, ParquetRows):
            kind = ParquetColumnRows(rows)
        else:
            kind = ChunkRows(rows, column_names=column_names)
        return cls.__new__(cls)._read(kind, None, origin, **facts)

    @classmethod
    def from_texts(
        cls,
        tokens: Any,
        labels: Any = None,
        *,
        augmented: bool = False,
        origin: Origin | None = None,
        **facts: Unpack[Facts],
    ) -> "Data":
        """Texts as numbers of tokens (`dptune.texts`); `load_data(text=...)` makes them. With task
        "words" (next tokens), "spans" (answers in contexts) or "inside" (completions out of
        `classes`), rows hold what is asked of them, so there are no labels."""
        kind = PlainRows(tokens, augmented=augmented)
        return cls.__new__(cls)._read(kind, labels, origin, **facts)

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
        if not hasattr(bunch, "data") or not hasattr(bunch, "target"):
            raise InvalidInput(
                "Data.of takes a scikit-learn Bunch with .data and .target; got "
                f"{type(bunch).__name__}. Give arrays to Data(features, labels)."
            )
        labels = bunch.target
        names = list(getattr(bunch, "target_names", ()))
        # A single name is the name of a column, not of a class.
        named = len(names) > 1 and facts.get("task", "classes") == "classes"
        if named and facts.get("classes") is None:
            labels, facts["classes"] = name_classes(labels, names), names
            for other in ("test", "public"):
                if facts.get(other) is not None:
                    features, numbers = facts[other]
                    facts[other] = (features, name_classes(numbers, names))
            facts["shifts"] = {
                name: shift
                if isinstance(shift.features, DiskRows)
                else replace(shift, labels=name_classes(shift.labels, names))
                for name, shift in (facts.get("shifts") or {}).items()
            }
        return cls(bunch.data, labels, **facts)

    def _read(
        self,
        kind: Kind,
        labels: Any,
        origin: Origin | None = None,
        *,
        name: str = "data",
        test: Any = None,
        public: Any = None,
        shifts: Mapping[str, Shift] | None = None,
        task: str = "classes",
        classes: Sequence[Any] | str | None = None,
        target_range: tuple[float, float] | None = None,
        rows: int | None = None,
    ) -> "Data":
        """Read all rows: what every constructor does."""
        validate.text(name=name)
        origin, targets = origin or Origin(), targets_of(task, classes, target_range)
        train = kind.private(labels, targets)
        self.name, self.made_by = name, origin.made_by
        self.fingerprint = origin.fingerprint or kind.fingerprint(targets)
        self.loss, self.classes, self._secret = targets.loss, targets.classes, targets.secret
        self.target_range = targets.range
        self.shape, self.copies, self.column_names = kind.shape, kind.copies, kind.names
        self.columns = math.prod(self.shape)
        self.encoding, self.as_given = kind.encoding, False
        self.declared = kind.encoding.columns if isinstance(kind, ColumnRows) else None
        self._vocabularies = kind.vocabularies
        if self.encoding is None and self._may_be_a_table():
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
            *kind.facts(self.made_by),
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
                self._must_hold_no_private_rows(which)
        for shift, about in shifts.items():
            self._groups[shift] = about.masks(self._parts[shifted(shift)].count)
        self.shifts = tuple(shifts)  # their names
        self.left_out: dict[str, int] = {}
        self.unused_test_rows = False  # in the file of the private rows, which `load_data` knows
        self._built = _Cache()
        return self

    @property
    def facts(self) -> DataFacts:
        """What an engine may know before anything is paid."""
        named = None if self.encoding is None else self.encoding.columns
        return DataFacts(
            self.count,
            self.shape,
            self.copies,
            self.outputs,
            self.loss,
            named,
            self.as_given,
            self.has_secret_classes,
        )

    @property
    def has_secret_classes(self) -> bool:
        """Whether names of classes are to be bought; until then `classes` is empty."""
        return self._secret is not None

    @property
    def learns_classes(self) -> bool:
        """Whether every row has one, or holds one among what is asked of it."""
        return self.has_secret_classes or bool(self.classes)

    def _may_be_a_table(self) -> bool:
        """Whether rows that nobody declared may be columns of a table, and not what some network
        made."""
        plain = self.loss in ("softmax", "squared") and self.copies == 1 and self.made_by is None
        return plain and len(self.shape) == 1 and self.columns <= MOST_COLUMNS_IN_DOUBT

    def __repr__(self) -> str:
        found = [f"{self.count:,} rows", f"{self.columns:,} columns"]
        if not self.facts.is_table:
            found[1] = f"of shape {' x '.join(map(str, self.shape))}"
        if self.classes:
            found.append(f"{len(self.classes):,} classes")
        if self.has_secret_classes:
            found.append("classes to be bought")
        return f"Data({self.name!r}, {', '.join(found)})"

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
        """The private rows, for whoever has paid: `receipt` must be of a payment for these rows
        that was started, which its ledger is asked. Opening them again is cheap."""
        self._must_be_paid(receipt)
        rows = self._rows("train", preprocessing, device, precision)
        if self._numbers is None or rows.count == self.count:
            return rows
        places = max(self.count, int(self._numbers[-1]) + 1)  # fewer rows may be declared
        return RowsWithGaps(rows, torch.from_numpy(self._numbers), places)

    def unprotected_rows(
        self, preprocessing: Preprocessing, *, device: str = "cpu", precision: str = "float32"
    ) -> Rows:
        """The training rows without payment, for data that are public anyway, as in benchmarks:
        nothing that comes of these rows can be promised anything."""
        return self._rows("train", preprocessing, device, precision)

    def tables_for(
        self, receipt: Receipt, preprocessing: Preprocessing | None = None
    ) -> Iterator[NDArray[Any]]:
        """The private features, preprocessed, for a private mean; as they were given, or as raw
        codes where columns are declared, without. Paid as for `open`."""
        self._must_be_paid(receipt)
        tables = self._parts["train"].tables()
        return map(
            _read_only if preprocessing is None else self._reading(preprocessing).apply, tables
        )

    def remarks(self) -> tuple[str, ...]:
        """What whoever holds the rows should know before paying. From the rows themselves: for a
        screen, never to be stored or released."""
        train = self._parts["train"]
        if not isinstance(train, ArraySource) or self.facts.asks_inside:
            return ()
        found = list(remarks.of_targets(train.targets, classes=self.learns_classes))
        if self.encoding is not None and not self.as_given:
            found += remarks.of_columns(train.features, self.encoding)
        return tuple(found)

    def vocabularies_for(self, receipt: Receipt) -> Vocabularies:
        """What the codes of categories nobody declared stand for; paid as for `open`."""
        self._must_be_paid(receipt)
        return dict(self._vocabularies)

    def labels_for(self, receipt: Receipt) -> tuple[NDArray[Any], tuple[Any, ...]]:
        """Of every row the number of its label, and what these stand for; paid as for `open`."""
        self._must_be_paid(receipt)
        train = self._parts["train"]
        assert self._secret is not None and isinstance(train, ArraySource)
        return train.targets, tuple(self._secret.private)

    def with_classes(self, classes: Sequence[Any]) -> "Data":
        """The same data with classes that were bought. Private rows with another label count as
        empty; of rows beside them such are left out, and counted in `left_out`."""
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
            for name in self.shifts:
                if which == shifted(name):
                    groups = self._groups[name].items()
                    made._groups[name] = {group: mask[kept] for group, mask in groups}
        made.left_out.pop("train", None)  # which is private
        return made

    def with_public_classes(self) -> "Data":
        """The same data with all labels of private rows as classes, which the public facts say then
        as if that had been asked for."""
        assert self._secret is not None
        made = self.with_classes(self._secret.private)
        made.public_facts += tuple(facts_of_classes(made.classes, self._origin_of_classes))
        return made

    def test_rows(
        self, preprocessing: Preprocessing, device: str = "cpu", precision: str = "float32"
    ) -> Rows | None:
        """To report a figure, never to choose by."""
        if "test" not in self._parts:
            return None
        return self._rows("test", preprocessing, device, precision)

    def public_rows(
        self, preprocessing: Preprocessing, device: str = "cpu", precision: str = "float32"
    ) -> Rows | None:
        """To score trials at no cost."""
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
        """The rows of a shift by group, to report figures, never to choose by; all of them under
        "" where it has no groups."""
        rows = self._rows(shifted(shift), preprocessing, device, precision)
        masks = self._groups[shift].items()
        return {name: rows.taken(torch.from_numpy(mask)) for name, mask in masks} or {"": rows}

    @property
    def has_test_rows(self) -> bool:
        return "test" in self._parts

    def check_public_rows(self) -> None:
        """Trials may be compared on public rows, but never on those that report the result."""
        public = self._parts.get("public")
        if public is None:
            raise InvalidInput(
                "a public score needs public rows; give them with --public (public= in Python), "
                "or pay for noisy scores."
            )
        for which in ("test", *map(shifted, self.shifts)):
            other = self._parts.get(which)
            if other is not None and has_copies(
                other.tables(copies=other.copies), public.tables(copies=public.copies)
            ):
                raise InvalidInput(
                    f"some public rows are {which} rows: choosing by the rows that report the "
                    "result makes the report too good. Give other public rows, or pay for noisy "
                    "scores."
                )

    def public_features(self) -> NDArray[Any]:
        """The public features, encoded where columns are, to standardise by."""
        if "public" not in self._parts:
            raise InvalidInput(
                "columns are standardised by public rows, and there are none; give them with "
                "--public (public= in Python)."
            )
        features = np.concatenate(list(self._parts["public"].tables()))
        if self.encoding is None or self.as_given:
            return features
        return self.encoding.apply(features)

    def _must_be_paid(self, receipt: object) -> None:
        if not isinstance(receipt, Receipt):
            raise InvalidInput(
                "private rows open with the Receipt of an event that was paid for "
                f"(Ledger.reserve gives one); got {type(receipt).__name__}."
            )
        if receipt.issuer is None:
            raise InvalidInput(
                "private rows open with a Receipt that a ledger gave, and this one was made by "
                "hand, or copied or sent without its ledger; get it again with "
                f"Ledger.receipt({receipt.payment})."
            )
        receipt.issuer.must_be_in_force(receipt, self.fingerprint)

    def _must_hold_no_private_rows(self, which: str) -> None:
        """By features alone: with another label, a row is private still."""
        private, other = self._parts["train"], self._parts[which]
        tables = (part.tables(copies=part.copies) for part in (private, other))
        if has_copies(*tables, rows=private.count):
            raise InvalidInput(
                f"some {which} rows are private rows, more than chance would give: whatever is "
                "measured on them would leak them. Give other rows, or leave out those whose "
                "features are among the private ones."
            )

    def held_out(self, every: int) -> tuple["Data", "Data"]:
        """(the rest, every `every`-th row), by row number alone: one row is in one part only, so
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
                "the names of these classes are not bought yet, so their rows cannot be trained "
                f"on; tune buys them. Or declare all classes {WITH_CLASSES}."
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
            applied = applied and self._reading(applied)
            built[key] = self._parts[which].rows(applied, device=device, precision=precision)
        return built[key]

    def _reading(self, preprocessing: Preprocessing) -> Preprocessing:
        """The same for the codes of these rows, whose names of categories stay here."""
        encoding = preprocessing.encoding
        if encoding is None or not self._vocabularies:
            return preprocessing
        return replace(preprocessing, encoding=encoding.reading(self._vocabularies))


def _must_be_plain(task: object, moved: Mapping[str, object]) -> None:
    """Refuse what another constructor takes."""
    if task in ASKED_IN_ROWS:
        raise InvalidInput(f"rows of task={task!r} are taken by Data.from_texts(tokens, task=...).")
    for name in moved:
        if name not in _MOVED:
            raise TypeError(f"Data() got an unexpected keyword argument {name!r}")
        raise InvalidInput(f"Data takes plain arrays, without {name}; use {_MOVED[name]}.")


def _read_only(table: NDArray[Any]) -> NDArray[Any]:
    view = table.view()
    view.setflags(write=False)
    return view
