"""Files that are replaced whole, and read only if they are regular files."""

import errno
import os
import stat
from contextlib import suppress
from io import BufferedReader, BufferedWriter
from pathlib import Path

PUBLIC, PRIVATE = 0o644, 0o600  # who may read a file: everybody, as far as umask goes; its owner
_NOT_SUPPORTED = (errno.EINVAL, errno.EOPNOTSUPP)  # some systems flush no folders


def draft_of(target: Path) -> Path:
    """Where a file is written before it takes its place: what a kill may leave behind."""
    return target.with_name(f".{target.name}.new")


def open_regular(path: Path) -> BufferedReader:
    """The file, opened to be read; ValueError where it is not a regular file: a pipe, for example,
    would keep its reader waiting without end."""
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError("it is not a regular file")
    return file


def read_regular(path: Path) -> bytes:
    """All bytes of a regular file."""
    with open_regular(path) as file:
        return file.read()


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def write_whole(target: Path, content: str | bytes, mode: int = PUBLIC) -> None:
    """Replace a file so that a crash leaves the old one or the new one, never half of one. Nothing
    that lies in the place of the draft, such as a link, is written to."""
    draft = draft_of(target)
    try:
        draft.unlink(missing_ok=True)  # what a kill left
        with new_file(draft, mode) as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
        sync_folder(target.parent)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def new_file(path: Path, mode: int = PUBLIC) -> BufferedWriter:
    """A file that was not there before, opened to be written; never one that a link leads to."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    return open(path, "wb", opener=lambda name, _: os.open(name, flags, mode))


def sync_folder(folder: Path) -> None:
    """Put the names of its files on disk for good."""
    if os.name == "nt":  # which opens no folders
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
    finally:
        os.close(opened)
