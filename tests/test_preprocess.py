"""Preprocessing: per-row or public, safe for any finite row, the same again from storage."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from dptune.data.moments import private_mean
from dptune.data.preprocess import Preprocessing, standardization
from dptune.errors import InvalidInput

# Zeros, denormals and the largest numbers among them.
TABLES = arrays(
    np.float64,
    array_shapes(min_dims=2, max_dims=2, max_side=6),
    elements=st.one_of(
        st.floats(allow_nan=False, allow_infinity=False),
        st.sampled_from([0.0, 5e-324, -1e-310, 1.7e308, -1.7e308]),
    ),
)


def mean_of(features: Any, *arguments: Any) -> Any:
    return private_mean([features], np.asarray(features).shape[-1], *arguments)


def no_noise(shape: tuple[int, ...]) -> NDArray[np.float64]:
    return np.zeros(shape)


def a_table(rows: int = 20, columns: int = 3, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(2.0, 3.0, (rows, columns))


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
    done = dataclasses.replace(made, unit_rows=unit_rows).apply(table)
    assert np.isfinite(done).all()
    largest_bfloat16 = float.fromhex("0x1.fep127")
    assert np.abs(done).max() <= largest_bfloat16


def test_the_order_is_standardise_then_unit_rows_then_center() -> None:
    table, shift, scale, center = a_table(), [1.0, 2.0, 3.0], [1.0, 2.0, 4.0], [0.1, 0.2, 0.3]
    made = Preprocessing(np.array(shift), np.array(scale), center=np.array(center))
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
    table, made = a_table(), standardization(a_table(seed=1))
    alone = np.concatenate([made.apply(row[None]) for row in table])
    np.testing.assert_array_equal(made.apply(table), alone)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "float16", "float64"])
def test_features_of_any_number_type_are_taken(dtype: str) -> None:
    table = np.array([[3, 4], [0, 1]]).astype(dtype)
    expected = table.astype(float) / np.linalg.norm(table.astype(float), axis=1)[:, None]
    np.testing.assert_allclose(Preprocessing().apply(table), expected, rtol=1e-6)


def test_standardisation_gives_public_rows_mean_0_and_deviation_1() -> None:
    public = a_table(500)
    done = dataclasses.replace(standardization(public), unit_rows=False).apply(public)
    np.testing.assert_allclose(done.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(done.std(0), 1, atol=1e-6)


def test_a_constant_public_column_keeps_its_scale() -> None:
    public = a_table()
    public[:, 1] = 0.1  # whose computed deviation is not exactly 0
    public[:, 2] = 0.0
    made = standardization(public)
    assert made.scale is not None
    assert list(made.scale[1:]) == [1.0, 1.0]
    assert made.scale[0] != 1.0


def test_standardisation_survives_the_largest_numbers() -> None:
    made = standardization(np.array([[1.7e308], [-1.7e308], [1.7e308]]))
    assert made.scale is not None and made.shift is not None
    assert np.isfinite(made.scale).all() and np.isfinite(made.shift).all()


FULL = Preprocessing(np.array([0.1, 0.2, 0.3]), np.array([1.5, 0.7, 3.3]), center=np.full(3, 1 / 3))


@pytest.mark.parametrize(
    "made",
    [Preprocessing(), Preprocessing(unit_rows=False), FULL, Preprocessing(center=np.full(3, 0.1))],
)
def test_storing_and_reading_gives_exactly_the_same(tmp_path: Path, made: Preprocessing) -> None:
    save_file(made.arrays(), tmp_path / "made.safetensors")
    again = Preprocessing.from_arrays(
        load_file(tmp_path / "made.safetensors"), unit_rows=made.unit_rows, rescale=made.rescale
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


def test_nobody_can_change_the_numbers_afterwards() -> None:
    center = np.ones(3)
    made = Preprocessing(center=center)
    center[0] = 7
    assert made.center is not None and made.center[0] == 1
    with pytest.raises(ValueError, match="read-only"):
        made.center[0] = 7


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"shift": np.ones(3)}, "shift and scale go together"),
        ({"shift": np.ones(3), "scale": np.array([1.0, 0.0, 1.0])}, "above 0"),
        ({"shift": np.ones(3), "scale": np.array([1.0, -1.0, 1.0])}, "above 0"),
        ({"shift": np.ones(3), "scale": np.ones(2)}, "same number of columns"),
        ({"center": np.array([1.0, np.nan])}, "finite"),
        ({"center": np.ones((2, 2))}, "one a column"),
        ({"center": np.array([])}, "one a column"),
        ({"center": "abc"}, "must be numbers"),
        ({"unit_rows": "yes"}, "True or False"),
    ],
)
def test_preprocessing_that_cannot_be_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Preprocessing(**fields)


def test_arrays_of_unknown_names_are_refused() -> None:
    with pytest.raises(InvalidInput, match="weights"):
        Preprocessing.from_arrays({"weights": np.ones(3)}, unit_rows=True, rescale=False)


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
            mean_of(features, 1.0, 3, no_noise)
        with pytest.raises(InvalidInput, match=message):
            standardization(features)


@settings(max_examples=300)
@given(TABLES, st.data())
def test_removing_a_row_moves_the_sum_by_at_most_1(
    table: NDArray[np.float64], data: st.DataObject
) -> None:
    row = data.draw(st.integers(0, len(table) - 1))
    other = table.copy()
    other[row] = 0  # a row that contributes nothing
    moved = mean_of(table, 1.0, 1, no_noise) - mean_of(other, 1.0, 1, no_noise)
    assert np.linalg.norm(moved) <= 1


@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1), st.integers(1, 300))
def test_rows_said_to_be_of_unit_length_never_exceed_it(seed: int, columns: int) -> None:
    """Rows rounded to float32 may be a little longer than 1; what is summed is not."""
    row = Preprocessing().apply(np.random.default_rng(seed).normal(size=(1, columns)))
    mean = mean_of(row, 1.0, 1, no_noise)
    assert 1 - 1e-6 < float(np.linalg.norm(mean)) <= 1


def test_the_mean_is_divided_by_the_public_number_of_rows() -> None:
    table = np.array([[0.5, 0.0], [0.0, 0.5], [3.0, 4.0]])
    mean = mean_of(table, 1.0, 10, no_noise)
    np.testing.assert_allclose(mean, [0.11, 0.13], rtol=1e-7)  # the last row counts (0.6, 0.8)


def test_a_sum_is_exact_so_that_a_row_moves_it_by_no_more_than_itself() -> None:
    """In whatever order and with whatever company, to the last bit."""
    rng = np.random.default_rng(8)
    table = rng.normal(size=(9000, 3)) * rng.choice([1.0, 0.1, 1e-5], size=(9000, 1))
    mean = mean_of(table, 1.0, 1, no_noise)
    np.testing.assert_array_equal(mean_of(rng.permutation(table), 1.0, 1, no_noise), mean)
    rest, alone = (mean_of(part, 1.0, 1, no_noise) for part in (table[1:], table[:1]))
    np.testing.assert_array_equal(mean - rest, alone)


def test_noise_is_the_multiplier_times_the_stream() -> None:
    def stream(shape: tuple[int, ...]) -> NDArray[np.float64]:
        assert shape == (2,)
        return np.array([1.0, -2.0])

    table = np.zeros((5000, 2))
    np.testing.assert_array_equal(mean_of(table, 3.0, 6, stream), [0.5, -1.0])


def test_the_mean_covers_rows_of_every_chunk() -> None:
    table = np.full((5000, 1), 0.5)
    np.testing.assert_allclose(mean_of(table, 1.0, 5000, no_noise), [0.5])


@pytest.mark.parametrize(
    "drawn", [np.zeros(()), np.zeros(1), np.zeros((1, 3)), np.zeros(3, dtype=np.float32)]
)
def test_one_number_for_all_columns_or_coarse_noise_is_refused(drawn: NDArray[Any]) -> None:
    with pytest.raises(InvalidInput, match="stream_normal"):
        mean_of(a_table(), 1.0, 20, lambda shape: drawn)


@pytest.mark.parametrize(("noise", "rows"), [(0.0, 20), (-1.0, 20), (np.inf, 20), (1.0, 0)])
def test_a_mean_without_noise_or_rows_is_refused(noise: float, rows: int) -> None:
    with pytest.raises(InvalidInput):
        mean_of(a_table(), noise, rows, no_noise)
