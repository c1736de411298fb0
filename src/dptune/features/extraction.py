"""Pictures or texts, and public backbones, to a folder of features, chunk by chunk. What is said
here of pictures holds for texts too.

A chunk is some consecutive pictures. It is stored with a digest of them and of what made its
features, so that whatever is cut off goes on where it was. A part that is finished stays as it is,
for runs may point to it: features of other pictures need another folder. What comes of a picture
depends on that picture alone, and so does whether it is left out.
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
_FEW = 10_000  # below which a part has small chunks: slow networks lose little where they are cut
REMARKS = "remarks.csv"
_LOCK = ".lock"
_AHEAD = 2  # chunks that may wait for the disk


@dataclass(frozen=True)
class Progress:
    """How far a part is: of `total` pictures or texts (`things`), `done` are there, `kept` of them
    from before."""

    part: str
    done: int
    kept: int
    total: int
    things: str = "pictures"


@dataclass(frozen=True)
class Extraction:
    """What is in the folder now. `remarks` tell of private pictures."""

    folder: Path
    parts: Mapping[str, ExtractedPart]
    remarks: Sequence[tuple[str, Remark]]  # each with its part
    made: int  # pictures whose features were made now; the others were there
    things: str = "pictures"  # or texts


Watch = Callable[[Progress], None]


class FolderTaken(InvalidInput):
    """What is in the folder must stay as it is: another one is needed."""


def write_features(
    parts: Mapping[str, Pictures],
    networks: Networks,
    out: str | Path,
    *,
    source: str,
    watch: Watch | None = None,
) -> Extraction:
    """Write the features of every part into `out`, or what of them is not there yet. All parts
    have the same classes; `source` says whose pictures they are. Raises FolderTaken where finished
    features are of other pictures."""
    folder = Path(out)
    must_be_outside(folder, source)
    wanted = Extracted(networks.made_by, source, _common_classes(parts, networks.things), {})
    with _writing(folder):
        _open(folder, wanted)
        with _alone_in(folder):
            return _write(parts, networks, folder, wanted, watch)


def _write(
    parts: Mapping[str, Pictures],
    networks: Networks,
    folder: Path,
    wanted: Extracted,
    watch: Watch | None,
) -> Extraction:
    there = Extracted.read(folder)
    work = _Work(networks, digest_of_maker(networks.made_by))
    found, made = dict(there.parts), 0
    for name in sorted(parts, key=lambda name: name not in there.parts):  # may be refused: first
        pictures = parts[name]
        count = _Count(name, len(pictures), networks.things, watch)
        records = work.part(pictures, folder / name, there.parts.get(name), count)
        made += count.made
        stored = _stored(records)
        rows = sum(chunk.count for chunk in stored)
        found[name] = ExtractedPart(len(pictures), rows, fingerprint_of(records), pictures.groups)
        # Before the index: cut off between the two, rows must not pass for those of the pictures
        # that were there before.
        replace(wanted, parts=found).write(folder)
        if not (folder / name / INDEX).exists():
            write_index(folder / name, stored, precision="float32")
    remarks = list(_remarks(folder, found, parts))
    _write_remarks(folder, remarks)
    return Extraction(folder, found, remarks, made, networks.things)


def fingerprint_of_pictures(pictures: Pictures) -> str:
    """What a ledger will know their features by. Reads every picture, makes nothing."""
    return fingerprint_of_digests(b"".join(digests_of(pictures, range(len(pictures)))))


class _Count:
    """Counts pictures, those made now and those that were there, and tells of it."""

    def __init__(self, part: str, total: int, things: str, watch: Watch | None) -> None:
        self._part, self._total, self._things, self._watch = part, total, things, watch
        self.made = self._kept = 0

    def __call__(self, made: int, kept: int) -> None:
        self.made, self._kept = self.made + made, self._kept + kept
        if self._watch is not None:
            done = self.made + self._kept
            self._watch(Progress(self._part, done, self._kept, self._total, self._things))


def _stored(records: Sequence[ChunkRecord]) -> list[StoredChunk]:
    stored = [record.chunk for record in records if record.chunk is not None]
    if not stored:
        picture, what, _ = records[0].remarks[0]
        raise InvalidInput(f"none of the pictures can be read; the first, {picture}: {what}.")
    return stored


@dataclass(frozen=True, eq=False)
class _Made:
    """What came of the pictures of a chunk; `kept` are the numbers of those that could be read."""

    blocks: list[Tensor] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)


def _settle(
    waiting: deque[tuple[int, "Future[ChunkRecord]"]], records: dict[int, ChunkRecord]
) -> None:
    number, job = waiting.popleft()
    records[number] = job.result()


@dataclass(frozen=True, eq=False)
class _Work:
    """Makes parts with the same networks. `advanced` is told of every few pictures made."""

    networks: Networks
    made_by: str  # digest of what the networks are

    def part(
        self,
        pictures: Pictures,
        folder: Path,
        finished: ExtractedPart | None,
        advanced: Callable[[int, int], None],
    ) -> list[ChunkRecord]:
        """The records of all chunks of a part, each of which is on disk in the end."""
        if finished is not None and (
            finished.pictures != len(pictures) or finished.groups != pictures.groups
        ):
            raise _taken(folder, self.networks.things)
        _make(folder)
        chunks = _spans(range(len(pictures)), SMALL_CHUNK if len(pictures) < _FEW else CHUNK)
        records: dict[int, ChunkRecord] = {}
        for number, span in enumerate(chunks):
            record = ChunkRecord.read(folder, number)
            if record is None or record.made_by != self.made_by:
                continue
            if record.digest != _in_order(digests_of(pictures, span), pictures, span):
                if finished is not None:
                    raise _taken(folder, self.networks.things)
            elif record.has_its_files(folder):
                records[number] = record
                advanced(0, len(span))
        missing = [number for number in range(len(chunks)) if number not in records]
        if missing:
            (folder / INDEX).unlink(missing_ok=True)
            spans = [_spans(chunks[number], self.networks.batch) for number in missing]
            ready = self.networks.batches(pictures, chain(*spans))
            # Files are written by a thread, so that networks need not wait for them.
            with ThreadPoolExecutor(1) as writer:
                waiting: deque[tuple[int, Future[ChunkRecord]]] = deque()
                for number, several in zip(missing, spans, strict=True):
                    made = self._made(_told(islice(ready, len(several)), advanced))
                    job = writer.submit(
                        self._stored, made, pictures, chunks[number], folder, number
                    )
                    waiting.append((number, job))
                    if len(waiting) > _AHEAD:
                        _settle(waiting, records)
                while waiting:
                    _settle(waiting, records)
        _remove_beyond(folder, len(chunks))
        return [records[number] for number in range(len(chunks))]

    def _made(self, ready: Iterable[Batch]) -> "_Made":
        """The features of one chunk."""
        made = _Made()
        for batch in ready:
            if batch.kept:
                made.blocks.append(self.networks.features(batch, filled=True))
            made.kept.extend(batch.kept)
            made.digests.extend(batch.digests)
            made.remarks.extend(batch.remarks)
        return made

    def _stored(
        self, made: "_Made", pictures: Pictures, span: range, folder: Path, number: int
    ) -> ChunkRecord:
        remove_record(folder, number)  # what it tells of is written over
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
            _in_order(made.digests, pictures, span),
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
                advice = f"take another backbone, or see which {things} these are"
            raise InvalidInput(
                f"{wrong} of {len(features)} {things} have features that are not finite in "
                f"{self.networks.precision}; {advice}."
            )


def _spans(numbers: range, length: int) -> list[range]:
    return [numbers[at : at + length] for at in range(0, len(numbers), length)]


def _told(ready: Iterable[Batch], advanced: Callable[[int, int], None]) -> Iterator[Batch]:
    for batch in ready:
        yield batch
        advanced(len(batch.digests), 0)


def _in_order(digests: Iterable[bytes], pictures: Pictures, span: range) -> str:
    """Digest of the pictures of a chunk as they come, with their groups."""
    groups = pictures.group_numbers[span.start : span.stop].astype("<i8").tobytes()
    return hashlib.sha256(b"".join(digests) + groups).hexdigest()


def _make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # features are as private as pictures


def _taken(part: Path, things: str) -> FolderTaken:
    return FolderTaken(
        f"the features in {str(part)!r} are finished, and the {things} are not those that they "
        "were made of; give another folder, or remove this one if no run needs it."
    )


def must_be_outside(folder: Path, *places: str) -> None:
    """Features among pictures would be taken for pictures the next time."""
    for place in places:
        if os.path.isdir(place) and folder.resolve().is_relative_to(Path(place).resolve()):
            raise InvalidInput(
                f"the folder of features {str(folder)!r} is inside that of pictures, {place!r}, "
                "where it would be taken for pictures; choose one elsewhere (dptune extract -o)."
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
                f"those of {first} {listed(parts[first].classes)}; they need the same."
            )
    return parts[first].classes


def _open(folder: Path, wanted: Extracted) -> None:
    """What the folder holds already must be of the same kind."""
    if holds_features(folder):
        there = Extracted.read(folder)
        if not there.same_but_parts(wanted):
            raise FolderTaken(
                f"the folder {str(folder)!r} holds features that {there.made_by['name']} made of "
                f"{there.source}, not those that {wanted.made_by['name']} makes of "
                f"{wanted.source}; give another folder, or remove this one."
            )
        return
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise FolderTaken(f"{str(folder)!r} is there and holds no features; give a new folder.")
    _make(folder)
    wanted.write(folder)  # so that what is cut off is known for what it is


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """For one process at a time, and for as long as it lives."""
    lock = FileLock.take(folder / _LOCK)
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
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # pictures that cannot be read are left out, so this is the folder
        raise InvalidInput(
            f"features cannot be written to {str(folder)!r}: {error.strerror or error}. Make room, "
            "or see to it that you may write there; then the same command goes on."
        ) from None


def _remarks(
    folder: Path, found: Mapping[str, ExtractedPart], parts: Mapping[str, Pictures]
) -> Iterator[tuple[str, Remark]]:
    """Of every part in the folder, those of listing pictures first."""
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
    """What earlier pictures, which were more, left behind."""
    beyond = [path for path in folder.glob("[0-9]*.*") if int(path.name.split(".")[0]) >= chunks]
    if beyond:
        (folder / INDEX).unlink(missing_ok=True)  # which lists them
    for path in beyond:
        path.unlink()
