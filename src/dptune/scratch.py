"""Temporary folders that are removed with their process or, after a kill, by the next process."""

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dptune.lock import FileLock, is_ours

_PREFIX, _LOCK = "dptune-", ".lock"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder that only this user may read; it is removed at the end of the block."""
    place = Path(tempfile.gettempdir())
    _remove_abandoned(place)
    folder = place / f"{_PREFIX}{secrets.token_hex(8)}"
    # The lock lies next to the folder and is taken first, so that every folder in use has one.
    lock = _try_lock(folder.with_suffix(_LOCK))
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            lock.release()


def _remove_abandoned(place: Path) -> None:
    for path in place.glob(f"{_PREFIX}*{_LOCK}"):
        with suppress(OSError):  # other processes may remove it at the same time
            if is_ours(path) and (lock := _try_lock(path)):
                shutil.rmtree(path.with_suffix(""), ignore_errors=True)
                lock.release()


def _try_lock(path: Path) -> FileLock | None:
    """Take the lock; None if another process holds it, or the file system has no locks."""
    try:
        return FileLock.take(path)
    except OSError:
        return None
