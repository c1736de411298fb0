"""Frozen features of a set of texts: made once, and kept beside the texts."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from dptune.engines.language import pretrained
from dptune.engines.language.reader import Reader, mean_of_words
from experiments.language.prepare import MODEL
from experiments.language.sets import Part, part_of

_AT_ONCE = 256
Labelled = tuple[NDArray[np.float32], NDArray[np.int64]]


def features_of(name: str, root: str, device: str, limit: int | None) -> dict[str, Labelled]:
    """(features, labels) of every part of a set."""
    file = Path(root) / f"{name}_features.npz"
    if not file.exists():
        parts = {part: part_of(name, root, part) for part in ("train", "dev", "test")}
        made = {part: rows for part, rows in parts.items() if rows is not None}
        where = f"hf:{Path(root, MODEL).absolute()}"
        network = pretrained.make(where, loss="softmax", outputs=2)
        arrays: dict[str, NDArray[np.generic]] = {}
        for part, rows in made.items():
            arrays |= {f"X_{part}": _pooled(network, rows, device), f"y_{part}": rows.labels}
        np.savez(file, **arrays)  # type: ignore[arg-type]
    with np.load(file, allow_pickle=False) as kept:
        names = [key.removeprefix("X_") for key in kept if key.startswith("X_")]
        return {part: (kept[f"X_{part}"][:limit], kept[f"y_{part}"][:limit]) for part in names}


def _pooled(network: Reader, rows: Part, device: str) -> NDArray[np.float32]:
    """Texts of about one length together, so that little is padding."""
    network.to(device).eval()
    lengths = (rows.words >= 0).sum(1)
    order = np.argsort(lengths, kind="stable")
    features: NDArray[np.float32] | None = None
    with torch.no_grad():
        for start in range(0, len(order), _AT_ONCE):
            some = order[start : start + _AT_ONCE]
            words = torch.from_numpy(rows.words[some][:, : lengths[some].max()]).long().to(device)
            states = network.read(words).last_hidden_state
            found = mean_of_words(states, words >= 0).float().cpu().numpy()
            if features is None:
                features = np.empty((len(order), found.shape[1]), dtype=np.float32)
            features[some] = found
    assert features is not None
    return features
