"""Privately estimated categories: only frequent values, and one row shows what is paid for."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import beta, binom

from dptune import accounting, gdp
from dptune.columns.private_categories import _count, private_categories
from dptune.errors import InvalidInput
from dptune.privacy import ThresholdedCount
from dptune.study.measure import fresh_normal

Array = NDArray[np.float64]
A_MILLION = 1e-6


def no_noise(shape: tuple[int, ...]) -> Array:
    return np.zeros(shape)


def codes(*counts: int) -> NDArray[np.float32]:
    """A column in which the first name is in so many rows, and so on."""
    return np.repeat(np.arange(len(counts), dtype=np.float32), counts)[:, None]


def names(many: int) -> list[str]:
    return [f"name {number}" for number in range(many)]


def test_commonest_values_are_released_up_to_at_most() -> None:
    table = codes(5, 300, 200, 100, 99)
    (bought,) = private_categories([table], [names(5)], [20], 1.0, 99.9, no_noise)
    assert bought == ("name 1", "name 2", "name 3")
    (bought,) = private_categories([table], [names(5)], [2], 1.0, 99.9, no_noise)
    assert bought == ("name 1", "name 2")


def test_counts_are_per_column_over_all_tables_without_missing_values() -> None:
    left, right = codes(60, 10)[:, 0], codes(10, 60)[:, 0]
    table = np.stack([left, right], axis=1)
    table[60:, 0] = math.nan
    bought = private_categories(
        [table, table[:5]], [["a", "b"], ["c", "d"]], [5, 5], 1.0, 14.9, no_noise
    )
    assert bought == (("a",), ("d", "c"))


def test_value_without_row_is_never_released() -> None:
    (bought,) = private_categories(
        [codes(3)], [names(4)], [9], 1e6, 2.0, lambda shape: np.full(shape, 9.0)
    )
    assert bought == ("name 0",)
    assert private_categories([codes(0)], [names(0)], [9], 1.0, 2.0, fresh_normal) == ((),)


def test_row_adds_one_to_one_count_of_every_column() -> None:
    generator = np.random.default_rng(0)
    table = generator.integers(0, 4, (50, 3)).astype(np.float32)
    before = _count([table], [names(4)] * 3)
    for row in ([0.0, 3.0, 1.0], [2.0, math.nan, 2.0], [math.nan] * 3):
        after = _count([table[:20], table[20:], np.array([row], dtype=np.float32)], [names(4)] * 3)
        for old, new, value in zip(before, after, row, strict=True):
            assert (new - old).sum() == (not math.isnan(value))
            assert (new - old).min() >= 0


def test_value_of_one_row_is_released_as_often_as_slack_allows() -> None:
    """Each of many names has one row, and noise of its own: by the formula, and counted."""
    many, noise, threshold = 50_000, 3.0, 8.0
    (bought,) = private_categories(
        [codes(*[1] * many)], [names(many)], [many], noise, threshold, fresh_normal
    )
    slack = accounting.price(ThresholdedCount(noise=noise, threshold=threshold)).slack
    low, high = binom.ppf([A_MILLION / 2, 1 - A_MILLION / 2], many, slack)
    assert low <= len(bought) <= high


@pytest.mark.parametrize("rows", [1, 2, 9])
def test_audit_of_one_more_row_stays_within_price(rows: int) -> None:
    """Whether the name is shown, over many names at once: no test may beat (epsilon, delta)."""
    many, event = 40_000, ThresholdedCount(noise=2.0, threshold=6.0)

    def shown(count: int) -> int:
        (bought,) = private_categories(
            [codes(*[count] * many)],
            [names(many)],
            [many],
            event.noise,
            event.threshold,
            fresh_normal,
        )
        return len(bought)

    price = accounting.price(event)
    with_row, without = shown(rows), shown(rows - 1)
    for hits, alarms in ((with_row, without), (many - without, many - with_row)):
        least = beta.ppf(A_MILLION / 4, hits, many - hits + 1) if hits else 0.0
        most = beta.isf(A_MILLION / 4, alarms + 1, many - alarms) if alarms < many else 1.0
        for epsilon in (0.0, 0.2, 0.5, 1.0):
            delta = price.slack + (1 - price.slack) * gdp.delta_from_mu(price.mu, epsilon)
            assert least <= math.exp(epsilon) * most + delta
    if rows == 1:  # nothing to be shown without it
        assert without == 0 < with_row


@pytest.mark.parametrize("code", [-1.0, 3.0])
def test_codes_of_another_vocabulary_are_refused(code: float) -> None:
    with pytest.raises(InvalidInput, match="vocabulary"):
        private_categories([np.array([[code]])], [names(3)], [3], 1.0, 9.0, fresh_normal)


def test_a_table_of_other_columns_is_refused() -> None:
    with pytest.raises(InvalidInput, match="2 columns"):
        private_categories([np.zeros((3, 1))], [names(3)] * 2, [3, 3], 1.0, 9.0, fresh_normal)
