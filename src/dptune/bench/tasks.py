"""Data sets for comparing methods: a source, and optional changes that make it harder.

    demo                        the bundled set
    features.npz                a file with training and test rows
    features.npz?rows=1000      a thousand of its training rows
    demo?unbalanced=38          classes from 1 to 1/38 of their rows
    demo?unscaled               rows as they are, not scaled to unit length
    demo?plain                  plain gradient descent: no centring or whitening, clipping at 1

Benchmarks are for public data: rows open without payment, and results are exact.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dptune.columns import Columns
from dptune.data.extracted import is_extracted
from dptune.data.fingerprint import fingerprint_folder
from dptune.data.preprocess import Preprocessing
from dptune.data.rows import MemoryRows
from dptune.data.sources import fingerprint_source, load_data
from dptune.errors import InvalidInput
from dptune.study.config import Preparation

_CHANGES = ("rows", "unbalanced", "unscaled", "plain")


@dataclass(frozen=True)
class Task:
    """Rows for training and testing, and the settings of a study of them."""

    name: str
    train: MemoryRows
    test: MemoryRows
    outputs: int
    preparation: Preparation
    given: tuple[MemoryRows, MemoryRows]  # both before scaling, on the CPU
    named: Columns | None = None  # the columns, if the rows may be those of a table
    as_given: bool = True  # the rows are not declared to be those of a table
    recipe: Mapping[str, Any] = field(default_factory=dict)

    def plain(self) -> "Task":
        """The same for plain gradient descent, as in the linear scaling paper."""
        preparation = replace(
            self.preparation, center_share=0.0, whiten_share=0.0, range_share=0.0, curves=1
        )
        return replace(
            self, preparation=preparation, recipe={"clip_norm": 1.0, "averaging": "none"}
        )


def load_task(text: str, *, device: str = "cpu", precision: str = "float32") -> Task:
    """The task that `text` describes."""
    source, _, query = text.partition("?")
    changes = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(set(changes) - set(_CHANGES))
    if unknown or (query and not changes):
        raise InvalidInput(
            f"a task is a source with changes among {', '.join(_CHANGES)} (for example "
            f"demo?rows=1000); got {text!r}."
        )
    data = load_data(source, test=source)
    if data.has_secret_classes:  # the rows of benchmarks are public
        data = data.with_public_classes()
    if not data.classes:
        raise InvalidInput(f"a task needs classes, and {source} has none; give another source.")
    preparation = Preparation(unit_rows="unscaled" not in changes)
    as_given = Preprocessing(unit_rows=False)
    train, test = data.unprotected_rows(as_given), data.test_rows(as_given)
    if not isinstance(train, MemoryRows) or not isinstance(test, MemoryRows):
        raise InvalidInput(
            f"a task needs rows in memory, and {source} has chunks on disk; give another source."
        )
    kept = _select_rows(train.targets, changes, text)
    train = train if kept is None else train.taken(kept)
    name = PurePath(source).stem + (f"?{query}" if query else "")
    scaled = Preprocessing(unit_rows=preparation.unit_rows)
    task = Task(
        name,
        scaled_rows(scaled, train, device, precision),
        scaled_rows(scaled, test, device, precision),
        data.outputs,
        preparation,
        given=(train, test),
        named=data.facts.named,
        as_given=data.facts.as_given,
    )
    return task.plain() if "plain" in changes else task


def scaled_rows(
    preprocessing: Preprocessing, rows: MemoryRows, device: str, precision: str
) -> MemoryRows:
    """Rows of a task, scaled, on the device and in the precision of an engine."""
    features = preprocessing.apply_to_all(rows.features.numpy())
    return MemoryRows(features, rows.targets, device=device, precision=precision, augmented=True)


def identity(text: str) -> str:
    """A fingerprint of the rows that `text` describes; it depends on the file's content."""
    source, _, query = text.partition("?")
    rows = source if source.startswith("hub:") else fingerprint_source(source)
    if is_extracted(Path(source)):  # its fingerprint is that of its pictures, for every backbone
        rows = fingerprint_folder(source)
    return f"{rows}?{query}" if query else rows


def _select_rows(targets: Tensor, changes: dict[str, str], text: str) -> Tensor | None:
    """The indices of the rows to keep, the same in every run; None keeps all."""
    draws = np.random.default_rng(0)
    labels = targets.cpu().numpy()
    kept: NDArray[Any] | None = None
    try:
        if "unbalanced" in changes:
            kept = _unbalance(labels, float(changes["unbalanced"]), draws)
        if "rows" in changes:
            candidates = np.arange(len(labels)) if kept is None else kept
            kept = draws.permutation(candidates)[: max(0, int(changes["rows"]))]
    except ValueError:
        raise InvalidInput(f"rows and unbalanced need a number; got {text!r}.") from None
    if kept is None:
        return None
    if not len(kept):
        raise InvalidInput(f"{text!r} leaves no rows; keep at least one.")
    return torch.from_numpy(np.sort(kept)).to(targets.device)


def _unbalance(labels: NDArray[Any], ratio: float, draws: np.random.Generator) -> NDArray[Any]:
    """The indices of rows such that class k of K keeps ratio^(-k / (K - 1)) of its rows."""
    classes = int(labels.max()) + 1
    kept = []
    for number in range(classes):
        rows = np.flatnonzero(labels == number)
        keep = round(len(rows) * ratio ** (-number / max(classes - 1, 1)))
        kept.append(draws.permutation(rows)[: max(keep, 1)])
    return np.concatenate(kept)
