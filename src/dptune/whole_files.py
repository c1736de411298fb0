"""Files that are replaced atomically, and read only if they are regular files."""

import errno
import os
import stat
from contextlib import suppress
from io import BufferedReader, BufferedWriter
from pathlib import Path

PUBLIC, PRIVATE = 0o644, 0o600  # readable by all users (within the umask), or only by the owner
_NOT_SUPPORTED = (errno.EINVAL, errno.EOPNOTSUPP)  # some systems cannot flush folders


def draft_of(target: Path) -> Path:
    """The draft of a file, which replaces it when complete; a kill may leave it behind."""
    return target.with_name(f".{target.name}.new")


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading; ValueError if it is not a regular file. A pipe, for example, could
    block its reader forever."""
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
    """Replace a file atomically: a crash leaves the old or the new one. Anything in the draft's
    place, such as a link, is removed and not written to."""
    draft = draft_of(target)
    try:
        draft.unlink(missing_ok=True)  # from a killed process
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
    """Create a file and open it for writing; fails if it exists, and never follows a link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    return open(path, "wb", opener=lambda name, _: os.open(name, flags, mode))


def sync_folder(folder: Path) -> None:
    """Flush the names of a folder's files to disk."""
    if os.name == "nt":  # Windows cannot open folders
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
    finally:
        os.close(opened)
