"""A fair queue for the writers of one file.

SQLite admits one writer at a time, but in no order: with many of them, some wait forever while
others write again and again. So writers queue here first. The queue only improves fairness. Where
it does not work, or a process in it hangs, writers go on to SQLite, whose lock is the one that
protects the file.

A ticket is an empty locked file in a folder of our own in the system's temporary directory, so that
no files appear next to a ledger. The next process in the queue, or the first process that joins any
other queue, removes the ticket of a process that died. The ticket of a process that hangs is
removed by the first process that has waited long enough.
"""

import hashlib
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from dptune.lock import FileLock, is_abandoned, is_ours

_PREFIX = "dptune-queue-"
# Seconds between two looks: the first times the number of processes ahead, at most the second.
_LOOK_EVERY, _LOOK_AT_LEAST_EVERY = 0.002, 0.05


@contextmanager
def turn(path: Path, patience: float) -> Iterator[None]:
    """Wait for all earlier writers of the file; later writers wait for the block.

    All writers together wait for a process that hangs only once, for `patience` seconds.
    """
    ticket = _draw(path)
    try:
        if ticket is not None:
            with suppress(OSError):
                _wait(ticket.path, patience)
        yield
    finally:
        if ticket is not None:
            ticket.release()
            with suppress(OSError):
                ticket.path.parent.rmdir()  # only succeeds if the queue is empty


def queue_of(path: Path) -> Path:
    """The folder of the queue for this file, the same for all of its names."""
    status = os.stat(path)
    mark = hashlib.sha256(f"{status.st_dev} {status.st_ino}".encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"{_PREFIX}{_user()}-{mark}")


def _draw(path: Path) -> FileLock | None:
    """A ticket behind all others; None where no queue is possible."""
    _remove_abandoned(tempfile.gettempdir())
    number = f"{time.monotonic_ns():020d}-{secrets.token_hex(4)}"
    for _ in range(10):
        try:
            folder = queue_of(path)
            folder.mkdir(mode=0o700, exist_ok=True)
            if not is_ours(folder):
                return None
            return FileLock.take(folder / number)
        except FileNotFoundError:
            continue  # the last process in the queue removed the folder
        except OSError:
            return None
    return None


@cache  # once a process
def _remove_abandoned(place: str) -> None:
    """Remove tickets of processes that died, and empty queues."""
    for folder in Path(place).glob(f"{_PREFIX}{_user()}-*"):
        with suppress(OSError):
            if is_ours(folder):
                for ticket in folder.iterdir():
                    is_abandoned(ticket)
                folder.rmdir()


def _wait(ticket: Path, patience: float) -> None:
    first, since = "", time.monotonic()
    while ahead := sorted(name for name in os.listdir(ticket.parent) if name < ticket.name):
        if ahead[0] != first:
            first, since = ahead[0], time.monotonic()
        if time.monotonic() - since > patience:
            # Its holder hangs. Removing the ticket frees all later writers, too.
            ticket.with_name(first).unlink(missing_ok=True)
            continue
        if not is_abandoned(ticket.with_name(ahead[-1])):
            time.sleep(min(_LOOK_EVERY * len(ahead), _LOOK_AT_LEAST_EVERY))


def _user() -> int:
    return 0 if os.name == "nt" else os.getuid()
