"""Frames of other packages as tables, and what their types say of their columns."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal

from dptune.columns import (
    Boolean,
    Category,
    Columns,
    Date,
    Drop,
    Encoding,
    Number,
    as_table,
    code,
    guess,
)
from dptune.errors import InvalidInput

VALUES: dict[str, list[Any]] = {
    "age": [31, None, 64],
    "color": ["E", None, "Q"],
    "since": [date(2020, 1, 1), None, date(2020, 12, 31)],
    "smoker": [True, None, False],
}
COLUMNS = Columns.of(
    {
        "age": {"kind": "number", "range": [0, 100], "indicator": True},
        "color": {"kind": "category", "values": ["D", "E"], "indicator": True},
        "since": {
            "kind": "date",
            "range": ["2020-01-01", "2021-01-01"],
            "parts": ["weekday"],
            "indicator": True,
        },
        "smoker": {"kind": "boolean", "indicator": True},
    }
)


def _pandas() -> Any:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(VALUES, index=[7, 5, 6])
    frame["since"] = pandas.to_datetime(frame["since"]).dt.tz_localize("UTC")
    frame["color"] = pandas.Categorical(frame["color"], categories=["Q", "E", "unused"])
    return frame


def _polars() -> Any:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(VALUES)
    return frame.with_columns(color=polars.col("color").cast(polars.Enum(["Q", "E"])))


def _batch() -> Any:
    return pa.RecordBatch.from_pydict(VALUES)


def _chunks() -> Any:
    return {name: pa.chunked_array([values[:1], values[1:]]) for name, values in VALUES.items()}


def _arrays() -> Any:
    return {
        "age": np.array([31, np.nan, 64]),
        "color": np.array(["E", "NA", "Q"]),
        "since": [datetime(2020, 1, 1, tzinfo=UTC), None, datetime(2020, 12, 31, tzinfo=UTC)],
        "smoker": np.array([True, None, False], dtype=object),
    }


@pytest.mark.parametrize("frame", [_pandas, _polars, _batch, _chunks, _arrays])
def test_a_row_is_the_same_in_every_frame(frame: Any) -> None:
    encoding = Encoding(COLUMNS)
    texts = pa.table(
        {name: [None if one is None else str(one) for one in VALUES[name]] for name in VALUES}
    )
    expected = encoding.apply(encoding.code(texts, where="it"))
    found = encoding.apply(encoding.code(as_table(frame()), where="it"))
    assert_array_equal(found, expected)


def test_a_table_is_taken_as_it_is() -> None:
    table = pa.table(VALUES)
    assert as_table(table) is table


@pytest.mark.parametrize("other", [None, "data.csv", [[1, 2]], np.zeros((2, 2)), 5, object()])
def test_as_table_returns_none_for_other_objects(other: Any) -> None:
    assert as_table(other) is None


def test_a_series_is_no_frame() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    assert as_table(pandas.Series([1])) is None
    assert as_table(polars.Series([1])) is None


def test_numbers_as_names_become_texts() -> None:
    pandas = pytest.importorskip("pandas")
    assert as_table(pandas.DataFrame(np.zeros((2, 2)))).column_names == ["0", "1"]


def test_names_that_are_there_twice_stay_so() -> None:
    pandas = pytest.importorskip("pandas")
    assert as_table(pandas.DataFrame([[1, 2]], columns=["a", "a"])).column_names == ["a", "a"]


def test_columns_of_several_types_are_named_without_their_values() -> None:
    pandas = pytest.importorskip("pandas")
    mixed = {"good": [1, 2], "bad": [1, "secret"], "worse": [b"secret", 2.5]}
    for frame in (mixed, pandas.DataFrame(mixed)):
        with pytest.raises(InvalidInput) as refusal:
            as_table(frame)
        assert "bad, worse: " in str(refusal.value)
        assert "secret" not in str(refusal.value) and "good" not in str(refusal.value)


@pytest.mark.parametrize("kind", ["number", "boolean", {"kind": "category", "values": "paid"}])
def test_frame_of_objects_is_refused_by_column(kind: Any) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": polars.Series([object(), "secret"], dtype=polars.Object)})
    with pytest.raises(InvalidInput, match="a: has the type"):
        code(as_table(frame), Columns.of({"a": kind}), where="it")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"a": [1, 2], "b": [1]}, "must all have the same length"),
        ({"a": 5}, "a: must hold one value per row"),
        ({"a": "text"}, "a: must hold one value per row"),
        ({"a": {"b": 1}}, "a: must hold one value per row"),
        ({"a": np.zeros((2, 2))}, "a: must hold one value per row"),
    ],
)
def test_malformed_columns_are_refused(columns: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        as_table(columns)


SCHEMA = pa.schema(
    {
        "whole": pa.int32(),
        "broken": pa.float64(),
        "exact": pa.decimal128(10, 2),
        "flag": pa.bool_(),
        "day": pa.date32(),
        "moment": pa.timestamp("us", "UTC"),
        "word": pa.string(),
        "large": pa.large_string(),
        "listed": pa.dictionary(pa.int8(), pa.string()),
        "vector": pa.list_(pa.float32()),
        "bytes": pa.binary(),
        "none": pa.null(),
        "y": pa.string(),
    }
)


def test_types_say_the_kind_of_every_column_but_the_label() -> None:
    paid = Category(values="paid")
    assert guess(SCHEMA, "y").declared == {
        **dict.fromkeys(["whole", "broken", "exact"], Number()),
        "flag": Boolean(),
        **dict.fromkeys(["day", "moment"], Date()),
        **dict.fromkeys(["word", "large", "listed"], paid),
        **dict.fromkeys(["vector", "bytes", "none"], Drop()),
    }
    assert "y" in guess(SCHEMA).names


def test_categories_that_a_type_lists_are_used_whether_rows_have_them_or_not() -> None:
    for frame in (_pandas(), _polars()):
        column = guess(as_table(frame)).declared["color"]
        assert isinstance(column, Category) and isinstance(column.values, tuple)
        assert column.values[:2] == ("Q", "E")


def test_polars_categories_from_rows_are_not_used() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": polars.Series(["x", "y"], dtype=polars.Categorical)})
    assert guess(as_table(frame)).declared["a"] == Category(values="paid")


def test_listed_categories_are_named_as_rows_name_them() -> None:
    column = pa.DictionaryArray.from_arrays([0], pa.array([2.0, 1.5, None]))
    assert guess(pa.table({"a": column})).declared["a"] == Category(values=("2", "1.5"))


def test_more_categories_than_can_be_declared_are_not_used() -> None:
    column = pa.DictionaryArray.from_arrays([0], pa.array([str(one) for one in range(10_001)]))
    assert guess(pa.table({"a": column})).declared["a"] == Category(values="paid")


def test_values_of_a_guess_fit_the_table_it_is_made_from() -> None:
    table = pa.table({"a": [1, 2], "b": [Decimal("1.5"), Decimal("2.5")], "c": ["x", "y"]})
    coded = code(table, guess(table), where="it")
    assert coded.rows.tolist() == [[1, 1.5, 0], [2, 2.5, 1]]
