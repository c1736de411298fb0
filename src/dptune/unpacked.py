"""Compressed files, unpacked as they are read and no further than is allowed.

A file of a few megabytes can unpack to more than any memory holds.
"""

import io
import os
import zipfile
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

LIMIT = "DPTUNE_UNPACKED_GB"  # the environment variable
_USUAL_LIMIT = 4.0
_GIGABYTE = 1_000_000_000
_AT_ONCE = 1 << 20


class BeyondLimit(ValueError):
    """A file unpacks to more than is allowed."""


def is_packed(path: Path) -> bool:
    """Whether the name of a file says that it is compressed with gzip."""
    return path.suffix.lower() == ".gz"


def open_unpacked(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked where its name says that it is compressed; a read that goes
    beyond the limit raises `BeyondLimit`."""
    if not is_packed(path):
        return path.open("rb")
    return io.BufferedReader(_Limited(path), _AT_ONCE)


def must_unpack_within_limit(path: Path) -> None:
    """Refuse a zip file, as NumPy's .npz is one, whose compressed members are too large."""
    with zipfile.ZipFile(path) as file:
        members = file.infolist()
    unpacked = sum(one.file_size for one in members if one.compress_type != zipfile.ZIP_STORED)
    if unpacked > _limit():
        raise _beyond()


class _Limited(io.RawIOBase):
    """What a file compressed with gzip holds, up to the limit."""

    def __init__(self, path: Path) -> None:
        self._left = _limit()
        self._file = pa.input_stream(path, compression="gzip", buffer_size=_AT_ONCE)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = self._file.readinto(buffer)
        self._left -= count
        if self._left < 0:
            raise _beyond()
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _limit() -> float:
    """In bytes."""
    said = os.environ.get(LIMIT) or _USUAL_LIMIT
    try:
        gigabytes = float(said)
    except ValueError:
        gigabytes = 0.0
    if not gigabytes > 0:  # nor NaN, beyond which nothing is
        raise BeyondLimit(f"{LIMIT} is {said!r}, which is no number above 0")
    return gigabytes * _GIGABYTE


def _beyond() -> BeyondLimit:
    return BeyondLimit(f"it unpacks to more than {_limit() / _GIGABYTE:g} GB")
