"""Check labels and pixels from a file."""

import numpy as np
from numpy.typing import NDArray

from dptune.pictures.stored import Numbers


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
