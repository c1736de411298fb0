"""The classes of labels (declared, estimated privately, or all that occur) and their numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.columns.kinds import PAID
from dptune.data.arrays import are_whole, as_class_labels, in_rows
from dptune.data.disk import DiskRows
from dptune.errors import InvalidInput

_FEW_CLASSES = 20  # as many as any small data set may have
_MOST_CLASSES = 1_000_000  # of classes without names
_ALL_THE_SAME = "all rows have the same label, so there is nothing to learn"
_ALL_DIFFERENT = (
    "the labels are almost all different, so as classes they would be released one by one, and "
    "there is little to learn"
)
WITH_CLASSES = "with --classes (classes= in Python, classes in [data] of a --config file)"
PUBLIC = "public"  # instead of a list: those that occur


@dataclass(frozen=True, eq=False, repr=False)  # no repr: it would print labels
class Numbered:
    """Labels as numbers of declared classes; names would take many times the memory."""

    numbers: NDArray[np.int64]


def are_secret(declared: Sequence[Any] | str | None, labels: NDArray[Any]) -> bool:
    """Whether the names of classes are to be estimated privately: if the user asked for it, or did
    not declare names, one of which may be mistyped."""
    if isinstance(declared, str):
        return declared == PAID
    return declared is None and labels.dtype.kind == "U"


def list_of_classes(declared: Sequence[Any] | str | None, labels: NDArray[Any]) -> tuple[Any, ...]:
    """The declared classes, or all labels that occur."""
    if declared is None or (isinstance(declared, str) and declared in (PUBLIC, PAID)):
        classes = tuple(np.unique(labels).tolist())
        if len(classes) < 2:
            raise InvalidInput(
                f"{_ALL_THE_SAME}; if there are other classes, declare all of them {WITH_CLASSES}."
            )
        if _too_many(classes, labels):
            raise InvalidInput(
                f"{_ALL_DIFFERENT}. If they are values, say task='values' and give a target_range "
                "(in [data] of a --config file, or in Python); if they are classes, declare all of "
                f"them {WITH_CLASSES}."
            )
        return classes
    if not isinstance(declared, Sequence | np.ndarray) or isinstance(declared, str):
        raise InvalidInput(
            f'classes must be a list of labels, in order, "{PAID}" to estimate their names '
            f'privately, or "{PUBLIC}" if those that occur are public; got {declared!r}.'
        )
    classes = tuple(as_class_labels(list(declared), "the classes").tolist())
    if len(set(classes)) != len(classes) or len(classes) < 2:
        raise InvalidInput(f"classes must be two or more different labels; got {_some(classes)}.")
    return classes


def must_name_classes(labels: NDArray[Any], column: str) -> None:
    """Refuse labels of a table whose classes must be declared."""
    reason = explain_no_classes(labels)
    if reason is None:
        return
    raise InvalidInput(
        f"{column}: {reason}. Declare this column, too, in [columns] (columns= in Python): "
        f'{column} = {{ kind = "number", range = [LOW, HIGH] }} to predict values, or '
        f'{column} = {{ kind = "category", values = ["a", "b"] }} with all its classes. If it is '
        "a key, name another column with --label (label= in Python)."
    )


def explain_no_classes(labels: NDArray[Any]) -> str | None:
    """Why these labels cannot be taken as classes; None if they can."""
    if labels.dtype.kind == "f" and not are_whole(labels):
        return "the labels are numbers that are not whole, so they name no classes"
    checked = as_class_labels(labels, "the labels")
    classes = tuple(np.unique(checked).tolist())
    if len(classes) < 2:
        return _ALL_THE_SAME
    return _ALL_DIFFERENT if _too_many(classes, checked) else None


def _too_many(classes: Sequence[Any], labels: NDArray[Any]) -> bool:
    return len(classes) > _FEW_CLASSES and 10 * len(classes) > len(labels)


def classes_on_disk(declared: Sequence[Any] | str | None, rows: DiskRows) -> tuple[Any, ...]:
    """The classes of chunks, whose labels are class numbers."""
    if declared is not None and declared != PUBLIC:
        if declared == PAID:
            raise InvalidInput(
                "names of classes are estimated for rows in memory, and the labels in "
                f"{rows.folder} are numbers; declare all classes, in order, {WITH_CLASSES}."
            )
        return list_of_classes(declared, np.empty(0))
    highest = rows.target_facts.high
    if not highest >= 1:
        raise InvalidInput(
            f"{_ALL_THE_SAME}; if there are other classes, declare all of them {WITH_CLASSES}."
        )
    if highest >= _MOST_CLASSES:  # one label must not fill the memory
        raise InvalidInput(
            f"the labels in {rows.folder} are numbers up to {highest:g}, and those of classes are "
            f"below {_MOST_CLASSES:,}; number them from 0."
        )
    return tuple(range(int(highest) + 1))


def must_be_declared(classes: Sequence[Any] | str | None) -> Sequence[Any]:
    if classes is None or isinstance(classes, str):
        raise InvalidInput(
            "task='inside' needs its classes, in the order of their numbers: declare them "
            f"{WITH_CLASSES}."
        )
    return classes


def class_numbers(
    labels: NDArray[Any], classes: Sequence[Any], what: str, *, shown: bool
) -> NDArray[Any]:
    """The number of each label's class; messages name wrong labels only if they may be `shown`."""
    distinct, numbers = np.unique(labels, return_inverse=True)
    places = {label: number for number, label in enumerate(classes)}
    unknown = [label for label in distinct.tolist() if label not in places]
    if unknown:
        raise InvalidInput(
            f"{what} hold {_some(unknown) if shown else 'others'}, not among the classes "
            f"({_some(classes)}), {in_rows(np.isin(labels, unknown))}; correct these rows or leave "
            f"them out, or declare all classes {WITH_CLASSES}."
        )
    of_distinct: NDArray[Any] = np.array([places[label] for label in distinct.tolist()])
    return of_distinct[numbers]


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


def _some(values: Sequence[Any]) -> str:
    shown = ", ".join(repr(value) for value in values[:5])
    return shown if len(values) <= 5 else f"{shown}, ..."
