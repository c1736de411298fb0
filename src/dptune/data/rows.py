"""The rows an engine trains on: in memory, or in chunks on disk that are streamed every step.

Every chunk carries its rows' norms, computed in float64 from the values as stored and rounded up:
the bound on a row's contribution is only as good as the norm it is computed from.
"""

import copy
import json
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dptune import validate
from dptune.errors import InvalidInput

_READERS = 4
PRECISIONS = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
}


@dataclass(frozen=True)
class Chunk:
    """Some rows on the engine's device: features (n, copies, columns), targets (n, ...), and the
    norm of each copy (n, copies), the column of ones that a bias sees included if `bias`."""

    features: Tensor
    targets: Tensor
    norms: Tensor
    bias: bool = False

    def prepared(self, copies: int, bias: bool) -> "Chunk":
        """The first `copies` copies, for a model with or without bias."""
        if copies == self.features.shape[1] and not bias:
            return self
        norms = self.norms[:, :copies]
        if bias:
            up = 1 + (1e-12 if norms.dtype == torch.float64 else 1e-6)
            norms = torch.hypot(norms, torch.ones((), dtype=norms.dtype)).mul_(up)
        return Chunk(self.features[:, :copies], self.targets, norms, bias)


@dataclass(frozen=True)
class TargetFacts:
    """What an engine must know of targets before it reads a row."""

    low: float
    high: float
    whole: bool  # labels, not values
    width: int

    @staticmethod
    def of(targets: Tensor) -> "TargetFacts":
        if targets.is_floating_point() and not bool(torch.isfinite(targets).all()):
            raise InvalidInput(
                "the targets hold values that are not finite; remove those rows first."
            )
        whole = not targets.is_floating_point() or bool((targets == targets.round()).all())
        width = 1 if targets.ndim == 1 else targets.shape[1]
        return TargetFacts(float(targets.min()), float(targets.max()), whole, width)

    def joined(self, other: "TargetFacts") -> "TargetFacts":
        """Of both; they must be equally wide."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        return TargetFacts(low, high, self.whole and other.whole, self.width)


class Rows(Protocol):
    """What an engine needs to know of data."""

    count: int
    columns: int
    copies: int
    device: torch.device
    dtype: torch.dtype
    target_facts: TargetFacts

    def chunks(self) -> Iterator[Chunk]:
        """All rows, in a fixed order."""
        ...

    def pick(self, indices: Tensor) -> Chunk:
        """Some rows, by number."""
        ...


def find_device(name: str) -> torch.device:
    """The device called `name`, if it is there."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise InvalidInput(f"device must be cpu, cuda or cuda:N; got {name!r}.") from None
    if device.type not in ("cpu", "cuda"):
        raise InvalidInput(f"device must be cpu, cuda or cuda:N; got {name!r}.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InvalidInput(f"device {name!r} was asked for, but torch finds no GPU; use cpu.")
    return device


def find_precision(name: str) -> torch.dtype:
    """The type of stored features called `name`."""
    validate.one_of(tuple(PRECISIONS), precision=name)
    return PRECISIONS[name]


def _as_tensor(values: Any, name: str) -> Tensor:
    """A copy, free of gradients: norms of an array somebody changes later would bound nothing, and
    a graph would carry the rows into the model."""
    try:
        if isinstance(values, Tensor):
            copied = values.detach().clone()
        else:
            copied = torch.tensor(np.asarray(values))
        if not copied.is_complex() and copied.layout == torch.strided:
            return copied
    except (TypeError, ValueError, RuntimeError):
        pass
    raise InvalidInput(f"{name} must be a table of real numbers; got {type(values).__name__}.")


def _as_targets(values: Any) -> Tensor:
    targets = _as_tensor(values, "targets")
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.ndim not in (1, 2) or 0 in targets.shape:
        raise InvalidInput(
            "targets are one label a row, or a table (rows, targets); got shape "
            f"{tuple(targets.shape)}."
        )
    return targets if targets.is_floating_point() else targets.long()


def check_features(features: Tensor) -> None:
    """Refuse what cannot be clipped, before anything is paid."""
    if features.ndim not in (2, 3) or 0 in features.shape:
        raise InvalidInput(
            "features must be a table of shape (rows, columns), or (rows, copies, columns) with "
            f"augmented copies; got shape {tuple(features.shape)}."
        )
    if not bool(torch.isfinite(features).all()):
        raise InvalidInput(
            "the features hold values that are not finite (NaN, infinity, or too large for "
            f"{str(features.dtype).removeprefix('torch.')}); remove or replace those rows first."
        )


def norms_rounded_up(features: Tensor) -> Tensor:
    """Norms over the last axis, from the stored values, never below the true ones."""
    exact: Tensor = torch.linalg.vector_norm(features.to(torch.float64), dim=-1)
    if features.dtype == torch.float64:
        return (exact * (1 + 1e-12)).clamp(min=2.0**-500)  # squares below would vanish
    # Denormals round coarsely, so tiny norms are raised; a norm beyond float32 becomes infinite,
    # and its row will contribute nothing.
    return (exact * (1 + 1e-6)).to(torch.float32).clamp(min=2.0**-100)


class MemoryRows:
    """All rows on the device."""

    def __init__(
        self,
        features: NDArray[Any] | Tensor,
        targets: NDArray[Any] | Tensor,
        *,
        device: str = "cpu",
        precision: str = "float32",
        chunk_rows: int | None = None,
    ) -> None:
        self.device, self.dtype = find_device(device), find_precision(precision)
        # A CPU wants a chunk's residuals in its cache, a GPU wants few and large kernels.
        if chunk_rows is None:
            chunk_rows = 4096 if self.device.type == "cpu" else 2**16
        chunk_rows = validate.whole(1, chunk_rows=chunk_rows)
        self.features = _as_tensor(features, "features").to(self.device, self.dtype)
        check_features(self.features)
        if self.features.ndim == 2:
            self.features = self.features[:, None]
        self.targets = _as_targets(targets).to(self.device)
        self.count, self.copies, self.columns = self.features.shape
        if len(self.targets) != self.count:
            raise InvalidInput(
                f"there are {self.count} rows of features but {len(self.targets)} targets; each "
                "row needs one."
            )
        self.target_facts = TargetFacts.of(self.targets)
        self._chunk_rows = chunk_rows
        starts = range(0, self.count, chunk_rows)
        self.norms = torch.cat(
            [norms_rounded_up(self.features[i : i + chunk_rows]) for i in starts]
        )

    def chunks(self) -> Iterator[Chunk]:
        if self.count <= self._chunk_rows:
            yield Chunk(self.features, self.targets, self.norms)
            return
        for start in range(0, self.count, self._chunk_rows):
            part = slice(start, start + self._chunk_rows)
            yield Chunk(self.features[part], self.targets[part], self.norms[part])

    def pick(self, indices: Tensor) -> Chunk:
        return Chunk(self.features[indices], self.targets[indices], self.norms[indices])

    def taken(self, mask: Tensor) -> "MemoryRows":
        """The rows where `mask` is true; where there are none, an empty row that adds nothing to
        any sum, so that runs on a sample that happens to be empty go on like any other."""
        part = copy.copy(self)
        if bool(mask.any()):
            part.features, part.targets = self.features[mask], self.targets[mask]
            part.norms = self.norms[mask]
        else:
            part.features = torch.zeros_like(self.features[:1])
            part.targets = torch.zeros_like(self.targets[:1])
            # Of infinite length, so that it is dropped also where a bias would see it.
            part.norms = torch.full_like(self.norms[:1], torch.inf)
        part.count = len(part.features)
        return part


def write_chunks(
    folder: str | Path,
    chunks: Iterable[tuple[NDArray[Any], NDArray[Any]]],
    *,
    precision: str = "float32",
) -> None:
    """Store (features, targets) chunks for `DiskRows`, each checked, with its norms.

    The index comes last: a folder that was not finished, or is being rewritten, has none.
    """
    folder = Path(folder)
    find_precision(precision)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "index.json").unlink(missing_ok=True)
    except OSError as error:
        raise InvalidInput(f"chunks cannot be written to {folder}: {error.strerror}.") from None
    counts: list[int] = []
    shape: tuple[int, ...] = ()
    facts: TargetFacts | None = None
    for number, (features, targets) in enumerate(chunks):
        rows = MemoryRows(features, targets, precision=precision)
        found = (rows.copies, rows.columns, rows.target_facts.width)
        if facts is not None and found != shape:
            raise InvalidInput(
                f"chunk {number} has (copies, columns, targets) = {found}, the first has {shape}; "
                "all chunks need the same."
            )
        shape = found
        facts = rows.target_facts if facts is None else facts.joined(rows.target_facts)
        counts.append(rows.count)
        stored = rows.features
        if precision == "bfloat16":  # which NumPy does not know
            stored = stored.view(torch.int16)
        np.save(folder / f"{number:06d}.features.npy", stored.numpy())
        np.save(folder / f"{number:06d}.targets.npy", rows.targets.numpy())
        np.save(folder / f"{number:06d}.norms.npy", rows.norms.numpy())
    if facts is None:
        raise InvalidInput("there is nothing to write: no chunk was given.")
    index = {
        "precision": precision,
        "counts": counts,
        "copies": shape[0],
        "columns": shape[1],
        "targets": asdict(facts),
    }
    draft = folder / "index.json.new"
    draft.write_text(json.dumps(index))
    draft.replace(folder / "index.json")


class DiskRows:
    """Rows in the chunks of a folder, memory-mapped and streamed anew every step.

    While the engine works on one chunk, threads read the next ones and, on a GPU, copy them over
    on a stream of their own.
    """

    def __init__(self, folder: str | Path, *, device: str = "cpu") -> None:
        self._folder = Path(str(folder))
        try:
            index = json.loads((self._folder / "index.json").read_text())
            self.target_facts = TargetFacts(**index["targets"])
            self.copies, self.columns = int(index["copies"]), int(index["columns"])
            counts, precision = [int(count) for count in index["counts"]], index["precision"]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise InvalidInput(
                f"{str(folder)!r} holds no finished chunks of rows ({error}); write them with "
                "write_chunks."
            ) from None
        self.device, self.dtype = find_device(device), find_precision(precision)
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        self.count, self._chunks = int(self._starts[-1]), len(counts)
        # Threads must not read headers: Python 3.11 may fail where two of them parse at once.
        self._layouts: dict[Path, tuple[Any, ...]] = {}
        for number, count in enumerate(counts):
            self._must_fit(number, (count, self.copies, self.columns))
        self._stream: torch.cuda.Stream | None = None
        if self.device.type == "cuda":
            self._stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def chunks(self) -> Iterator[Chunk]:
        with ThreadPoolExecutor(_READERS) as readers:
            ahead = deque(
                readers.submit(self._fetch, n) for n in range(min(_READERS, self._chunks))
            )
            for number in range(self._chunks):
                chunk, copied = ahead.popleft().result()
                if number + _READERS < self._chunks:
                    ahead.append(readers.submit(self._fetch, number + _READERS))
                if copied is not None:
                    current = torch.cuda.current_stream(self.device)
                    current.wait_event(copied)
                    for tensor in (chunk.features, chunk.targets, chunk.norms):
                        tensor.record_stream(current)
                yield chunk

    def pick(self, indices: Tensor) -> Chunk:
        wanted = indices.cpu().numpy()
        numbers = np.searchsorted(self._starts, wanted, side="right") - 1
        parts = []
        for number in np.unique(numbers):
            inside = torch.from_numpy(wanted[numbers == number] - self._starts[number])
            parts.append([tensor[inside] for tensor in self._mapped(int(number))])
        features, targets, norms = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        return Chunk(features.to(self.device), targets.to(self.device), norms.to(self.device))

    def _must_fit(self, number: int, shape: tuple[int, ...]) -> None:
        try:
            features, targets, norms = self._mapped(number)
        except (OSError, ValueError) as error:
            raise InvalidInput(
                f"chunk {number} of {self._folder} cannot be read: {error}."
            ) from None
        if features.shape != shape or len(targets) != shape[0] or norms.shape != shape[:2]:
            raise InvalidInput(
                f"chunk {number} of {self._folder} has shape {tuple(features.shape)}, its index "
                f"says {shape}; write the chunks again."
            )

    def _mapped(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        def load(name: str) -> Tensor:
            path = self._folder / f"{number:06d}.{name}.npy"
            if path not in self._layouts:  # when the folder is opened
                mapped = np.load(path, mmap_mode="c")
                order = "F" if np.isfortran(mapped) else "C"
                self._layouts[path] = (mapped.dtype, "c", mapped.offset, mapped.shape, order)
            return torch.from_numpy(np.memmap(path, *self._layouts[path]))

        return load("features").view(self.dtype), load("targets"), load("norms")

    def _fetch(self, number: int) -> tuple[Chunk, torch.cuda.Event | None]:
        """The chunk on its device, and on a GPU the event after which it is all there."""
        features, targets, norms = self._mapped(number)
        if self._stream is None:
            return Chunk(features.clone(), targets.clone(), norms.clone()), None
        with torch.cuda.stream(self._stream):
            chunk = Chunk(self._sent(features), self._sent(targets), self._sent(norms))
            return chunk, self._stream.record_event()

    def _sent(self, tensor: Tensor) -> Tensor:
        return tensor.pin_memory().to(self.device, non_blocking=True)
