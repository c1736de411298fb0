"""The classes of labels: declared, bought, or found among them, and the number of each label."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.columns.kinds import PAID
from dptune.data.arrays import are_whole, as_class_labels, in_rows
from dptune.data.disk import DiskRows
from dptune.errors import InvalidInput

_FEW_CLASSES = 20  # which may be found in any small data set
_MOST_CLASSES = 1_000_000  # that are called by their numbers
_ALL_THE_SAME = "all rows have the same label, so there is nothing to learn"
_ALL_DIFFERENT = (
    "the labels are almost all different, so as classes they would be released one by one, and "
    "there is little to learn"
)
WITH_CLASSES = "with --classes (classes= in Python, classes in [data] of a --config file)"
PUBLIC = "public"  # in the place of classes: those that occur


@dataclass(frozen=True, eq=False, repr=False)  # no repr: it would print labels
class Numbered:
    """Labels that are numbers of declared classes: as names they would take many times the
    memory."""

    numbers: NDArray[np.int64]


def are_secret(declared: Sequence[Any] | str | None, labels: NDArray[Any]) -> bool:
    """Whether the classes are to be bought: names that nobody declared, since anybody may mistype
    one, or labels for which that was asked."""
    if isinstance(declared, str):
        return declared == PAID
    return declared is None and labels.dtype.kind == "U"


def list_of_classes(declared: Sequence[Any] | str | None, labels: NDArray[Any]) -> tuple[Any, ...]:
    """As declared, or as found among the labels where they are secret or public."""
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
            f'classes must be a list of labels, in order, "{PAID}" to buy their names, or '
            f'"{PUBLIC}" where those that occur are nobody\'s secret; got {declared!r}.'
        )
    classes = tuple(as_class_labels(list(declared), "the classes").tolist())
    if len(set(classes)) != len(classes) or len(classes) < 2:
        raise InvalidInput(f"classes must be two or more different labels; got {_some(classes)}.")
    return classes


def must_name_classes(labels: NDArray[Any], column: str) -> None:
    """Refuse labels of a table that are no classes to be found in its rows; there, a declaration
    says what they are."""
    found = explain_no_classes(labels)
    if found is None:
        return
    raise InvalidInput(
        f"{column}: {found}. Declare this column, too, in [columns] (columns= in Python): "
        f'{column} = {{ kind = "number", range = [LOW, HIGH] }} to predict values, or '
        f'{column} = {{ kind = "category", values = ["a", "b"] }} with all its classes. If it is '
        "a key, name another column with --label (label= in Python)."
    )


def explain_no_classes(labels: NDArray[Any]) -> str | None:
    """Why classes cannot be found among them; None where they can."""
    if labels.dtype.kind == "f" and not are_whole(labels):
        return "the labels are numbers that are not whole, so they name no classes"
    known = as_class_labels(labels, "the labels")
    classes = tuple(np.unique(known).tolist())
    if len(classes) < 2:
        return _ALL_THE_SAME
    return _ALL_DIFFERENT if _too_many(classes, known) else None


def _too_many(classes: Sequence[Any], labels: NDArray[Any]) -> bool:
    return len(classes) > _FEW_CLASSES and 10 * len(classes) > len(labels)


def classes_on_disk(declared: Sequence[Any] | str | None, rows: DiskRows) -> tuple[Any, ...]:
    """In chunks, labels are class numbers."""
    if declared is not None and declared != PUBLIC:
        if declared == PAID:
            raise InvalidInput(
                "names of classes are bought of rows in memory, and the labels in "
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
    """Which of the classes each label is; those of private rows are not `shown` in messages."""
    distinct, numbers = np.unique(labels, return_inverse=True)
    known = {label: number for number, label in enumerate(classes)}
    unknown = [label for label in distinct.tolist() if label not in known]
    if unknown:
        raise InvalidInput(
            f"{what} hold {_some(unknown) if shown else 'others'}, not among the classes "
            f"({_some(classes)}), {in_rows(np.isin(labels, unknown))}; mend these rows or leave "
            f"them out, or declare all classes {WITH_CLASSES}."
        )
    found: NDArray[Any] = np.array([known[label] for label in distinct.tolist()])[numbers]
    return found


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
