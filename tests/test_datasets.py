"""Reading data sets: the bundled one, files, saved folders, the hub; and what is refused."""

import errno
import sys
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from pyarrow import parquet

from dptune.data import Data
from dptune.data.columns_section import columns_section
from dptune.data.fingerprint import fingerprint_arrays, fingerprint_file, fingerprint_folder
from dptune.data.preprocess import Preprocessing
from dptune.data.rows import MemoryRows
from dptune.data.sources import load_data, read_features
from dptune.errors import InvalidInput, MissingExtra
from dptune.table_files import reading
from dptune.texts.reading import read as read_texts
from support.ledgers import PAID, table_of

AS_GIVEN = Preprocessing(unit_rows=False)
FEATURES = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.5]])
CSV = "a,label,b\n1,x,2\n3,y,4\n5,x,6.5\n"


@pytest.fixture(autouse=True)
def quiet() -> None:
    datasets.disable_progress_bars()


def features_of(data: Data) -> list[Any]:
    found: list[Any] = table_of(data).tolist()
    return found


def labels_of(data: Data, rows: MemoryRows | None = None) -> list[Any]:
    rows = rows or data.open(PAID, AS_GIVEN)
    if data.target_range is None:
        return [data.classes[number] for number in rows.targets.tolist()]
    low, high = data.target_range
    found: list[Any] = (low + (rows.targets.numpy() + 1) / 2 * (high - low)).tolist()
    return found


def the_test_rows(data: Data) -> tuple[list[Any], list[Any]]:
    rows = data.test_rows(AS_GIVEN)
    assert rows is not None
    return rows.features[:, 0].tolist(), labels_of(data, rows)


def save_npz(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def save_csv(path: Path, text: str = CSV) -> Path:
    path.write_text(text)
    return path


def save_parquet(path: Path, **columns: Any) -> Path:
    parquet.write_table(pa.table(columns), path)
    return path


def save_folder(path: Path, features: Any = None, **columns: Any) -> Path:
    datasets.Dataset.from_dict(columns, features=features).save_to_disk(path)
    return path


# The bundled set


def test_the_demo_is_bundled_with_train_and_test_rows() -> None:
    data = load_data("demo")
    assert (data.name, data.count, data.columns) == ("demo", 50_000, 64)
    assert data.classes == tuple(range(10))
    test = data.test_rows(Preprocessing())
    assert test is not None and test.count == 10_000
    features = table_of(data)
    assert 0 < features.mean() < 10  # codes up to 255 were multiplied by their scale
    assert data._parts["train"].features.dtype == np.float32
    assert len(np.unique(data.open(PAID, Preprocessing()).targets)) == 10


def test_the_demo_gives_features_to_predict() -> None:
    assert read_features("demo", 64).shape == (10_000, 64)


# npz


def test_an_npz_holds_train_test_scale_and_names(tmp_path: Path) -> None:
    path = save_npz(
        tmp_path / "cats.npz",
        X_train=np.array([[1, 2], [3, 4], [5, 6]], dtype=np.uint8),
        y_train=np.array([0, 1, 0]),
        X_test=np.array([[7, 8]], dtype=np.uint8),
        y_test=np.array([1]),
        scale=np.array([0.5, 2.0], dtype=np.float32),
        classes=np.array(["cat", "dog"]),
    )
    data = load_data(path, test=path)
    assert (data.name, data.classes) == ("cats", ("cat", "dog"))
    assert data.public_facts[-1] == "the classes (2), as declared"
    assert features_of(data) == [[0.5, 4.0], [1.5, 8.0], [2.5, 12.0]]
    assert labels_of(data) == ["cat", "dog", "cat"]
    assert the_test_rows(data) == ([[3.5, 16.0]], ["dog"])
    assert load_data(path, classes=["dog", "cat"]).classes == ("dog", "cat")
    assert load_data(path, task="values", target_range=(0, 1)).loss == "squared"


def test_an_npz_may_hold_train_rows_only(tmp_path: Path) -> None:
    path = save_npz(tmp_path / "a.npz", X_train=FEATURES, y_train=[3, 1, 3])
    data = load_data(str(path), name="other", rows=10)
    assert (data.name, data.count, data.classes) == ("other", 10, (1, 3))
    assert data.test_rows(AS_GIVEN) is None
    assert features_of(data) == FEATURES.tolist()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x_train": FEATURES, "y_train": [0, 1, 0]}, "found the arrays x_train, y_train"),
        ({"X_train": FEATURES}, "no labels y_train; found the arrays X_train"),
        ({"X_train": FEATURES, "y_train": [0, 1, 0], "scale": [1.0]}, "one number a column"),
        ({"X_train": FEATURES, "y_train": [0, 1, 0], "scale": 2.0}, "one number a column"),
        ({"X_train": FEATURES, "y_train": [0, 1, 2], "classes": ["a", "b"]}, "from 0 to 1"),
        ({"X_train": np.array([[{}]]), "y_train": [0]}, "X_train in .* holds objects of Python"),
        (
            {"X_train": FEATURES, "y_train": np.array(["a", "b", "a"], dtype=object)},
            r"y_train in .* holds objects of Python.* \.astype\(str\)",
        ),
        ({"X_train": np.array([["a", "b"]]), "y_train": [0], "scale": [1.0, 1.0]}, "cannot be"),
        ({"X_train": FEATURES[0], "y_train": [0, 1]}, "shape"),
    ],
)
def test_an_npz_of_other_contents_is_refused(
    tmp_path: Path, arrays: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        load_data(save_npz(tmp_path / "a.npz", **arrays))


def test_a_label_column_makes_no_sense_for_an_npz(tmp_path: Path) -> None:
    path = save_npz(tmp_path / "a.npz", X_train=FEATURES, y_train=[0, 1, 0])
    with pytest.raises(InvalidInput, match="leave out --label"):
        load_data(path, label="y")


def test_features_to_predict_come_from_X_then_test_then_train(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {"X_train": FEATURES, "scale": np.array([2.0, 1.0])}
    for name, shift in (("X_train", 0), ("X_test", 1), ("X", 2)):
        arrays[name] = FEATURES + shift
        found = read_features(save_npz(tmp_path / "a.npz", **arrays), 2)
        np.testing.assert_array_equal(found, (FEATURES + shift) * [2, 1])
    with pytest.raises(InvalidInput, match="the arrays y"):
        read_features(save_npz(tmp_path / "b.npz", y=FEATURES), 2)


# npy


@pytest.mark.parametrize(("label", "column"), [(None, 2), ("0", 0), ("1", 1), ("2", 2)])
def test_an_npy_is_a_table_with_a_column_of_labels(
    tmp_path: Path, label: str | None, column: int
) -> None:
    table = np.insert(FEATURES, column, [1, 0, 1], axis=1)
    np.save(tmp_path / "a.npy", table)
    data = load_data(tmp_path / "a.npy", label=label)
    assert features_of(data) == FEATURES.tolist()
    assert labels_of(data) == [1, 0, 1]
    new = read_features(tmp_path / "a.npy", 2, label)
    np.testing.assert_array_equal(new, FEATURES)


def test_new_rows_in_an_npy_need_no_labels(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", FEATURES)
    np.testing.assert_array_equal(read_features(tmp_path / "a.npy", 2, "2"), FEATURES)
    with pytest.raises(InvalidInput, match="the model takes 4 columns"):
        read_features(tmp_path / "a.npy", 4)


def test_new_rows_of_another_shape_are_read_from_arrays(tmp_path: Path) -> None:
    pictures = np.arange(24.0).reshape(3, 2, 2, 2)
    np.save(tmp_path / "a.npy", pictures)
    for path in (tmp_path / "a.npy", save_npz(tmp_path / "a.npz", X=pictures)):
        np.testing.assert_array_equal(read_features(path, (2, 2, 2)), pictures)
        with pytest.raises(InvalidInput, match=r"the model takes rows of shape \(2, 4\)"):
            read_features(path, (2, 4))
        with pytest.raises(InvalidInput, match="the model takes 8 columns"):
            read_features(path, 8)
    with pytest.raises(InvalidInput, match=r"no rows with labels.*rows of shape \(2, 2, 2\), with"):
        load_data(tmp_path / "a.npy")


@pytest.mark.parametrize("label", ["3", "-1", "y", "1.0"])
def test_an_npy_has_numbers_for_columns(tmp_path: Path, label: str) -> None:
    np.save(tmp_path / "a.npy", np.ones((3, 3)))
    with pytest.raises(InvalidInput, match="from 0 to 2"):
        load_data(tmp_path / "a.npy", label=label)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (np.ones(3), r"a\.npy"),
        (np.ones((2, 2, 2)), r"a\.npy"),
        (np.array([[{}]]), r"a\.npy' holds objects of Python"),
    ],
)
def test_an_npy_of_another_shape_is_refused(tmp_path: Path, table: NDArray[Any], why: str) -> None:
    np.save(tmp_path / "a.npy", table)
    with pytest.raises(InvalidInput, match=why):
        load_data(tmp_path / "a.npy")


# csv and parquet


def test_a_csv_has_a_column_of_labels(tmp_path: Path) -> None:
    data = load_data(save_csv(tmp_path / "animals.CSV"), classes="public")
    assert (data.name, data.classes) == ("animals", ("x", "y"))
    assert features_of(data) == FEATURES.tolist()
    assert labels_of(data) == ["x", "y", "x"]


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (["1", "2", "1"], [1, 2, 1]),
        (["001", "002", "001"], [1, 2, 1]),  # digits are numbers
        (["true", "false", "true"], [True, False, True]),
        (["a1", "2", "a1"], ["a1", "2", "a1"]),
        (["NA", "b", "NA"], ["NA", "b", "NA"]),
        (["1.0", "2.0", "1.0"], [1, 2, 1]),
    ],
)
def test_the_kind_of_labels_in_a_csv_is_what_they_look_like(
    tmp_path: Path, written: list[str], found: list[Any]
) -> None:
    lines = [f"{number},{label}" for number, label in enumerate(written)]
    path = save_csv(tmp_path / "a.csv", "\n".join(["a,kind", *lines]))
    data = load_data(path, label="kind", classes="public")
    assert labels_of(data) == found


@pytest.mark.parametrize(
    ("text", "label", "message"),
    [
        (CSV, "kind", "no column of labels 'kind'; found the columns a, label, b"),
        (CSV, "kind", r"with --label \(label= in Python\)"),
        ("a,b\n1,2\n", None, "no column of labels 'label'; found the columns a, b"),
        (CSV, "lable", r"found the columns a, label, b\. Did you mean 'label'\?"),
        ("a;label\n1,5;x\n2,5;y\n", None, "separated by commas"),
        ("a\tlabel\n1\tx\n2\ty\n", None, "separated by commas"),
        (CSV, "a", "  label: .*must be numbers.* found string"),
        ("a,label\n,1\n2,2\n", None, "  a: .*has missing values"),
        ("a,label\n,1\ninf,2\n", None, "  a: has missing values.\n  a: .*infinite or too large"),
        ("a,b,label\n1,,1\n1e39,2,0\n", None, "  a: .*infinite.*\n  b: has missing values"),
        ("a,label\n1,1\n2,\n", None, "the column 'label' .* has missing values"),
        ("a,label\n1,x\n2,\n", None, "labels are missing"),
        ("a,b,label\n1,,1\n2,,0\n", None, "  b: .*has missing values"),
        ("a,a,label\n1,2,1\n2,3,0\n", None, "several columns called a;"),
        ("a,label,label\n1,2,1\n2,3,0\n", None, "several columns called label;"),
        ("a,label\n2020-01-01,1\n2020-01-02,0\n", None, "  a: .*must be numbers"),
        ("label\n1\n0\n", None, "no columns besides 'label'"),
        ("a,label\n", None, "holds no rows"),
        ("\n", None, "cannot be read: Empty CSV file"),
        ("a,label\n1,2\n3\n", None, "Expected 2 columns, got 1"),
        ("a,label\n1,2020-01-01\n3,2020-01-02\n", None, "labels must be whole numbers, text"),
    ],
)
def test_a_csv_that_cannot_be_used_says_why(
    tmp_path: Path, text: str, label: str | None, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        load_data(save_csv(tmp_path / "a.csv", text), label=label)


def test_a_message_about_a_torn_line_does_not_quote_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        load_data(save_csv(tmp_path / "a.csv", "a,label\n1,2\nsecret77\n"))
    assert "secret77" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("label", [None, "0"])
@pytest.mark.parametrize(
    "text", ["5.125,secret77,0\n4.9,3.0,1\n", "secret77,-1e3\nb,2\n", "secret77;5.125\nb;2\n"]
)
def test_a_first_line_of_data_is_noticed_and_not_quoted(
    tmp_path: Path, text: str, label: str | None
) -> None:
    path = save_csv(tmp_path / "a.csv", text)
    for read in (lambda: load_data(path, label=label), lambda: read_features(path, 2, label)):
        with pytest.raises(InvalidInput, match=r"Add a line with names|commas") as caught:
            read()
        assert not any(cell in str(caught.value) for cell in ("secret77", "5.125", "-1e3"))


@pytest.mark.parametrize("text", ["größe,label\n1,x\n2,y\n", "a,label\n1,müde\n2,wach\n"])
@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_text_that_is_not_utf_8_is_refused(tmp_path: Path, text: str, encoding: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode(encoding))
    with pytest.raises(InvalidInput, match="save the file as UTF-8"):
        load_data(path)
    path.write_bytes(text.encode("utf-8-sig"))
    assert load_data(path).count == 2


def test_a_parquet_keeps_types(tmp_path: Path) -> None:
    path = save_parquet(
        tmp_path / "a.parquet",
        a=pa.array([1, 3, 5], pa.int8()),
        label=pa.array(["x", "y", "x"]).dictionary_encode(),
        b=pa.array([2, 4, 6.5], pa.float32()),
    )
    data = load_data(path, classes="public")
    assert data._parts["train"].features.dtype == np.float32
    assert features_of(data) == FEATURES.tolist()
    assert labels_of(data) == ["x", "y", "x"]


def test_booleans_decimals_and_lists_of_numbers_are_features(tmp_path: Path) -> None:
    path = save_parquet(
        tmp_path / "a.parquet",
        flag=[True, False],
        price=pa.array([1, 2]).cast(pa.decimal128(22, 2)),
        vector=[[1.5, 2.5], [3.5, 4.5]],
        fixed=pa.array([[7, 8], [9, 10]], pa.list_(pa.int16(), 2)),
        label=[0, 1],
    )
    assert features_of(load_data(path)) == [[1, 1, 1.5, 2.5, 7, 8], [0, 2, 3.5, 4.5, 9, 10]]


def test_unlike_problems_of_hundreds_of_columns_are_summed_up(tmp_path: Path) -> None:
    pixels = {f"p{n}": ["0"] * n + ["x"] + ["1"] * (784 - n) for n in range(784)}
    path = save_parquet(tmp_path / "a.parquet", **pixels, label=[0, 1] * 392 + [0])
    with pytest.raises(InvalidInput) as refused:
        load_data(path)
    lines = str(refused.value).splitlines()
    assert len(lines) < 25
    assert "p0: must be numbers, or lists of numbers; found string (the first in row 1)" in lines[1]
    assert "(764 in all): each has another problem." in lines[-1]


def test_the_index_of_a_pandas_frame_is_no_feature(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "label": [0, 1, 0]}, index=[9, 4, 7])
    frame.to_parquet(tmp_path / "a.parquet")
    assert parquet.read_schema(tmp_path / "a.parquet").names[-1] == "__index_level_0__"
    assert features_of(load_data(tmp_path / "a.parquet")) == [[1.0], [2.0], [3.0]]


def test_a_folder_called_like_a_partition_adds_no_column(tmp_path: Path) -> None:
    (tmp_path / "year=2020").mkdir()
    path = save_parquet(tmp_path / "year=2020" / "a.parquet", a=[1, 2], label=[0, 1])
    assert load_data(path).columns == 1


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": ["u", "v"], "label": [0, 1]}, r"  a: .*found string\."),
        ({"a": ["1", "2"], "label": [0, 1]}, r"  a: .*found string\."),
        ({"a": ["1", "v"], "label": [0, 1]}, r"  a: .*found string \(the first in row 2\)\."),
        ({"a": [1, None], "label": [0, 1]}, "  a: .*missing values"),
        ({"a": [1, 2], "label": ["x", None]}, "the column 'label' .* missing values"),
        ({"a": [[1.0], [1.0, 2.0]], "label": [0, 1]}, "  a: .*different lengths"),
        ({"a": [[1.0], None], "label": [0, 1]}, "  a: .*missing values"),
        ({"a": [[1.0], [None]], "label": [0, 1]}, "  a: .*missing values"),
        ({"a": [["u"], ["v"]], "label": [0, 1]}, "  a: .*found string"),
        ({"a": [[[1.0]], [[2.0]]], "label": [0, 1]}, "  a: .*found list"),
        ({"a": [1.0, float("nan")], "label": [0, 1]}, "not finite"),
    ],
)
def test_a_parquet_that_cannot_be_used_names_the_column(
    tmp_path: Path, columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        load_data(save_parquet(tmp_path / "a.parquet", **columns))


def test_columns_of_the_same_name_in_a_parquet_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1, 2])] * 3, names=["a", "a", "label"])
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InvalidInput, match="several columns called a;"):
        load_data(tmp_path / "a.parquet")


def test_new_rows_may_come_with_or_without_labels(tmp_path: Path) -> None:
    plain = save_csv(tmp_path / "plain.csv", "a,b\n1,2\n3,4\n5,6.5\n")
    blank = save_csv(tmp_path / "blank.csv", "a,label,b\n1,,2\n3,,4\n5,,6.5\n")
    named = save_csv(tmp_path / "named.csv", CSV.replace("label", "kind"))
    for path, label in ((plain, None), (plain, "kind"), (blank, None), (named, "kind")):
        np.testing.assert_array_equal(read_features(path, 2, label), FEATURES)
    with pytest.raises(InvalidInput, match=r"shape \(3, 2\), the model takes 3 columns; found the"):
        read_features(plain, 3)
    with pytest.raises(InvalidInput, match="  kind: must be numbers"):
        read_features(named, 2)
    with pytest.raises(InvalidInput, match="columns"):
        read_features(plain, 0)


def test_columns_of_new_rows_are_found_by_name(tmp_path: Path) -> None:
    data = load_data(save_csv(tmp_path / "a.csv"))
    assert data.column_names == ("a", "b")
    turned = save_csv(tmp_path / "b.csv", "b,label,a\n2,x,1\n4,y,3\n6.5,x,5\n")
    np.testing.assert_array_equal(read_features(turned, data.column_names), FEATURES)
    np.testing.assert_array_equal(read_features(turned, 2), FEATURES[:, ::-1])
    for text, message in (
        ("a,label\n1,x\n", r"b\.csv' lacks the columns b; .* trained on: a, b\."),
        ("a,c,label\n1,2,x\n", "lacks the columns b and has besides the columns c;"),
        ("a,b,c\n1,2,3\n", "b.csv' has besides the columns c;"),
    ):
        with pytest.raises(InvalidInput, match=message):
            read_features(save_csv(turned, text), data.column_names)
    np.save(tmp_path / "c.npy", FEATURES)  # without names, only the number of columns is checked
    np.testing.assert_array_equal(read_features(tmp_path / "c.npy", ("a", "b")), FEATURES)
    with pytest.raises(InvalidInput, match="the model takes 4 columns"):
        read_features(tmp_path / "c.npy", tuple("abcd"))


def test_every_number_of_a_list_has_a_name(tmp_path: Path) -> None:
    path = save_parquet(tmp_path / "a.parquet", v=[[1, 2], [3, 4]], a=[5, 6], label=[0, 1])
    assert load_data(path).column_names == ("v[0]", "v[1]", "a")
    turned = save_folder(tmp_path / "d", a=[5, 6], v=[[1, 2], [3, 4]])
    found = read_features(turned, ("v[0]", "v[1]", "a"))
    np.testing.assert_array_equal(found, [[1, 2, 5], [3, 4, 6]])


# Saved folders and the hub


def test_a_saved_dataset_is_read_in_the_order_of_its_columns(tmp_path: Path) -> None:
    folder = save_folder(
        tmp_path / "saved", a=[1, 2], vector=[[3.0, 4.0], [5.0, 6.0]], label=["u", "v"], b=[7, 8]
    )
    data = load_data(folder, classes="public")
    assert (data.name, data.classes) == ("saved", ("u", "v"))
    assert features_of(data) == [[1, 3, 4, 7], [2, 5, 6, 8]]
    np.testing.assert_array_equal(read_features(folder, 4), [[1, 3, 4, 7], [2, 5, 6, 8]])


def test_a_saved_dataset_with_splits_brings_test_rows_if_asked(tmp_path: Path) -> None:
    train = datasets.Dataset.from_dict({"x": [[1.0], [2.0], [3.0]], "kind": [0, 1, 0]})
    test = datasets.Dataset.from_dict({"x": [[4.0]], "kind": [1]})
    datasets.DatasetDict(train=train.select([2, 0, 1]), test=test).save_to_disk(tmp_path / "d")
    data = load_data(tmp_path / "d", label="kind")
    assert (features_of(data), labels_of(data)) == ([[3.0], [1.0], [2.0]], [0, 0, 1])
    assert data.unused_test_rows and not data.has_test_rows
    data = load_data(tmp_path / "d", label="kind", test=str(tmp_path / "d"))
    assert the_test_rows(data) == ([[4.0]], [1])
    np.testing.assert_array_equal(read_features(tmp_path / "d", 1, "kind"), [[4.0]])


def test_labels_with_names_become_their_names(tmp_path: Path) -> None:
    kinds = datasets.Features(
        x=datasets.Value("float32"), label=datasets.ClassLabel(names=["dog", "cat"])
    )
    data = load_data(save_folder(tmp_path / "d", kinds, x=[1.0, 2.0, 3.0], label=[0, 1, 0]))
    assert (data.classes, labels_of(data)) == (("dog", "cat"), ["dog", "cat", "dog"])


def test_a_folder_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is a folder, but not one that save_to_disk"):
        load_data(tmp_path)
    text = save_folder(tmp_path / "text", text=["u", "v"], label=[0, 1])
    with pytest.raises(InvalidInput, match=r"  text: .*found string"):
        load_data(text)
    with pytest.raises(InvalidInput, match="no column of labels 'y'; found the splits train of"):
        load_data(text, label="y")
    split = datasets.Dataset.from_dict({"x": [1.0], "label": [1]})
    datasets.DatasetDict(validation=split).save_to_disk(tmp_path / "other")
    with pytest.raises(InvalidInput, match="found the splits validation of the columns x, label"):
        load_data(tmp_path / "other")
    (arrow,) = (tmp_path / "text").glob("*.arrow")
    arrow.write_bytes(b"torn")
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_data(text)


def test_without_the_package_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = save_folder(tmp_path / "saved", x=[1.0, 2.0], label=[0, 1])
    monkeypatch.setitem(sys.modules, "datasets", None)
    for source in (saved, "hub:owner/name"):
        with pytest.raises(MissingExtra, match=r"pip install 'dptune\[hub\]'"):
            load_data(source)


def test_the_hub_is_asked_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    train = datasets.Dataset.from_dict({"x": [1.0, 2.0], "label": [0, 1]})
    asked: list[str] = []

    def load(name: str, config: str | None) -> datasets.DatasetDict:
        asked.append(name)
        return datasets.DatasetDict(train=train)

    monkeypatch.setattr(datasets, "load_dataset", load)
    data = load_data("hub:owner/name")
    assert asked == ["owner/name"]
    assert (data.name, features_of(data)) == ("owner/name", [[1.0], [2.0]])
    assert data.fingerprint == fingerprint_arrays(np.array([[1.0], [2.0]]), np.array([0, 1]))


def test_offline_the_hub_gives_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str, config: str | None) -> Any:
        raise ConnectionError("Couldn't reach the Hub.\nmore")

    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(InvalidInput, match=r"Couldn't reach the Hub\. Check the name") as caught:
        load_data("hub:owner/name")
    assert "more" not in str(caught.value) and caught.value.__suppress_context__


# Fingerprints


def test_the_fingerprint_of_a_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    path = save_csv(tmp_path / "a.csv")
    assert load_data(path).fingerprint == fingerprint_file(path)


def test_the_fingerprint_of_a_folder_follows_its_contents(tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "d", x=[1.0, 2.0], label=[0, 1])
    first = load_data(folder).fingerprint
    assert first == fingerprint_folder(folder) == load_data(folder).fingerprint
    (folder / "cache-123.arrow").write_bytes(b"scratch")
    assert fingerprint_folder(folder) == first
    moved = folder.rename(tmp_path / "moved")
    assert fingerprint_folder(moved) == first
    with (moved / "state.json").open("a") as file:
        file.write(" ")
    assert fingerprint_folder(moved) != first
    with pytest.raises(InvalidInput, match="no folder with files"):
        fingerprint_folder(tmp_path / "absent")


def test_the_order_of_files_on_disk_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / f"{number}.arrow" for number in range(3)]
    for path in files:
        path.write_text(path.name)
    found = set()
    for order in (files, files[::-1]):
        monkeypatch.setattr(Path, "rglob", lambda *_, order=order: iter(order))
        found.add(fingerprint_folder(tmp_path))
    assert len(found) == 1


# Test and public rows from sources of their own


def test_test_and_public_rows_come_from_other_sources(tmp_path: Path) -> None:
    source = save_csv(tmp_path / "train.csv")
    test = save_csv(tmp_path / "test.csv", "a,label,b\n7,y,8\n")
    public = save_npz(
        tmp_path / "public.npz",
        X_train=[[1.0, 1.0]],
        y_train=[0],
        X_test=[[9.0, 9.0]],
        y_test=[1],
        classes=["y", "x"],
    )
    data = load_data(source, test=test, public=public, classes="public")
    assert the_test_rows(data) == ([[7.0, 8.0]], ["y"])
    rows = data.public_rows(AS_GIVEN)
    assert rows is not None
    assert (rows.features[:, 0].tolist(), rows.targets.tolist()) == ([[1.0, 1.0]], [1])
    data = load_data(source, test=public, classes="public")
    assert the_test_rows(data) == ([[9.0, 9.0]], ["x"])


def test_a_test_source_goes_before_a_file_s_own_test_rows(tmp_path: Path) -> None:
    arrays = {"X_train": FEATURES, "y_train": [0, 1, 0], "y_test": [0, 1, 0]}
    source = save_npz(tmp_path / "a.npz", X_test=FEATURES + 7, **arrays)
    other = save_npz(tmp_path / "b.npz", X_test=FEATURES + 1, **arrays)
    data = load_data(source, test=other)
    assert the_test_rows(data)[0] == (FEATURES + 1).tolist() and not data.unused_test_rows


def test_a_file_s_own_test_rows_are_used_only_if_asked_for(tmp_path: Path) -> None:
    arrays = {"X_train": FEATURES, "y_train": [0, 1, 0], "X_test": -FEATURES}
    source = save_npz(tmp_path / "a.npz", y_test=[1, 1, 0], **arrays)
    unasked = load_data(source)
    assert unasked.unused_test_rows and not unasked.has_test_rows
    asked = load_data(source, test=source)
    assert the_test_rows(asked) == ((-FEATURES).tolist(), [1, 1, 0])
    assert not asked.unused_test_rows
    assert not load_data("demo").unused_test_rows
    with pytest.raises(InvalidInput, match="scores on it would leak it"):
        load_data(source, public=source)
    unlabelled = save_npz(tmp_path / "b.npz", **arrays)
    with pytest.raises(InvalidInput, match="no labels y_test"):
        load_data(unlabelled, test=unlabelled)


@pytest.mark.parametrize("ending", ["csv", "npz", "parquet"])
@pytest.mark.parametrize("which", ["test", "public"])
def test_a_file_of_private_rows_in_another_form_is_refused(
    tmp_path: Path, which: str, ending: str
) -> None:
    rows = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    turned, labels = rows[::-1], np.arange(60) % 2
    source = save_parquet(tmp_path / "p.parquet", a=rows[:, 0], b=rows[:, 1], label=labels)
    other = tmp_path / f"o.{ending}"
    if ending == "csv":
        pd.DataFrame(turned, columns=["a", "b"]).assign(label=labels).to_csv(other, index=False)
    elif ending == "npz":
        save_npz(other, X_train=turned, y_train=labels)
    else:
        save_parquet(other, a=turned[:, 0], b=turned[:, 1], label=labels)
    with pytest.raises(InvalidInput, match=f"some {which} rows are private rows"):
        load_data(source, **{which: other})  # type: ignore[arg-type]


def test_test_rows_in_the_private_file_are_compared_too(tmp_path: Path) -> None:
    rows, labels = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    arrays = {"X_train": rows, "y_train": labels, "X_test": rows[20:40], "y_test": labels[20:40]}
    path = save_npz(tmp_path / "a.npz", **arrays)
    with pytest.raises(InvalidInput, match="some test rows are private rows"):
        load_data(path, test=path)


@pytest.mark.parametrize("which", ["test", "public"])
def test_the_private_file_itself_cannot_be_test_or_public(tmp_path: Path, which: str) -> None:
    source = save_csv(tmp_path / "a.csv")
    copied = save_csv(tmp_path / "b.csv")
    for other in (source, copied):
        with pytest.raises(InvalidInput, match="the private data itself"):
            load_data(source, **{which: other})  # type: ignore[arg-type]


def test_other_rows_need_the_same_columns_in_the_same_order(tmp_path: Path) -> None:
    source = save_csv(tmp_path / "a.csv")
    turned = save_csv(tmp_path / "b.csv", "b,label,a\n7,y,8\n")
    with pytest.raises(
        InvalidInput, match="test rows have the columns b, a, the private ones a, b"
    ):
        load_data(source, test=turned)
    with pytest.raises(InvalidInput, match="no column of labels 'label'"):
        load_data(source, public=save_csv(tmp_path / "c.csv", "a,b\n1,2\n"))


def test_facts_are_handed_on(tmp_path: Path) -> None:
    path = save_csv(tmp_path / "a.csv", "a,label\n1,2.5\n2,5\n")
    data = load_data(path, task="values", target_range=(0, 10), rows=7)
    assert (data.target_range, data.count, data.loss) == ((0.0, 10.0), 7, "squared")


# Files that are none


@pytest.mark.parametrize("ending", ["npz", "npy", "csv", "parquet"])
def test_missing_empty_and_damaged_files_are_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    for read in (load_data, lambda source: read_features(source, 2)):
        path.unlink(missing_ok=True)
        with pytest.raises(InvalidInput, match=r"no file or folder .*'demo' for the bundled"):
            read(path)
        path.write_bytes(b"")
        with pytest.raises(InvalidInput, match="is empty"):
            read(path)
        path.write_bytes(b"\x93NUMPY\xff\x00 not, a\nfile\xff" * 50)
        with pytest.raises(InvalidInput, match=r"a\."):
            read(path)


def test_torn_files_are_refused(tmp_path: Path) -> None:
    arrays = {"X_train": np.random.default_rng(0).normal(size=(50, 4)), "y_train": np.arange(50)}
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    np.save(tmp_path / "a.npy", arrays["X_train"])
    save_parquet(tmp_path / "a.parquet", a=np.arange(500), label=np.arange(500))
    for path in list(tmp_path.iterdir()):
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(InvalidInput, match="cannot be read"):
            load_data(path)
        middle = bytearray(whole)
        middle[len(whole) // 4 : len(whole) // 2] = b"\xff" * (len(whole) // 2 - len(whole) // 4)
        path.write_bytes(bytes(middle))
        with pytest.raises(InvalidInput):
            load_data(path)


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(13, "this reason"),
        EOFError("this reason"),
        MemoryError("this reason"),
        NotImplementedError("this reason"),
        RuntimeError("this reason"),
        zipfile.BadZipFile("this reason"),
        zlib.error("this reason"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_stops_the_reading_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    path = save_npz(tmp_path / "a.npz", X_train=FEATURES, y_train=[0, 1, 0])

    def failing(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(np, "load", failing)
    with pytest.raises(InvalidInput, match="cannot be read: this reason"):
        load_data(path)


def test_a_member_of_an_npz_that_is_no_array_is_refused(tmp_path: Path) -> None:
    path = save_npz(tmp_path / "a.npz", y_train=[0, 1, 0])
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("X_train", b"text")
    with pytest.raises(InvalidInput, match="no arrays"):
        load_data(path)


@pytest.mark.parametrize("name", ["a.txt", "a", "a.npz.gz"])
def test_other_endings_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("x")
    with pytest.raises(InvalidInput, match=r"\.npz, \.npy, \.csv, \.csv\.gz, \.parquet"):
        load_data(tmp_path / name)


@pytest.mark.parametrize("read", [load_data, columns_section, partial(read_texts, columns="body")])
def test_a_spreadsheet_is_refused_with_how_to_save_it(
    tmp_path: Path, read: Callable[[str], object]
) -> None:
    (tmp_path / "Rows.XLSX").write_bytes(b"PK")
    with pytest.raises(InvalidInput, match=r'is a spreadsheet, .* Save the sheet as "CSV UTF-8"'):
        read(str(tmp_path / "Rows.XLSX"))


def test_a_source_must_be_a_path_or_a_name() -> None:
    with pytest.raises(InvalidInput, match="a source is a path"):
        load_data(FEATURES)  # type: ignore[arg-type]


def test_a_path_called_demo_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_folder(tmp_path / "demo", x=[1.0, 2.0], label=[0, 1])
    monkeypatch.chdir(tmp_path)
    assert load_data(Path("demo")).count == 2
    assert load_data("demo").count == 50_000


def test_a_file_that_may_not_be_read_is_not_called_damaged() -> None:
    with (
        pytest.raises(InvalidInput, match=r"Permission denied\. Ask its owner"),
        reading(Path("x")),
    ):
        raise PermissionError(errno.EACCES, "Permission denied")
