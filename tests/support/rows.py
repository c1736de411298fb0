"""Made-up rows, so few that a study of them takes a moment."""

from pathlib import Path
from typing import Any

import numpy as np

from dptune.data import Data


def make_rows(count: int = 400, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, 4))
    labels = (features[:, 0] + 0.3 * rng.normal(size=count) > 0.1).astype(int)
    return features, labels


def make_data(count: int = 400, **facts: Any) -> Data:
    features, labels = make_rows(count)
    beside = {"test": make_rows(50, 1), "public": make_rows(100, 2)}
    return Data.from_table(features, labels, **beside | facts)


def three_classes(path: Path, **more: Any) -> Path:
    """A file for benchmarks: 600 rows of lengths around 5 in three classes, and 300 to test on."""
    draws = np.random.default_rng(0)
    centers = draws.normal(size=(3, 6))

    def rows(count: int) -> tuple[Any, Any]:
        labels = draws.integers(3, size=count)
        return 2 * (centers[labels] + draws.normal(size=(count, 6))), labels

    (x, y), (tx, ty) = rows(600), rows(300)
    np.savez(path, X_train=x, y_train=y, X_test=tx, y_test=ty, **more)
    return path
