"""A set as a file: numbers or integer codes with one `scale` a column, for training and testing."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, Any]
FINE = 32767  # codes of 16 bits, so that a column loses nothing that matters


def load(path: Path) -> Arrays:
    with np.load(path) as arrays:
        return {name: arrays[name] for name in arrays}


def write(path: Path, arrays: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with part.open("wb") as file:  # nobody reads half a file
        np.savez_compressed(file, **arrays)
    part.rename(path)


def split(codes: Any, labels: Any, train: int, scale: Any = None) -> Arrays:
    """The first `train` rows are those for training; numbers as they come have no scale."""
    labels = labels.astype(np.uint8)
    return {
        "X_train": codes[:train],
        "y_train": labels[:train],
        "X_test": codes[train:],
        "y_test": labels[train:],
        "scale": np.ones(codes.shape[1], np.float32) if scale is None else scale,
    }


def as_codes(rows: Any, labels: Any, train: int, most: int, kind: Any) -> Arrays:
    """Rows in [-1, 1] as integers."""
    scale = np.full(rows.shape[1], 1 / most, np.float32)
    return split(np.rint(rows * most).astype(kind), labels, train, scale)
