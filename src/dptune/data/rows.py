"""The rows an engine trains on, and what it must know of them.

Every chunk carries its rows' norms, computed in float64 from the stored values and rounded up: the
bound on a row's contribution is only as good as this norm.
"""

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dptune import validate
from dptune.columns.encoding import Encoding
from dptune.columns.spec import Columns
from dptune.errors import InvalidInput

PRECISIONS = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
}
_AT_ONCE = 1 << 16  # rows that are looked at together, so that looking takes little memory
_LEAST_ROWS_OF_A_CHUNK, _MOST_ROWS_OF_A_CHUNK = 1 << 12, 1 << 16
# Rows of few columns take less time to multiply than a chunk takes beside; measured from 9 to 256.
_ROWS_TIMES_COLUMNS_SQUARED = 1 << 27
# More columns are taken for features of texts or pictures; up to how many a study may check whether
# they are of one scale.
MOST_COLUMNS_OF_A_TABLE, MOST_COLUMNS_IN_DOUBT = 100, 1_000
CLASSES_UNTIL_BOUGHT = 2  # assumed in plans
IDS = "int64"  # for rows of token numbers
# Losses of rows (2, length) of tokens that hold what is asked of them, and how many numbers a model
# returns for a row beside one for every class: its loss; how many tokens are predicted; the first
# and the last token of an answer.
ASKED_IN_ROWS = {"words": 2, "spans": 3, "inside": 1}


@dataclass(frozen=True)
class Chunk:
    """Some rows on the engine's device: features (n, copies, *shape of a row), targets (n, ...),
    and the norm of each copy (n, copies), the column of ones that a bias sees included if
    `bias`."""

    features: Tensor
    targets: Tensor
    norms: Tensor
    bias: bool = False

    def prepared(self, copies: int, bias: bool) -> "Chunk":
        """The first `copies` copies, for a model with or without bias."""
        if copies == self.features.shape[1] and not bias:
            return self
        norms = self.norms[:, :copies]
        if bias:
            up = 1 + (1e-12 if norms.dtype == torch.float64 else 1e-6)
            norms = torch.hypot(norms, torch.ones((), dtype=norms.dtype)).mul_(up)
        return Chunk(self.features[:, :copies], self.targets, norms, bias)

    def taken(self, which: Tensor | slice) -> "Chunk":
        """Some of its rows, by number or by mask."""
        return Chunk(self.features[which], self.targets[which], self.norms[which], self.bias)


def numbers_given(loss: str, outputs: int) -> int:
    """How many numbers a model returns for a row."""
    beside = ASKED_IN_ROWS.get(loss)
    if beside is None:
        return outputs
    return beside + (outputs if loss == "inside" else 0)


@dataclass(frozen=True)
class DataFacts:
    """What is public about a data set and decides which models fit it.

    `shape` is that of one row's features, `outputs` how many classes there are, or 1. `loss` is
    softmax for classes, squared for a value; words, spans and inside if the rows hold what is
    asked. `named` are the columns of a table whose rows are encoded, without the label's. With
    `as_given` the columns have no names, so they may be features that a model made, which are
    prepared only if that is worth its price. With `secret_classes`, the number of classes is
    unknown until their names are estimated, and plans assume `outputs`.
    """

    count: int
    shape: tuple[int, ...]
    copies: int
    outputs: int
    loss: str
    named: Columns | None = field(default=None, hash=False)
    as_given: bool = False
    secret_classes: bool = False

    @property
    def columns(self) -> int:
        """How many numbers a row has."""
        return math.prod(self.shape)

    @property
    def straight_columns(self) -> int:
        """The same before polynomial features."""
        return self.columns if self.named is None else Encoding(self.named).width

    @property
    def rather_features(self) -> bool:
        """Whether there are more columns than tables usually have."""
        return self.straight_columns > MOST_COLUMNS_OF_A_TABLE

    @property
    def is_table(self) -> bool:
        return len(self.shape) == 1

    @property
    def has_classes(self) -> bool:
        """Whether every row has a class."""
        return self.loss == "softmax"

    @property
    def asks_inside(self) -> bool:
        """Whether rows hold what is asked of them."""
        return self.loss in ASKED_IN_ROWS

    @property
    def width(self) -> int:
        """How many numbers a model returns for a row."""
        return numbers_given(self.loss, self.outputs)

    def not_held_out(self, every: int) -> int:
        """The public number of rows that are left if every `every`-th, from the first on, is held
        out."""
        return self.count - -(-self.count // every)


@dataclass(frozen=True)
class TargetFacts:
    """What an engine must know of targets before it reads a row."""

    low: float
    high: float
    whole: bool  # labels, not values
    width: int

    @staticmethod
    def of(targets: Tensor) -> "TargetFacts":
        if targets.is_floating_point() and not bool(torch.isfinite(targets).all()):
            raise InvalidInput(
                "the targets hold values that are not finite; remove those rows first."
            )
        whole = not targets.is_floating_point() or bool((targets == targets.round()).all())
        width = 1 if targets.ndim == 1 else targets.shape[1]
        return TargetFacts(float(targets.min()), float(targets.max()), whole, width)

    def joined(self, other: "TargetFacts") -> "TargetFacts":
        """Of both; they must be equally wide."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        return TargetFacts(low, high, self.whole and other.whole, self.width)


class Rows(Protocol):
    """What an engine reads: rows of any one shape (numbers, pictures, numbers of words)."""

    count: int
    shape: tuple[int, ...]
    columns: int  # how many numbers a row has
    copies: int
    device: torch.device
    dtype: torch.dtype
    target_facts: TargetFacts

    def chunks(self) -> Iterator[Chunk]:
        """All rows, in a fixed order."""
        ...

    def pick(self, indices: Tensor) -> Chunk:
        """Some rows, by number."""
        ...

    def taken(self, mask: Tensor) -> "Rows":
        """The rows where `mask` is true; perhaps none."""
        ...


def find_device(name: str) -> torch.device:
    """The device called `name`, if it is there."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError):
        raise InvalidInput(f"device must be cpu, cuda or cuda:N; got {name!r}.") from None
    if device.type not in ("cpu", "cuda"):
        raise InvalidInput(f"device must be cpu, cuda or cuda:N; got {name!r}.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InvalidInput(f"device {name!r} was asked for, but torch finds no GPU; use cpu.")
    return device


def find_precision(name: str) -> torch.dtype:
    """The type of stored features called `name`."""
    if name == IDS:
        return torch.int64
    validate.one_of(tuple(PRECISIONS), precision=name)
    return PRECISIONS[name]


def _as_tensor(values: Any, name: str, *, shared: bool = True) -> Tensor:
    """A copy without gradients: the norms of an array that is changed later would bound nothing,
    and a graph would carry the rows into the model. Only what is not `shared` is not copied."""
    try:
        if not shared:
            copied = torch.from_numpy(values)
        elif isinstance(values, Tensor):
            copied = values.detach().clone()
        else:
            copied = torch.tensor(np.asarray(values))
        if not copied.is_complex() and copied.layout == torch.strided:
            return copied
    except (TypeError, ValueError, RuntimeError):
        pass
    raise InvalidInput(f"{name} must be a table of real numbers; got {type(values).__name__}.")


def _as_targets(values: Any) -> Tensor:
    targets = _as_tensor(values, "targets")
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.ndim not in (1, 2) or 0 in targets.shape:
        raise InvalidInput(
            "targets are one label a row, or a table (rows, targets); got shape "
            f"{tuple(targets.shape)}."
        )
    return targets if targets.is_floating_point() else targets.long()


def check_features(features: Tensor) -> None:
    """Refuse what cannot be clipped, before anything is paid."""
    if features.ndim < 2 or 0 in features.shape:
        raise InvalidInput(
            "features must be a table of shape (rows, columns), (rows, copies, columns) with "
            f"augmented copies, or rows of another shape; got shape {tuple(features.shape)}."
        )
    if not all(bool(torch.isfinite(some).all()) for some in torch.split(features, _AT_ONCE)):
        raise InvalidInput(
            "the features hold values that are not finite (NaN, infinity, or too large for "
            f"{str(features.dtype).removeprefix('torch.')}); remove or replace those rows first."
        )


def norms_rounded_up(features: Tensor) -> Tensor:
    """The norm of every copy of every row, from the stored values, never below the true one."""
    exact: Tensor = torch.linalg.vector_norm(features.flatten(2).to(torch.float64), dim=-1)
    if features.dtype == torch.float64:
        return (exact * (1 + 1e-12)).clamp(min=2.0**-500)  # squares below would vanish
    # Denormals round coarsely, so tiny norms are raised; a norm beyond float32 becomes infinite,
    # and its row will contribute nothing.
    return (exact * (1 + 1e-6)).to(torch.float32).clamp(min=2.0**-100)


class MemoryRows:
    """All rows on the device.

    Features are (rows, *shape of a row), or (rows, copies, *shape) where they are `augmented`: of
    three axes the second holds copies unless that says otherwise. They are copied, unless they are
    an array that is not `shared`.
    """

    def __init__(
        self,
        features: NDArray[Any] | Tensor,
        targets: NDArray[Any] | Tensor,
        *,
        device: str = "cpu",
        precision: str = "float32",
        chunk_rows: int | None = None,
        augmented: bool | None = None,
        shared: bool = True,
    ) -> None:
        self.device, self.dtype = find_device(device), find_precision(precision)
        given = _as_tensor(features, "features", shared=shared)
        self.features = given.to(self.device, self.dtype)
        check_features(self.features)
        if not (self.features.ndim == 3 if augmented is None else augmented):
            self.features = self.features[:, None]
        self.targets = _as_targets(targets).to(self.device)
        self.count, self.copies = self.features.shape[:2]
        self.shape = tuple(self.features.shape[2:])
        self.columns = math.prod(self.shape)
        self._fixed_chunk_rows = chunk_rows
        chunk_rows = self._chunk_rows = validate.whole(1, chunk_rows=self._rows_of_a_chunk())
        if len(self.targets) != self.count:
            raise InvalidInput(
                f"there are {self.count} rows of features but {len(self.targets)} targets; each "
                "row needs one."
            )
        self.target_facts = TargetFacts.of(self.targets)
        starts = range(0, self.count, chunk_rows)
        self.norms = torch.cat(
            [norms_rounded_up(self.features[i : i + chunk_rows]) for i in starts]
        )

    def _rows_of_a_chunk(self) -> int:
        """A GPU needs few and large kernels, a CPU a chunk that stays in its cache."""
        if self._fixed_chunk_rows is not None:
            return self._fixed_chunk_rows
        if self.device.type != "cpu":
            return _MOST_ROWS_OF_A_CHUNK
        fit = _ROWS_TIMES_COLUMNS_SQUARED // (self.columns * self.copies) ** 2
        fit = min(max(fit, _LEAST_ROWS_OF_A_CHUNK), _MOST_ROWS_OF_A_CHUNK)
        # Equal chunks: a short last one would take as long beside its products.
        return max(1, -(-self.count // max(1, round(self.count / fit))))

    def with_rows(self, rows: Chunk) -> "MemoryRows":
        """Other rows of the same kind, a public number of them: how they are cut into chunks, and
        so how sums are rounded, follows from that number."""
        other = copy.copy(self)
        other.features, other.targets, other.norms = rows.features, rows.targets, rows.norms
        other.count = len(rows.targets)
        other._chunk_rows = other._rows_of_a_chunk()
        return other

    def chunks(self) -> Iterator[Chunk]:
        everything = Chunk(self.features, self.targets, self.norms)
        if 0 < self.count <= self._chunk_rows:
            yield everything
            return
        for start in range(0, self.count, self._chunk_rows):
            part = slice(start, start + self._chunk_rows)
            yield Chunk(self.features[part], self.targets[part], self.norms[part])

    def pick(self, indices: Tensor) -> Chunk:
        return Chunk(self.features[indices], self.targets[indices], self.norms[indices])

    def taken(self, mask: Tensor) -> "MemoryRows":
        part = copy.copy(self)
        part.features, part.targets = self.features[mask], self.targets[mask]
        part.norms = self.norms[mask]
        part.count = len(part.features)
        return part


class SomeRows:
    """The rows for which `mask` is true, of others that are too many to be copied."""

    def __init__(self, rows: Rows, mask: Tensor) -> None:
        self._rows, self._mask = rows, mask.to(rows.device)
        self._numbers = self._mask.nonzero()[:, 0]
        self.count = len(self._numbers)
        self.shape, self.columns, self.copies = rows.shape, rows.columns, rows.copies
        self.device, self.dtype, self.target_facts = rows.device, rows.dtype, rows.target_facts

    def chunks(self) -> Iterator[Chunk]:
        start = 0
        for chunk in self._rows.chunks():
            kept = self._mask[start : start + len(chunk.targets)]
            start += len(chunk.targets)
            if bool(kept.any()):
                yield chunk.taken(kept)

    def pick(self, indices: Tensor) -> Chunk:
        return self._rows.pick(self._numbers[indices])

    def taken(self, mask: Tensor) -> "SomeRows":
        both = self._mask.clone()
        both[self._numbers] = mask.to(both.device)
        return SomeRows(self._rows, both)
