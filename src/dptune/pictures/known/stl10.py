"""STL-10 in its binary version."""

from functools import partial
from pathlib import Path

import numpy as np

from dptune.pictures.checks import check_labels
from dptune.pictures.known.class_names import STL10
from dptune.pictures.mapped import mapped_records
from dptune.pictures.pictures import Pictures, PictureSet
from dptune.pictures.stored import RowPictures
from dptune.table_files import reading


def stl10(folder: Path, variant: str) -> PictureSet | None:
    parts = {
        part: partial(_part, folder, part)
        for part in ("train", "test")
        if all((folder / f"{part}_{what}.bin").is_file() for what in "Xy")
    }
    return PictureSet("stl10", parts) if "train" in parts else None


def _part(folder: Path, part: str) -> Pictures:
    names = folder / "class_names.txt"
    with reading(names):
        classes = tuple(names.read_text("utf-8").split()) if names.is_file() else STL10
    with reading(folder / f"{part}_y.bin"):
        labels = np.fromfile(folder / f"{part}_y.bin", np.uint8).astype(np.int64) - 1
        check_labels(labels, classes)
    with reading(folder / f"{part}_X.bin"):
        # One colour after the other, each in column-major order.
        pixels = mapped_records(folder / f"{part}_X.bin", 0, (3, 96, 96), (2, 1, 0))
        if len(pixels) != len(labels):
            raise ValueError(f"{len(pixels)} pictures for {len(labels)} labels")
    return RowPictures(classes=classes, labels=labels, pixels=pixels)
