"""Records stored beside chunks of features: what made a chunk, and of which pictures."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dptune.data.disk import StoredChunk, chunk_file, save_text
from dptune.plain_data import UNFIT, read_json
from dptune.whole_files import open_regular, read_regular

GROUPS, NUMBERS = "groups.npy", "numbers.npy"
_RECORD = "json"
_DIGEST = hashlib.sha256().digest_size
_FILES = ("features.npy", "targets.npy", "norms.npy", GROUPS, NUMBERS)


@dataclass(frozen=True)
class ChunkRecord:
    """`pictures` are the digests of all pictures with their classes, 64 letters each, readable or
    not. `digest` is that of the same in their order, with their groups; if it differs, the chunk
    was made of other pictures."""

    made_by: str
    digest: str
    pictures: str
    chunk: StoredChunk | None  # None if no picture could be read
    files: str  # digest of what is stored of the chunk
    remarks: tuple[tuple[str, str, bool], ...]

    @staticmethod
    def read(folder: Path, number: int) -> "ChunkRecord | None":
        """None if there is none, or an incomplete one."""
        try:
            plain = read_json(read_regular(chunk_file(folder, number, _RECORD)), "it")
            if plain["chunk"] is not None:
                plain["chunk"] = StoredChunk.of(plain["chunk"])
            plain["remarks"] = tuple(map(tuple, plain["remarks"]))
            if len(bytes.fromhex(plain["pictures"])) % _DIGEST:
                raise ValueError("torn")
            return ChunkRecord(**plain)
        except (OSError, *UNFIT):
            return None

    def write(self, folder: Path, number: int) -> None:
        save_text(chunk_file(folder, number, _RECORD), json.dumps(asdict(self)))

    @property
    def count(self) -> int:
        """Of all its pictures."""
        return len(self.pictures) // (2 * _DIGEST)

    def has_its_files(self, folder: Path) -> bool:
        """Whether no file was removed, cut short or changed."""
        try:
            return self.chunk is None or digest_of_files(folder, self.chunk.number) == self.files
        except (OSError, ValueError):
            return False


def remove_record(folder: Path, number: int) -> None:
    chunk_file(folder, number, _RECORD).unlink(missing_ok=True)


def read_records(folder: Path) -> list[ChunkRecord]:
    """Those of a part, in their order."""
    numbers = sorted(int(path.name.split(".")[0]) for path in folder.glob(f"[0-9]*.{_RECORD}"))
    records = (ChunkRecord.read(folder, number) for number in numbers)
    return [record for record in records if record is not None]


def digest_of_files(folder: Path, number: int) -> str:
    digest = hashlib.sha256()
    for name in _FILES:
        with open_regular(chunk_file(folder, number, name)) as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def digest_of_maker(made_by: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(made_by, sort_keys=True).encode()).hexdigest()


def fingerprint_of(records: Iterable[ChunkRecord]) -> str:
    """Of the pictures of all chunks."""
    return fingerprint_of_digests(bytes.fromhex("".join(record.pictures for record in records)))


def fingerprint_of_digests(digests: bytes) -> str:
    """Of pictures, whatever the names and the order of their files: renaming a file must not bring
    a new budget for the same people's pictures."""
    return hashlib.sha256(np.sort(np.frombuffer(digests, f"S{_DIGEST}")).tobytes()).hexdigest()
