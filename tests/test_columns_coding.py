"""From tables to codes: every row by itself, in any type; problems all at once, without a value."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from dptune.columns import Coder, Columns, code
from dptune.errors import InvalidInput

NAN = float("nan")
SECRET = "x7secret"
NUMBER = {"kind": "number", "range": [0, 10], "indicator": True}
BOOLEAN = {"kind": "boolean", "indicator": True}
DATE = {"kind": "date", "range": ["2010-01-01", "2025-12-31"], "indicator": True}
PAID = {"kind": "category", "values": "paid"}


def _codes(values: Any, entry: Any, **options: Any) -> list[float]:
    column = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    coded = code(pa.table({"a": column}), Columns.of({"a": entry}), where="it", **options)
    assert coded.rows.dtype == np.float32
    found: list[float] = coded.rows[:, 0].tolist()
    return found


@pytest.mark.parametrize(
    "values",
    [
        ["1", "2.5", None],
        [" 1", "25e-1 ", "NA"],
        ["1.0", "+2.5", ""],
        [1.0, 2.5, NAN],
        pa.array([1.0, 2.5, None], pa.float32()),
        pa.array([1.0, 2.5, None], pa.float16()),
        [Decimal("1.0"), Decimal("2.5"), None],
        pa.array(["1", "2.5", None]).dictionary_encode(),
        pa.array(["1", "2.5", None], pa.string_view()),
        pa.chunked_array([["1"], ["2.5", "n/a"]]),
    ],
)
def test_number_has_one_code_in_every_arrow_type(values: Any) -> None:
    assert_array_equal(_codes(values, NUMBER), [1, 2.5, NAN])


def test_integers_and_booleans_are_read_as_numbers() -> None:
    assert _codes([3, 0], NUMBER) == [3, 0]
    assert _codes([True, False], NUMBER) == [1, 0]


@pytest.mark.parametrize("gap", ["", " ", "NA", "na", "NaN", "nan", "null", "NULL", "N/A", "#N/A"])
@pytest.mark.parametrize("entry", [NUMBER, BOOLEAN, DATE, PAID])
def test_missing_values_are_read_in_every_spelling(gap: str, entry: Any) -> None:
    assert np.isnan(_codes([gap], entry)).all()


def test_column_of_missing_values_alone_is_read() -> None:
    for entry in (NUMBER, BOOLEAN, DATE, PAID):
        assert np.isnan(_codes(pa.nulls(3), entry)).all()


@pytest.mark.parametrize(
    "values",
    [
        ["true", "False", None],
        ["T", "f", "NA"],
        ["Yes", "NO", ""],
        ["y", "n", " "],
        ["1", "0", "nan"],
        [True, False, None],
        [1, 0, None],
        [1.0, 0.0, NAN],
    ],
)
def test_boolean_has_one_code_in_every_spelling(values: Any) -> None:
    assert_array_equal(_codes(values, BOOLEAN), [1, 0, NAN])


def _hours(moment: datetime) -> float:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(hours=1)


@pytest.mark.parametrize(
    "values",
    [
        ["2020-03-01T17:00:00", None],
        ["2020-03-01 17:59", "NA"],
        ["2020-03-01T17:30:00Z", ""],
        [" 2020-03-01T19:30:00.123456+02:00", "nat"],
        ["2020-03-01T12:30:00-0500", None],
        [datetime(2020, 3, 1, 17, 59, 59), None],
        [datetime(2020, 3, 1, 19, 59, tzinfo=timezone(timedelta(hours=2))), None],
        pa.array([datetime(2020, 3, 1, 17), None], pa.timestamp("s")),
        pa.array([datetime(2020, 3, 1, 17), None], pa.timestamp("ns", "Europe/Berlin")),
    ],
)
def test_date_has_one_code_in_every_arrow_type(values: Any) -> None:
    assert_array_equal(_codes(values, DATE), [_hours(datetime(2020, 3, 1, 17, tzinfo=UTC)), NAN])


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64(), pa.string()])
def test_a_day_begins_at_midnight(kind: Any) -> None:
    days = pa.array([date(2020, 3, 1), date(1969, 12, 31)]).cast(kind)
    assert _codes(days, DATE) == [_hours(datetime(2020, 3, 1, tzinfo=UTC)), -24]


def test_dates_with_and_without_a_zone_may_stand_in_one_column() -> None:
    found = _codes(["1970-01-01", "1970-01-01T03:00:00+02:00", "1969-12-31 23:59:59.9"], DATE)
    assert found == [0, 1, -1]


@given(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)))
def test_any_moment_is_the_same_as_text_and_as_timestamp(moment: datetime) -> None:
    hour = _hours(moment.replace(tzinfo=UTC))
    assert _codes([moment.isoformat()], DATE) == [hour]
    assert _codes(pa.array([moment], pa.timestamp("us")), DATE) == [hour]


COLORS = {"kind": "category", "values": ["D", "E", 1, 2.5, "NA"]}


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        (["E", " D", "Z", None, "", "NA", "1", "1.0", "2.50"], [1, 0, 5, NAN, NAN, 4, 2, 2, 5]),
        ([1, 2, None], [2, 5, NAN]),
        ([1.0, 2.5, NAN], [2, 3, NAN]),
        (pa.array([1.0, 2.5], pa.float32()), [2, 3]),
        ([Decimal("1.00"), Decimal("2.50")], [2, 3]),
        (pa.array(["Z", "D"]).dictionary_encode(), [5, 0]),
    ],
)
def test_category_code_is_index_of_value(values: Any, codes: list[float]) -> None:
    assert_array_equal(_codes(values, COLORS), codes)


@given(st.one_of(st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False)))
def test_declared_value_matches_number_in_rows(value: float) -> None:
    entry = {"kind": "category", "values": [value]}
    assert _codes(pa.array([float(value)]), entry) == [0]
    if isinstance(value, int):
        assert _codes(pa.array([value]), entry) == [0]


def test_booleans_are_read_as_category_values() -> None:
    assert _codes([True, False], {"kind": "category", "values": [False, True]}) == [1, 0]


def test_bucket_of_value_is_public_and_fixed() -> None:
    found = _codes(["a", "b", "a", None, " a"], {"kind": "category", "buckets": 1000})
    # Written down, so that the buckets of older models cannot change unseen.
    assert_array_equal(found, [343, 333, 343, NAN, 343])


def test_private_vocabulary_is_numbered_by_first_use() -> None:
    table = pa.table({"a": ["x", None, "y", "x", "z"]})
    coded = code(table, Columns.of({"a": PAID}), where="it")
    assert_array_equal(coded.rows[:, 0], [0, NAN, 1, 0, 2])
    assert coded.vocabularies == {"a": ("x", "y", "z")}


def test_vocabulary_holds_only_values_of_rows() -> None:
    column = pa.DictionaryArray.from_arrays([2, 0], ["z", "never", "x"])
    assert code(pa.table({"a": column}), Columns.of({"a": PAID}), where="it").vocabularies == {
        "a": ("x", "z")
    }


def test_given_vocabulary_does_not_grow() -> None:
    coded = code(
        pa.table({"a": ["new", "x", None]}),
        Columns.of({"a": PAID}),
        where="it",
        vocabularies={"a": ("w", "x")},
    )
    assert_array_equal(coded.rows[:, 0], [-1, 1, NAN])
    assert coded.vocabularies == {"a": ("w", "x")}


def test_vocabularies_and_rows_are_not_shown() -> None:
    coded = code(pa.table({"a": [SECRET]}), Columns.of({"a": PAID}), where="it")
    assert SECRET not in repr(coded)


MIXED = Columns.of(
    {
        "n": NUMBER,
        "b": BOOLEAN,
        "d": DATE,
        "c": {"kind": "category", "values": ["u", "v"]},
        "h": {"kind": "category", "buckets": 7},
        "p": PAID,
    }
)
GAP = st.sampled_from(["", "NA"])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "n": GAP | st.floats(-20, 20, width=32).map(str),
            "b": GAP | st.sampled_from(["yes", "F", "1"]),
            "d": GAP | st.dates(date(1950, 1, 1), date(2050, 1, 1)).map(str),
            "c": GAP | st.sampled_from(["u", "v", "w"]),
            "h": GAP | st.text("abc", min_size=1),
            "p": GAP | st.text("abc", min_size=1),
        }
    ),
    min_size=1,
    max_size=12,
)


def _table(rows: list[dict[str, str]]) -> Any:
    kinds = pa.schema([(name, pa.string()) for name in MIXED.names])
    return pa.Table.from_pylist(rows, kinds)


@settings(max_examples=30)
@given(ROWS, st.integers(1, 5))
def test_coding_in_batches_equals_coding_at_once(rows: list[dict[str, str]], size: int) -> None:
    whole = code(_table(rows), MIXED, where="it")
    coder = Coder(MIXED, where="it")
    batches = _table(rows).combine_chunks().to_batches(max_chunksize=size)
    parts = [coder.add(batch) for batch in batches]
    assert coder.finish() == whole.vocabularies
    assert_array_equal(np.concatenate(parts), whole.rows)


@settings(max_examples=30)
@given(ROWS)
def test_the_codes_of_a_row_are_those_it_has_alone(rows: list[dict[str, str]]) -> None:
    whole = code(_table(rows), MIXED, where="it")
    for number, row in enumerate(rows):
        alone = code(_table([row]), MIXED, where="it", vocabularies=whole.vocabularies)
        assert_array_equal(alone.rows[0], whole.rows[number])


def test_the_order_of_a_files_columns_does_not_matter() -> None:
    columns = Columns.of({"a": "number", "b": "number"})
    assert code(pa.table({"b": [2], "a": [1]}), columns, where="it").rows.tolist() == [[1, 2]]


def test_a_dropped_column_may_be_there_or_not_and_hold_anything() -> None:
    columns = Columns.of({"a": "number", "id": "drop"})
    for table in (pa.table({"a": [1], "id": [[SECRET]]}), pa.table({"a": [1]})):
        assert code(table, columns, where="it").rows.tolist() == [[1]]


def test_infinite_number_is_kept_if_range_clips_it() -> None:
    for entry in ({"kind": "number", "range": [0, 1]}, {"kind": "number", "range": "paid"}):
        assert _codes([1e300, -np.inf], entry) == [np.inf, -np.inf]


WRONG: dict[str, tuple[Any, Any, str]] = {
    "words for numbers": (NUMBER, ["1", SECRET], "texts that are not numbers"),
    "decimal commas": (NUMBER, ["1,5", SECRET], "texts that are not numbers"),
    "dates for numbers": (NUMBER, [date(2020, 1, 1)], "cannot be a number"),
    "lists for numbers": (NUMBER, [[1.0]], "cannot be a number"),
    "gaps in numbers": ("number", [1, None], "has missing values"),
    "gaps in texts": ("number", ["1", "NA"], "has missing values"),
    "infinite": ("number", [np.inf], "infinite or too large"),
    "too large": ("number", [1e39], "infinite or too large"),
    "words for booleans": (BOOLEAN, ["yes", SECRET], "values other than true and false"),
    "numbers for booleans": (BOOLEAN, [0, 1, 2], "values other than true and false"),
    "dates for booleans": (BOOLEAN, [date(2020, 1, 1)], "cannot be a boolean"),
    "gaps in booleans": ("boolean", [True, None], "has missing values"),
    "words for dates": (DATE, ["2020-01-01", SECRET], "texts that are not dates"),
    "days first": (DATE, ["31.12.2020"], "texts that are not dates"),
    "months first": (DATE, ["12/31/2020"], "texts that are not dates"),
    "no such day": (DATE, ["2020-02-30"], "texts that are not dates"),
    "numbers for dates": (DATE, [20200101], "cannot be a date"),
    "gaps in dates": (
        {"kind": "date", "range": ["2020-01-01", "2021-01-01"]},
        ["2020-02-03", None],
        "has missing values",
    ),
    "records for categories": (COLORS, [{SECRET: 1}], "cannot be a category"),
    "bytes for categories": (COLORS, [SECRET.encode()], "cannot be a category"),
    "lists for categories": (PAID, [[SECRET]], "cannot be a category"),
}


@pytest.mark.parametrize("case", WRONG)
def test_misfit_error_names_column_and_hides_value(case: str) -> None:
    entry, values, words = WRONG[case]
    with pytest.raises(InvalidInput) as refusal:
        code(pa.table({"it": pa.array(values)}), Columns.of({"it": entry}), where="'f.csv'")
    first, line = str(refusal.value).split("\n")
    assert "'f.csv'" in first
    assert line.startswith("  it: ") and words in line
    assert SECRET not in line


def test_all_problems_of_file_are_reported_together() -> None:
    longest = max(len(values) for _, values, _ in WRONG.values())
    arrays = {
        case: pa.array([*values, *values[-1:] * (longest - len(values))])
        for case, (_, values, _) in WRONG.items()
    }
    declared = {case: entry for case, (entry, _, _) in WRONG.items()}
    columns = Columns.of({**declared, "missing": "number"})
    with pytest.raises(InvalidInput) as refusal:
        code(pa.table({**arrays, "undeclared": [1] * longest}), columns, where="it")
    lines = str(refusal.value).split("\n")
    expected = {case: words for case, (_, _, words) in WRONG.items()}
    expected |= {"missing": "is declared but missing", "undeclared": "is not declared"}
    for case, words in expected.items():
        assert any(case in line and words in line for line in lines), case


def test_missing_and_infinite_numbers_are_reported_together() -> None:
    with pytest.raises(InvalidInput, match=r"it: holds numbers that are infinite[^\n]*\n  it: has"):
        code(pa.table({"it": [np.inf, None]}), Columns.of({"it": "number"}), where="f")


def test_problems_of_all_batches_are_reported_together() -> None:
    coder = Coder(Columns.of({"a": "number", "b": "number"}), where="it")
    coder.add(pa.table({"a": ["x"], "b": ["1"]}))
    coder.add(pa.table({"a": ["y"], "b": ["2"]}))
    coder.add(pa.table({"a": ["1"], "b": ["NA"]}))
    with pytest.raises(InvalidInput) as refusal:
        coder.finish()
    assert [line[:4] for line in str(refusal.value).split("\n")[1:]] == ["  a:", "  b:"]


def test_error_names_column_that_appears_twice() -> None:
    table = pa.table([[1], [2]], names=["a", "a"])
    with pytest.raises(InvalidInput, match="a: appears twice"):
        code(table, Columns.of({"a": "number"}), where="it")


def test_one_problem_of_many_columns_is_one_line() -> None:
    names = [f"c{number}" for number in range(30)]
    with pytest.raises(InvalidInput) as refusal:
        code(pa.table({name: [1] for name in names}), Columns.of({"c0": "number"}), where="it")
    (line,) = str(refusal.value).split("\n")[1:]
    assert line.startswith("  c1, c2, c3") and "(29 in all)" in line
