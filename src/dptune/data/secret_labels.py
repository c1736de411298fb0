"""Labels whose names are secret until they are estimated: numbered by a private list."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.errors import InvalidInput


class SecretLabels:
    """All labels of private rows and of those beside them; a label's number is its place."""

    def __init__(self, labels: Sequence[Any]) -> None:
        """`labels` are those of the private rows."""
        self.all = list(labels)
        self._private = len(self.all)

    @property
    def private(self) -> list[Any]:
        """Those of private rows."""
        return self.all[: self._private]

    def numbers(self, labels: NDArray[Any], what: str) -> NDArray[Any]:
        """The number of each label; a new label gets the next number."""
        text = labels.dtype.kind == "U"
        if text != isinstance(self.all[0], str):
            raise InvalidInput(
                f"{what} are {'texts' if text else 'numbers'}, and those of the private rows are "
                "not; give labels of one kind."
            )
        places = {label: number for number, label in enumerate(self.all)}
        distinct, which = np.unique(labels, return_inverse=True)
        for label in distinct.tolist():
            if label not in places:
                places[label] = len(places)
                self.all.append(label)
        of_distinct: NDArray[Any] = np.array([places[label] for label in distinct.tolist()])
        return of_distinct[which]

    def as_classes(self, numbers: NDArray[Any], classes: Sequence[Any]) -> NDArray[np.int64]:
        """The class of each of these numbers; -1 if its label is none of the classes."""
        numbered = {label: number for number, label in enumerate(classes)}
        places: NDArray[np.int64] = np.array([numbered.get(label, -1) for label in self.all])
        of_rows: NDArray[np.int64] = places[numbers]
        return of_rows
