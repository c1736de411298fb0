"""Private moments: one row moves them by at most 1, whatever it is; their noise is what is paid."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.stats import beta, norm

from dptune import accounting
from dptune.data.preprocess import Preprocessing
from dptune.data.row_maps import Multiply, UnitLength
from dptune.errors import InvalidInput
from dptune.noise import grid_step
from dptune.preparation.moments import private_mean, private_second_moment
from dptune.preparation.whitening import WhiteningMatrix
from dptune.privacy import PrivateSecondMoment
from dptune.study.measure import fresh_normal
from support.tables import FINITE, TABLES, a_table

MOMENTS = [private_mean, private_second_moment]
Matrix = NDArray[np.float64]


def mean_of(features: Any, *arguments: Any) -> Any:
    return private_mean([features], np.asarray(features).shape[-1], *arguments)


def no_noise(shape: tuple[int, ...]) -> Matrix:
    return np.zeros(shape)


def sum_of(moment: Callable[..., Matrix], *tables: NDArray[Any]) -> Matrix:
    """The exact sum, before noise and division: the grid of so little noise holds it."""
    return moment(tables, tables[0].shape[1], 2.0**-20, 1, no_noise)


def squared_norm(matrix: Matrix) -> Fraction:
    """Without any rounding."""
    return sum((Fraction(float(value)) ** 2 for value in matrix.flat), Fraction(0))


@settings(max_examples=400)
@given(st.data(), TABLES, st.sampled_from(MOMENTS))
def test_adding_any_row_moves_the_exact_sum_by_at_most_1(
    data: st.DataObject, table: Matrix, moment: Callable[..., Matrix]
) -> None:
    row = data.draw(arrays(np.float64, (1, table.shape[1]), elements=FINITE))
    moved = sum_of(moment, table, row) - sum_of(moment, table)
    assert squared_norm(moved) <= 1
    np.testing.assert_array_equal(moved, sum_of(moment, row))  # by no more than itself


@settings(max_examples=300)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 40),
    st.sampled_from([1 - 2e-9, 1 - 1e-9, 1 - 1e-16, 1.0, 1 + 3e-16, 1 + 1e-7, 3.0, 1e200, 1e308]),
    st.sampled_from(MOMENTS),
)
def test_rows_about_as_long_as_the_bound_or_far_longer_count_as_1_at_most(
    seed: int, columns: int, length: float, moment: Callable[..., Matrix]
) -> None:
    row = np.random.default_rng(seed).normal(size=(1, columns))
    row = row / np.linalg.norm(row) * length
    found = squared_norm(sum_of(moment, row))
    # Rounding every coordinate towards zero takes a unit from each at most.
    unit = 2.0**-24 if moment is private_mean else 2.0**-12
    shortest = max(0.0, 1 - 1e-8 - unit * math.sqrt(columns))
    assert shortest ** (2 if moment is private_mean else 4) <= found <= 1


def test_by_the_formula_the_frobenius_norm_of_one_row_is_its_squared_length() -> None:
    """Coordinates that are on the grid are not rounded: |x x'|^2 = sum (x_i x_j)^2 = |x|^4."""
    for numbers in itertools.product((0, 1, -7, 2048, 3333), repeat=3):
        row = np.array([numbers]) / 4096
        squared_length = squared_norm(row)
        if squared_length < 1 - Fraction(1, 10**8):
            moved = sum_of(private_second_moment, row)
            np.testing.assert_array_equal(moved, row.T @ row)
            assert squared_norm(moved) == squared_length**2


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("columns", [1, 7, 64])
def test_neither_order_nor_chunks_nor_tables_change_a_bit(
    moment: Callable[..., Matrix], columns: int
) -> None:
    chance = np.random.default_rng(columns)
    table = chance.normal(size=(9000, columns)) * chance.choice([1, 0.1, 1e-5], size=(9000, 1))
    whole = sum_of(moment, table)
    np.testing.assert_array_equal(sum_of(moment, chance.permutation(table)), whole)
    np.testing.assert_array_equal(sum_of(moment, *np.split(table, [1, 4096, 5000])), whole)
    np.testing.assert_array_equal(whole - sum_of(moment, table[1:]), sum_of(moment, table[:1]))
    if whole.ndim == 2:
        np.testing.assert_array_equal(whole, whole.T)


def test_the_second_moment_is_that_of_the_rows() -> None:
    table = Preprocessing().apply(a_table(5000, 6))
    found = private_second_moment([table[:4500], table[4500:]], 6, 1.0, 5000, no_noise)
    wide = table.astype(np.float64)
    np.testing.assert_allclose(found, wide.T @ wide / 5000, atol=2 * 2**-12)
    other = private_second_moment([table], 6, 1.0, 10_000, no_noise)
    np.testing.assert_allclose(other, found / 2)  # divided by the public number, whatever it is


@pytest.mark.parametrize("columns", [1, 2, 5])
def test_noise_is_the_multiplier_times_an_isometry_into_symmetric_matrices(columns: int) -> None:
    """Every one of n (n + 1) / 2 numbers moves the matrix by the multiplier, in a direction of its
    own: in the Frobenius norm, in which a row moves it by 1, the noise is the same everywhere."""
    numbers, asked = columns * (columns + 1) // 2, []
    zeros, multiplier = np.zeros((4, columns)), 3.7
    far = 2.0**31  # deviations, beside which the grid is nothing

    def moved_by(number: int) -> Matrix:
        def stream(shape: tuple[int, ...]) -> Matrix:
            asked.append(shape)
            return far * np.eye(numbers)[number]

        return private_second_moment([zeros], columns, multiplier, 1, stream) / far

    moves = [moved_by(number) for number in range(numbers)]
    assert asked == [(numbers,)] * numbers
    for move in moves:
        np.testing.assert_array_equal(move, move.T)
        on, off = np.diag(move), move[~np.eye(columns, dtype=bool)]
        assert sorted([*on[on != 0], *off[off != 0]]) in (
            pytest.approx([multiplier], rel=1e-15),
            pytest.approx([multiplier / math.sqrt(2)] * 2, rel=1e-15),
        )
        # Never a hair less than was paid, but for the grid of what is as far as that.
        assert squared_norm(move) >= Fraction(multiplier * (1 - 2.0**-50)) ** 2
    products = [[float((one * other).sum()) for other in moves] for one in moves]
    np.testing.assert_allclose(products, multiplier**2 * np.eye(numbers), rtol=1e-14)


def test_noise_of_a_table_is_added_to_its_sum_before_it_is_divided() -> None:
    table, drawn = a_table(30, 4), np.random.default_rng(5).normal(size=10)
    noisy = private_second_moment([table], 4, 2.0, 7, lambda shape: drawn.reshape(shape).copy())
    of_zeros = private_second_moment([0 * table], 4, 2.0, 7, lambda shape: drawn.copy())
    np.testing.assert_array_equal(noisy, noisy.T)
    exact = sum_of(private_second_moment, table)
    np.testing.assert_allclose(noisy, exact / 7 + of_zeros, atol=grid_step(2.0))


def test_fresh_noise_has_the_stated_deviations() -> None:
    """By chi-square, at a level that luck misses once in ten million."""
    columns, multiplier, draws = 40, 5.0, 12
    zeros = np.zeros((1, columns))
    found = [
        private_second_moment([zeros], columns, multiplier, 1, fresh_normal) for _ in range(draws)
    ]
    on = np.concatenate([np.diag(matrix) for matrix in found])
    off = np.concatenate([matrix[np.tril_indices(columns, -1)] for matrix in found])
    for values, deviation in ((on, multiplier), (off, multiplier / math.sqrt(2))):
        ratio = float((values**2).sum()) / deviation**2 / len(values)
        assert ratio == pytest.approx(1, abs=5.7 * math.sqrt(2 / len(values)))


def upper_triangle(matrix: Matrix) -> Matrix:
    """Entries off the diagonal times sqrt 2: as long as the symmetric matrix it stands for."""
    scale = np.where(np.eye(len(matrix), dtype=bool), 1.0, math.sqrt(2))
    return (matrix * scale)[np.triu_indices(len(matrix))]


@pytest.mark.parametrize("columns", [1, 3, 8])
def test_on_the_upper_triangle_it_is_an_ordinary_gaussian_mechanism(columns: int) -> None:
    """Second derivation of the price: independent noise of one deviation, rows that move it by 1
    at most, and no entry that the triangle does not tell."""
    chance, numbers = np.random.default_rng(columns), columns * (columns + 1) // 2
    drawn = chance.normal(size=numbers)
    noise = private_second_moment(
        [np.zeros((1, columns))], columns, 4.0, 1, lambda shape: drawn.copy()
    )
    # The same numbers, each times the multiplier: covariance 16 times the identity.
    found, wanted = np.sort(upper_triangle(noise)), np.sort(4.0 * drawn)
    np.testing.assert_allclose(found, wanted, atol=grid_step(4.0))
    longest = 0.0
    for length in chance.choice([0.3, 1.0, 50.0], size=100):
        row = chance.normal(size=(1, columns)) * length
        longest = max(longest, float(np.linalg.norm(upper_triangle(sum_of_row(row)))))
    assert longest <= 1 + 1e-12
    price = accounting.price(PrivateSecondMoment(noise_multiplier=4.0))
    assert price.mu >= longest / 4.0  # sensitivity / deviation, in that space
    assert price.mu == pytest.approx(1 / 4.0, rel=1e-12)


def sum_of_row(row: Matrix) -> Matrix:
    return sum_of(private_second_moment, row)


def measured_mu(canary: Matrix, noise_multiplier: float, draws: int) -> float:
    """A mu that the release has at the least, wrong once in 10^8: how well the best test (the
    projection on what the row adds) tells from fresh outputs whether the canary is among them."""
    columns = canary.shape[1]
    added = sum_of_row(canary)

    def outputs(row: Matrix) -> Matrix:
        numbers = iter(fresh_normal((draws, columns * (columns + 1) // 2)))
        return np.array(
            [
                float(
                    (
                        private_second_moment([row], columns, noise_multiplier, 1, stream) * added
                    ).sum()
                )
                for stream in [lambda shape: next(numbers)] * draws
            ]
        )

    with_it, without = np.sort(outputs(canary)), np.sort(outputs(0 * canary))
    found, thresholds = -math.inf, np.linspace(-1.0, 2.0, 7) * float((added**2).sum())
    luck = 1e-8 / len(thresholds) / 2
    for threshold in thresholds:
        hits = draws - int(np.searchsorted(with_it, threshold))
        alarms = draws - int(np.searchsorted(without, threshold))
        if hits > 0 and alarms < draws:  # Clopper and Pearson, the far ends
            hit = beta.ppf(luck, hits, draws - hits + 1)
            alarm = beta.isf(luck, alarms + 1, draws - alarms)
            found = max(found, float(norm.ppf(hit) - norm.ppf(alarm)))
    return found


@pytest.mark.parametrize(
    "canary", [np.array([[1.0, 0.0, 0.0]]), np.full((1, 3), 7.0), np.array([[1e300, -2e300, 1.0]])]
)
def test_an_audit_with_the_worst_rows_finds_no_more_than_was_paid(canary: Matrix) -> None:
    claimed = accounting.price(PrivateSecondMoment(noise_multiplier=0.8)).mu
    found = measured_mu(canary, 0.8, 5000)
    assert 0.6 * claimed < found <= claimed
    assert measured_mu(canary, 0.8 / 1.5, 5000) > claimed  # it would notice too little noise


def axes_of(columns: int, seed: int = 3) -> Matrix:
    made, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(columns, columns)))
    return np.asarray(made)


def test_rows_of_a_known_second_moment_become_even() -> None:
    """Rows along known axes, some far more often than others: before they are scaled again, the
    second moment of whitened rows is as p / (p + level) along each, and they are as long as they
    were on average."""
    often = np.array([400, 200, 100, 50, 30, 20])
    axes, rows = axes_of(6), 2 * int(often.sum())
    table = np.repeat(axes.T, often, axis=0)
    table = np.concatenate([table, -table])
    tiny = 1e-9
    moment = private_second_moment([table], 6, tiny, rows, fresh_normal)
    whitening = WhiteningMatrix.of(moment, tiny, rows).matrix
    whitened = table @ whitening
    shares = often / often.sum()
    expected = shares / (shares + 0.3 / 6)
    found = axes.T @ (whitened.T @ whitened / rows) @ axes
    np.testing.assert_allclose(found, np.diag(expected) / expected.sum(), atol=1e-3)
    assert (whitened**2).sum(1).mean() == pytest.approx(1, abs=1e-3)
    spread = np.linalg.eigvalsh(moment)
    assert spread[-1] / spread[0] > 15 > 3 > expected.max() / expected.min()
    curvature = WhiteningMatrix.of(moment, tiny, rows).curvature
    assert curvature == pytest.approx(expected.max() / expected.sum(), abs=1e-3)


def test_the_curvature_is_about_that_of_the_prepared_rows() -> None:
    chance, rows, multiplier = np.random.default_rng(0), 20_000, 30.0
    table = chance.normal(size=(rows, 20)) * np.geomspace(1, 0.03, 20) @ axes_of(20).T
    moment = private_second_moment(
        [Preprocessing().apply(table)], 20, multiplier, rows, chance.standard_normal
    )
    matrix = WhiteningMatrix.of(moment, multiplier, rows).matrix
    prepared = Preprocessing([UnitLength(), Multiply(matrix), UnitLength()])
    done = prepared.apply(table).astype(np.float64)
    top = float(np.linalg.eigvalsh(done.T @ done / rows)[-1])
    before = float(np.linalg.eigvalsh(moment)[-1])
    assert WhiteningMatrix.of(moment, multiplier, rows).curvature == pytest.approx(top, rel=0.3)
    assert top < 0.6 * before  # 1/columns is 0.05


def symmetric_noise(columns: int, size: float) -> Matrix:
    return private_second_moment(
        [np.zeros((1, columns))], columns, size, 1, np.random.default_rng(1).standard_normal
    )


@pytest.mark.parametrize(
    "moment",
    [
        np.zeros((5, 5)),
        np.full((5, 5), 0.2),  # of rank one
        -np.eye(5),
        symmetric_noise(5, 1.0) - 10 * np.eye(5),
        symmetric_noise(5, 1e100),
        np.full((1, 1), 1e-320),
    ],
)
@pytest.mark.parametrize(("noise", "rows"), [(1e-12, 10**9), (1.0, 100), (1e100, 1)])
def test_whitening_is_finite_and_symmetric_whatever_the_noise_did(
    moment: Matrix, noise: float, rows: int
) -> None:
    whitening = WhiteningMatrix.of(moment, noise, rows).matrix
    assert np.isfinite(whitening).all()
    np.testing.assert_array_equal(whitening, whitening.T)
    level = 1.4 * math.sqrt(len(moment)) * noise / rows + 0.3 / len(moment)
    steepest = np.linalg.eigvalsh(whitening)[-1]
    # No direction is blown up beyond what rows along it alone would be.
    assert 0 < steepest <= (1 + 1e-9) * math.sqrt((1 + level) / level)
    assert 1 / len(moment) <= WhiteningMatrix.of(moment, noise, rows).curvature <= 1
    done = Preprocessing([UnitLength(), Multiply(whitening), UnitLength()]).apply(
        a_table(9, len(moment))
    )
    np.testing.assert_allclose(np.linalg.norm(done, axis=1), 1, atol=1e-6)


def test_where_noise_drowns_everything_nothing_is_known_of_the_curvature() -> None:
    assert WhiteningMatrix.of(-np.eye(4), 1.0, 10).curvature == 1.0
    assert WhiteningMatrix.of(np.eye(4) / 4, 1e-9, 10**6).curvature == pytest.approx(0.25)


@pytest.mark.parametrize(
    "moment",
    [
        np.zeros(3),
        np.zeros((2, 3)),
        np.zeros((0, 0)),
        np.diag([1.0, np.nan]),
        np.triu(np.ones((2, 2))),
    ],
)
def test_what_is_no_second_moment_is_refused(moment: Matrix) -> None:
    with pytest.raises(InvalidInput, match="private_second_moment"):
        WhiteningMatrix.of(moment, 1.0, 10)


@pytest.mark.parametrize(("noise", "rows"), [(0.0, 10), (math.nan, 10), (1.0, 0), (1.0, 2.5)])
def test_senseless_noise_or_rows_are_refused(noise: float, rows: Any) -> None:
    with pytest.raises(InvalidInput, match="must be"):
        WhiteningMatrix.of(np.eye(2), noise, rows)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.ones(3), "shape"),
        (np.ones((0, 3)), "shape"),
        (np.array([["a", "b", "c"]]), "table of numbers"),
        (np.array([[1.0, np.nan, 1.0]]), "not finite"),
        (np.array([[1.0, -np.inf, 1.0]]), "not finite"),
        (np.ones((2, 1)), "3 columns"),  # which would be added to every column
        (np.ones((2, 4)), "3 columns"),
    ],
)
def test_features_that_do_not_fit_are_refused(
    moment: Callable[..., Matrix], features: NDArray[Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        moment([features], 3, 1.0, 3, no_noise)


@pytest.mark.parametrize("moment", MOMENTS)
def test_more_rows_than_can_be_summed_exactly_are_refused(
    moment: Callable[..., Matrix], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dptune.preparation.moments._EXACT_ROWS", 5)
    moment([np.ones((3, 2)), np.ones((2, 2))], 2, 1.0, 3, no_noise)
    with pytest.raises(InvalidInput, match="exact"):
        moment([np.ones((3, 2)), np.ones((3, 2))], 2, 1.0, 3, no_noise)


@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1), st.integers(1, 300))
def test_rows_said_to_be_of_unit_length_never_exceed_it(seed: int, columns: int) -> None:
    """Rows rounded to float32 may be a little longer than 1; what is summed is not."""
    row = Preprocessing().apply(np.random.default_rng(seed).normal(size=(1, columns)))
    mean = mean_of(row, 2.0**-20, 1, no_noise)
    assert 1 - 1e-6 < float(np.linalg.norm(mean)) <= 1


def test_the_mean_is_divided_by_the_public_number_of_rows() -> None:
    table = np.array([[0.5, 0.0], [0.0, 0.5], [3.0, 4.0]])
    mean = mean_of(table, 2.0**-20, 10, no_noise)
    np.testing.assert_allclose(mean, [0.11, 0.13], rtol=1e-7)  # the last row counts (0.6, 0.8)


def test_noise_is_the_multiplier_times_the_stream() -> None:
    def stream(shape: tuple[int, ...]) -> NDArray[np.float64]:
        assert shape == (2,)
        return np.array([1.0, -2.0])

    table = np.zeros((5000, 2))
    np.testing.assert_array_equal(mean_of(table, 3.0, 6, stream), [0.5, -1.0])


def test_the_mean_covers_rows_of_every_chunk() -> None:
    table = np.full((5000, 1), 0.5)
    np.testing.assert_allclose(mean_of(table, 1.0, 5000, no_noise), [0.5])


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    "drawn", [np.zeros(()), np.zeros(1), np.zeros((1, 3)), np.zeros(3, dtype=np.float32)]
)
def test_one_number_for_all_places_or_coarse_noise_is_refused(
    moment: Callable[..., Matrix], drawn: NDArray[Any]
) -> None:
    with pytest.raises(InvalidInput, match="stream_normal"):
        moment([a_table()], 3, 1.0, 20, lambda shape: drawn)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(("noise", "rows"), [(0.0, 20), (-1.0, 20), (np.inf, 20), (1.0, 0)])
def test_a_moment_without_noise_or_rows_is_refused(
    moment: Callable[..., Matrix], noise: float, rows: int
) -> None:
    with pytest.raises(InvalidInput):
        moment([a_table()], 3, noise, rows, no_noise)
