"""Rows in memory and on disk: the same numbers, honest norms, and what is refused."""

import ast
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dptune.data.disk import DiskRows, write_chunks
from dptune.data.rows import MemoryRows, Rows
from dptune.engines.linear import LinearEngine, LinearModel
from dptune.engines.randomness import Randomness
from dptune.errors import InvalidInput
from support.linear import LinearPlan

COUNT, COLUMNS, CLASSES = 101, 9, 4
PRECISIONS = ("float64", "float32", "bfloat16")
TOLERANCES = {"float64": 1e-11, "float32": 1e-4, "bfloat16": 2e-2}


def make_data(copies: int = 1) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(COUNT, copies, COLUMNS)).astype(np.float32)
    return features, rng.integers(CLASSES, size=COUNT)


def on_disk(folder: Path, sizes: list[int], precision: str, copies: int = 1) -> DiskRows:
    features, targets = make_data(copies)
    ends = np.cumsum(sizes)
    assert ends[-1] == COUNT
    parts = zip(np.split(features, ends[:-1]), np.split(targets, ends[:-1]), strict=True)
    write_chunks(folder, parts, precision=precision)
    return DiskRows(folder)


def fit(rows: Rows, **changes: Any) -> LinearModel:
    fields: dict[str, Any] = {
        "rows": COUNT,
        "steps": 5,
        "learning_rate": 1.0,
        "noise_multiplier": 1.0,
    }
    plan = LinearPlan(**fields | changes)
    engine = plan.engine(CLASSES)
    (model,) = engine.fit_many([plan], rows, [Randomness(noise_seed=1)])
    return model


def assert_same_model(one: LinearModel, other: LinearModel, precision: str) -> None:
    tolerance = TOLERANCES[precision]
    torch.testing.assert_close(one.weights, other.weights, rtol=tolerance, atol=tolerance * 0.1)
    assert (one.bias is None) == (other.bias is None)
    if one.bias is not None and other.bias is not None:
        torch.testing.assert_close(one.bias, other.bias, rtol=tolerance, atol=tolerance * 0.1)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("sizes", [[101], [50, 51], [1, 99, 1], [20] * 5 + [1]])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"bias": True, "optimizer": "adam", "learning_rate": 0.1},
        {"sampling_rate": 0.3},
        {"augmentations": 2},
    ],
)
def test_training_from_disk_equals_training_from_memory(
    tmp_path: Path, precision: str, sizes: list[int], changes: dict[str, Any]
) -> None:
    disk = on_disk(tmp_path / "rows", sizes, precision, copies=2)
    memory = MemoryRows(*make_data(2), precision=precision)
    assert (disk.count, disk.copies, disk.columns) == (COUNT, 2, COLUMNS)
    assert disk.dtype == memory.dtype
    assert_same_model(fit(disk, **changes), fit(memory, **changes), precision)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_chunks_on_disk_hold_the_numbers_in_memory(tmp_path: Path, precision: str) -> None:
    disk = on_disk(tmp_path, [40, 3, 58], precision, copies=3)
    memory = MemoryRows(*make_data(3), precision=precision)
    chunks = list(disk.chunks())
    assert [len(chunk.features) for chunk in chunks] == [40, 3, 58]
    assert torch.equal(torch.cat([chunk.features for chunk in chunks]), memory.features)
    assert torch.equal(torch.cat([chunk.targets for chunk in chunks]), memory.targets)
    assert torch.equal(torch.cat([chunk.norms for chunk in chunks]), memory.norms)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("wanted", [[0], [100], [39, 40, 42, 43], list(range(COUNT))])
def test_picked_rows_are_the_same_from_disk_and_memory(
    tmp_path: Path, precision: str, wanted: list[int]
) -> None:
    disk = on_disk(tmp_path, [40, 3, 58], precision).pick(torch.tensor(wanted))
    memory = MemoryRows(*make_data(), precision=precision).pick(torch.tensor(wanted))
    assert torch.equal(disk.features, memory.features)
    assert torch.equal(disk.targets, memory.targets)
    assert torch.equal(disk.norms, memory.norms)


def test_chunks_in_memory_are_of_one_size() -> None:
    """60,000 rows of 50 columns are a little more than one chunk, 1.2 of 53,687 rows."""
    one = MemoryRows(torch.zeros(60_000, 50), torch.zeros(60_000))
    assert [len(chunk.targets) for chunk in one.chunks()] == [60_000]
    two = MemoryRows(torch.zeros(90_001, 50), torch.zeros(90_001))
    assert [len(chunk.targets) for chunk in two.chunks()] == [45_001, 45_000]


@pytest.mark.parametrize("chunk_rows", [1, 7, 100, 101, 5000])
def test_the_size_of_chunks_in_memory_does_not_matter(chunk_rows: int) -> None:
    features, targets = make_data()
    found = MemoryRows(features, targets, precision="float64", chunk_rows=chunk_rows)
    assert sum(len(chunk.features) for chunk in found.chunks()) == COUNT
    assert_same_model(
        fit(found), fit(MemoryRows(features, targets, precision="float64")), "float64"
    )


def test_evaluation_from_disk_equals_evaluation_from_memory(tmp_path: Path) -> None:
    disk, memory = on_disk(tmp_path, [40, 3, 58], "float32"), MemoryRows(*make_data())
    model = fit(memory, bias=True)
    engine = LinearEngine(outputs=CLASSES)
    (one,), (other,) = engine.evaluate_many([model], disk), engine.evaluate_many([model], memory)
    assert (one.correct, one.rows) == (other.correct, other.rows)
    assert one.loss == pytest.approx(other.loss, rel=1e-6)


def test_rows_on_disk_can_be_read_again_after_a_reader_gave_up(tmp_path: Path) -> None:
    disk = on_disk(tmp_path, [40, 3, 58], "float32")
    reader = disk.chunks()
    next(reader)
    reader.close()  # type: ignore[attr-defined]
    assert len(list(disk.chunks())) == 3


def test_threads_that_read_chunks_parse_no_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11 may fail with a SystemError where two threads parse at once."""
    disk = on_disk(tmp_path, [40, 3, 58], "float32")
    with monkeypatch.context() as patch:
        patch.setattr(ast, "parse", lambda *_, **__: pytest.fail("a header was parsed"))
        assert sum(len(chunk.targets) for chunk in disk.chunks()) == COUNT


@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**32 - 1),
    precision=st.sampled_from(PRECISIONS),
    exponent=st.floats(-1, 1),
    spread=st.sampled_from([0.0, 1.0, 10.0]),
)
def test_norms_are_never_below_the_true_ones(
    seed: int, precision: str, exponent: float, spread: float
) -> None:
    """From the numbers as they are stored, not as they were given."""
    rng = np.random.default_rng(seed)
    low, high = (-307, 305) if precision == "float64" else (-38, 37)
    exponents = (exponent * min(-low, high) + rng.uniform(-spread, spread, (3, 2, 6))).clip(
        low, high
    )
    features = np.sign(rng.normal(size=(3, 2, 6))) * 10.0**exponents
    rows = MemoryRows(features, np.zeros(3, dtype=int), precision=precision)
    stored = rows.features.double()
    largest = stored.abs().amax(-1)
    true = largest * torch.linalg.vector_norm(stored / largest[..., None], dim=-1)
    assert bool((rows.norms.double() >= true).all())
    ordinary = (true > 1e-25) & (true < 1e37)
    assert bool((rows.norms.double() <= true * (1 + 1e-5))[ordinary].all())


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_features_that_are_not_finite_are_refused(
    tmp_path: Path, precision: str, bad: float
) -> None:
    features, targets = make_data()
    features[57, 0, 3] = bad
    with pytest.raises(InvalidInput, match="not finite"):
        MemoryRows(features, targets, precision=precision)
    with pytest.raises(InvalidInput, match="not finite"):
        write_chunks(tmp_path / "rows", [(features, targets)], precision=precision)
    assert not (tmp_path / "rows" / "index.json").exists()


@pytest.mark.parametrize(
    ("value", "precision"), [(1e39, "float32"), (1e300, "bfloat16"), (3.4e38, "bfloat16")]
)
def test_features_too_large_for_the_precision_are_refused(value: float, precision: str) -> None:
    with pytest.raises(InvalidInput, match="too large"):
        MemoryRows(np.array([[1.0, value]]), np.array([0]), precision=precision)


@pytest.mark.parametrize("shape", [(3,), (3, 0), (0, 3), (3, 2, 0), (3, 0, 2), (3, 1, 0, 2)])
def test_features_that_are_no_table_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match="shape"):
        MemoryRows(np.zeros(shape), np.zeros(3, dtype=int))


@pytest.mark.parametrize("targets", [2, 4])
def test_each_row_needs_one_target(targets: int) -> None:
    with pytest.raises(InvalidInput, match="targets"):
        MemoryRows(np.zeros((3, 2)), np.zeros(targets, dtype=int))


def test_an_unknown_precision_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="precision"):
        MemoryRows(np.zeros((3, 2)), np.zeros(3, dtype=int), precision="float8")
    with pytest.raises(InvalidInput, match="precision"):
        write_chunks(tmp_path, [make_data()], precision="float8")


@pytest.mark.parametrize("other", [(5, 1, COLUMNS + 1), (5, 2, COLUMNS), (5, COLUMNS - 1)])
def test_chunks_that_do_not_match_are_refused(tmp_path: Path, other: tuple[int, ...]) -> None:
    chunks = [make_data(), (np.zeros(other), np.zeros(5, dtype=int))]
    with pytest.raises(InvalidInput, match="chunk 1"):
        write_chunks(tmp_path, chunks)
    with pytest.raises(InvalidInput):
        DiskRows(tmp_path)  # the folder was never finished


def test_a_table_and_one_copy_of_it_match(tmp_path: Path) -> None:
    features, targets = make_data()
    write_chunks(tmp_path, [(features, targets), (features[:, 0], targets)])
    assert DiskRows(tmp_path).count == 2 * COUNT


@pytest.mark.parametrize(
    "index",
    [
        "",
        "not json",
        "[]",
        "{}",
        '{"counts": [3]}',
        '{"counts": [3], "copies": 1, "columns": 2, "precision": "float32", "more": 1}',
        '{"counts": [3], "copies": 1, "columns": 2, "precision": "float8"}',
    ],
)
def test_folders_with_a_broken_index_are_refused(tmp_path: Path, index: str) -> None:
    (tmp_path / "index.json").write_text(index)
    with pytest.raises(InvalidInput):
        DiskRows(tmp_path)


def test_folders_without_an_index_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="write_chunks"):
        DiskRows(tmp_path)
    with pytest.raises(InvalidInput, match="write_chunks"):
        DiskRows(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["features", "targets", "norms"])
def test_a_missing_chunk_is_never_skipped(tmp_path: Path, name: str) -> None:
    on_disk(tmp_path, [40, 3, 58], "float32")
    (tmp_path / f"000001.{name}.npy").unlink()
    with pytest.raises((InvalidInput, OSError)):
        list(DiskRows(tmp_path).chunks())


def test_an_index_that_disagrees_with_its_chunks_is_refused(tmp_path: Path) -> None:
    """It would make `count`, and so samples and mean losses, wrong."""
    on_disk(tmp_path, [40, 3, 58], "float32")
    path = tmp_path / "index.json"
    index = json.loads(path.read_text())
    path.write_text(json.dumps(index | {"counts": [40, 3, 30]}))
    with pytest.raises(InvalidInput):
        list(DiskRows(tmp_path).chunks())
