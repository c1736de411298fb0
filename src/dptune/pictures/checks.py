"""What is read from a file is what it should be, or the message says which file is not."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dptune.errors import DptuneError, InvalidInput
from dptune.pictures.stored import Numbers


@contextmanager
def reading(path: Path) -> Iterator[None]:
    try:
        yield
    except DptuneError:
        raise
    except Exception as error:  # bytes of any kind come here, and readers fail in any way
        advice = "It may be damaged, or of another kind than its name says; get it again."
        if isinstance(error, PermissionError):
            advice = "Ask its owner for the right to read it."
        strerror = error.strerror if isinstance(error, OSError) else None
        reason = strerror or str(error).split("\n")[0].rstrip(".") or type(error).__name__
        raise InvalidInput(f"{str(path)!r} cannot be read: {reason}. {advice}") from None


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
