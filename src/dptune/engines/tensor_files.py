"""Tensors on disk, with a few words about them; and files that are read and replaced whole."""

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader, BufferedWriter
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from dptune.engines.digests import digest_of_tensors, with_digest, without_digest
from dptune.errors import FolderProblem, OwnCodeProblem

PUBLIC, PRIVATE = 0o644, 0o600  # who may read a file: everybody, as far as umask goes; its owner
# Of the words that safetensors keeps, one holds ours as a record: several would be written in any
# order. Versions before 0.2 wrote some of these, or none, and no digest.
_RECORD, _OLD = "dptune", {"facts", "legs", "trial", "tag", "steps"}
_TENSORS = "tensors"  # in the record: their digest


def tensors_as_bytes(
    tensors: Mapping[str, Tensor], words: Mapping[str, str] | None = None
) -> bytes:
    """A safetensors file, as it is written, with digests of the tensors and of the words."""
    plain = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    record = with_digest({**(words or {}), _TENSORS: digest_of_tensors(plain)})
    return save(plain, metadata={_RECORD: json.dumps(record)})


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors, on the CPU, and the words; ValueError where they do not fit their digests."""
    words = read_words(path)
    with safe_open(path, framework="pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    if words.pop(_TENSORS, None) not in (None, digest_of_tensors(tensors)):
        raise ValueError("its tensors do not fit their SHA-256")
    return tensors, words


def read_words(path: Path) -> dict[str, str]:
    """Only what is said about the tensors, however many there are, and their digest, which a file
    of a version before 0.2 lacks; ValueError where that does not fit its own digest."""
    open_regular(path).close()
    with safe_open(path, framework="pt") as file:
        stored = dict(file.metadata() or {})
    if _RECORD in stored:
        return without_digest(json.loads(stored[_RECORD]))
    if not stored.keys() <= _OLD:
        raise ValueError("it lacks its record")
    return stored


def has_digest(words: Mapping[str, str]) -> bool:
    """Whether damage to a file with these words, and to its tensors, is noticed."""
    return _TENSORS in words


@contextmanager
def undamaged(path: Path) -> Iterator[None]:
    """Say so where what was read from a file of a run folder does not make sense."""
    try:
        yield
    except OwnCodeProblem:
        raise
    except (KeyError, TypeError, ValueError, SafetensorError, OSError) as error:
        why = f"it lacks {error}" if isinstance(error, KeyError) else str(error).strip(".")
        raise FolderProblem(
            f"{path} is damaged ({why}). Put it back from a backup, or remove it: what it held is "
            "then lost, though paid for, and dptune resume goes on without it, if it can."
        ) from None


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
    return open(os.open(path, flags, mode), "wb")


def sync_folder(folder: Path) -> None:
    """Put the names of its files on disk for good."""
    if os.name == "nt":  # which opens no folders
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # some systems flush no folders
            raise
    finally:
        os.close(opened)
