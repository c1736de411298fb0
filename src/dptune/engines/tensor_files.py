"""Tensors on disk, with a few words about them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from dptune.engines.digests import digest_of_tensors, with_digest, without_digest
from dptune.errors import FolderProblem, OwnCodeProblem
from dptune.plain_data import UNFIT, read_json
from dptune.whole_files import open_regular

# Of the words that safetensors keeps, one holds ours as a record: several would be written in any
# order. Versions before 0.2 wrote some of these, or none, and no digest.
_RECORD, _OLD = "dptune", {"facts", "legs", "trial", "tag", "steps"}
GO_ON_WITHOUT = (
    "Put it back from a backup, or remove it: what it held is then lost, though paid for, and "
    "dptune resume goes on without it, if it can."
)
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
        return without_digest(read_json(stored[_RECORD], "its record"))
    if not stored.keys() <= _OLD:
        raise ValueError("it lacks its record")
    return stored


def has_digest(words: Mapping[str, str]) -> bool:
    """Whether damage to a file with these words, and to its tensors, is noticed."""
    return _TENSORS in words


@contextmanager
def undamaged(path: Path, advice: str = GO_ON_WITHOUT) -> Iterator[None]:
    """Say so where what was read from a file of a run folder does not make sense, and what to do
    then."""
    try:
        yield
    except OwnCodeProblem:
        raise
    except (*UNFIT, SafetensorError, OSError, RuntimeError) as error:
        why = f"it lacks {error}" if isinstance(error, KeyError) else str(error).strip(".")
        raise FolderProblem(f"{path} is damaged ({why}). {advice}") from None
