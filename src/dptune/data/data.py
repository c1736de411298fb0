"""A private data set: rows that open with a receipt only, and the facts about them that are public.

Everything is checked when a `Data` is made, before anything is paid for. What the rest of dptune
may know without a receipt (how many rows and columns, which classes, the range of a target) is
declared by whoever makes it, or taken from the rows; `public_facts` says which, one by one. A
target's range is never taken from the rows: its ends would be two people's values.
"""

import copy
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from dptune import validate
from dptune.columns import Columns, Encoding
from dptune.data import remarks
from dptune.data.arrays import as_class_labels, as_features, as_values, names_of, places
from dptune.data.batches import gather
from dptune.data.classes import (
    WITH_CLASSES,
    Numbered,
    are_secret,
    class_numbers,
    classes_on_disk,
    list_of_classes,
    must_be_declared,
    name_classes,
)
from dptune.data.copies import has_copies
from dptune.data.declared import Vocabularies, coded, facts_in_words, fingerprint_declared
from dptune.data.disk import DiskRows
from dptune.data.fingerprint import fingerprint_arrays, fingerprint_folder
from dptune.data.made_by import (
    is_of_texts,
    is_of_words,
    made_by_in_words,
    must_be_whole,
    rows_in_words,
    texts_in_words,
)
from dptune.data.parquet_rows import ParquetRows
from dptune.data.placed_rows import RowsWithGaps
from dptune.data.preprocess import LARGEST, Preprocessing
from dptune.data.row_sources import ArraySource, ClassNumbers, DiskSource, RowSource, Scale
from dptune.data.rows import (
    ASKED_IN_ROWS,
    CLASSES_UNTIL_BOUGHT,
    IDS,
    MOST_COLUMNS_IN_DOUBT,
    DataFacts,
    Rows,
)
from dptune.data.secret_labels import SecretLabels
from dptune.data.shift import Shift, shifted
from dptune.errors import InvalidInput
from dptune.plain_data import read_json
from dptune.privacy import Receipt
from dptune.texts.cutting import NOT_ASKED

TASKS = {"classes": "softmax", "values": "squared"} | {task: task for task in ASKED_IN_ROWS}
_OF_CLASSES = ("classes", "inside")
_Cache = WeakKeyDictionary[Preprocessing, dict[tuple[str, str, str], Rows]]


class Data:
    """Private training rows, with test rows that only ever report a figure and public rows that
    may score trials.

    Features are a table of numbers (NumPy, torch, lists, pandas), or rows of another shape, such
    as pictures; with `augmented`, the second axis holds copies of each row. They are not copied, so
    leave them alone afterwards. Or they are `DiskRows`, which hold their labels: class numbers, or
    values. `test` and `public` are (features, labels) pairs, or `DiskRows`, refused where they hold
    copies of private rows. `rows`, `classes` and `target_range` are public facts. A target's range,
    which values are clipped to, must be declared; the others are taken from the data, and named so,
    where they are not.
    `column_names` are those of the features, by default a frame's; they are stored with the model,
    which finds its columns by them.
    With `columns`, which declare columns by name, features are a frame (pandas, polars, Arrow, a
    mapping of arrays) of numbers, texts, dates and gaps, and so are those of all other rows. They
    are kept as raw codes, one number a column; engines see the features that `encoding` makes of
    them, whose number is public.
    `numbers` say which of `rows` each row is, where some are empty: those that are held out are
    found by them, so that an empty row puts no other row in another part.
    `shifts` are rows of other origins, by name, that report a figure as test rows do. `made_by`
    tells which public backbone made the features of pictures: its "name", and whatever else finds
    it again, as plain data; it is stored with the model. `origins` say in words where `rows` and
    `classes` come from, where they are given and nobody declared them.
    Classes that nobody declared are bought by the study where labels are texts, since a mistyped
    one would be published otherwise; whole numbers and booleans that occur are public. Say
    `classes="paid"` or `classes="public"` for the one or the other.
    With task "words", "spans" or "inside", rows are of words and hold what is asked of them
    (`dptune.texts`), so there are no labels; those of "inside" are numbers of `classes`.
    """

    def __init__(
        self,
        features: Any,
        labels: Any = None,
        *,
        name: str = "data",
        test: tuple[Any, Any] | DiskRows | None = None,
        public: tuple[Any, Any] | DiskRows | None = None,
        task: str = "classes",
        classes: Sequence[Any] | str | None = None,
        rows: int | None = None,
        numbers: Any = None,
        target_range: tuple[float, float] | None = None,
        column_names: Sequence[str] = (),
        columns: Columns | Mapping[str, Any] | None = None,
        augmented: bool = False,
        fingerprint: str | None = None,
        shifts: Mapping[str, Shift] | None = None,
        made_by: Mapping[str, Any] | None = None,
        origins: Mapping[str, str] | None = None,
    ) -> None:
        validate.text(name=name)
        validate.one_of(tuple(TASKS), task=task)
        if fingerprint is not None:
            validate.text(fingerprint=fingerprint)
        self.name, self.loss = name, TASKS[task]
        self.classes: tuple[Any, ...] = ()
        self._secret: SecretLabels | None = None  # until classes are bought
        self.left_out: dict[str, int] = {}
        self.target_range: tuple[float, float] | None = None
        self.declared = None if columns is None else Columns.of(columns)
        self.encoding = None if self.declared is None else Encoding(self.declared)
        self._vocabularies: Vocabularies = {}  # of the private rows, so nobody else's business
        if task not in _OF_CLASSES:
            _must_be_left_out("classes", classes, task)
        if task == "values":
            self.target_range = _range(target_range)
        else:
            _must_be_left_out("target_range", target_range, task)
        if self.declared is None:
            train, found_names, identity = self._private(
                features, labels, task, classes, augmented, column_names
            )
        else:
            _must_be_of_columns(features, task, augmented)
            train, found_names, identity = self._private_frame(
                features, labels, task, classes, self.declared, column_names
            )
            column_names = ()
        self.fingerprint = fingerprint or identity()
        self.shape, self.copies = train.shape, train.copies
        self.column_names = _names(column_names, found_names, math.prod(self.shape))
        if self.encoding is not None:
            self.shape = (self.encoding.width,)
        self.columns = math.prod(self.shape)
        self.made_by = _plain(made_by)
        self.as_given = self.declared is None and self._may_be_a_table()
        if self.as_given:
            numbered = (f"column {number}" for number in range(1, self.columns + 1))
            self.encoding = Encoding(Columns.of_numbers(numbered))
        self.count = train.count if rows is None else validate.whole(1, rows=rows)
        self._numbers = _row_numbers(numbers, train.count)
        self.outputs = len(self.classes) or 1
        if self.has_secret_classes:
            self.outputs = CLASSES_UNTIL_BOUGHT
        self._origins = {"rows": _origin(rows), "classes": _origin_of_classes(classes)}
        self._origins |= origins or {}
        self.public_facts = self._facts_in_words(**self._origins)
        self._parts: dict[str, RowSource] = {"train": train}
        for which, given in (("test", test), ("public", public)):
            if given is not None:
                self._take_beside(given, which)
        self._groups = self._take_shifts(_named_shifts(shifts, task))
        self.shifts = tuple(self._groups)  # their names
        self.unused_test_rows = False  # of its file; `load_data` knows
        self._built = _Cache()

    def _private(
        self,
        features: Any,
        labels: Any,
        task: str,
        classes: Sequence[Any] | str | None,
        augmented: bool,
        names: Sequence[str],
    ) -> tuple[RowSource, tuple[str, ...], Callable[[], str]]:
        """The private rows, the names of their columns, and what computes their fingerprint."""
        if task in ASKED_IN_ROWS:
            _must_be_left_out("labels", labels, task)
            if task == "inside":
                self.classes = list_of_classes(must_be_declared(classes), np.empty(0))
            asked = self._asked_inside(features, augmented, "the features")
            return asked, (), lambda: fingerprint_arrays(asked.features)
        if isinstance(features, DiskRows):
            _must_hold_labels(features, labels, augmented)
            if task == "classes":
                self.classes = classes_on_disk(classes, features)
            chunks = self._on_disk(features, "the labels")
            return chunks, (), lambda: fingerprint_folder(features.folder)
        table = as_features(features, "the features", names)
        augmented = validate.flag(augmented=augmented)
        _must_have_copies(table, augmented)
        known, targets = self._private_labels(labels, table, task, classes)
        if table.ndim > 2 and np.abs(table).max() > LARGEST:  # refused before it is paid for
            raise InvalidInput(f"the features hold numbers beyond {LARGEST:g}; scale them.")
        rows = ArraySource(table, targets, augmented)
        return rows, names_of(features), lambda: _fingerprint(table, known, task)

    def _private_frame(
        self,
        features: Any,
        labels: Any,
        task: str,
        classes: Sequence[Any] | str | None,
        columns: Columns,
        names: Sequence[str],
    ) -> tuple[RowSource, tuple[str, ...], Callable[[], str]]:
        """The same of rows whose columns are declared."""
        if isinstance(features, ParquetRows):
            self._vocabularies = features.vocabularies
            if task == "classes":
                self.classes = list_of_classes(classes, np.empty(0))
            chunks = self._on_disk(features, "the labels")
            return chunks, columns.kept, lambda: fingerprint_folder(features.folder)
        found = coded(features, columns, "the features", names)
        self._vocabularies = found.vocabularies
        known, targets = self._private_labels(labels, found.rows, task, classes)
        rows = ArraySource(found.rows, targets)
        return rows, columns.kept, lambda: fingerprint_declared(features, names, known)

    def _private_labels(
        self, labels: Any, features: NDArray[Any], task: str, classes: Sequence[Any] | str | None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """As they are known, and as engines take them."""
        if isinstance(labels, Numbered):
            self.classes = list_of_classes(classes, np.empty(0))
            return labels.numbers, labels.numbers
        read = as_class_labels if task == "classes" else as_values
        known = read(labels, "the labels")
        _must_fit(known, features, "the labels")
        if task == "classes":
            found = list_of_classes(classes, known)
            if are_secret(classes, known):
                self._secret = SecretLabels(found)
            else:
                self.classes = found
        return known, self._targets(known, "the labels", shown=False)

    def _facts_in_words(self, rows: str, classes: str) -> tuple[str, ...]:
        """`rows` and `classes` say where these come from."""
        facts = [f"the number of {rows_in_words(self.made_by)} ({self.count:,}), {rows}"]
        if is_of_texts(self.made_by):
            facts += texts_in_words(self.made_by)
        if self.declared is not None and self.encoding is not None:
            facts.append(facts_in_words(self.encoding))
        elif self.facts.is_table and not is_of_words(self.made_by):
            facts.append(f"the number of columns ({self.columns:,}), taken from the data")
        elif not is_of_words(self.made_by):
            shape = " x ".join(map(str, self.shape))
            facts.append(f"the shape of a row ({shape}), taken from the data")
        if self.copies > 1 and not is_of_texts(self.made_by):
            facts.append(f"the number of copies of a row ({self.copies:,}), taken from the data")
        if self.column_names and self.declared is None:
            facts.append("the names of the columns, taken from the data")
        if self.made_by is not None and not is_of_words(self.made_by):
            things = rows_in_words(self.made_by)
            facts.append(
                f"the features were made by {made_by_in_words(self.made_by)}, whose weights are "
                f"taken as public: nothing is promised about {things} that they were trained on"
            )
        if self.classes:
            facts.append(f"the classes ({len(self.classes):,}), {classes}")
        if self.target_range is not None:
            low, high = self.target_range
            facts.append(f"the range of the target ({low:g} to {high:g}), as declared")
        return tuple(facts)

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

    @staticmethod
    def of(bunch: Any, **facts: Any) -> "Data":
        """From a scikit-learn Bunch; `facts` are those of `Data`. Where it names its classes, the
        names become the labels."""
        if not hasattr(bunch, "data") or not hasattr(bunch, "target"):
            raise InvalidInput(
                "Data.of takes a scikit-learn Bunch with .data and .target; got "
                f"{type(bunch).__name__}. Give arrays to Data(features, labels)."
            )
        labels = bunch.target
        names = list(getattr(bunch, "target_names", ()))
        # One name only is the name of a column, not of a class.
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
        return Data(bunch.data, labels, **facts)

    @staticmethod
    def from_batches(batches: Any, *, test: Any = None, public: Any = None, **facts: Any) -> "Data":
        """From whatever gives (features, labels) and has a length: a torch DataLoader, a Dataset
        of single rows, a list of pairs. `test` and `public` are such too, or `DiskRows`; `facts`
        are those of `Data`.

        All rows are read once, here, and kept in memory. A row's number is its place in what was
        read. So a loader that shuffles, or augments at random, makes another data set each time:
        a ledger that serves several studies, and `resume`, need the same rows in the same order.
        """
        for which, given in (("test", test), ("public", public)):
            if given is not None:
                facts[which] = given if isinstance(given, DiskRows) else gather(given, which)
        return Data(*gather(batches, "private"), **facts)

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
            _guarded if preprocessing is None else self._reading(preprocessing).apply, tables
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
                made._numbers = _numbers_of(kept, self._numbers)
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
        made.public_facts = made._facts_in_words(**self._origins)
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

    def _take_beside(self, given: Any, which: str) -> RowSource:
        self._parts[which] = self._beside(given, which)
        self._must_hold_no_private_rows(which)
        return self._parts[which]

    def _take_shifts(self, shifts: Mapping[str, Shift]) -> dict[str, dict[str, NDArray[np.bool_]]]:
        """Which rows of each are in which group."""
        return {
            name: shift.masks(self._take_beside(_given(shift), shifted(name)).count)
            for name, shift in shifts.items()
        }

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
        return preprocessing.with_encoding(encoding.reading(self._vocabularies))

    def _targets(self, labels: NDArray[Any], what: str, *, shown: bool) -> NDArray[Any]:
        """Labels as engines take them; those of private rows are not `shown` in messages."""
        if self.target_range is not None:
            scaled: NDArray[Any] = Scale(*self.target_range)(torch.tensor(labels)).numpy()
            return scaled
        if self._secret is not None:
            return self._secret.numbers(labels, what)
        return class_numbers(labels, self.classes, what, shown=shown)

    def _beside(self, given: Any, which: str) -> RowSource:
        """Rows beside the private ones, which must be of the same shape."""
        what = f"the {which} labels"
        if isinstance(given, DiskRows):
            if self.has_secret_classes:
                raise InvalidInput(
                    f"{what} in {given.folder} are numbers of classes, and the classes of the "
                    f"private rows are not declared; declare all of them, in order, {WITH_CLASSES}."
                )
            self._must_have_our_shape(given.shape, which)
            return self._on_disk(given, what)
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise InvalidInput(
                f"{which} must be a pair (features, labels); got {type(given).__name__}."
            )
        if self.declared is not None:
            features = self._coded_beside(given[0], self.declared, which)
            augmented = False
        else:
            features, augmented = self._features_beside(given[0], which)
        if self.facts.asks_inside:
            _must_be_left_out(what, given[1], self.loss)
            return self._asked_inside(features, augmented, f"the {which} features")
        if isinstance(given[1], Numbered):
            return ArraySource(features, given[1].numbers)
        labels = (as_class_labels if self.learns_classes else as_values)(given[1], what)
        _must_fit(labels, features, what)
        return ArraySource(features, self._targets(labels, what, shown=True), augmented)

    def _features_beside(self, given: Any, which: str) -> tuple[NDArray[Any], bool]:
        """And whether each row has copies."""
        names = names_of(given)
        features = as_features(given, f"the {which} features", names or self.column_names)
        if self.column_names and names and names != self.column_names:
            features = features[:, places(self.column_names, names, f"the table of {which} rows")]
        augmented = features.ndim == len(self.shape) + 2
        self._must_have_our_shape(features.shape[2 if augmented else 1 :], which)
        return features, augmented

    def _coded_beside(self, given: Any, columns: Columns, which: str) -> NDArray[Any]:
        what = f"the {which} features"
        found = coded(given, columns, what, self.column_names, self._vocabularies)
        return found.rows

    def _asked_inside(self, features: Any, augmented: bool, what: str) -> ArraySource:
        """Rows (2, length) of words that hold what is asked. Their targets are the class of a row's
        first copy, where there are classes, and nothing else."""
        if isinstance(features, DiskRows):
            raise InvalidInput(f"{what} of task={self.loss!r} are kept in memory, not in chunks.")
        table, leading = as_features(features, what), 1 + validate.flag(augmented=augmented)
        if table.dtype.kind not in "iu" or table.shape[leading:][:1] != (2,):
            raise InvalidInput(
                f"{what} of task={self.loss!r} must be whole numbers, rows of shape (2, length): "
                f"words, and what is asked of them; got {table.dtype} of shape {table.shape}."
            )
        first: NDArray[Any] = table[..., 1, 0].reshape(len(table), -1)
        if self.loss == "inside":
            asked = first[first != NOT_ASKED]
            if not ((asked >= 0) & (asked < len(self.classes))).all() or NOT_ASKED in first[:, 0]:
                raise InvalidInput(
                    f"{what} must hold the number of a class, from 0 to {len(self.classes) - 1}, "
                    f"in the first place that asks, or {NOT_ASKED} in copies that are empty."
                )
            return ArraySource(table, first[:, 0].astype(np.int64), augmented)
        return ArraySource(table, np.zeros(len(table), np.int64), augmented)

    def _must_have_our_shape(self, shape: tuple[int, ...], which: str) -> None:
        if shape != self.shape:
            theirs, ours = (
                f"{s[0]} columns" if len(s) == 1 else f"rows of shape {s}"
                for s in (shape, self.shape)
            )
            raise InvalidInput(
                f"the {which} features have {theirs}, the private ones {ours}; they need the same."
            )

    def _on_disk(self, rows: DiskRows, what: str) -> DiskSource:
        if self.target_range is None:
            facts = rows.target_facts
            if (
                not facts.whole
                or facts.width > 1
                or not 0 <= facts.low <= facts.high < len(self.classes)
            ):
                raise InvalidInput(
                    f"{what} in {rows.folder} must be class numbers from 0 to "
                    f"{len(self.classes) - 1}, one a row; declare all classes, in order, "
                    f"{WITH_CLASSES}, or write the chunks again."
                )
            return DiskSource(rows, ClassNumbers())
        if rows.target_facts.width > 1:
            raise InvalidInput(
                f"{what} in {rows.folder} are {rows.target_facts.width} a row, and one is learned."
            )
        return DiskSource(rows, Scale(*self.target_range))


def _must_be_of_columns(features: Any, task: str, augmented: bool) -> None:
    chunks = isinstance(features, DiskRows) and not isinstance(features, ParquetRows)
    if chunks or augmented or task in ASKED_IN_ROWS:
        raise InvalidInput(
            "columns are declared of a table in memory, one row a person, and these are chunks on "
            "disk, copies of rows, or rows of words; leave columns out."
        )


def _named_shifts(given: Mapping[str, Shift] | None, task: str) -> Mapping[str, Shift]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidInput(
            "shifts must be a mapping of names to Shift(features, labels); got "
            f"{type(given).__name__}."
        )
    if given and task != "classes":
        raise InvalidInput(
            f"shifts report accuracies, and task={task!r} has none; leave the shifts out."
        )
    for name, shift in given.items():
        validate.text(shifts=name)
        if not isinstance(shift, Shift):
            raise InvalidInput(
                f"the shift {name} must be a Shift(features, labels); got {type(shift).__name__}."
            )
    return given


def _given(shift: Shift) -> Any:
    if not isinstance(shift.features, DiskRows):
        return shift.features, shift.labels
    _must_hold_labels(shift.features, shift.labels, augmented=False)
    return shift.features


def _plain(made_by: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A copy as JSON gives it back, so that a stored model knows the same."""
    if made_by is None:
        return None
    if not isinstance(made_by, Mapping) or "name" not in made_by:
        raise InvalidInput(
            'made_by must be a mapping with a "name", that of what made the features; got '
            f"{made_by!r}."
        )
    validate.text(made_by=made_by["name"])
    try:
        plain: dict[str, Any] = read_json(json.dumps(dict(made_by), allow_nan=False), "it")
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"made_by must be plain texts, numbers, lists and mappings: {error}."
        ) from None
    must_be_whole(plain)
    return plain


def _guarded(table: NDArray[Any]) -> NDArray[Any]:
    view = table.view()
    view.setflags(write=False)
    return view


def _must_hold_labels(rows: DiskRows, labels: object, augmented: bool) -> None:
    if labels is not None or augmented:
        raise InvalidInput(
            f"the chunks in {rows.folder} hold labels and copies already; leave labels and "
            "augmented out."
        )


def _must_have_copies(features: NDArray[Any], augmented: bool) -> None:
    if augmented and features.ndim < 3:
        raise InvalidInput(
            f"augmented features have shape (rows, copies, columns); got {features.shape}."
        )


def _must_be_left_out(name: str, value: object, task: str) -> None:
    if value is not None:
        raise InvalidInput(f"{name} does not go with task={task!r}; leave it out.")


def _must_fit(labels: NDArray[Any], features: NDArray[Any], what: str) -> None:
    if len(labels) != len(features):
        raise InvalidInput(
            f"{what} are {len(labels)} for {len(features)} rows of features; each row needs one."
        )


def _fingerprint(features: NDArray[Any], labels: NDArray[Any], task: str) -> str:
    """Classes given as floats count as whole numbers: ledgers have known them so."""
    whole = task == "classes" and labels.dtype.kind == "f"
    return fingerprint_arrays(features, labels.astype(np.int64) if whole else labels)


def _row_numbers(given: Any, rows: int) -> NDArray[np.int64] | None:
    """Which one each of the `rows` is, among all, the empty ones included; None where none is
    empty."""
    if given is None:
        return None
    numbers = np.asarray(given)
    if (
        numbers.dtype.kind not in "iu"
        or numbers.shape != (rows,)
        or numbers[0] < 0
        or (np.diff(numbers) < 1).any()
    ):
        raise InvalidInput(f"numbers must be {rows} whole numbers, one a row, that grow from 0 on.")
    return numbers.astype(np.int64)


def _numbers_of(
    kept: NDArray[np.bool_], numbers: NDArray[np.int64] | None
) -> NDArray[np.int64] | None:
    """Those of rows of which only some are left; None where none is empty."""
    if numbers is None:
        return None if kept.all() else np.flatnonzero(kept)
    return numbers[kept]


def _origin(declared: object) -> str:
    return "taken from the data" if declared is None else "as declared"


def _origin_of_classes(declared: object) -> str:
    return "taken from the data" if isinstance(declared, str) else _origin(declared)


def _names(declared: Sequence[str], found: tuple[str, ...], columns: int) -> tuple[str, ...]:
    names = tuple(declared)
    if not names:
        # A name that occurs twice finds no column.
        return found if len(set(found)) == len(found) else ()
    text = not isinstance(declared, str) and all(isinstance(name, str) for name in names)
    if not text or len(names) != columns or len(set(names)) != columns:
        raise InvalidInput(
            f"column_names must be {columns} different names, one a column; got {len(names)}."
        )
    return names


def _range(declared: tuple[float, float] | None) -> tuple[float, float]:
    if declared is None:
        raise InvalidInput(
            "task='values' needs a target_range, the lowest and the highest value to learn; "
            "values outside are clipped to it. Declare it with target_range = [LOW, HIGH] in "
            "[data] of a file for dptune tune --config (target_range=(low, high) in Python). It is "
            "released with the model: take it from what is known of such values, never from the "
            "rows."
        )
    try:
        low, high = (float(end) for end in declared)
    except (TypeError, ValueError):
        raise InvalidInput(f"target_range must be (low, high); got {declared!r}.") from None
    if not (low < high and math.isfinite(high - low)):
        raise InvalidInput(f"target_range must be (low, high) with low < high; got {declared!r}.")
    return low, high
