"""Files that others wrote, damaged or planted: every reader answers or says what is wrong."""

import gzip
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from dptune import gdp
from dptune.accounting import Guarantee
from dptune.cli.picture_rows import features_of_new_pictures
from dptune.columns import kinds
from dptune.columns.kinds import Category
from dptune.data.columns_section import columns_section
from dptune.data.disk import write_chunks
from dptune.data.sources import load_data
from dptune.errors import DptuneError, InvalidInput
from dptune.pictures.find import find_pictures
from dptune.plain_data import read_json, read_toml
from dptune.texts import read as read_texts
from dptune.texts import sources
from dptune.unpacked import LIMIT
from support.hostile_files import PLANTED, READERS, Reader, damaged, readers

SOURCES = Path(__file__).parent.parent / "src" / "dptune"
NESTED, DIGITS = PLANTED.index(b"[" * 100_000), PLANTED.index(b"9" * 5_000)
IN_PLACE_OF_A_VALUE, IN_PLACE_OF_ALL = 3, 4


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reader]:
    return readers(tmp_path_factory.mktemp("hostile"))


@pytest.mark.parametrize("name", READERS)
def test_reader_takes_sound_file(name: str, found: dict[str, Reader]) -> None:
    assert found[name].attempt(found[name].content) is None


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=20)
@example(kind=IN_PLACE_OF_A_VALUE, place=0.7, what=NESTED, byte=0)
@example(kind=IN_PLACE_OF_A_VALUE, place=0.4, what=DIGITS, byte=0)
@example(kind=IN_PLACE_OF_ALL, place=0.0, what=NESTED, byte=0)
@given(
    kind=st.integers(0, 4),
    place=st.floats(0, 1, exclude_max=True),
    what=st.integers(0, len(PLANTED) - 1),
    byte=st.integers(0, 255),
)
def test_reader_answers_or_refuses_damaged_file_in_clear_text(
    name: str, found: dict[str, Reader], kind: int, place: float, what: int, byte: int
) -> None:
    problem = found[name].attempt(damaged(found[name].content, kind, place, what, byte))
    said = "" if problem is None else str(problem)
    assert all(line.isprintable() for line in said.split("\n")) and len(said) < 7_000


# Files that are found inside a folder, not named by the user.
FOUND = (
    *("index of chunks", "chunk", "features.json", "record of a chunk", "groups of a chunk"),
    *("preprocessor of a backbone", "run.toml", "result.json", "model.safetensors", "checkpoint"),
    *("statistic of a run", "ledger"),
)


@pytest.mark.parametrize("name", FOUND)
def test_pipe_in_place_of_a_file_is_refused_and_not_waited_for(
    name: str, found: dict[str, Reader]
) -> None:
    reader = found[name]
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits"))
    reader.file.unlink()
    os.mkfifo(reader.file)
    signal.alarm(20)
    try:
        with pytest.raises(DptuneError):
            reader.read(reader.file)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        reader.file.unlink()
        reader.write(reader.file, reader.content)


def test_json_and_toml_are_parsed_in_one_place() -> None:
    parses = re.compile(r"\bjson\.loads?\(|\btomllib\b|JSONDecoder")
    files = [path for path in SOURCES.rglob("*.py") if parses.search(path.read_text())]
    assert files == [SOURCES / "plain_data.py"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[" * 100_000, "more than 100 nested lists or sections"),
        ("[" * 101 + "]" * 101, "more than 100 nested lists or sections"),
        ("9" * 5_000, "a number with thousands of digits"),
        ("{", "run.json is not JSON: Expecting property name"),
        (b"\xff", "not text in UTF-8"),
    ],
)
def test_unreadable_json_is_refused_in_one_sentence(text: str | bytes, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        read_json(text, "run.json")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"x = {'[' * 100_000}", "more than 100 nested lists or sections"),
        (f"{'a.' * 5_000}b = 1", "more than 100 nested lists or sections"),
        (f"x = {'9' * 5_000}", "a number with thousands of digits"),
        ("x = ", r"own.toml is not TOML: Invalid value \(at end of document\)"),
    ],
)
def test_unreadable_toml_is_refused_in_one_sentence(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        read_toml(text, "own.toml")


def test_values_nested_a_hundred_deep_are_read() -> None:
    assert read_json("[" * 100 + "]" * 100, "it")


def test_pictures_for_features_that_dptune_did_not_make_are_refused(tmp_path: Path) -> None:
    (tmp_path / "new.png").touch()
    with pytest.raises(InvalidInput, match=r"made by 'mine'.*give them with --data"):
        features_of_new_pictures(str(tmp_path), {"name": "mine"}, "run", "cpu")


@pytest.mark.parametrize(
    "changed",
    [
        {"delta": 0},
        {"mu": "1"},
        {"epsilon": -1.0},
        {"unit": "a"},
        {"caveats": [1]},
        {"slack": 1e999},
    ],
)
def test_guarantee_refuses_record_that_no_statement_says(changed: dict[str, Any]) -> None:
    sound = Guarantee(
        **{"epsilon": 1.0, "delta": 1e-5, "mu": 0.27, "slack": 0.0, "replace_one_epsilon": 2.0},
        **{"sampler": "all rows", "accountant": "exact"},
        **{"covers_search": True, "covers_selection": None, "releases": ("a model",)},
    ).to_dict()
    assert Guarantee.from_dict(sound).in_words()
    with pytest.raises(InvalidInput):
        Guarantee.from_dict(sound | changed)


def test_bound_on_odds_ends_where_rounds_hardly_lower_it() -> None:
    """Without a limit it would take 700 million rounds."""
    assert gdp.gaussian_exceedance(1e-9, 2e-6) <= gdp.largest_exceedance(1e-9, 2e-6) <= 1


def test_parquet_with_bytes_that_are_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    no_text = pa.array([b"\xb7"]).view(pa.string())
    parquet.write_table(pa.table({"body": no_text, "label": ["a"]}), path)
    with pytest.raises(InvalidInput, match="is not UTF-8"):
        read_texts(str(path), "body")


# Limits


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(LIMIT, "0.0001")
    yield


@pytest.mark.usefixtures("small_limit")
@pytest.mark.parametrize("name", ["a.csv.gz", "t.csv.gz", "a.jsonl.gz", "a.npz", "p.npz", "idx.gz"])
def test_file_that_unpacks_to_too_much_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many, path = 40_000, tmp_path / name
    zeros = np.zeros((many, 1, 1, 3), np.uint8)
    if name == "a.npz":
        np.savez_compressed(path, X_train=zeros[:, 0, 0], y_train=np.arange(many) % 2)
    elif name == "p.npz":
        np.savez_compressed(path, x_train=zeros, y_train=np.arange(many) % 2)
    elif name == "idx.gz":
        path = tmp_path / "mnist" / "train-images-idx3-ubyte.gz"
        path.parent.mkdir()
        path.write_bytes(gzip.compress(bytes([0, 0, 8, 3]) + bytes(10**6)))
        labels = bytes([0, 0, 8, 1]) + (4).to_bytes(4, "big") + bytes(4)
        (path.parent / "train-labels-idx1-ubyte").write_bytes(labels)
    else:
        line = b'{"body": "x"}\n' if "json" in name else b"1,x,0\n"
        path.write_bytes(gzip.compress(b"a,body,label\n" * ("csv" in name) + line * many))
    read = {
        "a.csv.gz": lambda: load_data(path, columns={"a": "number", "body": "drop"}),
        "t.csv.gz": lambda: read_texts(str(path), "body"),
        "a.jsonl.gz": lambda: read_texts(str(path), "body"),
        "a.npz": lambda: load_data(path),
        "p.npz": lambda: find_pictures(path),
        "idx.gz": lambda: find_pictures(path.parent).part("train"),
    }[name]
    with pytest.raises(InvalidInput, match=rf"more than 0.0001 GB. If you trust it, set .*{LIMIT}"):
        read()
    for senseless in ("many", "nan", "-1"):
        monkeypatch.setenv(LIMIT, senseless)
        with pytest.raises(InvalidInput, match=f"'{senseless}', which is not a number above 0"):
            read()


@pytest.mark.usefixtures("small_limit")
def test_large_file_that_is_not_compressed_is_read(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(10_000, 3))
    np.savez(tmp_path / "a.npz", X_train=rows, y_train=np.arange(10_000) % 2)
    assert load_data(tmp_path / "a.npz").count == 10_000


@pytest.mark.parametrize("read", [load_data, columns_section])
def test_first_line_longer_than_a_megabyte_is_refused(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"x," * 600_000 + b"label\n")
    with pytest.raises(InvalidInput, match=r"first line of .* is longer than a megabyte"):
        read(path)


def test_json_line_that_is_too_long_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "LONGEST_LINE", 1 << 20)
    path = tmp_path / "a.jsonl"
    path.write_text('{"body": "x"}\n{"body": "' + "x" * (1 << 20) + '"}\n')
    with pytest.raises(InvalidInput, match=r"line 2 of .* is longer than 1 MiB"):
        read_texts(str(path), "body")


def test_list_of_too_many_categories_is_refused_before_names_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kinds, "category_texts", lambda values: pytest.fail("a name was read"))
    with pytest.raises(InvalidInput, match="at most 10,000; got 10,001"):
        Category(values=tuple(map(str, range(10_001))))


def test_class_number_beyond_all_reason_does_not_fill_the_memory(tmp_path: Path) -> None:
    write_chunks(tmp_path, [(np.eye(2, dtype=np.float32), np.array([0, 2**53]))])
    with pytest.raises(InvalidInput, match="those of classes are below 1,000,000"):
        load_data(tmp_path)
