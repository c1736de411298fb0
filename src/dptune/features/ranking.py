"""Rank backbones by public pictures alone: no private row is read, so there is no privacy cost."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.errors import InvalidInput
from dptune.features.extraction import Watch
from dptune.features.from_pictures import find_networks
from dptune.features.in_memory import features_of
from dptune.features.short_names import known_backbones
from dptune.pictures.find import find_pictures

_FOLDS = 5
_STRENGTHS = np.logspace(-4, 1, 11)  # of the ridge, for rows of unit length


@dataclass(frozen=True)
class Ranked:
    """The held-out accuracy of a linear probe of a backbone's features."""

    name: str
    accuracy: float
    error: float  # standard error of the accuracy
    columns: int
    pictures_per_second: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def rank(
    public: str | Path,
    names: Sequence[str] | None = None,
    *,
    pictures: int = 2000,
    root: str | Path | None = None,
    device: str = "cpu",
    watch: Watch | None = None,
) -> list[Ranked]:
    """Rank backbones, the best first; default: all that are installed. At most `pictures` of the
    public pictures are used, evenly spaced."""
    names = names or [each.name for each in known_backbones() if each.installed]
    if not names:
        raise InvalidInput(
            "no package with a backbone is installed; name backbones with --backbone, or see "
            "dptune backbones for packages."
        )
    most = validate.whole(10 * _FOLDS, pictures=pictures)
    source = find_pictures(public, root).part("train")
    numbers = np.linspace(0, len(source) - 1, min(most, len(source))).astype(int).tolist()
    ranked = []
    for name in names:
        networks = find_networks(name, device=device)
        began = perf_counter()
        features = features_of(source, networks, numbers, part=name, watch=watch)
        seconds = perf_counter() - began
        accuracy = _held_out_accuracy(features.rows, source.labels[features.kept])
        rows, columns = features.rows.shape
        error = math.sqrt(accuracy * (1 - accuracy) / rows)
        ranked.append(Ranked(name, accuracy, error, columns, rows / seconds))
    return sorted(ranked, key=lambda each: -each.accuracy)


def _held_out_accuracy(rows: NDArray[np.float32], labels: NDArray[np.int64]) -> float:
    from sklearn.linear_model import RidgeClassifierCV
    from sklearn.model_selection import KFold

    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(np.finfo(np.float32).tiny)
    right = 0
    for fit, held in KFold(_FOLDS, shuffle=True, random_state=0).split(rows):
        probe = RidgeClassifierCV(_STRENGTHS).fit(rows[fit], labels[fit])
        right += int((probe.predict(rows[held]) == labels[held]).sum())
    return right / len(rows)
