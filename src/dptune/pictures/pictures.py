"""What every source of pictures offers, whatever it is stored as."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dptune.errors import InvalidInput

Content = bytes | NDArray[np.uint8]  # an encoded file, or pixels (height, width[, channels])


@dataclass(frozen=True)
class Remark:
    """What is odd about one picture or folder. It tells of private pictures, so it is for whoever
    has them: shown on the screen and kept beside the features, never in a run."""

    picture: str
    what: str
    left_out: bool


class Pictures(Protocol):
    """Pictures in a fixed order, each read alone: what comes of one never depends on another.

    They are sent to processes that decode, so they must pickle.
    """

    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def labels(self) -> NDArray[np.int64]:
        """A number of `classes` for every picture."""
        ...

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of what worst-group accuracy is the worst of; empty where there are none."""
        ...

    @property
    def group_numbers(self) -> NDArray[np.int64]:
        """A number of `groups` for every picture; zeros where there are none."""
        ...

    @property
    def remarks(self) -> Sequence[Remark]:
        """What was odd when they were listed: an empty folder of a class, say."""
        ...

    def __len__(self) -> int: ...
    def name(self, number: int) -> str:
        """What to call a picture in a list: its path in the folder, or its number."""
        ...

    def content(self, number: int) -> Content:
        """One picture, not decoded yet; OSError where its file cannot be read."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class PictureSet:
    """Pictures in parts, "train" and "test", each listed when it is asked for."""

    name: str
    parts: Mapping[str, Callable[[], Pictures]]

    def part(self, which: str) -> Pictures:
        if which not in self.parts:
            found = " and ".join(self.parts) or "nothing"
            raise InvalidInput(f"{self.name} has no {which} pictures; found {found}.")
        return self.parts[which]()
