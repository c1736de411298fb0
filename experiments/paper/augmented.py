"""Features of augmented copies, where a file has them.

An .npz file may hold, beside `X_train`, an array `X_train_augmented` of shape (rows, copies,
columns): the same rows in the same order, copy 0 each row as it is. `scale`, where there is one,
applies to it as well.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from dptune.bench.tasks import Task, load_task
from dptune.data.rows import MemoryRows
from dptune.errors import InvalidInput
from experiments.paper.setting import natural

ARRAY = "X_train_augmented"


def load_augmented(source: str, *, device: str) -> Task | None:
    """The task with all copies of its training rows, of natural length; None where the source has
    none, or is changed so that copies and rows no longer match."""
    if "?" in source or not source.endswith(".npz"):
        return None
    with np.load(Path(source), allow_pickle=False) as arrays:
        if ARRAY not in arrays:
            return None
        copies = arrays[ARRAY] * arrays.get("scale", 1.0)
    task = load_task(natural(source), device=device)
    rows = task.train
    if copies.ndim != 3 or (copies.shape[0], copies.shape[2]) != (rows.count, rows.columns):
        raise InvalidInput(
            f"{ARRAY} in {source!r} must have shape ({rows.count}, copies, {rows.columns}); got "
            f"{copies.shape}."
        )
    return replace(task, train=MemoryRows(copies, rows.targets, device=device))
