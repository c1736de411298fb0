"""What is learned from rows (classes, values, or answers inside rows of tokens), and how labels
become the targets that an engine takes."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
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

Table = NDArray[Any]
PRIVATE = ""  # in place of the name of rows beside
TAKEN, DECLARED = "taken from the data", "as declared"  # where a public fact comes from


class Targets(ABC):
    """The targets of one data set. Private rows come first, and decide what is not declared; then
    come those beside them, by their names. Messages never show private labels."""

    loss: str
    range: tuple[float, float] | None = None
    classes: tuple[Any, ...] = ()
    secret: SecretLabels | None = None  # while the names of classes are not bought
    labels: NDArray[Any] | None = None  # of private rows, checked

    @abstractmethod
    def source(self, labels: Any, table: Table, augmented: bool, which: str) -> ArraySource:
        """Features with their targets."""

    @abstractmethod
    def on_disk(self, rows: DiskRows, which: str) -> DiskSource:
        """Chunks, which hold their targets."""

    def facts(self, origin: str) -> list[str]:
        """What is public about targets; `origin` says where the classes come from."""
        return facts_of_classes(self.classes, origin)


class ClassTargets(Targets):
    """The class of each row: declared, secret until estimated, or taken from the rows."""

    loss = "softmax"

    def __init__(self, declared: Sequence[Any] | str | None) -> None:
        self._declared = declared

    def source(self, labels: Any, table: Table, augmented: bool, which: str) -> ArraySource:
        if isinstance(labels, Numbered):
            if not which:
                self.classes = list_of_classes(self._declared, np.empty(0))
                self.labels = labels.numbers
            return ArraySource(table, labels.numbers)
        checked = _one_a_row(as_class_labels, labels, table, which)
        if not which:
            self._decide(checked)
        what = _whose("labels", which)
        if self.secret is not None:
            return ArraySource(table, self.secret.numbers(checked, what), augmented)
        numbers = class_numbers(checked, self.classes, what, shown=bool(which))
        return ArraySource(table, numbers, augmented)

    def _decide(self, labels: NDArray[Any]) -> None:
        self.labels, classes = labels, list_of_classes(self._declared, labels)
        if are_secret(self._declared, labels):
            self.secret = SecretLabels(classes)
        else:
            self.classes = classes

    def on_disk(self, rows: DiskRows, which: str) -> DiskSource:
        what = f"{_whose('labels', which)} in {rows.folder}"
        if not which:
            self.classes = classes_on_disk(self._declared, rows)
        if self.secret is not None:
            raise InvalidInput(
                f"{what} are numbers of classes, and the classes of the private rows are not "
                f"declared; declare all of them, in order, {WITH_CLASSES}."
            )
        facts, last = rows.target_facts, len(self.classes) - 1
        if not facts.whole or facts.width > 1 or not 0 <= facts.low <= facts.high <= last:
            raise InvalidInput(
                f"{what} must be class numbers from 0 to {last}, one a row; declare all classes, "
                f"in order, {WITH_CLASSES}, or write the chunks again."
            )
        return DiskSource(rows, ClassNumbers())


class ValueTargets(Targets):
    """A number for each row, clipped to a declared range."""

    loss = "squared"

    def __init__(self, declared: tuple[float, float] | None) -> None:
        self.range = _checked_range(declared)
        self._scale = Scale(*self.range)

    def source(self, labels: Any, table: Table, augmented: bool, which: str) -> ArraySource:
        checked = _one_a_row(as_values, labels, table, which)
        if not which:
            self.labels = checked
        return ArraySource(table, self._scale(torch.tensor(checked)).numpy(), augmented)

    def on_disk(self, rows: DiskRows, which: str) -> DiskSource:
        if (width := rows.target_facts.width) > 1:
            raise InvalidInput(
                f"{_whose('labels', which)} in {rows.folder} are {width} a row, and one is learned."
            )
        return DiskSource(rows, self._scale)

    def facts(self, origin: str) -> list[str]:
        low, high = self._scale.low, self._scale.high
        return [f"the range of the target ({low:g} to {high:g}), {DECLARED}"]


class TokenTargets(Targets):
    """What rows (2, length) of tokens ask: they hold it themselves, so there are no labels."""

    def __init__(self, task: str, declared: Sequence[Any] | str | None) -> None:
        self.loss = task
        if task == "inside":
            self.classes = list_of_classes(must_be_declared(declared), np.empty(0))
        else:
            _must_be_left_out("classes", declared, task)

    def source(self, labels: Any, table: Table, augmented: bool, which: str) -> ArraySource:
        """The target of a row is the class of its first copy; 0 where there are no classes."""
        _must_be_left_out(_whose("labels", which) if which else "labels", labels, self.loss)
        what = _whose("features", which)
        if table.dtype.kind not in "iu" or table.shape[1 + augmented :][:1] != (2,):
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

    def on_disk(self, rows: DiskRows, which: str) -> DiskSource:
        raise InvalidInput(f"{_whose('features', which)} of task={self.loss!r} are kept in memory.")


def targets_of(
    task: str, classes: Sequence[Any] | str | None, target_range: tuple[float, float] | None
) -> Targets:
    """The targets of a task, as they are declared."""
    validate.one_of(("classes", "values", *ASKED_IN_ROWS), task=task)
    if task == "values":
        _must_be_left_out("classes", classes, task)
        return ValueTargets(target_range)
    _must_be_left_out("target_range", target_range, task)
    return ClassTargets(classes) if task == "classes" else TokenTargets(task, classes)


def facts_of_classes(classes: Sequence[Any], origin: str) -> list[str]:
    return [f"the classes ({len(classes):,}), {origin}"] if classes else []


def _whose(what: str, which: str) -> str:
    return f"the {which} {what}" if which else f"the {what}"


def _one_a_row(
    read: Callable[[Any, str], NDArray[Any]], labels: Any, table: Table, which: str
) -> NDArray[Any]:
    what = _whose("labels", which)
    checked = read(labels, what)
    if len(checked) != len(table):
        raise InvalidInput(
            f"{what} are {len(checked)} for {len(table)} rows of features; each row needs one."
        )
    return checked


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
