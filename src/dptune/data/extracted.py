"""Folders of features that a backbone made of pictures, or of texts: what is in them, and how they
are read. Pictures stand here for texts, too.

    features.json      what made the features, and the parts; a part is listed when it is finished
    train/, test/ ...  chunks of rows as `DiskRows` reads them, and beside each chunk its groups and
                       a record of its pictures
    remarks.csv        what was odd about pictures, and which were left out

All of it is as private as the pictures. The folder itself stands for its training rows; the folder
of a part inside it, for that part.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.data.chunk_records import (
    GROUPS,
    NUMBERS,
    ChunkRecord,
    digest_of_maker,
    fingerprint_of,
    read_records,
)
from dptune.data.disk import INDEX, DiskRows, chunk_file, save_text
from dptune.data.made_by import must_be_whole, rows_in_words
from dptune.data.readers import Part, Source
from dptune.errors import InvalidInput
from dptune.plain_data import UNFIT, read_json
from dptune.table_files import listed
from dptune.whole_files import read_regular

CONTENTS = "features.json"
SHIFT = "shift-"  # what the name of a part of shifted pictures starts with
_IN_MEMORY = 2**30  # bytes of features up to which a part is read whole


@dataclass(frozen=True)
class ExtractedPart:
    """One part of a folder. `fingerprint` is that of the pictures, not of their features: other
    features of the same pictures are the same people's. `pictures` were listed, and `rows` could be
    read; the others are empty rows. The public number of rows is that of the pictures, so it does
    not tell whether a picture can be read."""

    pictures: int
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
            plain = read_json(read_regular(folder / CONTENTS), "it")
            parts = {
                name: ExtractedPart(
                    int(part["pictures"]),
                    int(part["rows"]),
                    str(part["fingerprint"]),
                    tuple(map(str, part["groups"])),
                )
                for name, part in plain["parts"].items()
                if (folder / name / INDEX).is_file()  # else it is being made again
            }
            must_be_whole(plain["made_by"])
            classes = tuple(map(str, plain["classes"]))
            return Extracted(plain["made_by"], str(plain["source"]), classes, parts)
        except (OSError, *UNFIT) as error:
            raise InvalidInput(
                f"{str(folder / CONTENTS)!r} cannot be read ({error}); remove the folder, and "
                "make the features again with dptune extract."
            ) from None

    def write(self, folder: Path) -> None:
        plain = {
            "made_by": dict(self.made_by),
            "source": self.source,
            "classes": self.classes,
            "parts": {name: asdict(part) for name, part in self.parts.items()},
        }
        save_text(folder / CONTENTS, json.dumps(plain, indent=1))

    def same_but_parts(self, other: "Extracted") -> bool:
        """Whether the parts of both can be in one folder."""
        mine, others = replace(self, parts={}), replace(other, parts={})
        return mine == others


def origins_of_features(
    made_by: Mapping[str, Any], rows: object, classes: object
) -> dict[str, str]:
    """Where facts about pictures or texts come from, if the user did not declare them."""
    of_rows = of_classes = "taken from the data"
    if rows_in_words(made_by) == "pictures":
        of_rows = "those that cannot be read included"
        of_classes = "taken from the names of the pictures' folders, or from their file"
    origins = {"rows": of_rows} if rows is None else {}
    return origins | ({"classes": of_classes} if classes is None else {})


def holds_features(folder: Path) -> bool:
    return (folder / CONTENTS).is_file()


def is_extracted(path: Path) -> bool:
    """Whether this is a folder of features, or that of one of its parts."""
    return holds_features(path) or (path.is_dir() and holds_features(path.absolute().parent))


def from_extracted(path: Path) -> Source:
    """The parts of a folder of features, or one part of it alone."""
    folder, inside, part = _locate(path)
    parts = {"train": part} | ({"test": "test"} if part == "train" else {})
    return Source(
        {
            name: partial(_part, folder, which, inside)
            for name, which in parts.items()
            if which in inside.parts
        },
        f"features of the parts {listed(list(inside.parts))}",
        made_by=inside.made_by,
    )


def fingerprint_extracted(path: Path) -> str:
    """The fingerprint of the pictures, whatever made features of them."""
    folder, inside, part = _locate(path)
    if part not in inside.parts:
        raise InvalidInput(
            f"{str(folder)!r} has no finished {part} features; go on with dptune extract."
        )
    _records(folder, part, inside)
    return inside.parts[part].fingerprint


def _locate(path: Path) -> tuple[Path, Extracted, str]:
    if holds_features(path):
        return path, Extracted.read(path), "train"
    path = path.absolute()
    return path.parent, Extracted.read(path.parent), path.name


def _part(folder: Path, name: str, inside: Extracted) -> Part:
    records = _records(folder, name, inside)
    features, labels = read_part(folder, name)
    if not isinstance(features, DiskRows):  # more rows are not read just to be checked
        for record in records:
            if not record.has_its_files(folder / name):
                raise _mismatch(folder, name, "a chunk has changed")
    about = inside.parts[name]
    groups = about.groups
    return Part(
        features,
        labels,
        classes=inside.classes,
        groups=read_groups(folder, name) if groups else None,
        group_names=groups,
        asked=about.pictures,
        numbers=read_numbers(folder, name),
    )


def _records(folder: Path, name: str, inside: Extracted) -> list[ChunkRecord]:
    """The records of a part's chunks, which must agree with `features.json`: a ledger relies on
    it."""
    about, records = inside.parts[name], read_records(folder / name)
    stored = [record.chunk for record in records if record.chunk is not None]
    maker, things = digest_of_maker(inside.made_by), rows_in_words(inside.made_by)
    if any(record.made_by != maker for record in records):
        raise _mismatch(folder, name, "another backbone made them")
    if fingerprint_of(records) != about.fingerprint:
        raise _mismatch(folder, name, f"they are of other {things}")
    if sum(chunk.count for chunk in stored) != about.rows or about.pictures != sum(
        record.count for record in records
    ):
        raise _mismatch(folder, name, f"they are of other numbers of {things}")
    if _indexed(folder / name) != [(chunk.number, chunk.count) for chunk in stored]:
        raise _mismatch(folder, name, f"{INDEX} lists other chunks")
    return records


def _indexed(folder: Path) -> list[tuple[int, int]]:
    """(number, rows) of every chunk."""
    try:
        index = read_json(read_regular(folder / INDEX), INDEX)
        return list(zip(index["numbers"], index["counts"], strict=True))
    except (OSError, *UNFIT):
        return []


def _mismatch(folder: Path, name: str, what: str) -> InvalidInput:
    return InvalidInput(
        f"the {name} features in {str(folder)!r} do not match {CONTENTS}: {what}. "
        "Remove the folder, and make the features again with dptune extract."
    )


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
    return _beside_rows(folder / part, GROUPS)


def read_numbers(folder: Path, part: str) -> NDArray[np.int64]:
    """The number of the picture of every row, among all that were listed."""
    return _beside_rows(folder / part, NUMBERS)


def _beside_rows(folder: Path, what: str) -> NDArray[np.int64]:
    """One number a row, of all chunks."""
    try:
        numbers = read_json(read_regular(folder / INDEX), INDEX)["numbers"]
        files = (BytesIO(read_regular(chunk_file(folder, number, what))) for number in numbers)
        return np.concatenate([np.load(file, allow_pickle=False) for file in files])
    except Exception as error:  # on arbitrary bytes, NumPy raises anything
        raise InvalidInput(
            f"{str(folder)!r} lacks what is stored beside its rows, or it is incomplete ({error}); "
            "make the features again with dptune extract."
        ) from None
