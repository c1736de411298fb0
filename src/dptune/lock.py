"""File locks that the operating system releases when the process that holds them dies."""

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import portalocker


@dataclass(frozen=True)
class FileLock:
    """A lock on an empty file. The file exists only while a process holds the lock, or after it
    died with it."""

    path: Path
    _file: int

    @classmethod
    def take(cls, path: Path) -> "FileLock | None":
        """Take the lock; None if another process holds it."""
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            if not _try(file):
                os.close(file)
                return None
            if _is(path, file):
                return cls(path, file)
            os.close(file)  # the last holder removed the file after we opened it

    def release(self) -> None:
        with suppress(OSError):  # unlink before unlocking, or it may be the next holder's file
            self.path.unlink()
        os.close(self._file)
        if os.name == "nt":  # Windows removes no open file, so the next holder's is safe
            with suppress(OSError):
                self.path.unlink()


def is_abandoned(path: Path) -> bool:
    """Whether the holder of this lock died; if so, its file is removed."""
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
    """Whether the path belongs to this process's user and is no link. Other users may also write to
    the temporary folder."""
    status = path.lstat()
    return not stat.S_ISLNK(status.st_mode) and (os.name == "nt" or status.st_uid == os.getuid())


def _try(file: int) -> bool:
    flags = portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING
    try:
        portalocker.lock(file, flags)
    except portalocker.AlreadyLocked:
        return False
    except portalocker.LockException as error:
        os.close(file)
        raise OSError(f"this file system supports no locks ({error})") from None
    return True


def _is(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False
