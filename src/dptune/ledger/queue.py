"""Whoever comes first is served first, among those who write to one file.

SQLite lets writers in one by one, but in no order: with many of them, some wait for ever while
others are served again and again. So they queue here before they ask. The queue is a courtesy: it
keeps nobody out, and where it cannot be kept, or somebody in it sleeps, writers go on to SQLite,
whose lock is the one that counts.

A ticket is an empty locked file in a folder of our own among the system's temporary files, so that
nothing lies beside a ledger. The ticket of a process that died is removed by the one behind it, or
by the first process that joins any other queue; the ticket of a process that hangs, by the first
that has waited for it long enough.
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
_LOOK_EVERY, _LOOK_AT_LEAST_EVERY = 0.002, 0.05  # seconds; times those ahead, so that few are busy


@contextmanager
def turn(path: Path, patience: float) -> Iterator[None]:
    """Wait until all who came before are done with the file; those behind wait for the block.

    A process that hangs is waited for only once, for `patience` seconds, by all writers together.
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
                ticket.path.parent.rmdir()  # the last one out


def queue_of(path: Path) -> Path:
    """Where those who write to this file queue, whatever name they know it by."""
    found = os.stat(path)
    mark = hashlib.sha256(f"{found.st_dev} {found.st_ino}".encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"{_PREFIX}{_user()}-{mark}")


def _draw(path: Path) -> FileLock | None:
    """A ticket behind all others; None where there is no queue."""
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
            continue  # the last one out closed the door
        except OSError:
            return None
    return None


@cache  # once a process
def _remove_abandoned(place: str) -> None:
    """Remove tickets of processes that died, and queues in which nobody stands any more."""
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
            # Its holder hangs. Gone from the folder, it holds up no later writer either.
            ticket.with_name(first).unlink(missing_ok=True)
            continue
        if not is_abandoned(ticket.with_name(ahead[-1])):
            time.sleep(min(_LOOK_EVERY * len(ahead), _LOOK_AT_LEAST_EVERY))


def _user() -> int:
    return 0 if os.name == "nt" else os.getuid()
