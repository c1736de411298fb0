"""What is learned from rows (classes, values, or answers inside rows of tokens), and how labels
become the targets that an engine takes."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dptune import validate
from dptune.data.arrays import as_class_labels, as_values
from dptune.data.classes import (
    WITH_CLASSES,
    Numbered,
    are_secret,
    class_numbers,
    classes_on_disk,
    list_of_classes,
    must_be_declared,
)
from dptune.data.disk import DiskRows
from dptune.data.row_sources import ArraySource, ClassNumbers, DiskSource, Scale
from dptune.data.rows import ASKED_IN_ROWS
from dptune.data.secret_labels import SecretLabels
from dptune.errors import InvalidInput
from dptune.texts.cutting import NOT_ASKED

TAKEN, DECLARED = "taken from the data", "as declared"  # where a public fact comes from


class Targets(ABC):
    """The targets of one data set. The private labels are read first, and decide what is not
    declared; those of other rows must agree with them."""

    loss: str
    range: tuple[float, float] | None = None
    classes: tuple[Any, ...] = ()
    secret: SecretLabels | None = None  # while the names of classes are not bought
    labels: NDArray[Any] | None = None  # the private ones, checked

    @abstractmethod
    def private(self, labels: Any, table: NDArray[Any], augmented: bool = False) -> ArraySource:
        """The private rows with their targets."""

    @abstractmethod
    def beside(self, labels: Any, table: NDArray[Any], augmented: bool, which: str) -> ArraySource:
        """The rows called `which` with their targets; messages may show their labels."""

    def private_on_disk(self, rows: DiskRows) -> DiskSource:
        """The private rows in chunks, which hold their targets."""
        return self.on_disk(rows, "the labels")

    @abstractmethod
    def on_disk(self, rows: DiskRows, what: str) -> DiskSource:
        """Rows in chunks, whose targets must fit."""

    def facts(self, origin: str) -> list[str]:
        """What is public about targets; `origin` says where the classes come from."""
        return facts_of_classes(self.classes, origin)


class _LabelTargets(Targets):
    """Targets that are made of labels, one a row."""

    def private(self, labels: Any, table: NDArray[Any], augmented: bool = False) -> ArraySource:
        self.labels = self._read(labels, table, "the labels")
        self._decide(self.labels)
        numbers = self._numbers(self.labels, "the labels", shown=False)
        return ArraySource(table, numbers, augmented)

    def beside(self, labels: Any, table: NDArray[Any], augmented: bool, which: str) -> ArraySource:
        what = f"the {which} labels"
        numbers = self._numbers(self._read(labels, table, what), what, shown=True)
        return ArraySource(table, numbers, augmented)

    def _read(self, labels: Any, table: NDArray[Any], what: str) -> NDArray[Any]:
        checked = self._checked(labels, what)
        if len(checked) != len(table):
            raise InvalidInput(
                f"{what} are {len(checked)} for {len(table)} rows of features; each row needs one."
            )
        return checked

    @abstractmethod
    def _checked(self, labels: Any, what: str) -> NDArray[Any]: ...

    def _decide(self, labels: NDArray[Any]) -> None:
        """Take from the private labels what is not declared."""

    @abstractmethod
    def _numbers(self, labels: NDArray[Any], what: str, *, shown: bool) -> NDArray[Any]:
        """Labels as engines take them; messages show only those that are `shown`."""


class ClassTargets(_LabelTargets):
    """The class of each row: declared, secret until its name is bought, or taken from the rows."""

    loss = "softmax"

    def __init__(self, declared: Sequence[Any] | str | None) -> None:
        self._declared = declared

    def private(self, labels: Any, table: NDArray[Any], augmented: bool = False) -> ArraySource:
        if not isinstance(labels, Numbered):
            return super().private(labels, table, augmented)
        self.classes = list_of_classes(self._declared, np.empty(0))
        self.labels = labels.numbers
        return ArraySource(table, labels.numbers)

    def beside(self, labels: Any, table: NDArray[Any], augmented: bool, which: str) -> ArraySource:
        if not isinstance(labels, Numbered):
            return super().beside(labels, table, augmented, which)
        return ArraySource(table, labels.numbers)

    def private_on_disk(self, rows: DiskRows) -> DiskSource:
        self.classes = classes_on_disk(self._declared, rows)
        return super().private_on_disk(rows)

    def on_disk(self, rows: DiskRows, what: str) -> DiskSource:
        if self.secret is not None:
            raise InvalidInput(
                f"{what} in {rows.folder} are numbers of classes, and the classes of the private "
                f"rows are not declared; declare all of them, in order, {WITH_CLASSES}."
            )
        facts, last = rows.target_facts, len(self.classes) - 1
        if not facts.whole or facts.width > 1 or not 0 <= facts.low <= facts.high <= last:
            raise InvalidInput(
                f"{what} in {rows.folder} must be class numbers from 0 to {last}, one a row; "
                f"declare all classes, in order, {WITH_CLASSES}, or write the chunks again."
            )
        return DiskSource(rows, ClassNumbers())

    def _checked(self, labels: Any, what: str) -> NDArray[Any]:
        return as_class_labels(labels, what)

    def _decide(self, labels: NDArray[Any]) -> None:
        classes = list_of_classes(self._declared, labels)
        if are_secret(self._declared, labels):
            self.secret = SecretLabels(classes)
        else:
            self.classes = classes

    def _numbers(self, labels: NDArray[Any], what: str, *, shown: bool) -> NDArray[Any]:
        if self.secret is not None:
            return self.secret.numbers(labels, what)
        return class_numbers(labels, self.classes, what, shown=shown)


class ValueTargets(_LabelTargets):
    """A number for each row, clipped to a declared range."""

    loss = "squared"

    def __init__(self, declared: tuple[float, float] | None) -> None:
        self.range = _checked_range(declared)
        self._scale = Scale(*self.range)

    def on_disk(self, rows: DiskRows, what: str) -> DiskSource:
        if rows.target_facts.width > 1:
            raise InvalidInput(
                f"{what} in {rows.folder} are {rows.target_facts.width} a row, and one is learned."
            )
        return DiskSource(rows, self._scale)

    def facts(self, origin: str) -> list[str]:
        return [
            f"the range of the target ({self._scale.low:g} to {self._scale.high:g}), {DECLARED}"
        ]

    def _checked(self, labels: Any, what: str) -> NDArray[Any]:
        return as_values(labels, what)

    def _numbers(self, labels: NDArray[Any], what: str, *, shown: bool) -> NDArray[Any]:
        scaled: NDArray[Any] = self._scale(torch.tensor(labels)).numpy()
        return scaled


class TokenTargets(Targets):
    """What rows (2, length) of tokens ask: they hold it themselves, so there are no labels."""

    def __init__(self, task: str, declared: Sequence[Any] | str | None) -> None:
        self.loss = task
        if task == "inside":
            self.classes = list_of_classes(must_be_declared(declared), np.empty(0))
        else:
            _must_be_left_out("classes", declared, task)

    def private(self, labels: Any, table: NDArray[Any], augmented: bool = False) -> ArraySource:
        _must_be_left_out("labels", labels, self.loss)
        return self._source(table, augmented, "the features")

    def beside(self, labels: Any, table: NDArray[Any], augmented: bool, which: str) -> ArraySource:
        _must_be_left_out(f"the {which} labels", labels, self.loss)
        return self._source(table, augmented, f"the {which} features")

    def on_disk(self, rows: DiskRows, what: str) -> DiskSource:
        raise InvalidInput(
            f"rows of task={self.loss!r} are kept in memory, and those in {rows.folder} are chunks "
            "on disk; give arrays."
        )

    def _source(self, table: NDArray[Any], augmented: bool, what: str) -> ArraySource:
        """The target of a row is the class of its first copy; 0 where there are no classes."""
        leading = 1 + augmented
        if table.dtype.kind not in "iu" or table.shape[leading:][:1] != (2,):
            raise InvalidInput(
                f"{what} of task={self.loss!r} must be whole numbers, rows of shape (2, length): "
                f"tokens, and what is asked of them; got {table.dtype} of shape {table.shape}."
            )
        if self.loss != "inside":
            return ArraySource(table, np.zeros(len(table), np.int64), augmented)
        first: NDArray[Any] = table[..., 1, 0].reshape(len(table), -1)
        asked = first[first != NOT_ASKED]
        if not ((asked >= 0) & (asked < len(self.classes))).all() or NOT_ASKED in first[:, 0]:
            raise InvalidInput(
                f"{what} must hold the number of a class, from 0 to {len(self.classes) - 1}, "
                f"in the first place that asks, or {NOT_ASKED} in copies that are empty."
            )
        return ArraySource(table, first[:, 0].astype(np.int64), augmented)


def facts_of_classes(classes: Sequence[Any], origin: str) -> list[str]:
    return [f"the classes ({len(classes):,}), {origin}"] if classes else []


def targets_of(
    task: str,
    classes: Sequence[Any] | str | None,
    target_range: tuple[float, float] | None,
) -> Targets:
    """The targets of a task, as they are declared."""
    validate.one_of(("classes", "values", *ASKED_IN_ROWS), task=task)
    if task != "values":
        _must_be_left_out("target_range", target_range, task)
        return ClassTargets(classes) if task == "classes" else TokenTargets(task, classes)
    _must_be_left_out("classes", classes, task)
    return ValueTargets(target_range)


def _must_be_left_out(name: str, value: object, task: str) -> None:
    if value is not None:
        raise InvalidInput(f"{name} does not go with task={task!r}; leave it out.")


def _checked_range(declared: tuple[float, float] | None) -> tuple[float, float]:
    if declared is None:
        raise InvalidInput(
            "task='values' needs a target_range, the lowest and the highest value to learn; "
            "values outside are clipped to it. Declare it with target_range = [LOW, HIGH] in "
            "[data] of a file for dptune tune --config (target_range=(low, high) in Python). It is "
            "released with the model: take it from general knowledge of such values, never from "
            "the rows."
        )
    try:
        low, high = (float(end) for end in declared)
    except (TypeError, ValueError):
        raise InvalidInput(f"target_range must be (low, high); got {declared!r}.") from None
    if not (low < high and math.isfinite(high - low)):
        raise InvalidInput(f"target_range must be (low, high) with low < high; got {declared!r}.")
    return low, high
