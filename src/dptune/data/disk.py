"""Rows too many for memory: chunks in a folder, streamed anew every step."""

import copy
import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import reduce
from io import BufferedWriter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dptune.data.preprocess import LARGEST, Preprocessing
from dptune.data.rows import (
    Chunk,
    MemoryRows,
    SomeRows,
    TargetFacts,
    find_device,
    find_precision,
    norms_rounded_up,
)
from dptune.errors import InvalidInput
from dptune.plain_data import UNFIT, read_json
from dptune.whole_files import PRIVATE, new_file, open_regular, read_regular

INDEX = "index.json"  # written last, so that what is not finished has none
_READERS = 4


@dataclass(frozen=True)
class StoredChunk:
    """What the index of a folder records of one chunk."""

    number: int  # of its files
    count: int
    copies: int
    shape: tuple[int, ...]
    targets: TargetFacts

    @staticmethod
    def of(plain: Mapping[str, Any]) -> "StoredChunk":
        """From what JSON gives back."""
        number, count, copies = (int(plain[name]) for name in ("number", "count", "copies"))
        shape = tuple(map(int, plain["shape"]))
        return StoredChunk(number, count, copies, shape, target_facts(plain["targets"]))

    @property
    def form(self) -> tuple[int, ...]:
        return (self.copies, *self.shape, self.targets.width)


def write_chunks(
    folder: str | Path,
    chunks: Iterable[tuple[NDArray[Any], NDArray[Any]]],
    *,
    precision: str = "float32",
    augmented: bool | None = None,
) -> None:
    """Store (features, targets) chunks for `DiskRows`, each checked, with its norms; `augmented` as
    for `MemoryRows`."""
    folder = Path(folder)
    find_precision(precision)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / INDEX).unlink(missing_ok=True)
    except OSError as error:
        raise InvalidInput(f"chunks cannot be written to {folder}: {error.strerror}.") from None
    stored: list[StoredChunk] = []
    for number, (features, targets) in enumerate(chunks):
        stored.append(
            write_chunk(folder, number, features, targets, precision=precision, augmented=augmented)
        )
        _must_be_alike(stored[0], stored[-1])
    write_index(folder, stored, precision=precision)


def write_chunk(
    folder: Path,
    number: int,
    features: NDArray[Any],
    targets: NDArray[Any],
    *,
    precision: str = "float32",
    augmented: bool | None = None,
) -> StoredChunk:
    """Write one chunk; `write_index` makes it a part of the folder."""
    rows = MemoryRows(features, targets, precision=precision, augmented=augmented)
    values = rows.features
    if precision == "bfloat16":  # which NumPy does not know
        values = values.view(torch.int16)
    for name, tensor in (("features", values), ("targets", rows.targets), ("norms", rows.norms)):
        save_array(chunk_file(folder, number, f"{name}.npy"), tensor.numpy())
    return StoredChunk(number, rows.count, rows.copies, rows.shape, rows.target_facts)


def write_index(folder: Path, chunks: Sequence[StoredChunk], *, precision: str) -> None:
    """Record which chunks `DiskRows` reads from a folder, in their order."""
    if not chunks:
        raise InvalidInput("there is nothing to write: no chunk was given.")
    for chunk in chunks:
        _must_be_alike(chunks[0], chunk)
    index = {
        "precision": precision,
        "numbers": [chunk.number for chunk in chunks],
        "counts": [chunk.count for chunk in chunks],
        "copies": chunks[0].copies,
        "shape": chunks[0].shape,
        "targets": asdict(reduce(TargetFacts.joined, (chunk.targets for chunk in chunks))),
    }
    save_text(folder / INDEX, json.dumps(index))


def save_text(path: Path, text: str) -> None:
    """Replace a file as a whole: after an interruption it is the new one or the old."""
    with _private_draft(path.with_name(f"{path.name}.new")) as file:
        file.write(text.encode())
    Path(file.name).replace(path)


def save_array(path: Path, array: NDArray[Any]) -> None:
    """Write a new file: one that is mapped into memory elsewhere must not change."""
    with _private_draft(path.with_suffix(".new")) as file:
        np.save(file, array)
    Path(file.name).replace(path)


def _private_draft(path: Path) -> BufferedWriter:
    """For the owner alone: it is private rows that are written."""
    path.unlink(missing_ok=True)  # what a kill left
    return new_file(path, PRIVATE)


def chunk_file(folder: Path, number: int, name: str) -> Path:
    return folder / f"{number:06d}.{name}"


def _must_be_alike(first: StoredChunk, other: StoredChunk) -> None:
    if other.form != first.form:
        raise InvalidInput(
            f"chunk {other.number} has (copies, columns, targets) = {other.form}, the first has "
            f"{first.form}; all chunks need the same."
        )


class DiskRows:
    """Rows in the chunks of a folder, memory-mapped and streamed anew every step.

    While the engine works on one chunk, threads read and prepare the next ones and, on a GPU, copy
    them over on a stream of their own.
    """

    def __init__(self, folder: str | Path, *, device: str = "cpu") -> None:
        self.folder = Path(str(folder))
        try:
            index = read_json(read_regular(self.folder / INDEX), INDEX)
            targets, copies = target_facts(index["targets"]), int(index["copies"])
            # Folders of version 0.1 hold tables only.
            shape = tuple(map(int, index.get("shape") or [index["columns"]]))
            counts, precision = [int(count) for count in index["counts"]], index["precision"]
            # Older folders number their chunks from 0.
            self._numbers = [int(number) for number in index.get("numbers", range(len(counts)))]
            if len(self._numbers) != len(counts):
                raise ValueError("its index names other chunks than it counts")
        except (OSError, *UNFIT) as error:
            raise InvalidInput(
                f"{str(folder)!r} holds no finished chunks of rows ({error}); write them with "
                "write_chunks."
            ) from None
        self._set_up(counts, copies, shape, targets, precision, device)
        # Threads must not read headers: Python 3.11 may fail where two of them parse at once.
        self._layouts: dict[Path, tuple[Any, ...]] = {}
        for number, count in enumerate(counts):
            self._must_fit(number, (count, self.copies, *self.shape))
        self._opened = self._files()

    def _set_up(
        self,
        counts: Sequence[int],
        copies: int,
        shape: tuple[int, ...],
        targets: TargetFacts,
        precision: str,
        device: str,
    ) -> None:
        self.copies, self.shape, self.target_facts = copies, shape, targets
        self.columns = math.prod(shape)
        self.device, self.dtype = find_device(device), find_precision(precision)
        self._stored = self.dtype
        self._preprocessing: Preprocessing | None = None
        self._scaled: Callable[[Tensor], Tensor] | None = None
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        self.count, self._chunks = int(self._starts[-1]), len(counts)
        self._stream, self._readers = _copy_stream(self.device), _READERS

    def prepared(
        self,
        preprocessing: Preprocessing | None,
        scaled: Callable[[Tensor], Tensor] | None,
        *,
        device: str,
        precision: str,
    ) -> "DiskRows":
        """The same rows; their features are preprocessed and their targets `scaled` whenever they
        are read."""
        rows = copy.copy(self)
        rows.device, rows.dtype = find_device(device), find_precision(precision)
        rows._preprocessing, rows._scaled = preprocessing, scaled
        if preprocessing is not None:
            rows.columns = preprocessing.columns(self.columns)
            rows.shape = (rows.columns,)
        rows._stream = _copy_stream(rows.device)
        return rows

    def chunks(self) -> Iterator[Chunk]:
        with ThreadPoolExecutor(self._readers) as readers:
            ahead = deque(
                readers.submit(self._fetch, n) for n in range(min(self._readers, self._chunks))
            )
            for number in range(self._chunks):
                chunk, copied = ahead.popleft().result()
                if number + self._readers < self._chunks:
                    ahead.append(readers.submit(self._fetch, number + self._readers))
                if copied is not None:
                    current = torch.cuda.current_stream(self.device)
                    current.wait_event(copied)
                    for tensor in (chunk.features, chunk.targets, chunk.norms):
                        tensor.record_stream(current)
                yield chunk

    def pick(self, indices: Tensor) -> Chunk:
        places = indices.cpu().numpy()
        numbers = np.searchsorted(self._starts, places, side="right") - 1
        parts = []
        for number in np.unique(numbers):
            inside = torch.from_numpy(places[numbers == number] - self._starts[number])
            parts.append([tensor[inside] for tensor in self._mapped(int(number))])
        features, targets, norms = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        ready = self._ready(features, targets, norms)
        features, targets, norms = (tensor.to(self.device) for tensor in ready)
        return Chunk(features, targets, norms)

    def taken(self, mask: Tensor) -> SomeRows:
        return SomeRows(self, mask)

    def tables(self, copy: int = 0) -> Iterator[NDArray[Any]]:
        """One copy of every row as it is stored, chunk by chunk."""
        for number in range(self._chunks):
            features, _, _ = self._mapped(number)
            yield _as_array(features[:, copy].flatten(1))

    def must_be_unchanged(self) -> None:
        """Refuse files that were written since the folder was opened: the old ones were checked and
        paid for."""
        if self._files() != self._opened:
            raise InvalidInput(
                f"the rows in {self.folder} were changed after they were opened; leave them as "
                "they are, or open them again."
            )

    def _watched(self) -> list[Path]:
        return [*self._layouts, self.folder / INDEX]

    def _files(self) -> dict[Path, tuple[int, ...]]:
        try:
            states = {path: path.stat() for path in self._watched()}
        except OSError as error:
            raise InvalidInput(f"{self.folder} cannot be read: {error.strerror}.") from None
        return {path: (s.st_size, s.st_mtime_ns, s.st_ino) for path, s in states.items()}

    def _must_fit(self, number: int, shape: tuple[int, ...]) -> None:
        try:
            features, targets, norms = self._mapped(number)
        except Exception as error:  # on arbitrary bytes, NumPy raises anything
            raise InvalidInput(
                f"chunk {number} of {self.folder} cannot be read: {error}."
            ) from None
        if features.shape != shape or len(targets) != shape[0] or norms.shape != shape[:2]:
            raise InvalidInput(
                f"chunk {number} of {self.folder} has shape {tuple(features.shape)}, its index "
                f"says {shape}; write the chunks again."
            )

    def _mapped(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        def load(name: str) -> Tensor:
            path = chunk_file(self.folder, self._numbers[number], f"{name}.npy")
            if path not in self._layouts:  # when the folder is opened
                open_regular(path).close()
                mapped = np.load(path, mmap_mode="c")
                order = "F" if np.isfortran(mapped) else "C"
                self._layouts[path] = (mapped.dtype, "c", mapped.offset, mapped.shape, order)
            return torch.from_numpy(np.memmap(path, *self._layouts[path]))

        return load("features").view(self._stored), load("targets"), load("norms")

    def _ready(
        self, features: Tensor, targets: Tensor, norms: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Prepared for the engine; stored norms hold only for features as they are stored."""
        if self._preprocessing is not None:
            features = torch.from_numpy(self._preprocessing.apply_to_all(_as_array(features)))
        if self._preprocessing is not None or self.dtype != self._stored:
            if self.dtype.is_floating_point:  # none must become infinite after the payment
                features = features.clamp(-LARGEST, LARGEST)
            features = features.to(self.dtype)
            norms = norms_rounded_up(features)
        return features, targets if self._scaled is None else self._scaled(targets), norms

    def _fetch(self, number: int) -> tuple[Chunk, torch.cuda.Event | None]:
        """The chunk on its device, and on a GPU the event that says when it is complete."""
        features, targets, norms = self._ready(*self._mapped(number))
        if self._stream is None:
            if self._preprocessing is None:  # else they are read already
                features = features.clone()
            return Chunk(features, targets.clone(), norms.clone()), None
        with torch.cuda.stream(self._stream):
            chunk = Chunk(self._sent(features), self._sent(targets), self._sent(norms))
            return chunk, self._stream.record_event()

    def _sent(self, tensor: Tensor) -> Tensor:
        return tensor.pin_memory().to(self.device, non_blocking=True)


def target_facts(plain: Mapping[str, Any]) -> TargetFacts:
    """From what JSON gives back."""
    low, high = float(plain["low"]), float(plain["high"])
    return TargetFacts(low, high, bool(plain["whole"]), int(plain["width"]))


def _copy_stream(device: torch.device) -> torch.cuda.Stream | None:
    if device.type != "cuda":
        return None
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _as_array(features: Tensor) -> NDArray[Any]:
    """For NumPy, which does not know bfloat16."""
    array: NDArray[Any] = (
        features.float() if features.dtype == torch.bfloat16 else features
    ).numpy()
    return array
