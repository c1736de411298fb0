"""MNIST, Fashion-MNIST and EMNIST in idx files, and SVHN."""

import struct
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dptune.errors import InvalidInput
from dptune.pictures.checks import check_labels
from dptune.pictures.known.class_names import DIGITS, EMNIST, FASHION
from dptune.pictures.known.matlab import read_matlab
from dptune.pictures.mapped import MappedRows
from dptune.pictures.pictures import Pictures, PictureSet
from dptune.pictures.stored import Numbers, RowPictures, Rows
from dptune.table_files import reading
from dptune.unpacked import open_unpacked


def mnist(folder: Path, variant: str) -> PictureSet | None:
    return _idx_set("mnist", folder, "train", "t10k", DIGITS)


def fashion_mnist(folder: Path, variant: str) -> PictureSet | None:
    return _idx_set("fashion_mnist", folder, "train", "t10k", FASHION)


def emnist(folder: Path, variant: str) -> PictureSet | None:
    if variant not in EMNIST:
        raise InvalidInput(f"emnist has the splits {', '.join(EMNIST)}; got {variant!r}.")
    train, test = (f"emnist-{variant}-{part}" for part in ("train", "test"))
    # EMNIST's pictures are transposed, as MATLAB wrote them; letters count from 1.
    first = 1 if variant == "letters" else 0
    return _idx_set(
        f"emnist:{variant}",
        folder,
        train,
        test,
        EMNIST[variant],
        turned=True,
        first_label=first,
    )


def _idx_set(
    name: str,
    folder: Path,
    train: str,
    test: str,
    classes: tuple[str, ...],
    *,
    turned: bool = False,
    first_label: int = 0,
) -> PictureSet | None:
    parts = {}
    for part, prefix in (("train", train), ("test", test)):
        images = _idx_file(folder, prefix, "images", 3)
        labels = _idx_file(folder, prefix, "labels", 1)
        if images and labels:
            parts[part] = partial(_idx_part, images, labels, classes, turned, first_label)
    return PictureSet(name, parts) if "train" in parts else None


def _idx_file(folder: Path, prefix: str, what: str, axes: int) -> Path | None:
    """Find the file, with a hyphen or (from some programs) a point, packed or not."""
    for between in "-.":
        for suffix in ("", ".gz"):
            path = folder / f"{prefix}-{what}{between}idx{axes}-ubyte{suffix}"
            if path.is_file():
                return path
    return None


def _idx_part(
    images: Path, labels: Path, classes: tuple[str, ...], turned: bool, first_label: int
) -> Pictures:
    with reading(labels):
        numbers = np.asarray(_idx_bytes(labels, 1)).astype(np.int64) - first_label
        check_labels(numbers, classes)
    with reading(images):
        pixels = _idx_rows(images, turned)
        if len(pixels) != len(numbers):
            raise ValueError(f"{len(pixels)} pictures for {len(numbers)} labels")
    return RowPictures(classes=classes, labels=numbers, pixels=pixels)


def _idx_rows(path: Path, turned: bool) -> Rows:
    if path.suffix == ".gz":
        pixels = _idx_bytes(path, 3)
        return pixels.transpose(0, 2, 1) if turned else pixels
    with path.open("rb") as file:
        shape = _idx_shape(file.read(16), 3)
    rows, height, width = shape
    if path.stat().st_size != 16 + rows * height * width:
        raise ValueError(f"its header says {rows} pictures of {height} x {width}, not its length")
    axes = (1, 0) if turned else None
    return MappedRows(path, rows, 16, height * width, (height, width), axes)


def _idx_bytes(path: Path, axes: int) -> NDArray[np.uint8]:
    with open_unpacked(path) as file:
        content = file.read()
    head = 4 + 4 * axes
    shape = _idx_shape(content[:head], axes)
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


def _idx_shape(head: bytes, axes: int) -> tuple[int, ...]:
    """Read the header: two zeros, 8 for bytes, the number of axes, and their lengths."""
    if head[:4] != bytes([0, 0, 8, axes]) or len(head) != 4 + 4 * axes:
        raise ValueError(f"it does not begin like an idx file of bytes with {axes} axes")
    return struct.unpack(f">{axes}I", head[4:])


def svhn(folder: Path, variant: str) -> PictureSet | None:
    """SVHN's cropped digits."""
    paths = {part: folder / f"{part}_32x32.mat" for part in ("train", "test")}
    parts = {part: partial(_matlab, path) for part, path in paths.items() if path.is_file()}
    return PictureSet("svhn", parts) if "train" in parts else None


def _matlab(path: Path) -> Pictures:
    with reading(path):
        stored = read_matlab(path, "X", "y")
        numbers = np.asarray(stored["y"]).ravel()
        if not np.isin(numbers, range(11)).all():
            raise ValueError("labels must be whole numbers from 1 to 10")
        labels: Numbers = numbers.astype(np.int64) % 10  # 0 is stored as 10
        pixels = np.moveaxis(np.asarray(stored["X"]), 3, 0)
        if pixels.dtype != np.uint8 or len(pixels) != len(labels):
            raise ValueError(f"{pixels.dtype} {pixels.shape} for {len(labels)} labels")
    return RowPictures(classes=DIGITS, labels=labels, pixels=pixels)
