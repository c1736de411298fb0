"""Compressed files, unpacked while they are read, up to a limit.

A file of a few megabytes can unpack to more than fits in memory.
"""

import io
import os
import sys
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

LIMIT = "DPTUNE_UNPACKED_GB"  # the environment variable
_DEFAULT_LIMIT = 4.0
_GIGABYTE = 1_000_000_000
_AT_ONCE = 1 << 20


class BeyondLimit(ValueError):
    """A file unpacks to more than the limit."""


def is_packed(path: Path) -> bool:
    """Whether a file is compressed with gzip, by its name."""
    return path.suffix.lower() == ".gz"


def open_unpacked(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked if its name says that it is compressed. A read beyond the limit
    raises `BeyondLimit`."""
    if not is_packed(path):
        return path.open("rb")
    return io.BufferedReader(_Limited(path), _AT_ONCE)


def must_unpack_within_limit(path: Path) -> None:
    """Refuse a zip file (such as NumPy's .npz) whose compressed members are too large."""
    with zipfile.ZipFile(path) as file:
        members = file.infolist()
    unpacked = sum(one.file_size for one in members if one.compress_type != zipfile.ZIP_STORED)
    if unpacked > _limit():
        raise _beyond()


def unpack_zlib(packed: Any) -> bytes:
    """The content of a zlib stream."""
    limit = _limit()
    unpacked = zlib.decompressobj().decompress(packed, int(min(limit + 1, sys.maxsize)))
    if len(unpacked) > limit:
        raise _beyond()
    return unpacked


class _Limited(io.RawIOBase):
    """The unpacked content of a gzip file, up to the limit."""

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
    """The limit in bytes."""
    setting = os.environ.get(LIMIT) or _DEFAULT_LIMIT
    try:
        gigabytes = float(setting)
    except ValueError:
        gigabytes = 0.0
    if not gigabytes > 0:  # also refuses NaN, which no size exceeds
        raise BeyondLimit(f"{LIMIT} is {setting!r}, which is not a number above 0")
    return gigabytes * _GIGABYTE


def _beyond() -> BeyondLimit:
    return BeyondLimit(f"it unpacks to more than {_limit() / _GIGABYTE:g} GB")
