"""Preprocessing: per-row or public, safe for any finite row, the same again from storage."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from dptune.columns import Columns, Encoding
from dptune.data.preprocess import Preprocessing, standardization
from dptune.data.row_maps import (
    Append,
    Asinh,
    ClipLength,
    Divide,
    Encode,
    Multiply,
    Scale,
    Subtract,
    UnitLength,
)
from dptune.errors import InvalidInput
from support.row_maps import earlier
from support.tables import TABLES, a_table

ENCODING = Encoding(Columns.of_numbers(["a"]))


@settings(max_examples=300)
@given(TABLES)
def test_unit_rows_have_norm_one_or_zero_whatever_the_row(table: NDArray[np.float64]) -> None:
    done = Preprocessing().apply(table)
    assert done.dtype == np.float32
    norms = np.linalg.norm(done.astype(np.float64), axis=1)
    assert (norms <= 1 + 1e-6).all()
    empty = (table == 0).all(1)
    assert (done[empty] == 0).all()
    np.testing.assert_allclose(norms[~empty], 1, atol=1e-6)


@settings(max_examples=200)
@given(TABLES, TABLES, st.booleans())
def test_any_finite_row_stays_finite_even_in_bfloat16(
    table: NDArray[np.float64], public: NDArray[np.float64], unit_rows: bool
) -> None:
    """A row that overflowed would be refused after it was paid for."""
    made = standardization(np.resize(public, (5, table.shape[1])))
    done = Preprocessing([made, UnitLength()] if unit_rows else [made]).apply(table)
    assert np.isfinite(done).all()
    largest_bfloat16 = float.fromhex("0x1.fep127")
    assert np.abs(done).max() <= largest_bfloat16


def test_the_order_is_standardise_then_unit_rows_then_center() -> None:
    table, shift, scale, center = a_table(), [1.0, 2.0, 3.0], [1.0, 2.0, 4.0], [0.1, 0.2, 0.3]
    made = Preprocessing([Scale(shift, scale), UnitLength(), Subtract(center)])
    standard = (table - shift) / scale
    expected = standard / np.linalg.norm(standard, axis=1, keepdims=True) - center
    np.testing.assert_allclose(made.apply(table), expected, atol=1e-6)


def test_without_unit_rows_and_arrays_features_stay_as_they_are() -> None:
    table = a_table().astype(np.float32)
    np.testing.assert_array_equal(Preprocessing(unit_rows=False).apply(table), table)


@pytest.mark.parametrize("rows", [4095, 4096, 4097, 8193])
def test_the_work_in_chunks_covers_every_row(rows: int) -> None:
    table = a_table(rows)
    done = Preprocessing().apply(table)
    np.testing.assert_allclose(done, table / np.linalg.norm(table, axis=1)[:, None], atol=1e-6)


def test_a_row_is_treated_alike_whoever_its_neighbours_are() -> None:
    table, made = a_table(), Preprocessing([standardization(a_table(seed=1)), UnitLength()])
    alone = np.concatenate([made.apply(row[None]) for row in table])
    np.testing.assert_array_equal(made.apply(table), alone)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "float16", "float64"])
def test_features_of_any_number_type_are_taken(dtype: str) -> None:
    table = np.array([[3, 4], [0, 1]]).astype(dtype)
    expected = table.astype(float) / np.linalg.norm(table.astype(float), axis=1)[:, None]
    np.testing.assert_allclose(Preprocessing().apply(table), expected, rtol=1e-6)


def test_standardisation_gives_public_rows_mean_0_and_deviation_1() -> None:
    public = a_table(500)
    done = Preprocessing([standardization(public)]).apply(public)
    np.testing.assert_allclose(done.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(done.std(0), 1, atol=1e-6)


def test_a_constant_public_column_keeps_its_scale() -> None:
    public = a_table()
    public[:, 1] = 0.1  # whose computed deviation is not exactly 0
    public[:, 2] = 0.0
    made = standardization(public)
    assert list(made.scale[1:]) == [1.0, 1.0]
    assert made.scale[0] != 1.0


def test_standardisation_survives_the_largest_numbers() -> None:
    made = standardization(np.array([[1.7e308], [-1.7e308], [1.7e308]]))
    assert np.isfinite(made.scale).all() and np.isfinite(made.shift).all()


SCALE = Scale([0.1, 0.2, 0.3], [1.5, 0.7, 3.3])
CENTER = Subtract(np.full(3, 1 / 3))
FULL = Preprocessing([SCALE, UnitLength(), CENTER])
WHITENING = np.array([[2.0, -0.3, 0.1], [-0.3, 1.0, 0.0], [0.1, 0.0, 1 / 3]])
CENTRED = [SCALE, UnitLength(), CENTER, UnitLength()]
WHITENED = Preprocessing([*CENTRED, Multiply(WHITENING), UnitLength()])
WITH_CONSTANT = Preprocessing([*CENTRED, Multiply(WHITENING), Append(0.25), UnitLength()])
ANCHORED = Preprocessing(
    [
        Append(2.0),
        UnitLength(),
        Subtract(np.full(4, 0.1)),
        UnitLength(),
        Append(0.25),
        UnitLength(),
    ]
)


@pytest.mark.parametrize(
    "made",
    [
        Preprocessing(),
        Preprocessing(unit_rows=False),
        FULL,
        WHITENED,
        WITH_CONSTANT,
        ANCHORED,
        Preprocessing([Asinh(), Append(0.1), UnitLength()]),
        Preprocessing([ClipLength(2.0), Subtract(np.full(3, 0.1)), ClipLength(1.0)]),
        Preprocessing([ClipLength(2.0), Append(0.1), Divide(1.5)]),
    ],
)
def test_storing_and_reading_gives_exactly_the_same(tmp_path: Path, made: Preprocessing) -> None:
    save_file(made.arrays(), tmp_path / "made.safetensors")
    again = Preprocessing.from_arrays(
        load_file(tmp_path / "made.safetensors"), json.loads(json.dumps(made.facts()))
    )
    np.testing.assert_array_equal(made.apply(a_table()), again.apply(a_table()))
    assert again.in_words() == made.in_words()


def test_in_words_names_what_is_done() -> None:
    assert Preprocessing(unit_rows=False).in_words() == "features as given"
    assert Preprocessing().in_words() == "rows scaled to unit length"
    assert FULL.in_words() == (
        "columns shifted and scaled by public numbers, rows scaled to unit length, a private mean "
        "subtracted"
    )
    assert WITH_CONSTANT.in_words() == (
        "columns shifted and scaled by public numbers, rows scaled to unit length, a private mean "
        "subtracted, rows scaled to unit length, rows whitened by a private second moment, a "
        "constant column of 0.25 appended, rows scaled to unit length"
    )
    clipped = Preprocessing([Asinh(), ClipLength(1.5), ClipLength(1.0), Divide(2.0)])
    assert clipped.in_words() == (
        "numbers log-scaled, asinh(x), rows divided by 1.5 and clipped to length 1, rows clipped "
        "to length 1, rows divided by 2"
    )


def unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_rows_are_scaled_again_after_the_mean_and_after_whitening() -> None:
    table = a_table()
    centred = unit(unit((table - SCALE.shift) / SCALE.scale) - 1 / 3)
    np.testing.assert_allclose(Preprocessing(CENTRED).apply(table), centred, atol=1e-6)
    np.testing.assert_allclose(WHITENED.apply(table), unit(centred @ WHITENING), atol=1e-6)


@pytest.mark.parametrize("unit_rows", [True, False])
def test_rows_may_be_whitened_without_a_mean_whatever_their_length(unit_rows: bool) -> None:
    """A mean that was lost: its step is left out, and all others are as they were."""
    made = earlier(unit_rows=unit_rows, whitening=WHITENING, rescale=True)
    table = a_table() * 1e30
    np.testing.assert_allclose(made.apply(table), unit(unit(table) @ WHITENING), atol=1e-6)


def test_a_constant_joins_rows_before_they_are_scaled_for_the_last_time() -> None:
    """Whitened rows keep their lengths until then, so that a short row leans on the constant."""
    table = a_table()
    centred = unit(WHITENED.apply(table) @ np.linalg.inv(WHITENING))
    beside = np.full((len(table), 1), 0.25)
    wanted = unit(np.concatenate([centred @ WHITENING, beside], 1))
    np.testing.assert_allclose(WITH_CONSTANT.apply(table), wanted, atol=1e-6)
    assert np.ptp(wanted[:, -1]) > 0.01
    only_centred = Preprocessing([*CENTRED, Append(0.25), UnitLength()])
    wanted = np.concatenate([centred, beside], 1) / np.hypot(1, 0.25)
    np.testing.assert_allclose(only_centred.apply(table), wanted, atol=1e-6)


def test_an_anchor_keeps_the_length_of_rows() -> None:
    """Rows along one line, which scaling alone could not tell apart."""
    along = np.outer([0.5, 1.0, 2.0, 8.0], [1.0, -2.0, 2.0])
    made = Preprocessing([Append(3.0), UnitLength()])
    done = made.apply(along)
    np.testing.assert_allclose(done[:, :3] / done[:, 3:], along / 3.0, rtol=1e-6)
    assert np.ptp(Preprocessing().apply(along), axis=0) == pytest.approx(0)
    center = np.array([0.1, 0.0, 0.0, 0.5])
    centred = Preprocessing([*made.maps, Subtract(center), UnitLength()])
    np.testing.assert_allclose(centred.apply(along), unit(done - center), atol=1e-6)


def test_numbers_behind_an_anchor_are_for_one_column_more() -> None:
    scale, mean = Scale(np.zeros(3), np.ones(3)), Subtract(np.zeros(4))
    with pytest.raises(InvalidInput, match="4 columns, scale is for 3"):
        Preprocessing([scale, Append(1.0), mean]).apply(np.ones((2, 4)))
    with pytest.raises(InvalidInput, match="not counting those that are appended"):
        Preprocessing([scale, Append(1.0), Subtract(np.zeros(3))])


def test_a_constant_is_one_column_more() -> None:
    copies = a_table(20).reshape(10, 2, 3)
    for made, columns in ((WHITENED, 3), (WITH_CONSTANT, 4), (ANCHORED, 5)):
        assert made.columns(3) == columns
        done = made.apply_to_all(copies)
        assert done.shape == (10, 2, columns)
        np.testing.assert_array_equal(done.reshape(20, -1), made.apply(copies.reshape(20, 3)))
        np.testing.assert_array_equal(made.apply_to_all(copies[:, 0]), done[:, 0])


def test_a_row_of_zeros_holds_the_constant_alone() -> None:
    made = Preprocessing([Append(0.25), UnitLength()])
    assert not made.changes_nothing
    np.testing.assert_array_equal(made.apply(np.zeros((2, 3))), [[0, 0, 0, 1]] * 2)


@given(TABLES, st.floats(0.01, 10), st.integers(0, 2**32 - 1))
def test_with_a_constant_the_last_scaling_changes_no_decision(
    table: NDArray[np.float64], constant: float, seed: int
) -> None:
    """A linear model and its bias before it, the same weights with the constant's after it."""
    chance, columns = np.random.default_rng(seed), table.shape[1]
    whitening = chance.uniform(-1, 1, (columns, columns))
    made = Preprocessing([UnitLength(), Multiply(whitening), Append(constant), UnitLength()])
    weights, bias = chance.normal(size=(columns, 3)), chance.normal(size=3)
    rows = Preprocessing().apply(table).astype(np.float64) @ whitening
    before = rows @ weights + bias
    after = made.apply(table).astype(np.float64) @ np.vstack([weights, bias / constant])
    first, second = np.sort(before, axis=1)[:, ::-1][:, :2].T
    clear = first - second > 1e-4
    np.testing.assert_array_equal(before.argmax(1)[clear], after.argmax(1)[clear])


@settings(max_examples=300)
@given(
    TABLES,
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 1e-300, 1.0, 1.7e308]),
    st.sampled_from([0.0, 0.25, 1e3]),
    st.integers(0, 2**32 - 1),
)
def test_whitened_rows_are_finite_and_of_length_1_or_0(
    table: NDArray[np.float64],
    unit_rows: bool,
    centred: bool,
    size: float,
    constant: float,
    seed: int,
) -> None:
    chance, columns = np.random.default_rng(seed), table.shape[1]
    center = chance.uniform(-1, 1, columns) * (1 if unit_rows else 1.7e308) if centred else None
    whitening = size * chance.uniform(-1, 1, (columns, columns))
    arrays = {"whitening": whitening} | ({} if center is None else {"center": center})
    made = earlier(unit_rows=unit_rows, constant=constant, rescale=True, **arrays)
    norms = np.linalg.norm(made.apply(table).astype(np.float64), axis=1)
    assert (np.isclose(norms, 1, atol=1e-6) | ((norms == 0) & (constant == 0))).all()


@pytest.mark.parametrize(("rows", "columns"), [(4500, 3), (4500, 64), (300, 1000)])
def test_a_whitened_row_is_the_same_to_the_last_bit_in_any_table(rows: int, columns: int) -> None:
    """Alone or among others, first or last. Every other row is one of which the matrix leaves
    nothing but rounding, so sums in another order would show."""
    chance = np.random.default_rng(columns)
    gone = chance.normal(size=(1, columns))
    whitening = np.eye(columns) - gone.T @ gone / (gone**2).sum()
    made = Preprocessing([UnitLength(), Multiply(whitening), UnitLength()])
    table = chance.normal(size=(rows, columns))
    table[::2] = gone * table[::2, :1]
    whole = made.apply(table)
    for cuts in ([7, rows - 1], [rows // 2]):
        pieces = [made.apply(piece) for piece in np.split(table, cuts)]
        np.testing.assert_array_equal(np.concatenate(pieces), whole)
    alone = np.concatenate([made.apply(row[None]) for row in table[:20]])
    np.testing.assert_array_equal(alone, whole[:20])
    np.testing.assert_array_equal(made.apply(table[::-1]), whole[::-1])
    others = table.copy()
    others[1::2] = 0
    np.testing.assert_array_equal(made.apply(others)[::2], whole[::2])


def test_nobody_can_change_the_numbers_afterwards() -> None:
    mean = np.ones(3)
    made = Subtract(mean)
    mean[0] = 7
    assert made.mean[0] == 1
    with pytest.raises(ValueError, match="read-only"):
        made.mean[0] = 7


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Scale(np.ones(3), np.array([1.0, 0.0, 1.0])), "above 0"),
        (lambda: Scale(np.ones(3), np.array([1.0, -1.0, 1.0])), "above 0"),
        (lambda: Scale(np.ones(3), np.ones(2)), "same number of columns"),
        (lambda: Subtract(np.array([1.0, np.nan])), "finite"),
        (lambda: Subtract(np.ones((2, 2))), "one a column"),
        (lambda: Subtract(np.array([])), "one a column"),
        (lambda: Subtract("abc"), "must be numbers"),
        (lambda: Preprocessing(unit_rows="yes"), "true or false"),
        (lambda: Append(-1.0), "value"),
        (lambda: Append(np.inf), "value"),
        (lambda: Append(np.nan), "value"),
        (lambda: ClipLength(0.0), "reach"),
        (lambda: Divide(0.0), "by"),
        (lambda: Multiply(np.ones(3)), "columns times columns"),
        (lambda: Multiply(np.ones((2, 3))), "columns times columns"),
        (lambda: Multiply(np.diag([1.0, np.inf])), "finite"),
        (lambda: Preprocessing([Subtract(np.ones(2)), Multiply(np.eye(3))]), "same number"),
        (lambda: Preprocessing([UnitLength(), Encode(ENCODING)]), "only the first"),
    ],
)
def test_row_maps_that_cannot_be_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make()


def test_arrays_of_unknown_names_are_refused() -> None:
    with pytest.raises(InvalidInput, match="weights"):
        Preprocessing.from_arrays({"weights": np.ones(3)}, {"unit_rows": True})


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.ones(3), "shape"),
        (np.ones((0, 3)), "shape"),
        (np.array([["a", "b", "c"]]), "table of numbers"),
        (np.ones((2, 4)), "4 columns"),
        (np.array([[1.0, np.nan, 1.0]]), "not finite"),
    ],
)
def test_features_that_do_not_fit_are_refused(features: NDArray[Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        FULL.apply(features)
    if "columns" not in message:
        with pytest.raises(InvalidInput, match=message):
            standardization(features)
