"""Folders of features that a backbone made of pictures: what is in them, and how they are read.

    features.json      what made the features, and the parts; a part is listed when it is finished
    train/, test/ ...  chunks of rows as `DiskRows` reads them, and beside each chunk its groups
    remarks.csv        what was odd about pictures, and which were left out

All of it is as private as the pictures.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.data.disk import DiskRows, chunk_file
from dptune.errors import InvalidInput

CONTENTS = "features.json"
GROUPS = "groups.npy"
SHIFT = "shift-"  # what the name of a part of shifted pictures starts with
_IN_MEMORY = 2**30  # bytes of features up to which a part is read whole


@dataclass(frozen=True)
class ExtractedPart:
    """One part of a folder. `fingerprint` tells the pictures, not what a backbone made of them:
    other features of the same pictures are the same people's."""

    rows: int
    fingerprint: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Extracted:
    """What `features.json` says."""

    made_by: Mapping[str, Any]
    source: str  # whose pictures
    classes: tuple[str, ...]
    parts: Mapping[str, ExtractedPart]

    @staticmethod
    def read(folder: Path) -> "Extracted":
        try:
            plain = json.loads((folder / CONTENTS).read_text())
            parts = {
                name: ExtractedPart(part["rows"], part["fingerprint"], tuple(part["groups"]))
                for name, part in plain["parts"].items()
            }
            return Extracted(plain["made_by"], plain["source"], tuple(plain["classes"]), parts)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidInput(
                f"{str(folder / CONTENTS)!r} cannot be read ({error}); make the features again "
                "with dptune extract."
            ) from None

    def write(self, folder: Path) -> None:
        plain = {
            "made_by": dict(self.made_by),
            "source": self.source,
            "classes": self.classes,
            "parts": {name: asdict(part) for name, part in self.parts.items()},
        }
        draft = folder / f"{CONTENTS}.new"
        draft.write_text(json.dumps(plain, indent=1))
        draft.replace(folder / CONTENTS)

    def same_but_parts(self, other: "Extracted") -> bool:
        """Whether the parts of both can stand in one folder."""
        mine, others = replace(self, parts={}), replace(other, parts={})
        return mine == others


def holds_features(folder: Path) -> bool:
    return (folder / CONTENTS).is_file()


def read_part(folder: Path, part: str) -> tuple[NDArray[Any] | DiskRows, NDArray[Any] | None]:
    """(features, class numbers), or what streams both from disk where they are many."""
    rows = DiskRows(folder / part)
    if rows.count * rows.columns * rows.dtype.itemsize > _IN_MEMORY:
        return rows, None
    chunks = list(rows.chunks())
    features = np.concatenate([chunk.features[:, 0].numpy() for chunk in chunks])
    return features, np.concatenate([chunk.targets.numpy() for chunk in chunks])


def read_groups(folder: Path, part: str) -> NDArray[np.int64]:
    """The number of the group of every row."""
    numbers = json.loads((folder / part / "index.json").read_text())["numbers"]
    files = (chunk_file(folder / part, number, GROUPS) for number in numbers)
    return np.concatenate([np.load(file, allow_pickle=False) for file in files])
