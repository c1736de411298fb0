"""Tables of many rows: in memory once, or read from Parquet files anew every step."""

import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import csv, parquet

import dptune
from dptune import table_files
from dptune.cli import screen
from dptune.data import Data, MemoryRows, Preprocessing, copies, parquet_rows, row_sources, rows
from dptune.data.copies import has_copies
from dptune.data.growing import GrowingTable
from dptune.data.parquet_rows import ParquetRows
from dptune.data.row_sources import ArraySource
from dptune.data.sources import load_data
from dptune.errors import InvalidInput
from support.studies import BUDGET, SPACE

ROWS = 900
COLUMNS: dict[str, Any] = {
    "age": {"kind": "number", "range": [0, 100]},
    "income": {"kind": "number", "range": [-5, 5], "fill": "middle", "indicator": True},
    "town": {"kind": "category", "values": "paid", "at_most": 3},
    "id": "drop",
    "state": {"kind": "category", "values": ["well", "ill"]},
}


def people(count: int = ROWS, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    ill = rng.integers(0, 2, count)
    income = [None if n % 7 == 0 else float(x) for n, x in enumerate(rng.normal(2 * ill - 1))]
    return pa.table(
        {
            "id": np.arange(count) + 1000 * seed,
            "age": rng.uniform(0, 100, count),
            "income": pa.array(income, pa.float64()),
            "town": np.array(["Ulm", "Bonn", "Kiel"])[rng.integers(0, 3, count)],
            "state": np.array(["well", "ill"])[ill],
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files of several row groups."""
    folder = tmp_path / "people"
    folder.mkdir()
    parquet.write_table(people().slice(0, 500), folder / "a.parquet", row_group_size=120)
    parquet.write_table(people().slice(500), folder / "b.parquet")
    parquet.write_table(people().slice(0, 0), folder / "empty.parquet")
    parquet.write_table(people(200, seed=1), tmp_path / "test.parquet")
    return folder


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is read is too large for memory."""
    monkeypatch.setattr(parquet_rows, "LARGE", 0)


def load(source: Path, columns: dict[str, Any] = COLUMNS, **more: Any) -> Data:
    return load_data(source, columns=columns, label="state", **more)


def chunks_of(data: Data) -> tuple[torch.Tensor, torch.Tensor]:
    opened = data.unprotected_rows(Preprocessing(encoding=data.encoding))
    found = list(opened.chunks())
    return torch.cat([c.features for c in found]), torch.cat([c.targets for c in found])


# -- in memory once


def test_a_table_that_grows_is_its_batches() -> None:
    rng = np.random.default_rng(0)
    batches = [rng.normal(size=(count, 3)) for count in (1, 0, 7, 2, 40)]
    table = GrowingTable(3, np.float32)
    for batch in batches:
        table.add(batch)
    assert table.count == 50
    whole = table.whole()
    np.testing.assert_array_equal(whole, np.concatenate(batches).astype(np.float32))
    assert whole.dtype == np.float32 and table.count == 0


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_takes_three_times_its_features_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As engines see them, one float32 each, from the file to rows that are ready."""
    monkeypatch.setattr(table_files, "_AT_ONCE", 1 << 20)
    monkeypatch.setattr(table_files, "_ROWS_AT_ONCE", 1 << 14)
    count, width = 200_000, 12
    rng = np.random.default_rng(0)
    table = pa.table(
        {f"c{n}": rng.integers(-99, 99, count) for n in range(width)}
        | {"state": np.array(["well", "ill"])[rng.integers(0, 2, count)]}
    )
    file = tmp_path / f"many.{kind}"
    write = csv.write_csv if kind == "csv" else parquet.write_table
    write(table, file)
    columns = {f"c{n}": {"kind": "number", "range": [-100, 100]} for n in range(width)}
    columns["state"] = COLUMNS["state"]
    load(file, columns)  # what is imported on the way is there
    tracemalloc.start()
    try:
        data = load(file, columns)
        data.unprotected_rows(Preprocessing(encoding=data.encoding))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * 4 * count * width


def test_rows_that_nobody_else_holds_are_not_copied_and_others_are() -> None:
    features, labels = np.ones((5, 2), np.float32), np.arange(5) % 2
    own, copied = (MemoryRows(features, labels, shared=shared) for shared in (False, True))
    given = ArraySource(features, labels).rows(None, device="cpu", precision="float32")
    features[:] = 7
    assert bool((own.features == 7).all()) and bool((copied.features == 1).all())
    assert isinstance(given, MemoryRows) and bool((given.features == 1).all())


def test_what_is_not_finite_is_found_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_AT_ONCE", 4)
    for place in range(9):
        features = np.ones((9, 2))
        features[place, 1] = np.inf
        with pytest.raises(InvalidInput, match="not finite"):
            MemoryRows(features, np.arange(9))


def test_tables_of_a_large_array_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_sources, "_AT_ONCE", 4)
    features = np.arange(60.0).reshape(10, 3, 2)
    source = ArraySource(features, np.zeros(10), augmented=True)
    found = list(source.tables(copies=2))
    assert [len(table) for table in found] == [4, 4, 2] * 2
    np.testing.assert_array_equal(np.concatenate(found[:3]), features[:, 0])
    np.testing.assert_array_equal(np.concatenate(found[3:]), features[:, 1])


def test_copies_are_found_in_a_share_of_very_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_MOST_ROWS", 500)
    rng = np.random.default_rng(0)
    private, others = rng.normal(size=(4000, 3)), rng.normal(size=(400, 3))
    copied = np.concatenate([others[200:], private[::20]])
    assert has_copies([private], [copied], rows=4000)
    assert not has_copies([private], [others], rows=4000)
    assert not has_copies([private], [others[:1]], rows=4000)  # of which none may be in the share


def test_whoever_waits_is_told_how_many_rows_were_read(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[int] = []
    load(folder, told=heard.append)
    assert heard == sorted(heard) and heard[-1] == ROWS
    clock = iter([0.0, 1.0, 3.5, 3.5, 4.0, 7.0, 7.0])
    told = screen.tell_rows(lambda: next(clock))
    for count in (10, 20_000, 30_000, 40_000):
        told(count)
    said = capsys.readouterr().err
    assert said == "Reading: 20,000 rows so far.\nReading: 40,000 rows so far.\n"


# -- read anew every step


def test_rows_that_are_read_anew_are_those_in_memory(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = tmp_path / "test.parquet"
    kept = load(folder, test=test)
    monkeypatch.setattr(parquet_rows, "LARGE", 4 * 3 * ROWS)
    assert isinstance(load(folder)._parts["train"], ArraySource)  # not more than that
    monkeypatch.setattr(parquet_rows, "LARGE", 4 * 3 * ROWS - 1)
    anew = load(folder, test=test)
    assert not isinstance(anew._parts["train"], ArraySource)
    assert anew.fingerprint == kept.fingerprint and anew.public_facts == kept.public_facts
    for one, other in ((kept, anew), *zip(kept.held_out(5), anew.held_out(5), strict=True)):
        assert one.count == other.count
        for ours, theirs in zip(chunks_of(one), chunks_of(other), strict=True):
            assert torch.equal(ours, theirs)
    opened = anew.unprotected_rows(Preprocessing(encoding=anew.encoding))
    some = torch.tensor([3, 700, 130, 899])
    picked, (features, _) = opened.pick(some), chunks_of(kept)
    found = {tuple(row) for row in picked.features[:, 0].tolist()}
    assert found == {tuple(row) for row in features[some, 0].tolist()}


@pytest.mark.usefixtures("large")
def test_a_study_of_rows_that_are_read_anew(folder: Path, tmp_path: Path) -> None:
    data = load(folder, test=tmp_path / "test.parquet")
    assert isinstance(pickle.loads(pickle.dumps(data)), Data)
    result = dptune.tune(data, budget=BUDGET, space=SPACE, out=tmp_path / "run")
    assert result.guarantee.epsilon <= BUDGET.epsilon and result.test_rows == 200
    assert dptune.load(tmp_path / "run").predict(people(9, seed=2).drop_columns(["state"])).shape


@pytest.mark.usefixtures("large")
def test_files_that_change_after_they_were_opened_are_refused(folder: Path) -> None:
    data = load(folder)
    parquet.write_table(people(300, seed=3), folder / "b.parquet")
    with pytest.raises(InvalidInput, match="were changed after they were opened"):
        data.unprotected_rows(Preprocessing(encoding=data.encoding))


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": "drop"}, "declare its label 'state' among the columns"),
        ({"state": {"kind": "category", "values": ["well", "dead"]}}, "not among its declared"),
        ({"income": {"kind": "number", "range": [-5, 5]}, "age": "boolean"}, r"(?s)age.*income"),
    ],
)
def test_all_that_is_wrong_is_said_when_files_are_opened(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    columns = COLUMNS | changes
    if columns["state"] == "drop":
        del columns["state"]
    with pytest.raises(InvalidInput, match=message):
        load(folder, columns)


@pytest.mark.usefixtures("large")
def test_values_are_learned_from_rows_that_are_read_anew(folder: Path) -> None:
    number = {"kind": "number", "range": [0, 50]}
    data = load_data(folder, columns=COLUMNS | {"age": number}, label="age")
    assert data.target_range == (0, 50) and data.facts.loss == "squared"
    _, targets = chunks_of(data)
    wanted = np.clip(people().column("age").to_numpy(), 0, 50) / 25 - 1
    np.testing.assert_allclose(targets.numpy(), wanted, atol=1e-6)


@pytest.mark.usefixtures("large")
def test_few_row_groups_are_in_hand_where_they_are_large(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for bytes_in_hand in (1, 2 * 4 * 3 * 400, 1 << 26):
        monkeypatch.setattr(parquet_rows, "_IN_HAND", bytes_in_hand)
        source: Any = load(folder)._parts["train"]
        assert isinstance(source.chunks, ParquetRows)
        found.append(source.chunks._readers)
    assert found == [1, 2, 4]
