"""Rows whose columns are declared: from frames and files, kept as codes, opened as features."""

import gzip
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from pyarrow import parquet

from dptune import table_files
from dptune.columns import Coded, Columns, Encoding
from dptune.columns.private_ranges import private_ranges
from dptune.data import Data, Shift
from dptune.data.columns_section import columns_section
from dptune.data.declared import describe_column
from dptune.data.preprocess import Preprocessing
from dptune.data.row_maps import Encode, Subtract
from dptune.data.sources import load_data, read_new_rows
from dptune.errors import InvalidInput
from dptune.study.config import parse
from support.ledgers import PAID
from support.table_errors import GOOD_COLUMNS, GOOD_TABLE, TABLE_ERRORS, TableError

COLUMNS: dict[str, Any] = {
    "id": "drop",
    "age": {"kind": "number", "range": [20, 60], "fill": "middle", "indicator": True},
    "job": {"kind": "category", "values": ["nurse", "clerk"]},
    "town": {"kind": "category", "values": "paid", "at_most": 3},
    "smoker": "boolean",
}
TABLE = pa.table(
    {
        "id": [7, 8, 9, 10],
        "age": [20.0, None, 90.0, 50.0],
        "job": ["nurse", "cook", None, "clerk"],
        "town": ["Ulm", "Bonn", "Ulm", None],
        "smoker": ["yes", "no", "no", "yes"],
        "ill": ["x", "y", "x", "y"],
    }
)
ROWS, LABELS = TABLE.drop_columns(["ill"]), TABLE.column("ill").to_pylist()
# age, where it is missing; nurse, clerk, other; three towns nobody has bought, and other; smoker
FEATURES = [
    [-1, 0, 1, 0, 0, 0, 0, 0, 1, 1],
    [0, 1, 0, 0, 1, 0, 0, 0, 1, -1],
    [1, 0, 0, 0, 1, 0, 0, 0, 1, -1],
    [0.5, 0, 0, 1, 0, 0, 0, 0, 1, 1],
]


def made(features: Any = ROWS, labels: Any = None, **facts: Any) -> Data:
    labels = LABELS if labels is None else labels
    columns = facts.pop("columns", COLUMNS)
    return Data.from_columns(features, labels, columns, **{"classes": "public"} | facts)


def as_given(encoding: Encoding | None) -> Preprocessing:
    return Preprocessing(unit_rows=False, encoding=encoding)


def features_of(data: Data, encoding: Encoding | None = None) -> Any:
    rows = data.open(PAID, as_given(encoding or data.encoding))
    found: NDArray[Any] = rows.features[:, 0].numpy()
    return found.tolist()


def frame(package: str) -> Any:
    ways = {
        "pandas": lambda: ROWS.to_pandas(),
        "polars": lambda: pytest.importorskip("polars").from_arrow(ROWS),
        "arrow": lambda: ROWS,
        "mapping": lambda: ROWS.to_pydict(),
    }
    return ways[package]()


@pytest.mark.parametrize("package", ["pandas", "polars", "arrow", "mapping"])
def test_frames_of_all_packages_are_the_same_rows(package: str) -> None:
    data = made(frame(package))
    assert features_of(data) == FEATURES
    assert data.fingerprint == made().fingerprint
    assert (data.columns, data.shape) == (10, (10,))
    assert data.column_names == ("age", "job", "town", "smoker")
    assert data.public_facts == (
        "the number of rows (4), taken from the data",
        "the columns by name, and what they hold (1 dropped, 1 number with a range, 1 category "
        "with values, 1 category with privately estimated values, 1 boolean; 10 features before "
        "curves), "
        "as declared",
        "the classes (2), taken from the data",
    )


def test_an_array_has_names_for_its_columns() -> None:
    plain = np.array(ROWS.to_pylist(), dtype=object)
    values = np.array([list(row.values()) for row in plain], dtype=object)
    data = made(values, column_names=ROWS.column_names)
    assert features_of(data) == FEATURES
    with pytest.raises(InvalidInput, match="Name its columns, in order, with column_names"):
        made(values)


def test_declared_columns_are_encoded_before_anybody_sees_them() -> None:
    data = made()
    with pytest.raises(InvalidInput, match=r"use Preprocessing\(encoding=data\.encoding\)"):
        data.open(PAID, Preprocessing())
    (codes,) = data.tables_for(PAID)
    assert np.isnan(codes).sum() == 3 and codes.dtype == np.float32
    (prepared,) = data.tables_for(PAID, as_given(data.encoding))
    assert prepared.tolist() == FEATURES


def test_private_rows_are_encoded_with_estimated_values() -> None:
    data = made(test=({"age": [30], "job": ["cook"], "town": ["Ulm"], "smoker": [1]}, ["x"]))
    assert data.encoding is not None
    bought = data.encoding.with_categories({"town": ("Bonn", "Ulm")})
    towns = [row[5:9] for row in features_of(data, bought)]
    assert towns == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]]
    test = data.test_rows(as_given(bought))
    assert test is not None
    assert test.features[:, 0].tolist() == [[-0.5, 0, 0, 0, 1, 0, 1, 0, 0, 1]]


def test_values_that_were_not_estimated_are_not_released() -> None:
    data = made()
    for shown in (repr(data), repr(data.encoding), str(data.public_facts), repr(vars(data.facts))):
        assert "Ulm" not in shown
    assert "Ulm" not in json.dumps(data.encoding and data.encoding.to_plain())
    with pytest.raises(InvalidInput, match="open with the Receipt"):
        data.vocabularies_for("receipt")  # type: ignore[arg-type]
    assert data.vocabularies_for(PAID) == {"town": ("Ulm", "Bonn")}
    again = pickle.loads(pickle.dumps(data))
    assert features_of(again) == FEATURES


@pytest.mark.parametrize("column", ["job", "town", "id"])
def test_a_fingerprint_tells_texts_apart_that_have_one_code(column: str) -> None:
    place = ROWS.column_names.index(column)
    other = ROWS.set_column(place, column, pa.array(["a", "b", "c", "d"]))
    assert made(other).fingerprint != made().fingerprint
    assert made(columns=COLUMNS | {"age": "drop"}).fingerprint == made().fingerprint
    pieces = pa.concat_tables([ROWS.slice(0, 1), ROWS.slice(1)])
    assert made(pieces).fingerprint == made().fingerprint
    assert made(labels=LABELS[::-1]).fingerprint != made().fingerprint


def a_crowd(seed: int, rows: int = 200) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    ages = random.uniform(20, 60, rows)
    ages[::5] = np.nan
    towns = [f"town {number}" for number in random.integers(0, 50, rows)]
    return {"age": ages, "job": ["nurse", None] * (rows // 2), "town": towns, "smoker": [1] * rows}


def test_test_rows_with_gaps_that_are_private_rows_are_refused() -> None:
    private, labels = a_crowd(0), ["x", "y"] * 100
    some = {name: list(values)[:50] for name, values in private.items()}
    with pytest.raises(InvalidInput, match="some test rows are private rows"):
        made(private, labels, test=(some, labels[:50]))
    data = made(
        private, labels, public=(a_crowd(1), labels), shifts={"s": Shift(a_crowd(2), labels)}
    )
    assert data.shifted_rows("s", as_given(data.encoding))[""].count == 200
    rest, held = data.held_out(4)
    assert (len(features_of(rest)), len(features_of(held))) == (150, 50)


def test_tokens_of_texts_have_no_columns() -> None:
    with pytest.raises(InvalidInput, match=r"use Data.from_disk or Data.from_texts"):
        Data.from_columns(ROWS, None, COLUMNS, task="words")


def test_error_about_rows_is_for_their_holder() -> None:
    rows = {"age": [70, 80], "job": ["cook"] * 2, "town": ["a", "b"], "smoker": [True, False]}
    data = made(rows, ["x", "x"], classes=["x", "y"])
    one, same, outside = data.remarks()
    assert one.startswith("all rows are of one class")
    assert "without information: job;" in same and "one number: age;" in outside
    assert made().remarks() == ()


def test_a_preprocessing_with_an_encoding_is_stored_and_found_again() -> None:
    encoding = Encoding(Columns.of(COLUMNS)).with_ranges({})
    first = Preprocessing(encoding=encoding)
    again = Preprocessing.from_arrays({}, json.loads(json.dumps(first.facts())))
    assert again.encoding == encoding
    with pytest.raises(InvalidInput, match="the rows have 3 columns, and 4 are declared"):
        first.apply(np.zeros((2, 3)))
    with pytest.raises(InvalidInput, match="have 10 columns, subtract is for 4"):
        Preprocessing([Encode(encoding), Subtract(np.zeros(4))]).apply(np.zeros((2, 4)))


# Files


def save_csv(path: Path, table: Any = TABLE) -> Path:
    text = table.to_pandas().to_csv(index=False)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def saved(kind: str, folder: Path) -> Path:
    if kind in ("csv", "csv.gz"):
        return save_csv(folder / f"ill.{kind}")
    path = folder / ("ill.parquet" if kind == "parquet" else "ill")
    if kind == "parquet":
        parquet.write_table(TABLE, path)
    elif kind == "folder":
        path.mkdir()
        for number in range(2):
            parquet.write_table(TABLE.slice(2 * number, 2), path / f"{number}.parquet")
    else:
        datasets.Dataset(TABLE).save_to_disk(path)
    return path


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet", "folder", "saved"])
def test_all_kinds_of_files_are_the_same_rows(kind: str, tmp_path: Path) -> None:
    datasets.disable_progress_bars()
    path = saved(kind, tmp_path)
    data = load_data(path, label="ill", columns=COLUMNS, classes="public")
    assert (data.name, data.classes, features_of(data)) == ("ill", ("x", "y"), FEATURES)
    assert data.encoding is not None
    new = read_new_rows(path, data.encoding)
    assert isinstance(new, Coded)
    assert data.encoding.apply(new.rows).tolist() == FEATURES


def test_a_csv_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 500
    table = pa.table(
        {
            "age": [str(number % 40 + 20) for number in range(rows)],
            "town": [f'town\n"{number % 30}"' for number in range(rows)],
            "ill": [number % 3 for number in range(rows)],
        }
    )
    path = save_csv(tmp_path / "a.csv", table)
    columns = {"age": COLUMNS["age"], "town": COLUMNS["town"]}
    whole = load_data(path, label="ill", columns=columns)
    monkeypatch.setattr(table_files, "_AT_ONCE", 1 << 11)
    pieces = load_data(path, label="ill", columns=columns)
    assert (pieces.count, pieces.classes) == (rows, (0, 1, 2))
    assert features_of(pieces) == features_of(whole)
    assert pieces.vocabularies_for(PAID) == whole.vocabularies_for(PAID)


@pytest.mark.parametrize(
    ("label", "column", "expected"),
    [
        (
            "ill",
            {"kind": "category", "values": ["y", "x", "z"]},
            ("softmax", ("y", "x", "z"), None),
        ),
        ("smoker", "boolean", ("softmax", ("false", "true"), None)),
        ("age", {"kind": "number", "range": [0, 99]}, ("squared", (), (0.0, 99.0))),
    ],
)
def test_a_declared_label_says_what_is_learned(
    label: str, column: Any, expected: tuple[Any, ...], tmp_path: Path
) -> None:
    table = TABLE.slice(2)  # without a gap in age
    columns = COLUMNS | {"ill": "drop", label: column}
    path = save_csv(tmp_path / "a.csv", table)
    data = load_data(path, label=label, columns=columns)
    assert (data.loss, data.classes, data.target_range) == expected
    assert label not in data.column_names
    assert data.public_facts[-1].endswith("as declared")
    assert data.declared == Columns.of(columns)  # the label among them, as run.toml needs
    with pytest.raises(InvalidInput, match="leave task, classes and target_range out"):
        load_data(path, label=label, columns=columns, classes=["a", "b"])


def test_a_file_of_numbers_alone_needs_no_declaration(tmp_path: Path) -> None:
    path = save_csv(tmp_path / "a.csv", pa.table({"a": [1, 2], "b": [3, 4], "label": [0, 1]}))
    data = load_data(path)
    assert data.declared is None and data.encoding is not None
    assert data.encoding.undecided == ("a", "b")
    assert "the names of the columns, taken from the data" in data.public_facts
    assert features_of(data) == [[1, 3], [2, 4]]
    rows = data.open(PAID, Preprocessing(unit_rows=False))
    assert rows.features[:, 0].tolist() == [[1, 3], [2, 4]]


def test_files_of_one_table_have_labels_of_one_kind(tmp_path: Path) -> None:
    columns = {"age": {"kind": "number", "range": [0, 100]}}

    def loaded(**second: Any) -> Data:
        first = {"age": [30.0, 40.0], "ill": [0, 1]}
        for name, table in (("1", first), ("2", {"age": [50.0, 60.0], **second})):
            pd.DataFrame(table).to_parquet(tmp_path / f"{name}.parquet")
        return load_data(tmp_path, label="ill", columns=columns)

    assert loaded(ill=[1, 0]).classes == (0, 1)
    assert loaded(ill=[1.0, 0.0]).classes == (0, 1)
    with pytest.raises(InvalidInput, match=r"'ill' of .* is of another type in one file"):
        loaded(ill=["secret", "no"])
    with pytest.raises(InvalidInput, match=r"a part of .* lacks the column of labels 'ill'"):
        loaded()


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("age,age,ill", "several columns called age"),
        (",age,ill", "the first column of .* has no name"),
    ],
)
def test_columns_that_cannot_be_told_apart_are_named(head: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"{head}\n1,2,x\n")
    with pytest.raises(InvalidInput, match=words):
        columns_section(tmp_path / "a.csv", "ill")
    with pytest.raises(InvalidInput, match=words):
        load_data(tmp_path / "a.csv", label="ill", columns={"age": "number"})
    with pytest.raises(InvalidInput, match=words):
        load_data(tmp_path / "a.csv", label="ill")


@pytest.mark.parametrize("case", TABLE_ERRORS, ids=lambda case: case.name)
def test_table_error_has_documented_message(
    case: TableError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput) as caught:
        load_data(case.write(tmp_path), label=case.label, columns=case.columns)
    assert str(caught.value) == case.message


def test_the_table_of_errors_is_of_a_table_that_is_right(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(GOOD_TABLE)
    assert load_data(tmp_path / "a.csv", label="ill", columns=GOOD_COLUMNS).count == 4
    names = [case.name for case in TABLE_ERRORS]
    assert len(set(names)) == len(names)


# A section to start from


def test_a_section_begins_with_names_and_types(tmp_path: Path) -> None:
    path = tmp_path / "ill.csv"
    path.write_text("id,body weight,seen,smoker,job,ill\n1,70.5,2024-01-01,true,cook,x\n")
    columns, text = columns_section(path, "ill")
    lines = text.splitlines()
    assert lines[lines.index("[columns]") + 1 :] == [
        'id = "drop"  # int64, and by its name a key, which identifies people',
        '"body weight" = { kind = "number" }  # double',
        'seen = { kind = "date", range = ["FIRST", "LAST"] }  # date32[day]',
        'smoker = "boolean"  # bool',
        'job = { kind = "category", values = "paid" }  # string',
        '# ill = { kind = "category", values = ["A", "B"] }  # the label: not declared, names that '
        "many rows have are estimated, for about 1 % of the budget",
    ]
    assert "NEVER from the rows" in text and max(map(len, lines[:11])) <= 100
    assert lines[1].startswith("# Types are guessed from the rows")
    filled = text.replace("FIRST", "2020-01-01").replace("LAST", "2025-12-31")
    declared = Columns.of(parse(filled, "it")["columns"])
    assert declared.names == columns.names == ("id", "body weight", "seen", "smoker", "job")
    with pytest.raises(InvalidInput, match="no column of labels 'sick'"):
        columns_section(path, "sick")


@pytest.mark.parametrize(
    "name",
    [
        "id",
        "uuid",
        "patient_id",
        "Patient ID",
        "PatientId",
        "rownames",
        "index",
        "Unnamed: 0",
        "key",
        "pid",
        "name",
        "Last name",
        "email",
    ],
)
def test_what_is_a_key_by_its_name_is_dropped(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"{name},paid,monkey,indexed,ill\n1,2,3,4,5\n")
    columns, _ = columns_section(tmp_path / "a.csv", "ill")
    kinds = {each: column.kind for each, column in columns.declared.items()}
    assert kinds == {name: "drop", **dict.fromkeys(["paid", "monkey", "indexed"], "number")}
    labelled, text = columns_section(tmp_path / "a.csv", name)
    assert name not in labelled.names and 'ill = { kind = "number" }' in text


def test_names_that_a_type_lists_are_written_only_where_asked(tmp_path: Path) -> None:
    # What astype("category") lists is from the rows, and nothing in the file says so.
    people = pd.Series([f"person {number}" for number in range(300)]).astype("category")
    pd.DataFrame({"who": people, "ill": people, "v": [[1]] * 300}).to_parquet(
        tmp_path / "a.parquet"
    )
    columns, text = columns_section(tmp_path, "ill")
    assert "person" not in text and "person" not in repr(columns)
    assert 'who = { kind = "category", values = "paid" }' in text
    assert "its type lists 300 names: if they come from a code book" in text
    assert '# ill = { kind = "category", values = ["A", "B"] }' in text
    assert 'v = "drop"  # list' in text and "guessed" not in text
    columns, text = columns_section(tmp_path, "ill", values=True)
    assert 'who = { kind = "category", values = ["person 0", "person 1", ' in text
    assert '# ill = { kind = "category", values = ["person 0", "person 1", ' in text
    assert "--values" not in text


def test_a_section_is_not_begun_for_what_a_study_would_refuse(tmp_path: Path) -> None:
    def refused(name: str, content: bytes | None = None) -> str:
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(InvalidInput) as caught:
            columns_section(tmp_path / name, "ill")
        return str(caught.value)

    assert "is not UTF-8" in refused("a.csv", "age,ill\n1,Bürokraft\n".encode("latin-1"))
    assert 'but signs "|"' in refused("a.csv", b"age|ill\n1|2\n")
    assert "but tabs" in refused("a.csv", b"age\till\n1\t2\n")
    assert "save it with commas" in refused("a.tsv", b"age\till\n1\t2\n")
    assert "of a .csv, .csv.gz or .parquet file" in refused("a.txt", b"age,ill\n1,2\n")
    assert "the file lacks a line of names" in refused("a.csv", b"nurse,yes\nclerk,no\n")
    assert "there is no file or folder" in refused("absent.csv")
    packed = refused("a.csv", gzip.compress(b"age,ill\n1,2\n"))
    assert "is compressed with gzip" in packed and "end in .csv.gz" in packed
    (tmp_path / "dir.csv").mkdir()
    assert "is a folder without any" in refused("dir.csv")


def test_a_folder_that_holds_no_table_is_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)  # which is not what is missing
    (tmp_path / "dir.csv").mkdir()
    with pytest.raises(InvalidInput, match=r"is a folder, but not one .* no \.parquet files"):
        load_data(tmp_path / "dir.csv", label="ill")


def test_a_card_says_what_becomes_of_a_column_that_is_nearly_always_zero() -> None:
    flags = np.repeat([0.0, 1.0], [9950, 50])[:, None]
    (found,) = private_ranges([flags], 1, 1e-6, len(flags), np.zeros)
    encoding = Encoding(Columns.of_numbers(["ill"]), ranges={"ill": (found.low, found.high)})
    assert describe_column(encoding, "ill") == (
        "nearly always 0; more counts as 1, less as -1 (estimated privately)"
    )
    assert encoding.apply(np.array([[0.0], [1.0], [-5.0]])).ravel().tolist() == [0.0, 1.0, -1.0]
    other = Encoding(Columns.of_numbers(["ill"]), ranges={"ill": (-2.0, 2.0)})
    assert describe_column(other, "ill") == "-2 to 2 (estimated privately)"
