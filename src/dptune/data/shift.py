"""Rows of another origin than the private ones, on which the final model is tested."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.data.arrays import as_class_labels
from dptune.data.disk import DiskRows
from dptune.errors import InvalidInput
from dptune.table_files import listed


@dataclass(frozen=True, eq=False, repr=False)  # no repr: it would print rows
class Shift:
    """Rows that only report results, as test rows do: features and labels, or `DiskRows`, which
    hold their labels. `groups` are the numbers of `group_names`, one a row; worst-group accuracy
    is the worst of theirs. Groups without names are called by their numbers."""

    features: Any
    labels: Any = None
    groups: Any = None
    group_names: Sequence[str] = ()

    def pair(self) -> Any:
        """Its rows as `test` takes them."""
        if not isinstance(self.features, DiskRows):
            return self.features, self.labels
        if self.labels is not None:
            raise InvalidInput(
                f"the chunks in {self.features.folder} hold their labels; leave labels out."
            )
        return self.features

    def masks(self, count: int) -> dict[str, NDArray[np.bool_]]:
        """Which of the `count` rows are in each group that is not empty; nothing without groups."""
        names = tuple(self.group_names)
        if self.groups is None:
            if names:
                raise InvalidInput(
                    "group_names name the groups of a shift, and none are given; give groups, the "
                    "number of a name for every row, or leave the names out."
                )
            return {}
        numbers = as_class_labels(self.groups, "the groups of a shift")
        if numbers.dtype.kind not in "iuf" or len(numbers) != count:
            raise InvalidInput(
                "the groups of a shift are whole numbers, one a row; got "
                f"{len(numbers)} of type {numbers.dtype} for {count} rows."
            )
        names = names or tuple(str(n) for n in range(max(int(numbers.max()), 0) + 1))
        for name in names:
            validate.text(group_names=name)
        if isinstance(self.group_names, str) or len(set(names)) != len(names):
            raise InvalidInput(
                f"group_names must be a list of different texts, one a group; got {listed(names)}."
            )
        if numbers.min() < 0 or numbers.max() >= len(names):
            raise InvalidInput(
                f"{len(names)} groups have names, so groups must be numbers from 0 to "
                f"{len(names) - 1}; found {numbers.min():g} to {numbers.max():g}."
            )
        each = {name: numbers == number for number, name in enumerate(names)}
        return {name: mask for name, mask in each.items() if mask.any()}


def checked_shifts(given: Mapping[str, Shift] | None, task: str) -> Mapping[str, Shift]:
    """Shifts by name, for a task that has accuracies to report."""
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


def shifted(name: str) -> str:
    """The name of the rows of a shift, which differs from those of test and public rows."""
    return f"shifted {name}"
