"""Decode pictures ahead of the network, in separate processes."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dptune.errors import InvalidInput
from dptune.features.transform import Transform
from dptune.pictures.decode import BadPicture, decode
from dptune.pictures.pictures import Content, Pictures, Remark

_FEW = 1600  # pictures; for fewer of them, starting another process takes longer than it saves


@dataclass(frozen=True, eq=False)
class Alike:
    """Pictures of one size: their places in the batch, and their pixels."""

    places: Tensor
    pixels: Tensor

    def pin_memory(self) -> "Alike":
        return Alike(self.places, self.pixels.pin_memory())


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch of pictures. `kept` are the numbers of those that could be read, `places` their
    places in the batch; `views` hold their pixels for each transform; `digests` are of all pictures
    of the batch, kept or not."""

    kept: list[int]
    places: list[int]
    views: list[list[Alike]]
    digests: list[bytes]
    remarks: list[Remark]

    def pin_memory(self) -> "Batch":
        views = [[alike.pin_memory() for alike in view] for view in self.views]
        return replace(self, views=views)


def digest_of(content: Content, label: str) -> bytes:
    """The digest of a picture and its class, which shows whether it has changed."""
    shape = None
    if isinstance(content, np.ndarray):
        shape, content = content.shape, np.ascontiguousarray(content).tobytes()
    digest = hashlib.sha256(repr((label, shape)).encode())
    digest.update(content)
    return digest.digest()


def digests_of(pictures: Pictures, numbers: Sequence[int]) -> list[bytes]:
    """The digests of pictures, without decoding them."""
    return [_read(pictures, number)[1] for number in numbers]


def batches(
    pictures: Pictures, transforms: Sequence[Transform], spans: Iterable[Sequence[int]], device: str
) -> Iterator[Batch]:
    """Yield the pictures of each span, in order."""
    spans = list(spans)
    # A CPU that also computes features can spare one core for decoding.
    workers = min(_cores() if device == "cuda" else 1, sum(map(len, spans)) // _FEW)
    return _unless_ended(
        DataLoader(
            _Spans(pictures, transforms, spans),
            batch_size=None,
            num_workers=workers,
            pin_memory=device == "cuda",
            prefetch_factor=2 if workers else None,
        )
    )


def _cores() -> int:
    """The number of cores that this process may use, if the system reports it."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


def _unless_ended(loader: Iterable[Batch]) -> Iterator[Batch]:
    """Report processes that the system ended, for example for lack of memory."""
    try:
        yield from loader
    except MemoryError:
        raise InvalidInput(
            "there is not enough memory to decode a picture. Free some memory; stored features are "
            "kept, and the same command continues."
        ) from None
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise InvalidInput(
            "the system ended a process that decodes pictures, perhaps because memory, or shared "
            f"memory (/dev/shm), was full ({error}). Free some memory; stored features are kept, "
            "and the same command continues."
        ) from None


class _Spans(Dataset[Batch]):
    def __init__(
        self, pictures: Pictures, transforms: Sequence[Transform], spans: Sequence[Sequence[int]]
    ) -> None:
        self._pictures, self._transforms, self._spans = pictures, transforms, spans

    def __len__(self) -> int:
        return len(self._spans)

    def __getitem__(self, item: int) -> Batch:
        if item >= len(self._spans):
            raise IndexError(item)
        kept: list[int] = []
        places: list[int] = []
        shrunk: list[list[NDArray[np.uint8]]] = [[] for _ in self._transforms]
        digests: list[bytes] = []
        remarks: list[Remark] = []
        enough = max(transform.side for transform in self._transforms)
        for place, number in enumerate(self._spans[item]):
            name = self._pictures.name(number)
            content, digest = _read(self._pictures, number)
            digests.append(digest)
            try:
                if isinstance(content, OSError):
                    raise BadPicture(content.strerror or "it cannot be read")
                pixels, odd = decode(content, at_least=enough, name=name)
            except BadPicture as bad:
                remarks.append(Remark(name, str(bad), left_out=True))
                continue
            remarks += [Remark(name, what, left_out=False) for what in odd]
            kept.append(number)
            places.append(place)
            for transform, view in zip(self._transforms, shrunk, strict=True):
                view.append(transform.shrunk(pixels))
        views = [_by_size(view, places) for view in shrunk]
        return Batch(kept, places, views, digests, remarks)


def _read(pictures: Pictures, number: int) -> tuple[Content | OSError, bytes]:
    # Pictures to predict have no classes.
    label = pictures.classes[pictures.labels[number]] if pictures.classes else ""
    try:
        content = pictures.content(number)
    except OSError as error:  # a picture that cannot be read is left out, and may come back
        return error, digest_of(repr(error.errno).encode(), label)
    return content, digest_of(content, label)


def _by_size(view: list[NDArray[np.uint8]], places: list[int]) -> list[Alike]:
    sizes: dict[tuple[int, ...], list[int]] = {}
    for number, pixels in enumerate(view):
        sizes.setdefault(pixels.shape, []).append(number)
    return [
        Alike(
            torch.tensor([places[number] for number in numbers]),
            torch.from_numpy(np.stack([view[number] for number in numbers])),
        )
        for numbers in sizes.values()
    ]
