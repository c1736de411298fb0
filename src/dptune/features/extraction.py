"""Write features of pictures or texts by public backbones into a folder, chunk by chunk.
"Pictures" stands for texts, too.

A chunk is a run of consecutive pictures. It is stored with a digest of them and of the networks, so
that an interrupted extraction continues where it was. A finished part never changes, because runs
may refer to it: features of other pictures need another folder. The features of a picture depend on
that picture alone, and so does whether it is left out.
"""

import csv
import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dptune.data.chunk_records import (
    GROUPS,
    NUMBERS,
    ChunkRecord,
    digest_of_files,
    digest_of_maker,
    fingerprint_of,
    fingerprint_of_digests,
    read_records,
    remove_record,
)
from dptune.data.disk import INDEX, StoredChunk, chunk_file, save_array, write_chunk, write_index
from dptune.data.extracted import Extracted, ExtractedPart, holds_features
from dptune.errors import InvalidInput
from dptune.features.loading import Batch, digests_of
from dptune.features.network import Networks
from dptune.lock import FileLock
from dptune.pictures.pictures import Pictures, Remark
from dptune.table_files import listed

CHUNK, SMALL_CHUNK = 1024, 128  # pictures
_FEW = 10_000  # smaller parts have small chunks, so that an interruption loses little
REMARKS = "remarks.csv"
_LOCK_FILE = ".lock"
_AHEAD = 2  # chunks that may wait for the disk


@dataclass(frozen=True)
class Progress:
    """The progress of a part: of `total` pictures or texts (`things`), `done` are finished, `kept`
    of them from an earlier call."""

    part: str
    done: int
    kept: int
    total: int
    things: str = "pictures"


@dataclass(frozen=True)
class Extraction:
    """The content of the folder. `remarks` are about private pictures."""

    folder: Path
    parts: Mapping[str, ExtractedPart]
    remarks: Sequence[tuple[str, Remark]]  # each with its part
    made: int  # pictures whose features were made by this call
    things: str = "pictures"  # or texts


Watch = Callable[[Progress], None]


class FolderTaken(InvalidInput):
    """The content of the folder must not change; another folder is needed."""


def write_features(
    parts: Mapping[str, Pictures],
    networks: Networks,
    out: str | Path,
    *,
    source: str,
    watch: Watch | None = None,
) -> Extraction:
    """Write the missing features of every part into `out`. All parts have the same classes;
    `source` identifies the pictures. Raises FolderTaken if finished features are of other
    pictures."""
    folder = Path(out)
    must_be_outside(folder, source)
    index = Extracted(networks.made_by, source, _common_classes(parts, networks.things), {})
    with _report_errors(folder):
        _open(folder, index)
        with _lock(folder):
            return _write(parts, networks, folder, index, watch)


def _write(
    parts: Mapping[str, Pictures],
    networks: Networks,
    folder: Path,
    index: Extracted,
    watch: Watch | None,
) -> Extraction:
    before = Extracted.read(folder).parts
    work = _Work(networks, digest_of_maker(networks.made_by))
    after, made = dict(before), 0
    for name in sorted(parts, key=lambda name: name not in before):  # these may be refused
        pictures = parts[name]
        count = _Count(name, len(pictures), networks.things, watch)
        records = work.part(pictures, folder / name, before.get(name), count)
        made += count.made
        stored = _stored_chunks(records)
        rows = sum(chunk.count for chunk in stored)
        after[name] = ExtractedPart(len(pictures), rows, fingerprint_of(records), pictures.groups)
        # Written before the index of rows: if the process ends between the two, rows must not pass
        # for those of the earlier pictures.
        replace(index, parts=after).write(folder)
        if not (folder / name / INDEX).exists():
            write_index(folder / name, stored, precision="float32")
    remarks = list(_remarks(folder, after, parts))
    _write_remarks(folder, remarks)
    return Extraction(folder, after, remarks, made, networks.things)


def fingerprint_of_pictures(pictures: Pictures) -> str:
    """The fingerprint of their features in a ledger. Reads every picture, computes no features."""
    return fingerprint_of_digests(b"".join(digests_of(pictures, range(len(pictures)))))


class _Count:
    """Counts new and existing pictures of a part, and reports progress."""

    def __init__(self, part: str, total: int, things: str, watch: Watch | None) -> None:
        self._part, self._total, self._things, self._watch = part, total, things, watch
        self.made = self._kept = 0

    def __call__(self, made: int, kept: int) -> None:
        self.made, self._kept = self.made + made, self._kept + kept
        if self._watch is not None:
            done = self.made + self._kept
            self._watch(Progress(self._part, done, self._kept, self._total, self._things))


def _stored_chunks(records: Sequence[ChunkRecord]) -> list[StoredChunk]:
    stored = [record.chunk for record in records if record.chunk is not None]
    if not stored:
        picture, what, _ = records[0].remarks[0]
        raise InvalidInput(f"none of the pictures can be read; the first, {picture}: {what}.")
    return stored


@dataclass(frozen=True, eq=False)
class _Chunk:
    """The features of a chunk; `kept` are the numbers of the pictures that could be read."""

    blocks: list[Tensor] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)


def _await_first(
    waiting: deque[tuple[int, "Future[ChunkRecord]"]], records: dict[int, ChunkRecord]
) -> None:
    number, job = waiting.popleft()
    records[number] = job.result()


@dataclass(frozen=True, eq=False)
class _Work:
    """Makes parts with the same networks."""

    networks: Networks
    made_by: str  # digest of the networks

    def part(
        self,
        pictures: Pictures,
        folder: Path,
        finished: ExtractedPart | None,
        advance: Callable[[int, int], None],
    ) -> list[ChunkRecord]:
        """Make the missing chunks of a part, and return the records of all. `advance` receives
        the numbers of new and of existing pictures."""
        if finished is not None and (
            finished.pictures != len(pictures) or finished.groups != pictures.groups
        ):
            raise _folder_taken(folder, self.networks.things)
        _make_folder(folder)
        chunks = _spans(range(len(pictures)), SMALL_CHUNK if len(pictures) < _FEW else CHUNK)
        records: dict[int, ChunkRecord] = {}
        for number, span in enumerate(chunks):
            record = ChunkRecord.read(folder, number)
            if record is None or record.made_by != self.made_by:
                continue
            if record.digest != _chunk_digest(digests_of(pictures, span), pictures, span):
                if finished is not None:
                    raise _folder_taken(folder, self.networks.things)
            elif record.has_its_files(folder):
                records[number] = record
                advance(0, len(span))
        missing = [number for number in range(len(chunks)) if number not in records]
        if missing:
            (folder / INDEX).unlink(missing_ok=True)
            spans = [_spans(chunks[number], self.networks.batch) for number in missing]
            ready = self.networks.batches(pictures, chain(*spans))
            # A thread writes the files, so that networks need not wait for them.
            with ThreadPoolExecutor(1) as writer:
                waiting: deque[tuple[int, Future[ChunkRecord]]] = deque()
                for number, several in zip(missing, spans, strict=True):
                    made = self._compute(_report(islice(ready, len(several)), advance))
                    job = writer.submit(self._store, made, pictures, chunks[number], folder, number)
                    waiting.append((number, job))
                    if len(waiting) > _AHEAD:
                        _await_first(waiting, records)
                while waiting:
                    _await_first(waiting, records)
        _remove_beyond(folder, len(chunks))
        return [records[number] for number in range(len(chunks))]

    def _compute(self, ready: Iterable[Batch]) -> "_Chunk":
        """Compute the features of one chunk."""
        made = _Chunk()
        for batch in ready:
            if batch.kept:
                made.blocks.append(self.networks.features(batch, filled=True))
            made.kept.extend(batch.kept)
            made.digests.extend(batch.digests)
            made.remarks.extend(batch.remarks)
        return made

    def _store(
        self, made: "_Chunk", pictures: Pictures, span: range, folder: Path, number: int
    ) -> ChunkRecord:
        remove_record(folder, number)  # its files are overwritten
        chunk, files = None, ""
        if made.kept:
            features = torch.cat(made.blocks).cpu().numpy()
            self._must_be_finite(features)
            chunk = write_chunk(folder, number, features, pictures.labels[made.kept])
            save_array(chunk_file(folder, number, GROUPS), pictures.group_numbers[made.kept])
            save_array(chunk_file(folder, number, NUMBERS), np.array(made.kept, np.int64))
            files = digest_of_files(folder, number)
        record = ChunkRecord(
            self.made_by,
            _chunk_digest(made.digests, pictures, span),
            b"".join(made.digests).hex(),
            chunk,
            files,
            tuple((remark.picture, remark.what, remark.left_out) for remark in made.remarks),
        )
        record.write(folder, number)
        return record

    def _must_be_finite(self, features: NDArray[np.float32]) -> None:
        wrong = int((~np.isfinite(features).all(axis=1)).sum())
        if wrong:
            things = self.networks.things
            advice = "compute them with --precision float32"
            if self.networks.precision == "float32":
                advice = f"use another backbone, or look for extreme {things}"
            raise InvalidInput(
                f"{wrong} of {len(features)} {things} have features that are not finite in "
                f"{self.networks.precision}; {advice}."
            )


def _spans(numbers: range, length: int) -> list[range]:
    return [numbers[at : at + length] for at in range(0, len(numbers), length)]


def _report(ready: Iterable[Batch], advance: Callable[[int, int], None]) -> Iterator[Batch]:
    for batch in ready:
        yield batch
        advance(len(batch.digests), 0)


def _chunk_digest(digests: Iterable[bytes], pictures: Pictures, span: range) -> str:
    """The digest of the pictures of a chunk in order, with their groups."""
    groups = pictures.group_numbers[span.start : span.stop].astype("<i8").tobytes()
    return hashlib.sha256(b"".join(digests) + groups).hexdigest()


def _make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # features are as private as pictures


def _folder_taken(part: Path, things: str) -> FolderTaken:
    return FolderTaken(
        f"the features in {str(part)!r} are finished and were made of other {things}; give another "
        "folder, or remove this one if no run needs it."
    )


def must_be_outside(folder: Path, *places: str) -> None:
    """Refuse a folder inside the pictures: its files would be read as pictures later."""
    for place in places:
        if os.path.isdir(place) and folder.resolve().is_relative_to(Path(place).resolve()):
            raise InvalidInput(
                f"the folder of features {str(folder)!r} is inside the folder of pictures "
                f"{place!r}, so its files would be read as pictures; choose another place "
                "(dptune extract -o)."
            )


def _common_classes(parts: Mapping[str, Pictures], things: str) -> tuple[str, ...]:
    for name, pictures in parts.items():
        if not len(pictures):
            raise InvalidInput(f"there are no {name} {things}; give some, or leave them out.")
    first, *others = parts
    for other in others:
        if parts[other].classes != parts[first].classes:
            raise InvalidInput(
                f"the {things} of {other} have the classes {listed(parts[other].classes)}, "
                f"those of {first} {listed(parts[first].classes)}; give parts with the same."
            )
    return parts[first].classes


def _open(folder: Path, index: Extracted) -> None:
    """Create the folder; existing features must come from the same source and networks."""
    if holds_features(folder):
        before = Extracted.read(folder)
        if not before.same_but_parts(index):
            raise FolderTaken(
                f"the folder {str(folder)!r} holds features of {before.source} by "
                f"{before.made_by['name']}, not of {index.source} by {index.made_by['name']}; give "
                "another folder, or remove this one."
            )
        return
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise FolderTaken(f"{str(folder)!r} exists and holds no features; give a new folder.")
    _make_folder(folder)
    index.write(folder)  # identifies the folder if the extraction is interrupted


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Keep other processes out while this one writes."""
    lock = FileLock.take(folder / _LOCK_FILE)
    if lock is None:
        raise InvalidInput(
            f"another process is making features in {str(folder)!r}; wait until it has ended, or "
            "give another folder."
        )
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _report_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # from the folder: pictures that cannot be read are left out
        raise InvalidInput(
            f"features cannot be written to {str(folder)!r}: {error.strerror or error}. Free some "
            "space, or get the right to write there; then the same command continues."
        ) from None


def _remarks(
    folder: Path, found: Mapping[str, ExtractedPart], parts: Mapping[str, Pictures]
) -> Iterator[tuple[str, Remark]]:
    """The remarks of every part in the folder, those from listing pictures first."""
    for name in found:
        for remark in parts[name].remarks if name in parts else ():
            yield name, remark
        for record in read_records(folder / name):
            yield from ((name, Remark(*each)) for each in record.remarks)


def _write_remarks(folder: Path, remarks: Iterable[tuple[str, Remark]]) -> None:
    with (folder / REMARKS).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["part", "picture", "what", "left out"])
        for part, remark in remarks:
            writer.writerow([part, remark.picture, remark.what, "yes" if remark.left_out else "no"])


def _remove_beyond(folder: Path, chunks: int) -> None:
    """Remove chunks that a larger earlier set of pictures left."""
    beyond = [path for path in folder.glob("[0-9]*.*") if int(path.name.split(".")[0]) >= chunks]
    if beyond:
        (folder / INDEX).unlink(missing_ok=True)  # it lists them
    for path in beyond:
        path.unlink()
