"""Read an .npz of pictures: pixels in x_train, or whole JPEG files in jpeg_train, with y_train."""

import zipfile
from functools import partial
from pathlib import Path

import numpy as np

from dptune.errors import InvalidInput
from dptune.pictures.checks import check_labels, check_pixels, whole_numbers
from dptune.pictures.pictures import Pictures, PictureSet
from dptune.pictures.stored import PiecePictures, RowPictures
from dptune.table_files import listed, reading
from dptune.unpacked import must_unpack_within_limit

_MOST_CLASSES = 1_000_000  # without names


def packed(path: Path, classes: tuple[str, ...] = ()) -> PictureSet:
    """Read the pictures in an .npz; `classes` are the names of its labels if it has none."""
    with reading(path):
        if not zipfile.is_zipfile(path):
            raise ValueError("not a file that numpy.savez wrote")
        must_unpack_within_limit(path)
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
        arrays = listed(sorted(names)) or "nothing"
        raise InvalidInput(
            f"{str(path)!r} must hold pictures as the arrays x_train, y_train (uint8 pixels), or "
            "jpeg_train, offsets_train, y_train (concatenated files), and the same for test; found "
            f"{arrays}."
        )
    return PictureSet(path.stem, parts)


def _part(path: Path, part: str, kind: str, classes: tuple[str, ...]) -> Pictures:
    with reading(path), np.load(path, allow_pickle=False) as arrays:
        labels = whole_numbers(arrays[f"y_{part}"])
        if "classes" in arrays:
            classes = tuple(map(str, arrays["classes"].tolist()))
        # A class of one part is a class of both.
        other = f"y_{'test' if part == 'train' else 'train'}"
        most = max(labels.max(initial=0), whole_numbers(arrays.get(other, labels)).max(initial=0))
        if not classes and most >= _MOST_CLASSES:  # a single label must not fill the memory
            raise ValueError(f"labels from {_MOST_CLASSES:,} on need names, in an array classes")
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
