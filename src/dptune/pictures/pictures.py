"""The common interface of all sources of pictures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dptune.errors import InvalidInput

Content = bytes | NDArray[np.uint8]  # an encoded file, or pixels (height, width[, channels])


@dataclass(frozen=True)
class Remark:
    """A remark on one picture or folder. It depends on private pictures, so it is for their owner
    only: shown on the screen and stored beside the features, never in a run."""

    picture: str
    what: str
    left_out: bool


class Pictures(Protocol):
    """Pictures in a fixed order, each read alone: the result for one never depends on another.

    They are sent to processes that decode, so they must be picklable.
    """

    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def labels(self) -> NDArray[np.int64]:
        """A number of `classes` for every picture."""
        ...

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups for worst-group accuracy; empty if there are none."""
        ...

    @property
    def group_numbers(self) -> NDArray[np.int64]:
        """A number of `groups` for every picture; zeros if there are none."""
        ...

    @property
    def remarks(self) -> Sequence[Remark]:
        """Remarks from listing the pictures, such as an empty folder of a class."""
        ...

    def __len__(self) -> int: ...
    def name(self, number: int) -> str:
        """The name of a picture in lists: its path in the folder, or its number."""
        ...

    def content(self, number: int) -> Content:
        """One picture, not decoded; raises OSError if its file cannot be read."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class PictureSet:
    """Pictures in parts, "train" and "test", each listed on demand."""

    name: str
    parts: Mapping[str, Callable[[], Pictures]]

    def part(self, which: str) -> Pictures:
        if which not in self.parts:
            parts = " and ".join(self.parts) or "nothing"
            raise InvalidInput(f"{self.name} has no {which} pictures; found {parts}.")
        return self.parts[which]()
