"""An .npz of pictures: pixels in x_train, or whole JPEG files in jpeg_train, with y_train."""

import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dptune.errors import InvalidInput
from dptune.pictures.pictures import Pictures, PictureSet
from dptune.pictures.stored import Numbers, PiecePictures, RowPictures

_UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    EOFError,
    MemoryError,  # a torn header can ask for any size
    RuntimeError,  # a zip that is encrypted, or compressed in an unknown way
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    try:
        yield
    except InvalidInput:
        raise
    except _UNREADABLE as error:
        advice = "It may be damaged, or of another kind than its name says; get it again."
        if isinstance(error, PermissionError):
            advice = "Ask its owner for the right to read it."
        strerror = error.strerror if isinstance(error, OSError) else None
        reason = strerror or str(error).split("\n")[0].rstrip(".") or type(error).__name__
        raise InvalidInput(f"{str(path)!r} cannot be read: {reason}. {advice}") from None


def packed(path: Path, classes: tuple[str, ...] = ()) -> PictureSet:
    """The pictures in an .npz; `classes` are the names of its labels where it has none."""
    with reading(path):
        if not zipfile.is_zipfile(path):
            raise ValueError("not a file that numpy.savez wrote")
        with np.load(path, allow_pickle=False) as arrays:
            names = set(arrays.keys())
    layouts = {"x": ("x", "y"), "jpeg": ("jpeg", "offsets", "y")}
    parts = {
        part: partial(_part, path, part, kind, classes)
        for part in ("train", "test")
        for kind, needed in layouts.items()
        if {f"{name}_{part}" for name in needed} <= names
    }
    if not parts:
        found = ", ".join(sorted(names)) or "nothing"
        raise InvalidInput(
            f"{str(path)!r} must hold pictures as the arrays x_train, y_train (uint8 pixels), or "
            "jpeg_train, offsets_train, y_train (whole files one after the other), and the same "
            f"for test; found {found}."
        )
    return PictureSet(path.stem, parts)


def _part(path: Path, part: str, kind: str, classes: tuple[str, ...]) -> Pictures:
    with reading(path), np.load(path, allow_pickle=False) as arrays:
        labels = whole_numbers(arrays[f"y_{part}"])
        if "classes" in arrays:
            classes = tuple(map(str, arrays["classes"].tolist()))
        # A class that only one part has is a class in both.
        other = f"y_{'test' if part == 'train' else 'train'}"
        most = max(labels.max(initial=0), whole_numbers(arrays.get(other, labels)).max(initial=0))
        classes = classes or tuple(map(str, range(most + 1)))
        check_labels(labels, classes)
        if kind == "x":
            pixels = arrays[f"x_{part}"]
            check_pixels(pixels, len(labels))
            return RowPictures(classes=classes, labels=labels, pixels=pixels)
        data, offsets = arrays[f"jpeg_{part}"], whole_numbers(arrays[f"offsets_{part}"])
    if data.dtype != np.uint8 or data.ndim != 1:
        raise InvalidInput(f"jpeg_{part} in {str(path)!r} must be one row of bytes (uint8).")
    in_order = len(offsets) == len(labels) + 1 and bool((np.diff(offsets) >= 0).all())
    if not in_order or offsets[0] < 0 or offsets[-1] > len(data):
        raise InvalidInput(
            f"offsets_{part} in {str(path)!r} must be one more than the labels, growing from 0 to "
            f"the length of jpeg_{part}."
        )
    return PiecePictures(classes=classes, labels=labels, data=data, offsets=offsets)


def whole_numbers(values: NDArray[np.generic]) -> Numbers:
    if values.dtype.kind not in "iub" or values.ndim != 1:
        raise ValueError(f"labels must be one row of whole numbers; found {values.dtype}")
    return values.astype(np.int64)


def check_labels(labels: Numbers, classes: tuple[str, ...]) -> None:
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(classes):
        raise ValueError(f"labels must be numbers of the {len(classes)} classes, from 0")


def check_pixels(pixels: NDArray[np.generic], rows: int) -> None:
    if pixels.dtype != np.uint8 or pixels.ndim not in (3, 4) or len(pixels) != rows:
        raise ValueError(
            f"pixels must be uint8 (rows, height, width[, channels]), {rows} rows as there are "
            f"labels; found {pixels.dtype} {pixels.shape}"
        )
