"""Sensitivity of sums as they are really added up: rounding included, one row moves them by at most
its clip norm. Neighbours differ in one row, which is there or is empty."""

import math
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dptune.data.disk import DiskRows, write_chunks
from dptune.data.rows import PRECISIONS, Chunk, MemoryRows, Rows
from dptune.engines import linear, sums
from dptune.engines.linear import LinearEngine, LinearModel
from dptune.engines.randomness import Randomness
from dptune.engines.release import Release
from dptune.errors import InvalidInput
from dptune.plan import TrainPlan

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU"),
    ),
]


class Repeated:
    """One chunk after another, of which all but the first are the same: many rows in little
    memory."""

    def __init__(self, first: Chunk, other: Chunk, times: int) -> None:
        self._chunks = [first] + [other] * times
        self.count = len(first.features) + times * len(other.features)
        self.copies, self.columns = first.features.shape[1:]
        self.device, self.dtype = first.features.device, first.features.dtype
        self.target_facts = MemoryRows(first.features.float(), first.targets).target_facts

    def chunks(self) -> Iterator[Chunk]:
        return iter(self._chunks)

    def pick(self, indices: Tensor) -> Chunk:
        raise NotImplementedError


def without(chunk: Chunk, row: int) -> Chunk:
    """An empty row in its place: of infinite length, so that a bias does not see it either."""
    features, norms = chunk.features.clone(), chunk.norms.clone()
    features[row], norms[row] = 0, torch.inf
    return Chunk(features, chunk.targets, norms)


def added(
    rows: Rows,
    *clip_norms: float,
    loss: str = "squared",
    outputs: int = 1,
    bias: bool = False,
    **plan: Any,
) -> Tensor:
    """What the engine makes of all rows in a first step, before there is noise on it: for each clip
    norm, in that unit, (outputs * columns)."""
    plans = [
        TrainPlan(rows=10, steps=1, learning_rate=1.0, noise_multiplier=1.0, clip_norm=norm, **plan)
        for norm in clip_norms
    ]
    shape = (len(plans), outputs, rows.columns + bias)
    wide = torch.promote_types(rows.dtype, torch.float32)
    weights = torch.zeros(shape, dtype=wide, device=rows.device)
    engine = LinearEngine(outputs=outputs, loss=loss, bias=bias)
    release = Release.of(plans, weights)
    found = engine._sums(weights, plans[0], release, rows.chunks()).double()
    return found.flatten(1) / torch.tensor(clip_norms, device=rows.device).double()[:, None]


def one_chunk(features: Any, targets: Any, **kind: str) -> Chunk:
    return next(MemoryRows(features, targets, chunk_rows=len(features), **kind).chunks())


CLIP_NORMS = (1.0, 0.9, 0.7, 1.3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("count", "precision", "removed"),
    [
        (50_000, "float32", 2),
        (100_000, "float32", 2),
        (1_000_000, "float32", 2),
        (1_000_000, "bfloat16", 2),
        (10_000_000, "float32", 1),
    ],
)
def test_of_many_nearly_equal_rows_one_moves_the_sum_by_at_most_its_clip_norm(
    count: int, precision: str, removed: int, device: str
) -> None:
    """Added up in float32, up to 1.001, 1.005, 1.003, 1.005 and 1.15 clip norms here."""
    rng = np.random.default_rng(count + 1)
    size = 4096 if count <= 1_000_000 else 2**16
    features = 1 - 1e-3 * rng.random((size, 3))
    chunk = one_chunk(features, -9 * np.ones(size), precision=precision, device=device)
    times = count // size
    whole = added(Repeated(chunk, chunk, times), *CLIP_NORMS)
    for row in rng.integers(size, size=removed):
        other = added(Repeated(without(chunk, int(row)), chunk, times), *CLIP_NORMS)
        moved = (whole - other).norm(dim=1)
        assert float(moved.min()) > 0.97
        assert float(moved.max()) <= 1


@pytest.mark.parametrize("device", DEVICES)
def test_streamed_rows_keep_the_bound(tmp_path: Path, device: str) -> None:
    """In uneven chunks."""
    rng = np.random.default_rng(3)
    features, targets = 1 - 1e-3 * rng.random((60_000, 3)), -9 * np.ones(60_000)
    sizes = (0, 1, 130, 4231, 17_000, 60_000)
    moved = []
    for row in (None, 0, 4230, 59_999):
        if row is not None:
            kept, features[row] = features[row].copy(), 0
        chunks = [(features[i:j], targets[i:j]) for i, j in pairwise(sizes)]
        write_chunks(tmp_path, chunks)
        moved.append(added(DiskRows(tmp_path, device=device), *CLIP_NORMS))
        if row is not None:
            features[row] = kept
    for other in moved[1:]:
        assert float((moved[0] - other).norm(dim=1).max()) <= 1


KINDS = ("nearly equal", "alternating", "growing", "ordinary", "one large")


def rows_of_a_kind(rng: np.random.Generator, kind: str, count: int, *shape: int) -> Any:
    nearly = 1 - 2.0 ** -rng.integers(2, 24, size=(count, *shape))
    order = np.arange(count).reshape(-1, *[1] * len(shape))
    if kind == "alternating":
        return nearly * (-1.0) ** order
    if kind == "growing":
        return nearly * 2.0 ** (20.0 * order / count - 10)
    if kind == "one large":
        return nearly * np.where(order == count // 3, 1.0, 2.0**-13)
    return rng.normal(size=(count, *shape)) if kind == "ordinary" else nearly


@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**32 - 1),
    precision=st.sampled_from(("float32", "bfloat16", "float64")),
    kind=st.sampled_from(KINDS),
    count=st.integers(1, 5000),
    chunk_rows=st.sampled_from([1000, 4096, 10_000, 129]),
    columns=st.sampled_from([1, 2, 7, 40]),
    outputs=st.sampled_from([1, 3, 30]),
    copies=st.sampled_from([1, 1, 2, 5]),
    bias=st.booleans(),
    clip_norm=st.sampled_from([1.0, 1e-6, 0.3, 1e6]),
    size=st.sampled_from([1.0, 1e-4, 1e7]),
)
def test_no_row_moves_a_sum_of_any_rows_by_more_than_its_clip_norm(
    seed: int,
    precision: str,
    kind: str,
    count: int,
    chunk_rows: int,
    columns: int,
    outputs: int,
    copies: int,
    bias: bool,
    clip_norm: float,
    size: float,
) -> None:
    rng = np.random.default_rng(seed)
    features = rows_of_a_kind(rng, kind, count, copies, columns)
    targets = size * clip_norm * rows_of_a_kind(rng, kind, count, outputs)
    rows = MemoryRows(features, targets, precision=precision, chunk_rows=chunk_rows)
    plan: dict[str, Any] = {"outputs": outputs, "bias": bias, "augmentations": copies}
    whole = added(rows, clip_norm, **plan)
    row = int(rng.integers(count))
    rows.features[row], rows.norms[row] = 0, torch.inf
    assert float((whole - added(rows, clip_norm, **plan)).norm()) <= 1


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    precision=st.sampled_from(("float32", "bfloat16", "float64")),
    kind=st.sampled_from(KINDS),
    count=st.integers(1, 5000),
    copies=st.sampled_from([1, 1, 3]),
    bias=st.booleans(),
    clip_norm=st.sampled_from([1.0, 1e-6, 0.3]),
)
def test_no_row_of_two_classes_moves_a_sum_by_more_than_its_clip_norm(
    seed: int, precision: str, kind: str, count: int, copies: int, bias: bool, clip_norm: float
) -> None:
    """One residual is computed for both classes."""
    rng = np.random.default_rng(seed)
    features = rows_of_a_kind(rng, kind, count, copies, 7)
    rows = MemoryRows(features, rng.integers(0, 2, count), precision=precision)
    plan: dict[str, Any] = {
        "loss": "softmax",
        "outputs": 2,
        "bias": bias,
        "augmentations": copies,
    }
    whole = added(rows, clip_norm, **plan)
    row = int(rng.integers(count))
    rows.features[row], rows.norms[row] = 0, torch.inf
    assert float((whole - added(rows, clip_norm, **plan)).norm()) <= 1


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    precision=st.sampled_from(("float32", "bfloat16", "float64")),
    kind=st.sampled_from(KINDS),
    inner=st.integers(1, 9000),
    copies=st.sampled_from([1, 1, 3, 128]),
)
def test_a_sum_is_off_by_at_most_half_its_margin(
    seed: int, precision: str, kind: str, inner: int, copies: int
) -> None:
    """Half, because neighbours' sums are both off; times the blocks that are off, here all."""
    rng, dtype = np.random.default_rng(seed), PRECISIONS[precision]
    left, right = (
        torch.as_tensor(rows_of_a_kind(rng, kind, inner, width)).to(dtype) for width in (2, 3)
    )
    norms = left.double().norm(dim=1) * right.double().norm(dim=1)
    total = sums.Total(2, 3, device=left.device)
    for part in sums.products(left.T, right, copies):
        assert part.dtype == torch.float64
        total.add(part)
    off = (total.value() - left.double().T @ right.double()).norm()
    blocks = math.ceil(inner / (128 // copies * copies))
    half = sums.margin(torch.promote_types(dtype, torch.float32)) / 2
    assert float(off) <= half * blocks * float(norms.max())


@pytest.mark.parametrize("parts", [0, 1, 2, 3, 7, 8, 100])
def test_a_total_is_the_sum_of_its_parts(parts: int) -> None:
    total = sums.Total(2, 3, device=torch.device("cpu"))
    for number in range(parts):
        total.add(torch.full((2, 3), float(number), dtype=torch.float64))
    assert total.value().tolist() == [[parts * (parts - 1) / 2] * 3] * 2


def test_a_total_of_very_many_parts_is_hardly_rounded() -> None:
    """Added one after another, 2^12 times a tenth would be off."""
    total = sums.Total(1, device=torch.device("cpu"))
    for _ in range(2**12):
        total.add(torch.tensor([0.1], dtype=torch.float64))
    assert float(total.value()) == 2**12 * 0.1


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float64"])
def test_copies_that_cancel_do_not_bring_more_rounding_into_the_sum(precision: str) -> None:
    """A row's two copies cancel but for a thousandth: what is summed counts, not what is left."""
    rng = np.random.default_rng(5)
    features = np.stack([np.ones((500, 4)), -1 + 1e-3 * rng.random((500, 4))], 1)
    rows = MemoryRows(features, -1e6 * np.ones(500), precision=precision)
    (chunk,) = rows.chunks()
    logits = torch.zeros(1, 1, 1000, dtype=torch.promote_types(rows.dtype, torch.float32))
    plan = TrainPlan(rows=500, steps=1, learning_rate=1.0, noise_multiplier=1.0, augmentations=2)
    release = Release.of([plan], logits)
    clipped = linear._clipped(logits, chunk, "squared", release)
    entered = clipped[0, 0].double().abs().view(500, 2) * rows.features.double().norm(dim=2)
    assert 1 < float(entered.sum(1).max()) <= 2 * 1.01


def test_noise_is_added_before_a_sum_is_rounded() -> None:
    """2^24 + 1 is no float32: rounded first, the sum would lose its last row."""
    plan = TrainPlan(rows=1, steps=1, learning_rate=1.0, noise_multiplier=1.0)
    release = Release.of([plan], torch.zeros(1, 1, 1))
    exact = torch.full((1, 1, 1), 2.0**24 + 1, dtype=torch.float64)
    found = release.private_mean(exact, torch.full((1, 1, 1), -(2.0**24), dtype=torch.float64))
    assert (found.dtype, found.item()) == (torch.float32, 1.0)


def test_more_rows_or_copies_than_the_margin_covers_are_refused() -> None:
    chunk = one_chunk(np.ones((1, 129, 1)), np.ones(1))
    engine = LinearEngine(outputs=1, loss="squared")
    plan = TrainPlan(rows=1, steps=1, learning_rate=1.0, noise_multiplier=1.0, augmentations=129)
    with pytest.raises(InvalidInput, match="at most 128 copies"):
        engine.fit_many([plan], Repeated(chunk, chunk, 1), [Randomness()])
    many = Repeated(chunk, chunk, 1)
    many.count = 2**29 + 1
    with pytest.raises(InvalidInput, match="up to 536,870,912 rows"):
        engine.fit_many([], many, [])
    with pytest.raises(InvalidInput, match="up to 536,870,912 rows"):
        engine.evaluate_many([], many)


def test_weights_of_correct_rows_add_up_exactly() -> None:
    """A million rows of weight a tenth: one row moves the sum by its weight, to the last bit."""
    chunk = one_chunk(np.ones((4096, 1)), np.ones(4096))
    model = LinearModel(torch.ones(1, 1), None, "binary")
    engine, weights = LinearEngine(outputs=1, loss="binary"), torch.tensor([0.7, 0.1])
    wrong = Chunk(chunk.features.clone(), chunk.targets, chunk.norms)
    wrong.features[7] = -1

    def found(first: Chunk) -> float:
        rows = Repeated(first, chunk, 244)
        return engine.evaluate_many([model], rows, row_weights=weights)[0].weighted_correct

    moved = found(chunk) - found(wrong)
    assert moved == math.floor(0.1 * 2**24) * 2.0**-24


@pytest.mark.parametrize("bound", [0.1, 5.0, 1 / 3])
def test_losses_at_their_bound_add_up_to_no_more(bound: float) -> None:
    """In a million rows one is right and then wrong, or its model has diverged."""
    chunk = one_chunk(np.full((4096, 1), -40.0), np.ones(4096))
    engine = LinearEngine(outputs=1, loss="binary")
    model = LinearModel(torch.ones(1, 1), None, "binary")
    right = Chunk(chunk.features.clone(), chunk.targets, chunk.norms)
    right.features[7] = 40

    def worth(first: Chunk) -> float:
        """What is released, with noise, of the losses."""
        rows = Repeated(first, chunk, 244)
        (found,) = engine.evaluate_many([model], rows, loss_bound=bound)
        return found.rows * (1 - found.loss / bound)

    assert 0.999 < worth(right) - worth(chunk) <= 1
