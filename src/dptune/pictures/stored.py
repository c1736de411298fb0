"""Pictures as files, as rows of an array, or as slices of one array of bytes."""

import errno
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dptune.pictures.pictures import Content, Remark
from dptune.printable import printable

Numbers = NDArray[np.int64]
LARGEST_FILE = 1 << 30  # bytes; far above any picture that could be decoded


class Rows(Protocol):
    """Pixels (rows, height, width[, channels]): an array, or a reader of a file."""

    def __len__(self) -> int: ...
    def __getitem__(self, row: int) -> Any: ...


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)  # no repr: it would print rows
class Listed:
    """The labels, groups and remarks of pictures, for every kind of storage."""

    classes: tuple[str, ...]
    labels: Numbers
    groups: tuple[str, ...] = ()
    grouped: Numbers | None = None
    remarks: Sequence[Remark] = ()

    @property
    def group_numbers(self) -> Numbers:
        return np.zeros(len(self), np.int64) if self.grouped is None else self.grouped

    def __len__(self) -> int:
        return len(self.labels)


def read_picture(path: Path) -> bytes:
    """Read the bytes of a picture file."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would block for ever
        raise OSError(errno.EINVAL, "neither a file nor a folder")
    if status.st_size > LARGEST_FILE:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    return path.read_bytes()


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class FilePictures(Listed):
    """Files under a folder, each read on demand."""

    folder: Path
    paths: Sequence[str]  # in the folder, as the file system spells them

    def name(self, number: int) -> str:
        return shown(self.paths[number])

    def content(self, number: int) -> Content:
        return read_picture(self.folder / self.paths[number])


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RowPictures(Listed):
    """Rows of pixels: `pixels[number]` is (height, width[, channels])."""

    pixels: Rows

    def name(self, number: int) -> str:
        return str(number)

    def content(self, number: int) -> Content:
        return np.ascontiguousarray(self.pixels[number])


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PiecePictures(Listed):
    """Concatenated encoded files: picture i is `data[offsets[i]:offsets[i + 1]]`."""

    data: NDArray[np.uint8]
    offsets: Numbers

    def name(self, number: int) -> str:
        return str(number)

    def content(self, number: int) -> Content:
        return self.data[self.offsets[number] : self.offsets[number + 1]].tobytes()


def shown(path: str) -> str:
    """A path as printable text: file systems allow any bytes in a name."""
    return printable(os.fsencode(path).decode("utf-8", "backslashreplace"))
