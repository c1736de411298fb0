"""A private data set: rows that open with a receipt only, and the facts about them that are public.

Everything is checked when a `Data` is made, before anything is paid for. What the rest of dptune
may know without a receipt (how many rows and columns, which classes, the range of a target) is
declared by whoever makes it, or taken from the rows; `public_facts` says which, one by one. A
target's range is never taken from the rows: its ends would be two people's values.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.data.arrays import as_class_labels, as_table, as_values, names_of, places
from dptune.data.copies import has_copies
from dptune.data.fingerprint import fingerprint_arrays
from dptune.data.preprocess import Preprocessing
from dptune.data.rows import MemoryRows
from dptune.errors import InvalidInput
from dptune.privacy import Receipt

TASKS = {"classes": "softmax", "values": "squared"}
_FEW_CLASSES = 20  # which may be found in any small data set
_WITH_CLASSES = "with classes in [data] of a --config file (classes= in Python)"
_Cache = WeakKeyDictionary[Preprocessing, dict[tuple[str, str, str], MemoryRows]]


@dataclass(frozen=True, eq=False, repr=False)  # no repr: it would print rows
class _Part:
    """Checked features, and targets as engines take them: class numbers, or values in [-1, 1]."""

    features: NDArray[Any]
    targets: NDArray[Any]

    def taken(self, which: Any) -> "_Part":
        return _Part(self.features[which], self.targets[which])


class Data:
    """Private training rows, with test rows that only ever report a figure and public rows that
    may score trials.

    Features are a table of numbers (NumPy, torch, lists, pandas); they are not copied, so leave
    them alone afterwards. `test` and `public` are (features, labels) pairs, refused where they hold
    copies of private rows. `rows`, `classes` and `target_range` are public facts. A target's range,
    which values are clipped to, must be declared; the others are taken from the data, and named so,
    where they are not.
    `column_names` are those of the features, by default a frame's; they are stored with the model,
    which finds its columns by them.
    """

    def __init__(
        self,
        features: Any,
        labels: Any,
        *,
        name: str = "data",
        test: tuple[Any, Any] | None = None,
        public: tuple[Any, Any] | None = None,
        task: str = "classes",
        classes: Sequence[Any] | None = None,
        rows: int | None = None,
        target_range: tuple[float, float] | None = None,
        column_names: Sequence[str] = (),
        fingerprint: str | None = None,
    ) -> None:
        validate.text(name=name)
        validate.one_of(tuple(TASKS), task=task)
        self.name, self.loss = name, TASKS[task]
        table = as_table(features, "the features")
        found = (as_class_labels if task == "classes" else as_values)(labels, "the labels")
        _must_fit(found, table, "the labels")
        self.columns = table.shape[1]
        self.column_names = _names(column_names, features, self.columns)
        self.count = len(table) if rows is None else validate.whole(1, rows=rows)
        self.classes: tuple[Any, ...] = ()
        self.target_range: tuple[float, float] | None = None
        facts = [
            f"the number of rows ({self.count:,}), {_origin(rows)}",
            f"the number of columns ({self.columns:,}), taken from the data",
        ]
        if self.column_names:
            facts.append("the names of the columns, taken from the data")
        if task == "classes":
            _must_be_left_out("target_range", target_range, task)
            self.classes = _list_of_classes(classes, found)
            facts.append(f"the classes ({len(self.classes):,}), {_origin(classes)}")
        else:
            _must_be_left_out("classes", classes, task)
            low, high = self.target_range = _range(target_range)
            facts.append(f"the range of the target ({low:g} to {high:g}), as declared")
        self.public_facts: tuple[str, ...] = tuple(facts)
        self.outputs = len(self.classes) or 1
        self._parts = {"train": _Part(table, self._targets(found, "the labels", shown=False))}
        for which, pair in (("test", test), ("public", public)):
            if pair is not None:
                self._parts[which] = self._pair(pair, which)
                self._must_hold_no_private_rows(which)
        if fingerprint is not None:
            validate.text(fingerprint=fingerprint)
        self.fingerprint = fingerprint or _fingerprint(table, found, task)
        self.unused_test_rows = False  # of its file; `load_data` knows
        self._built = _Cache()

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
        return Data(bunch.data, labels, **facts)

    def __repr__(self) -> str:
        found = [f"{self.count:,} rows", f"{self.columns:,} columns"]
        if self.classes:
            found.append(f"{len(self.classes):,} classes")
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
    ) -> MemoryRows:
        """The private rows, for whoever has paid: `receipt` must be of a payment for these rows
        that was started, which its ledger is asked. Opening them again is cheap."""
        self._must_be_paid(receipt)
        return self._rows("train", preprocessing, device, precision)

    def unprotected_rows(
        self, preprocessing: Preprocessing, *, device: str = "cpu", precision: str = "float32"
    ) -> MemoryRows:
        """The training rows without payment, for data that are public anyway, as in benchmarks:
        nothing that comes of these rows can be promised anything."""
        return self._rows("train", preprocessing, device, precision)

    def features_for(self, receipt: Receipt) -> NDArray[np.float64]:
        """The private features as they were given, for a private mean; paid as for `open`."""
        self._must_be_paid(receipt)
        features = np.asarray(self._parts["train"].features, dtype=np.float64).view()
        features.setflags(write=False)
        return features

    def test_rows(
        self, preprocessing: Preprocessing, device: str = "cpu", precision: str = "float32"
    ) -> MemoryRows | None:
        """To report a figure, never to choose by."""
        if "test" not in self._parts:
            return None
        return self._rows("test", preprocessing, device, precision)

    def public_rows(
        self, preprocessing: Preprocessing, device: str = "cpu", precision: str = "float32"
    ) -> MemoryRows | None:
        """To score trials at no cost."""
        if "public" not in self._parts:
            return None
        return self._rows("public", preprocessing, device, precision)

    @property
    def has_test_rows(self) -> bool:
        return "test" in self._parts

    def check_public_rows(self) -> None:
        """Trials may be compared on public rows, but never on those that report the result."""
        public, test = self._parts.get("public"), self._parts.get("test")
        if public is None:
            raise InvalidInput(
                "a public score needs public rows; give them with --public (public= in Python), "
                "or pay for noisy scores."
            )
        if test is not None and has_copies(test.features, public.features):
            raise InvalidInput(
                "some public rows are test rows: choosing by the rows that report the result "
                "makes the report too good. Give other public rows, or pay for noisy scores."
            )

    def public_features(self) -> NDArray[Any]:
        """The public features as they were given, to standardise by."""
        if "public" not in self._parts:
            raise InvalidInput(
                "columns are standardised by public rows, and there are none; give them with "
                "--public (public= in Python)."
            )
        return self._parts["public"].features

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
        if has_copies(self._parts["train"].features, self._parts[which].features):
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
        numbers = np.arange(len(train.targets))
        if self.count < 2 or len(numbers) < 2:
            raise InvalidInput("rows can be held out of two or more; this data set has one.")
        held = -(-self.count // every)
        rest = self._with(train.taken(numbers % every != 0), self.count - held, every)
        return rest, self._with(train.taken(slice(None, None, every)), held, every)

    def _with(self, train: _Part, count: int, every: int) -> "Data":
        part = copy.copy(self)
        part._parts, part.count = self._parts | {"train": train}, count
        part.public_facts = (*self.public_facts, f"which rows are held out (one in {every})")
        return part

    def _rows(
        self, which: str, preprocessing: Preprocessing, device: str, precision: str
    ) -> MemoryRows:
        if not isinstance(preprocessing, Preprocessing):
            raise InvalidInput(
                f"preprocessing must be a dptune Preprocessing; got {type(preprocessing).__name__}."
            )
        built = self._built.setdefault(preprocessing, {})
        key = (which, device, precision)
        if key not in built:
            part = self._parts[which]
            built[key] = MemoryRows(
                preprocessing.apply(part.features), part.targets, device=device, precision=precision
            )
        return built[key]

    def _targets(self, labels: NDArray[Any], what: str, *, shown: bool) -> NDArray[Any]:
        """Labels as engines take them; those of private rows are not `shown` in messages."""
        if self.target_range is not None:
            low, high = self.target_range
            scaled: NDArray[Any] = (labels.clip(low, high) - low) / (high - low) * 2 - 1
            return scaled
        distinct, numbers = np.unique(labels, return_inverse=True)
        known = {label: number for number, label in enumerate(self.classes)}
        unknown = [label for label in distinct.tolist() if label not in known]
        if unknown:
            raise InvalidInput(
                f"{what} hold {_some(unknown) if shown else 'others'}, not among the classes "
                f"({_some(self.classes)}); declare all of them {_WITH_CLASSES}."
            )
        found: NDArray[Any] = np.array([known[label] for label in distinct.tolist()])[numbers]
        return found

    def _pair(self, pair: tuple[Any, Any], which: str) -> _Part:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise InvalidInput(
                f"{which} must be a pair (features, labels); got {type(pair).__name__}."
            )
        features, names = as_table(pair[0], f"the {which} features"), names_of(pair[0])
        if self.column_names and names and names != self.column_names:
            features = features[:, places(self.column_names, names, f"the table of {which} rows")]
        if features.shape[1] != self.columns:
            raise InvalidInput(
                f"the {which} features have {features.shape[1]} columns, the private ones "
                f"{self.columns}; they need the same."
            )
        read, what = as_class_labels if self.classes else as_values, f"the {which} labels"
        labels = read(pair[1], what)
        _must_fit(labels, features, what)
        return _Part(features, self._targets(labels, what, shown=True))


def name_classes(numbers: Any, names: Sequence[str]) -> NDArray[Any]:
    """Labels as names, from their numbers."""
    labels = as_class_labels(numbers, "the labels")
    if labels.dtype.kind not in "iuf" or labels.min() < 0 or labels.max() >= len(names):
        raise InvalidInput(
            f"{len(names)} classes have names, so labels must be numbers from 0 to "
            f"{len(names) - 1}; found others."
        )
    named: NDArray[Any] = np.asarray(names, dtype=str)[labels.astype(np.int64)]
    return named


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


def _origin(declared: object) -> str:
    return "taken from the data" if declared is None else "as declared"


def _some(values: Sequence[Any]) -> str:
    shown = ", ".join(repr(value) for value in values[:5])
    return shown if len(values) <= 5 else f"{shown}, ..."


def _names(declared: Sequence[str], features: Any, columns: int) -> tuple[str, ...]:
    names = tuple(declared)
    if not names:
        names = names_of(features)
        # A name that occurs twice finds no column.
        return names if len(set(names)) == len(names) else ()
    text = not isinstance(declared, str) and all(isinstance(name, str) for name in names)
    if not text or len(names) != columns or len(set(names)) != columns:
        raise InvalidInput(
            f"column_names must be {columns} different names, one a column; got {len(names)}."
        )
    return names


def _list_of_classes(declared: Sequence[Any] | None, labels: NDArray[Any]) -> tuple[Any, ...]:
    if declared is None:
        classes = tuple(np.unique(labels).tolist())
        if len(classes) < 2:
            raise InvalidInput(
                "all rows have the same label, so there is nothing to learn; if there are other "
                f"classes, declare all of them {_WITH_CLASSES}."
            )
        if len(classes) > _FEW_CLASSES and 10 * len(classes) > len(labels):
            raise InvalidInput(
                "the labels are almost all different, so as classes they would be released one by "
                "one, and there is little to learn. If they are values, say task='values' and give "
                "a target_range (in [data] of a --config file, or in Python); if they are "
                f"classes, declare all of them {_WITH_CLASSES}."
            )
        return classes
    if not isinstance(declared, Sequence | np.ndarray) or isinstance(declared, str):
        raise InvalidInput(
            f"classes must be a list of labels, in order; got {type(declared).__name__}."
        )
    classes = tuple(as_class_labels(list(declared), "the classes").tolist())
    if len(set(classes)) != len(classes) or len(classes) < 2:
        raise InvalidInput(f"classes must be two or more different labels; got {_some(classes)}.")
    return classes


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
