"""Columns as they are declared: what is understood, and what is refused, all at once."""

import tomllib
from datetime import date, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptune.columns import Boolean, Category, Columns, Date, Drop, LabelFacts, Number
from dptune.errors import InvalidInput

DECLARED = """
[columns]
id = "drop"
age = {kind = "number", range = [0, 120], fill = "middle", indicator = true}
income = {kind = "number", range = "paid", fill = 30000}
height = "number"
color = {kind = "category", values = ["D", "E", 1], fill = "E"}
zip = {kind = "category", buckets = 64}
job = {kind = "category", values = "paid", at_most = 7}
town = {kind = "category", values = "paid"}
since = {kind = "date", range = [2010-01-01, "2025-12-31"], parts = ["weekday", "hour"]}
smoker = "boolean"
member = {kind = "boolean", fill = false}
"""


def _declared() -> Columns:
    return Columns.of(tomllib.loads(DECLARED)["columns"])


def test_a_section_of_a_config_is_understood() -> None:
    assert _declared().declared == {
        "id": Drop(),
        "age": Number(range=(0, 120), fill="middle", indicator=True),
        "income": Number(range="paid", fill=30000.0),
        "height": Number(),
        "color": Category(values=("D", "E", "1"), fill="E"),
        "zip": Category(buckets=64),
        "job": Category(values="paid", at_most=7),
        "town": Category(values="paid", at_most=10),
        "since": Date(range=("2010-01-01", "2025-12-31"), parts=("weekday", "hour")),
        "smoker": Boolean(),
        "member": Boolean(fill=False),
    }


def test_names_keep_their_order_and_those_that_are_dropped_are_not_kept() -> None:
    columns = _declared()
    assert columns.names[:3] == ("id", "age", "income")
    assert columns.kept == columns.names[1:]
    assert columns.without("age").names == ("id", *columns.names[2:])
    assert columns.without("nothing") == columns
    assert columns.only("age").names == ("age",)


def test_parsed_columns_are_returned_unchanged() -> None:
    columns = _declared()
    assert Columns.of(columns) is columns
    assert Columns.of(columns.declared) == columns


def test_of_numbers_declares_plain_numbers() -> None:
    assert Columns.of_numbers(["a", "b"]) == Columns.of({"a": "number", "b": "number"})


FLAGS = st.booleans()
ENDS = st.floats(-1e30, 1e30)
RANGES = st.tuples(ENDS, ENDS).filter(lambda pair: pair[0] < pair[1])
NAMES = st.text(min_size=1).filter(lambda text: bool(text.strip()) and text.isprintable())
WORDS = st.lists(st.sampled_from(["a", "b", "c d", "1", "2.5", "NA"]), min_size=1, unique=True)
DAYS = st.dates(date(1900, 1, 1), date(2100, 1, 1)).map(str)
DATE_RANGES = st.tuples(DAYS, DAYS).filter(lambda pair: pair[0] < pair[1])
PARTS = st.lists(st.sampled_from(["weekday", "month", "hour"]), unique=True).map(tuple)
COLUMNS = st.one_of(
    st.builds(Number, range=st.none() | st.just("paid") | RANGES, indicator=FLAGS),
    st.builds(Number, fill=st.none() | st.just("middle") | ENDS, indicator=FLAGS),
    st.builds(Category, values=WORDS.map(tuple), indicator=FLAGS),
    st.builds(Category, buckets=st.integers(2, 1000), fill=st.none() | st.just("a")),
    st.builds(Category, values=st.just("paid"), at_most=st.none() | st.integers(1, 30)),
    st.builds(Date, range=DATE_RANGES, parts=PARTS, indicator=FLAGS),
    st.builds(Boolean, fill=st.none() | FLAGS, indicator=FLAGS),
    st.just(Drop()),
)


@given(st.dictionaries(NAMES, COLUMNS))
def test_written_columns_are_read_back_unchanged(declared: dict[str, Any]) -> None:
    columns = Columns(declared)
    again = Columns.of(columns.to_plain())
    assert again == columns
    assert again.names == columns.names


def test_written_columns_omit_defaults() -> None:
    plain = {"a": "number", "b": {"kind": "category", "values": ["x"]}, "c": "drop"}
    assert Columns.of(plain).to_plain() == plain


WRONG: dict[str, tuple[Any, str]] = {
    "no kind": ({"range": [0, 1]}, "needs a kind"),
    "a number as kind": (5, "needs a kind"),
    "unknown kind": ("word", "kind must be one of number, category"),
    "unknown fact": ({"kind": "number", "rang": [0, 1]}, "number has no key 'rang'"),
    "facts of a drop": ({"kind": "drop", "fill": 0}, "drop has no key 'fill'"),
    "range of three": ({"kind": "number", "range": [0, 1, 2]}, "range must be [low, high]"),
    "range of texts": ({"kind": "number", "range": ["a", "b"]}, "range must be [low, high]"),
    "range of flags": ({"kind": "number", "range": [False, True]}, "range must be [low, high]"),
    "infinite range": ({"kind": "number", "range": [0, float("inf")]}, "range must be [low, high]"),
    "range beyond all": ({"kind": "number", "range": [0, 10**400]}, "range must be [low, high]"),
    "too wide a range": (
        {"kind": "number", "range": [-1e308, 1e308]},
        "in numbers from -3.4e+38 to 3.4e+38",
    ),
    "range of an array": ({"kind": "number", "range": np.zeros(2)}, "range must be [low, high]"),
    "no width": ({"kind": "number", "range": [1, 1]}, "must be below the high end"),
    "wrong way round": ({"kind": "number", "range": [2, 1]}, "must be below the high end"),
    "fill as text": ({"kind": "number", "fill": "mean"}, 'a number or "middle"'),
    "fill outside": ({"kind": "number", "range": [0, 1], "fill": 2}, "fill must lie in the range"),
    "indicator as text": ({"kind": "number", "indicator": "yes"}, "indicator must be true or"),
    "category of nothing": ("category", "either values"),
    "both": ({"kind": "category", "values": ["a"], "buckets": 3}, "either values"),
    "a text as values": ({"kind": "category", "values": "a"}, "values must be a list of names"),
    "no values": ({"kind": "category", "values": []}, "values must be a list of names"),
    "an empty value": ({"kind": "category", "values": ["a", " "]}, "each of values must be text"),
    "a list as value": ({"kind": "category", "values": [["a"]]}, "each of values must be text"),
    "a value beyond all": ({"kind": "category", "values": [2**70]}, "each of values must be text"),
    "a value twice": ({"kind": "category", "values": [1, "1.0"]}, "got '1' twice"),
    "fill of no value": ({"kind": "category", "values": ["a"], "fill": "b"}, "one of the values"),
    "one bucket": ({"kind": "category", "buckets": 1}, "buckets must be a whole number"),
    "no slots": ({"kind": "category", "values": "paid", "at_most": 0}, "at_most must be a whole"),
    "half a slot": ({"kind": "category", "values": "paid", "at_most": 1.5}, "at_most must be a"),
    "slots unpaid": ({"kind": "category", "values": ["a"], "at_most": 3}, "at_most needs"),
    "date without range": ("date", "a date needs a range"),
    "range of no dates": ({"kind": "date", "range": ["then", "now"]}, "must be dates such as"),
    "dates wrong way": ({"kind": "date", "range": ["2020-01-02", "2020-01-01"]}, "before the last"),
    "unknown part": (
        {"kind": "date", "range": ["2020-01-01", "2021-01-01"], "parts": ["minute"]},
        "parts must be some of weekday, month, hour",
    ),
    "parts of parts": (
        {"kind": "date", "range": ["2020-01-01", "2021-01-01"], "parts": [["hour"]]},
        "parts must be some of weekday, month, hour",
    ),
    "fill outside the dates": (
        {"kind": "date", "range": ["2020-01-01", "2021-01-01"], "fill": "2022-01-01"},
        "fill must lie in the range",
    ),
    "fill of no boolean": ({"kind": "boolean", "fill": "yes"}, "fill must be true or false"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_declaration_is_refused_with_its_column(case: str) -> None:
    entry, words = WRONG[case]
    with pytest.raises(InvalidInput) as refusal:
        Columns.of({"good": "number", "bad one": entry})
    (line,) = str(refusal.value).split("\n")[1:]
    assert line.startswith("  bad one: ")
    assert words in line


def test_all_wrong_declarations_are_refused_at_once() -> None:
    for first in range(0, len(WRONG), 15):  # a refusal has up to twenty lines
        cases = [*WRONG][first : first + 15]
        with pytest.raises(InvalidInput) as refusal:
            Columns.of({case: WRONG[case][0] for case in cases})
        lines = str(refusal.value).split("\n")
        for case in cases:
            assert any(case in line and WRONG[case][1] in line for line in lines), case


def test_two_faults_of_one_column_are_both_reported() -> None:
    with pytest.raises(InvalidInput) as refusal:
        Columns.of({"a": {"kind": "number", "range": [2, 1], "fill": "x", "what": 0}})
    assert str(refusal.value).count("\n  a: ") == 3


@pytest.mark.parametrize("given", [None, ["age"], "age"])
def test_columns_without_names_are_refused(given: Any) -> None:
    with pytest.raises(InvalidInput, match="declared by name"):
        Columns.of(given)


@pytest.mark.parametrize("name", [5, "", "  ", "two\nlines"])
def test_names_are_one_line_of_text(name: Any) -> None:
    with pytest.raises(InvalidInput, match="one line of text"):
        Columns.of({name: "number"})


def test_dates_of_python_and_toml_are_dates() -> None:
    column = Date(range=(date(2020, 1, 1), datetime(2020, 1, 2, 3)))  # type: ignore[arg-type]
    assert column.range == ("2020-01-01", "2020-01-02T03:00:00")
    assert column.pair[1] - column.pair[0] == 27


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("color", LabelFacts(classes=("D", "E", "1"))),
        ("smoker", LabelFacts(classes=("false", "true"))),
        ("age", LabelFacts(target_range=(0, 120))),
        ("height", LabelFacts()),
        ("nothing", None),
    ],
)
def test_a_label_says_its_classes_or_its_range(name: str, facts: LabelFacts | None) -> None:
    assert _declared().label_facts(name) == facts


@pytest.mark.parametrize("name", ["zip", "job", "since", "id"])
def test_label_without_classes_or_range_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"{name}: a label must be"):
        _declared().label_facts(name)


def test_columns_in_words_count_each_kind() -> None:
    assert _declared().in_words() == (
        "1 dropped, 1 number with a range, 1 number with a privately estimated range, 1 number, "
        "1 category with values, 1 category in 64 buckets, "
        "2 categories with privately estimated values, 1 date, 2 booleans"
    )
