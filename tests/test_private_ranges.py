"""Ranges estimated from noisy ranks: one row moves them as paid for, and they are useful."""

import itertools
import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from dptune import accounting, validate
from dptune.columns import private_ranges as ranges
from dptune.columns.marks import COARSE, FINE, Marks
from dptune.columns.private_ranges import private_ranges
from dptune.errors import InvalidInput
from dptune.privacy import NoisyRanks
from dptune.study.measure import fresh_normal

Array = NDArray[np.float64]
BOTH = pytest.mark.parametrize("marks", [FINE, COARSE], ids=["fine", "coarse"])


def no_noise(shape: tuple[int, ...]) -> Array:
    return np.zeros(shape)


def nobody(marks: Marks) -> NDArray[np.int64]:
    return np.zeros(marks.cells, dtype=np.int64)


def one_in(cell: int, marks: Marks) -> NDArray[np.int64]:
    counts = nobody(marks)
    counts[cell] = 1
    return counts


@cache
def coefficients(power: float, count: int) -> Array:
    """Of (1 - z)^power, one from the one before."""
    found = np.ones(count)
    for step in range(1, count):
        found[step] = found[step - 1] * (step - 1 - power) / step
    return found


FAR = 2.0**31  # deviations, beside which the grid of noisy sums is nothing


def always(drawn: Array) -> validate.Normal:
    """Noise that is known."""
    return lambda shape: drawn


def without_root(vector: Array) -> Array:
    """R^-1, which is the square root of 1 - z."""
    length = 2**15
    inverse = np.fft.rfft(coefficients(0.5, len(vector)), length)
    product: Array = np.fft.irfft(np.fft.rfft(vector, length) * inverse, length)[: len(vector)]
    return product


@BOTH
@pytest.mark.parametrize("place", [0.0, 1e-3, 0.26, 0.5, 0.98, 1.0])
def test_a_row_moves_ranks_by_what_is_paid_measured_in_their_own_noise(
    place: float, marks: Marks
) -> None:
    """Ranks have noise L z, with L read off the code by its columns. A row adds a step v, so what
    it costs is the length of L^-1 v: here once through the inverse of the root, once as R e."""
    noise, cells = 7.0, marks.cells
    cell = round(place * (cells - 1))
    step = marks.noisy_ranks(one_in(cell, marks), noise, always(np.zeros(cells)))
    np.testing.assert_array_equal(step, (np.arange(cells) >= cell).astype(float))
    unit = np.zeros(cells)
    unit[0] = FAR
    drawn = marks.noisy_ranks(nobody(marks), noise, always(unit)) / FAR
    scale = drawn[0]  # L is lower triangular, the same all along
    np.testing.assert_allclose(drawn, scale * coefficients(-0.5, cells), atol=1e-12)
    by_inverse = float(np.linalg.norm(without_root(step))) / scale
    by_column = float(np.linalg.norm(coefficients(-0.5, cells)[: cells - cell])) / scale
    assert by_inverse == pytest.approx(by_column, rel=1e-9)
    mu = accounting.price(NoisyRanks(columns=1, noise=noise)).mu
    assert by_inverse <= mu
    if cell == 0:  # the row that moves most is what is paid for
        assert by_inverse == pytest.approx(mu, rel=1e-9)


@BOTH
def test_ranks_are_the_root_applied_twice(marks: Marks) -> None:
    """Noise put in at a place and counts put in at a place go the same way: A = R R."""
    drawn = np.random.default_rng(0).normal(size=marks.cells)
    unit = marks.noise_of_ranks(1.0)
    once = marks.noisy_ranks(nobody(marks), 1.0, always(FAR * drawn))
    twice = marks.noisy_ranks(nobody(marks), 1.0, always(once)) / FAR
    np.testing.assert_allclose(twice, unit * np.cumsum(drawn), atol=1e-9)


@BOTH
def test_the_best_test_of_one_row_is_no_better_than_what_is_paid(marks: Marks) -> None:
    """Audit of what the code draws: the likelihood ratio of two neighbours, over 300 releases."""
    noise, tries, cells = 5.0, 300, marks.cells
    direction = coefficients(-0.5, cells)

    def found(counts: NDArray[np.int64], stream_normal: validate.Normal) -> float:
        return float(direction @ without_root(marks.noisy_ranks(counts, noise, stream_normal)))

    seen = [found(nobody(marks), fresh_normal) for _ in range(tries)]
    signal = found(one_in(0, marks), always(np.zeros(cells)))
    # So small a spread is seen once in a million if the noise is what it should be.
    spread = math.sqrt(np.sum(np.square(seen)) / chi2.isf(1e-6, tries))
    mu = accounting.price(NoisyRanks(columns=1, noise=noise)).mu
    assert signal / (math.sqrt(np.sum(np.square(seen)) / tries)) < 1.3 * mu
    assert signal / spread > mu  # and the audit would see it if there were less noise
    assert abs(np.mean(seen)) < norm.isf(1e-7) * signal / mu / math.sqrt(tries)


NUMBERS = st.one_of(
    st.floats(width=32, allow_nan=False),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0**-20, -(2.0**-20), 2.0**40, 1e30, math.inf]),
)


@BOTH
@settings(max_examples=100)
@given(value=NUMBERS)
def test_every_number_is_in_one_cell_and_between_its_marks(value: float, marks: Marks) -> None:
    (cell,) = marks.cells_of(np.array([value]))
    assert 0 <= cell < marks.cells
    low, high = marks.around(int(cell))
    assert low < high
    if abs(value) < 2.0**40:
        assert low <= value <= high
        assert value < high or value <= 0
    else:
        assert cell in (0, marks.cells - 1)


@BOTH
def test_cells_touch_each_other_in_order(marks: Marks) -> None:
    around = [marks.around(cell) for cell in range(marks.cells)]
    assert all(one[1] == next_one[0] for one, next_one in itertools.pairwise(around))


@pytest.mark.parametrize(("marks", "apart"), [(FINE, 1 / 128), (COARSE, 1 / 8)])
def test_marks_are_so_far_apart_at_most(marks: Marks, apart: float) -> None:
    ends = [marks.around(cell) for cell in range(marks.cells // 2 + 1, marks.cells - 1)]
    assert max(high / low for low, high in ends) == 1 + apart


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=6), st.tuples(NUMBERS, NUMBERS))
def test_row_counts_once_per_column_and_missing_values_do_not(
    rows: list[tuple[float, float]], row: tuple[float, float]
) -> None:
    def counted(table: list[tuple[float, float]]) -> list[Array]:
        seen: list[Array] = []
        kept = ranges._estimate
        ranges._estimate = lambda ranks, *_: seen.append(ranks)  # type: ignore[assignment]
        try:
            codes = np.array(table, dtype=np.float32).reshape(-1, 2)
            private_ranges([codes[:1], codes[1:]], 2, 1.0, 9, no_noise)
        finally:
            ranges._estimate = kept
        return [np.diff(ranks, prepend=0.0) for ranks in seen]

    before, after, gap = counted(rows), counted([*rows, row]), counted([*rows, (math.nan, 1.0)])
    for old, new in zip(before, after, strict=True):
        moved = new - old
        assert moved.min() == 0 and moved.sum() == moved.max() == 1
    np.testing.assert_array_equal(before[0], gap[0])


def look(values: Array, noise: float, seed: int) -> ranges.Range:
    drawn = np.random.default_rng(seed).normal
    (found,) = private_ranges(
        [values[:, None]], 1, noise, len(values), lambda shape: drawn(size=shape)
    )
    return found


def found(values: Array, noise: float, seed: int) -> tuple[float, float]:
    low, high, *_ = look(values, noise, seed)
    return low, high


ROWS = 4000
# That of 9 columns for 5 % of epsilon 1 at delta 1e-5.
NOISE = 50.0
MADE = np.random.default_rng(1)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        (MADE.integers(1990, 2021, ROWS), (1900, 1995), (2010, 2100)),
        (np.exp(MADE.normal(10.5, 0.8, ROWS)), (-6e4, 2e4), (6e4, 4e5)),  # incomes
        (1e4 * (MADE.pareto(1.2, ROWS) + 1), (-1e4, 1.3e4), (3e4, 4e5)),
        (MADE.normal(size=ROWS), (-6, -0.8), (0.8, 6)),
        (1e-4 * MADE.normal(3, 1, ROWS), (-4e-4, 2.5e-4), (3.5e-4, 1.2e-3)),
        (-np.exp(MADE.normal(3, 1, ROWS)), (-400, -40), (-8, 120)),
        (np.full(ROWS, 5.0), (4.8, 5.0), (5.03, 5.2)),
        (np.zeros(ROWS), (-1e-4, 0), (0, 1e-4)),
        (MADE.integers(0, 2, ROWS), (-1.6, 0.001), (1.0, 2.6)),
        ((MADE.random(ROWS) < 0.01), (-1e-4, 0), (0, 1e-4)),  # what is rare is clipped
    ],
    ids=[
        "years",
        "incomes",
        "heavy-tails",
        "around-zero",
        "small",
        "below-zero",
        "constant",
        "zeros",
        "two-values",
        "rare",
    ],
)
def test_ranges_of_few_thousand_rows_at_epsilon_1_are_useful(
    values: Array, low: tuple[float, float], high: tuple[float, float]
) -> None:
    for seed in range(10):
        ends = found(np.asarray(values, dtype=np.float64), NOISE, seed)
        assert low[0] <= ends[0] <= low[1] and high[0] <= ends[1] <= high[1]
        assert ends[0] < ends[1]


@pytest.mark.parametrize(
    ("values", "between"),
    [
        (MADE.integers(0, 2, ROWS), False),
        (MADE.random(ROWS) < 0.01, False),
        (np.full(ROWS, 5.0), False),
        (MADE.integers(0, 3, ROWS), True),
        (MADE.normal(size=ROWS), True),
    ],
    ids=["two-values", "rare", "constant", "three-values", "numbers"],
)
def test_range_reports_rows_between_its_ends(values: Array, between: bool) -> None:
    for seed in range(10):
        assert look(np.asarray(values, dtype=np.float64), NOISE / 2, seed).between == between


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).uniform(3, 9, 10_000),
        np.exp(np.random.default_rng(0).uniform(3, 9, 10_000)),
        # Many have one value where 3 % lie beyond, so it cannot be seen how rows thin out.
        np.repeat([0.0, 1.0, 2.0, 40.0], [6000, 2000, 1800, 200]),
    ],
    ids=["even", "skew", "few-values"],
)
def test_with_next_to_no_noise_the_ends_are_quantiles(values: Array) -> None:
    low, high = found(values, 1e-6, 0)
    assert low == pytest.approx(np.quantile(values, 0.01), rel=0.02)
    assert high == pytest.approx(np.quantile(values, 0.99), rel=0.02)


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        (lambda draws: draws.normal(size=100_000), (-2.45, -2.2), (2.2, 2.45)),
        (lambda draws: draws.exponential(size=100_000), (-0.1, 0.05), (4.2, 4.8)),
        (lambda draws: draws.random(100_000), (-0.05, 0.02), (0.98, 1.05)),
        (lambda draws: draws.integers(3, 5, 100_000), (3, 3), (4, 4.04)),
    ],
    ids=["normal", "exponential", "even", "two-values"],
)
def test_ends_extend_to_tails_hidden_by_noise(
    values: Callable[[np.random.Generator], Array],
    low: tuple[float, float],
    high: tuple[float, float],
) -> None:
    made = np.asarray(values(np.random.default_rng(0)), dtype=np.float64)
    noise = ranges.noise_for(len(made), 0.01)  # so that ends are looked for at 3 %
    (ends,) = private_ranges([made[:, None]], 1, noise, len(made), np.zeros)
    assert low[0] <= ends.low <= low[1] and high[0] <= ends.high <= high[1]


@pytest.mark.parametrize("values", [[], [1.0], [math.nan] * 5, [math.inf, -math.inf]])
def test_noise_alone_gives_ends_in_order(values: list[float]) -> None:
    low, high = found(np.array(values * 2), 50.0, 3) if values else found(np.zeros(1), 1e6, 3)
    assert -math.inf < low < high < math.inf


def test_the_rule_of_how_many_rows_are_needed_follows_the_noise() -> None:
    assert 2000 < ranges.rows_needed(NOISE) < 2200
    assert ranges.rows_needed(2 * NOISE) == pytest.approx(2 * ranges.rows_needed(NOISE), rel=0.01)
    noise = ranges.noise_for(10_000, 0.02)
    assert FINE.noise_of_ranks(noise) == pytest.approx(200)


def test_coarse_marks_compare_scales_if_fine_marks_are_too_noisy() -> None:
    """Three quarters of the noise in a rank, by a sum of its own; and fine marks as long as ranks
    are off by a tenth of the rows or less."""
    less = math.sqrt(
        sum(coefficients(-0.5, COARSE.cells) ** 2) / sum(coefficients(-0.5, FINE.cells) ** 2)
    )
    for noise in (3.0, NOISE):
        fine = ranges.rows_needed(noise)
        assert ranges.rows_needed(noise, for_sizes=True) == pytest.approx(
            fine * less**2 / 2, rel=0.01
        )
        assert ranges.marks_for(noise, fine) is FINE
        assert ranges.marks_for(noise, fine - 1) is COARSE
        for rows in (1000, 20_000):
            assert ranges.rows_needed(ranges.most_noise(rows)) in (rows, rows + 1)


def test_coarse_ranges_are_those_of_fine_marks_or_a_mark_further_out() -> None:
    """With next to no noise: that of years is an eighth of an octave."""
    values = np.stack([MADE.integers(1990, 2021, ROWS), MADE.integers(18, 90, ROWS)], axis=1)
    (years, ages), (near, _) = (
        private_ranges([values], 2, 1e-6, ROWS, np.zeros, marks) for marks in (COARSE, FINE)
    )
    assert years[:2] == (1920, 2048) and near.low >= 1984 and near.high <= 2024
    assert 16 <= ages.low <= 18 and 89 <= ages.high <= 96


def wrong_table() -> None:
    private_ranges([np.zeros((3, 1))], 2, 1.0, 3, fresh_normal)


def wrong_noise() -> None:
    private_ranges([np.zeros((3, 1))], 1, 1.0, 3, lambda shape: np.zeros(1))


@pytest.mark.parametrize(("wrong", "words"), [(wrong_table, "2 columns"), (wrong_noise, "float64")])
def test_invalid_release_is_refused(wrong: Callable[[], None], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        wrong()
