"""Features depend on one row, the declared columns and private estimates, nothing else."""

import json
import pickle
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from dptune.columns import Columns, Date, Encoding, code
from dptune.errors import InvalidInput

NAN = float("nan")
YEAR = ["2020-01-01", "2021-01-01"]


def _features(values: Any, entry: Any, **bought: Any) -> NDArray[np.float64]:
    encoding = Encoding(Columns.of({"a": entry}), **bought)
    column = values if isinstance(values, pa.Array) else pa.array(values)
    return encoding.apply(encoding.code(pa.table({"a": column}), where="it"))


def _names(entry: Any, **bought: Any) -> tuple[str, ...]:
    return Encoding(Columns.of({"a": entry}), **bought).names


def test_a_range_becomes_minus_one_to_one_and_what_is_outside_is_clipped() -> None:
    found = _features([0, 5, 10, -1, 99, np.inf, -np.inf], {"kind": "number", "range": [0, 10]})
    assert_array_equal(found[:, 0], [-1, 0, 1, -1, 1, 1, -1])


def test_a_number_without_a_range_is_taken_as_it_is() -> None:
    assert _features([3, -7.5], "number").tolist() == [[3], [-7.5]]


def test_estimated_range_scales_like_declared_range() -> None:
    for entry in ("number", {"kind": "number", "range": "paid"}):
        assert _features([0, 3, 9], entry, ranges={"a": (2, 4)}).tolist() == [[-1], [0], [1]]


def test_number_without_estimated_range_stays_finite() -> None:
    found = _features([np.inf, -np.inf], {"kind": "number", "range": "paid"})
    assert bool(np.isfinite(found).all())
    assert found[0, 0] > 1e38 > -1e38 > found[1, 0]


def test_the_widest_range_does_not_overflow() -> None:
    found = _features([3e38, 0, -3e38], {"kind": "number", "range": [-3e38, 3e38]})
    assert_allclose(found[:, 0], [1, 0, -1], atol=1e-6)


@pytest.mark.parametrize(
    ("entry", "features"),
    [
        ({"kind": "number", "range": [0, 10], "fill": 10}, [1]),
        ({"kind": "number", "range": [4, 10], "fill": "middle"}, [0]),
        ({"kind": "number", "range": [4, 10], "indicator": True}, [0, 1]),
        ({"kind": "number", "fill": 7}, [7]),
        ({"kind": "number", "fill": "middle"}, [0]),
        ({"kind": "boolean", "fill": True}, [1]),
        ({"kind": "boolean", "fill": False, "indicator": True}, [-1, 1]),
        ({"kind": "boolean", "indicator": True}, [0, 1]),
        ({"kind": "category", "values": ["x", "y"]}, [0, 0, 1]),
        ({"kind": "category", "values": ["x", "y"], "fill": "y"}, [0, 1, 0]),
        ({"kind": "category", "values": ["x", "y"], "indicator": True}, [0, 0, 0, 1]),
        ({"kind": "category", "values": ["x"], "fill": "x", "indicator": True}, [1, 0, 1]),
        ({"kind": "category", "values": "paid", "at_most": 2}, [0, 0, 1]),
        ({"kind": "category", "buckets": 2}, [0, 0, 1]),
        ({"kind": "date", "range": YEAR, "fill": "2021-01-01"}, [1]),
        ({"kind": "date", "range": YEAR, "indicator": True}, [0, 1]),
        ({"kind": "date", "range": YEAR, "parts": ["weekday"], "indicator": True}, [0] * 8 + [1]),
    ],
)
def test_missing_value_is_encoded_as_declared(entry: Any, features: list[float]) -> None:
    assert _features(pa.array(["NA"]), entry).tolist() == [features]


def test_a_row_without_a_gap_is_not_touched_by_fill_or_indicator() -> None:
    plain = {"kind": "number", "range": [0, 10]}
    gaps = {**plain, "fill": 3, "indicator": True}
    assert _features([2, 9], gaps).tolist() == [[*row, 0] for row in _features([2, 9], plain)]


def test_booleans_are_minus_one_and_one() -> None:
    assert _features(["no", "yes"], "boolean").tolist() == [[-1], [1]]


def test_category_is_one_hot_with_other_values_last() -> None:
    entry = {"kind": "category", "values": ["D", "E"]}
    assert _features(["E", "D", "Q"], entry).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]
    assert _names(entry) == ("a=D", "a=E", "a=other")


def test_value_named_other_differs_from_unlisted_values() -> None:
    assert _names({"kind": "category", "values": ["other"]}) == ("a=other", "a=(other)")


def test_buckets_fill_in_the_bucket_of_a_name() -> None:
    entry = {"kind": "category", "buckets": 5}
    named, filled = _features(["x"], entry), _features(["NA"], {**entry, "fill": "x"})
    assert named.sum() == 1
    assert_array_equal(named, filled)


def test_a_date_is_its_place_in_the_range_and_a_one_for_each_part() -> None:
    entry = {"kind": "date", "range": YEAR, "parts": ["hour", "weekday", "month"]}
    names = np.array(_names(entry))
    rows = _features(["2020-01-01T00:59", "2020-07-02 13:00", "1999-12-31"], entry)
    assert_allclose(rows[:, 0], [-1, 2 * (183 * 24 + 13) / (366 * 24) - 1, -1])
    assert [names[1:][row[1:] == 1].tolist() for row in rows] == [
        ["a (hour=0)", "a (weekday=Wed)", "a (month=Jan)"],
        ["a (hour=13)", "a (weekday=Thu)", "a (month=Jul)"],
        ["a (hour=0)", "a (weekday=Fri)", "a (month=Dec)"],
    ]


@given(st.dates(date(1800, 1, 1), date(2300, 1, 1)))
def test_parts_are_those_of_the_calendar(day: date) -> None:
    entry = {"kind": "date", "range": YEAR, "parts": ["weekday", "month"]}
    (row,) = _features([day], entry)
    assert np.flatnonzero(row[1:]).tolist() == [day.weekday(), 7 + day.month - 1]


PAID = {"kind": "category", "values": "paid", "at_most": 3}


def test_width_does_not_depend_on_estimated_values() -> None:
    before = Encoding(Columns.of({"a": PAID, "b": "number"}))
    after = before.with_categories({"a": ["x"]})
    assert before.width == after.width == 5
    assert before.names == ("a=(unused 0)", "a=(unused 1)", "a=(unused 2)", "a=other", "b")
    assert after.names == ("a=x", "a=(unused 1)", "a=(unused 2)", "a=other", "b")
    assert (before.unbought, after.unbought) == (("a",), ())
    assert before.blocks == after.blocks == {"a": slice(0, 4), "b": slice(4, 5)}


def test_all_values_count_as_other_before_estimation() -> None:
    assert _features(["x", "y"], PAID).tolist() == [[0, 0, 0, 1]] * 2


def test_private_codes_and_codes_of_new_rows_give_the_same_features() -> None:
    columns = Columns.of({"a": PAID})
    table = pa.table({"a": ["u", "x", "v", "y", None]})
    coded = code(table, columns, where="it")
    bought = Encoding(columns).with_categories({"a": ("y", "x")})
    private = bought.reading(coded.vocabularies).apply(coded.rows)
    assert private.argmax(1).tolist() == [3, 1, 3, 0, 3]
    assert_array_equal(private, bought.apply(bought.code(table, where="it")))


def test_values_can_be_estimated_after_encoding_reads_vocabulary() -> None:
    columns = Columns.of({"a": PAID})
    coded = code(pa.table({"a": ["u", "x"]}), columns, where="it")
    bound = Encoding(columns).reading(coded.vocabularies)
    assert bound.apply(coded.rows).argmax(1).tolist() == [3, 3]
    assert bound.with_categories({"a": ("x",)}).apply(coded.rows).argmax(1).tolist() == [3, 0]


def test_a_private_vocabulary_is_neither_shown_nor_stored() -> None:
    bound = Encoding(Columns.of({"a": PAID})).reading({"a": ("secret",)})
    assert "secret" not in repr(bound)
    assert "secret" not in json.dumps(bound.to_plain())
    assert bound == Encoding(Columns.of({"a": PAID}))


def test_a_private_vocabulary_does_not_leave_the_process() -> None:
    columns = Columns.of({"a": PAID})
    bound = Encoding(columns, categories={"a": ("x",)}).reading({"a": ("secret", "x")})
    assert bound.apply(np.array([[1.0]])).tolist() == [[1, 0, 0, 0]]
    with pytest.raises(InvalidInput, match=r"use released\(\)"):
        pickle.dumps(bound)
    stored = pickle.dumps(bound.released())
    assert b"secret" not in stored
    assert pickle.loads(stored).apply(np.array([[0.0]])).tolist() == [[1, 0, 0, 0]]


def test_number_without_range_is_undecided() -> None:
    columns = Columns.of(
        {
            "known": {"kind": "number", "range": [0, 1]},
            "auto": "number",
            "paid": {"kind": "number", "range": "paid"},
            "id": "drop",
        }
    )
    encoding = Encoding(columns)
    assert encoding.undecided == ("auto", "paid")
    assert encoding.with_ranges({"auto": (0, 1)}).undecided == ("paid",)


MIXED = Columns.of(
    {
        "n": {"kind": "number", "range": [-2, 5], "fill": 1, "indicator": True},
        "m": {"kind": "number", "fill": "middle"},
        "x": "drop",
        "b": {"kind": "boolean", "indicator": True},
        "c": {"kind": "category", "values": ["u", "v"], "indicator": True},
        "h": {"kind": "category", "buckets": 3, "fill": "u"},
        "p": PAID,
        "d": {"kind": "date", "range": YEAR, "parts": ["weekday", "month", "hour"]},
    }
)
BOUGHT = Encoding(MIXED, {"m": (0, 4)}, {"p": ("u", "w")})
CODES = arrays(
    np.float32,
    st.tuples(st.integers(1, 8), st.just(len(MIXED.kept))),
    elements=st.just(NAN) | st.integers(-3, 6) | st.floats(-1e6, 1e6, width=32),
)


@given(CODES)
def test_the_features_of_a_row_are_those_it_has_alone(codes: NDArray[np.float32]) -> None:
    whole = BOUGHT.apply(codes)
    assert whole.shape == (len(codes), BOUGHT.width)
    for number in range(len(codes)):
        assert_array_equal(BOUGHT.apply(codes[number : number + 1])[0], whole[number])


@given(CODES)
def test_features_are_finite_and_bounded(
    codes: NDArray[np.float32],
) -> None:
    codes[:, MIXED.kept.index("b")] = np.clip(codes[:, MIXED.kept.index("b")], 0, 1)
    features = BOUGHT.apply(codes)
    assert bool((np.abs(features) <= 1).all())
    assert bool(np.isfinite(features).all())


def test_blocks_names_and_width_agree() -> None:
    blocks = BOUGHT.blocks
    assert tuple(blocks) == MIXED.kept
    assert sum(place.stop - place.start for place in blocks.values()) == BOUGHT.width
    assert len(BOUGHT.names) == len(set(BOUGHT.names)) == BOUGHT.width
    for name, place in blocks.items():
        assert all(feature.startswith(name) for feature in BOUGHT.names[place])


def test_codes_are_not_changed_by_encoding_them() -> None:
    codes = np.full((2, len(MIXED.kept)), NAN)
    BOUGHT.apply(codes)
    assert bool(np.isnan(codes).all())


@settings(max_examples=50)
@given(st.lists(st.sampled_from(["x", "y", "z", "NA", "w"]), min_size=1), st.permutations("wxyz"))
def test_features_do_not_depend_on_vocabulary_order(
    values: list[str], vocabulary: list[str]
) -> None:
    columns = Columns.of({"a": PAID})
    bought = Encoding(columns, categories={"a": ("z", "w")})
    table = pa.table({"a": values})
    fixed = code(table, columns, where="it", vocabularies={"a": vocabulary})
    grown = code(table, columns, where="it")
    assert_array_equal(
        bought.reading(fixed.vocabularies).apply(fixed.rows),
        bought.reading(grown.vocabularies).apply(grown.rows),
    )


def test_stored_encoding_is_read_back_unchanged() -> None:
    again = Encoding.of(json.loads(json.dumps(BOUGHT.to_plain())))
    assert again == BOUGHT
    assert again.names == BOUGHT.names


@pytest.mark.parametrize(
    ("bought", "words"),
    [
        ({"ranges": {"n": (0, 1)}}, "n: only a number without a declared range"),
        ({"ranges": {"nothing": (0, 1)}}, "nothing: only a number without a declared range"),
        ({"ranges": {"m": (1, 1)}}, "m: a range must be low and high"),
        ({"ranges": {"m": (0, np.inf)}}, "m: a range must be low and high"),
        ({"categories": {"c": ("u",)}}, "c: only a category with values"),
        ({"categories": {"p": tuple("uvwx")}}, "p: there must be at most 3 values"),
        ({"categories": {"p": ("u", "u")}}, "p: there must be at most 3 values"),
    ],
)
def test_impossible_estimates_are_refused(bought: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        replace(BOUGHT, **bought)


def test_encoding_without_columns_is_refused() -> None:
    with pytest.raises(InvalidInput, match="all columns are dropped"):
        Encoding(Columns.of({"a": "drop"}))


def test_date_without_range_is_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="a, b: a date needs a range"):
        Encoding(Columns({"a": Date(), "b": Date()}))


@pytest.mark.parametrize("shape", [(3,), (3, 2)])
def test_codes_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match="as declared"):
        BOUGHT.apply(np.zeros(shape))
