"""Locks that nobody is left with: the system takes them back when their holder dies."""

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import portalocker


@dataclass(frozen=True)
class FileLock:
    """A lock on an empty file, which is there only while somebody holds it, or died holding it."""

    path: Path
    _file: int

    @classmethod
    def take(cls, path: Path) -> "FileLock | None":
        """The lock, or None where somebody else holds it."""
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            if not _try(file):
                os.close(file)
                return None
            if _is(path, file):
                return cls(path, file)
            os.close(file)  # its last holder removed it between our two steps

    def release(self) -> None:
        with suppress(OSError):  # while it is locked, or we might remove the next holder's
            self.path.unlink()
        os.close(self._file)
        if os.name == "nt":  # which removes no open file, so the next holder's is safe
            with suppress(OSError):
                self.path.unlink()


def is_abandoned(path: Path) -> bool:
    """Whether the holder of this lock is gone; then so is the file."""
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    if not _try(file):
        os.close(file)
        return False
    FileLock(path, file).release()
    return True


def is_ours(path: Path) -> bool:
    """Whether it belongs to the user of this process and is no link: others may write among
    temporary files, too."""
    found = path.lstat()
    return not stat.S_ISLNK(found.st_mode) and (os.name == "nt" or found.st_uid == os.getuid())


def _try(file: int) -> bool:
    flags = portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING
    try:
        portalocker.lock(file, flags)
    except portalocker.AlreadyLocked:
        return False
    except portalocker.LockException as error:
        os.close(file)
        raise OSError(f"no file can be locked here ({error})") from None
    return True


def _is(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False
