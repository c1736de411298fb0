"""Tensors on disk, with a few words about them; and files that are replaced whole."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from dptune.errors import FolderProblem, OwnCodeProblem
from dptune.plain_data import UNFIT


def tensors_as_bytes(tensors: Mapping[str, Tensor], words: dict[str, str] | None = None) -> bytes:
    """A safetensors file, as it is written."""
    plain = {key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}
    return save(plain, metadata=words)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The reverse, on the CPU."""
    with safe_open(path, framework="pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        return tensors, dict(file.metadata() or {})


def read_words(path: Path) -> dict[str, str]:
    """Only what is said about the tensors, however many there are."""
    with safe_open(path, framework="pt") as file:
        return dict(file.metadata() or {})


@contextmanager
def undamaged(path: Path) -> Iterator[None]:
    """Say so where what was read from a file of a run folder does not make sense."""
    try:
        yield
    except OwnCodeProblem:
        raise
    except (*UNFIT, SafetensorError, OSError, RuntimeError) as error:
        why = f"it lacks {error}" if isinstance(error, KeyError) else str(error).strip(".")
        raise FolderProblem(
            f"{path} is damaged ({why}). Put it back from a backup, or remove it: what it held is "
            "then lost, though paid for, and dptune resume goes on without it, if it can."
        ) from None


def draft_of(target: Path) -> Path:
    """Where a file is written before it takes its place: what a kill may leave behind."""
    return target.with_name(f".{target.name}.new")


def write_whole(target: Path, content: str | bytes) -> None:
    """So that there is the old file or the new one, never half of one and never a draft."""
    draft = draft_of(target)
    try:
        with open(draft, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
