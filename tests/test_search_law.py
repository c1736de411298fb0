"""The law's guess from public and paid facts."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptune import TrainPlan
from dptune.search.base import Census, Facts
from dptune.search.law import best_noise, displacement

RECIPE = TrainPlan(rows=50_000, steps=100, learning_rate=1.0, noise_multiplier=30.0)
FACTS = Facts(columns=2048, outputs=10, unit_rows=True)
BALANCED = Census(classes=(5000.0,) * 10, noise=50.0)

# From 1 to 38 rows in geometric steps over ten classes, 14,775 in all.
_RAW = [38 ** (k / 9) for k in range(10)]
RARE = np.array([14_775 * share / sum(_RAW) for share in _RAW])


def recipe(rows: int) -> TrainPlan:
    return TrainPlan(rows=rows, steps=100, learning_rate=1.0, noise_multiplier=30.0)


@pytest.mark.parametrize(
    ("mu", "rows", "columns", "outputs", "noise"),
    [
        (1.0, 100, 100, 10, 0.5),  # one row's worth of signal per column: exactly a half
        (1.0, 104_857_600, 100, 10, 4.0),  # 2^20 times the signal: 2^(20 * 0.15) = 8
        (2.0, 52_428_800, 100, 10, 4.0),
        (0.268051, 50_000, 2048, 10, 0.662748),  # 0.5 exp(0.15 * 1.878581)
        (0.268051, 50_000, 2048, 100, 0.765330),  # 10^(1/16) = 1.154782
        (0.1, 1000, 100_000, 2, 0.5 * 0.001**0.15 * 0.2 ** (1 / 16)),
    ],
)
def test_known_guesses(mu: float, rows: int, columns: int, outputs: int, noise: float) -> None:
    facts = Facts(columns=columns, outputs=outputs, unit_rows=True)
    assert best_noise(mu, recipe(rows), facts, None) == pytest.approx(noise, rel=1e-5)


@given(st.floats(1e-3, 10), st.integers(10, 10**7), st.floats(1.01, 100))
def test_more_signal_allows_more_noise(mu: float, rows: int, more: float) -> None:
    here = best_noise(mu, recipe(rows), FACTS, None)
    assert best_noise(mu * more, recipe(rows), FACTS, None) > here
    assert best_noise(mu, recipe(math.ceil(rows * more)), FACTS, None) > here
    wider = Facts(columns=FACTS.columns * 2, outputs=FACTS.outputs, unit_rows=True)
    assert best_noise(mu, recipe(rows), wider, None) < here


def test_a_census_of_equal_classes_changes_nothing() -> None:
    assert best_noise(0.2, RECIPE, FACTS, BALANCED) == best_noise(0.2, RECIPE, FACTS, None)


def test_rare_classes_and_short_rows_raise_the_noise() -> None:
    plain = best_noise(0.2, RECIPE, FACTS, None)
    rare = Census(classes=tuple(RARE), noise=1.0)
    assert best_noise(0.2, RECIPE, FACTS, rare) / plain == pytest.approx(rare.imbalance, rel=1e-12)
    short = Census(classes=(5000.0,) * 10, noise=50.0, row_norm=0.5)
    assert best_noise(0.2, RECIPE, FACTS, short) == pytest.approx(2 * plain)


def test_displacement_leaves_the_noise_it_was_asked_for() -> None:
    assert displacement(0.5, 0.2, RECIPE) == pytest.approx(0.5 * 0.2 * 50_000)
    clipped = TrainPlan(
        rows=50_000, steps=100, learning_rate=1.0, noise_multiplier=30.0, clip_norm=0.1
    )
    assert displacement(0.5, 0.2, clipped) == pytest.approx(0.5 * 0.2 * 50_000 / 0.1)


def noisy(counts: np.ndarray, noise: float, seed: int) -> Census:
    random = np.random.default_rng(seed)
    return Census(classes=tuple(counts + random.normal(0, noise, len(counts))), noise=noise)


@pytest.mark.parametrize(("rows", "noise"), [(50_000, 118.0), (5_000, 118.0), (2_000, 118.0)])
@pytest.mark.parametrize("classes", [2, 10, 100])
def test_equal_classes_are_seen_as_equal(rows: int, noise: float, classes: int) -> None:
    counts = np.full(classes, rows / classes)
    unequal = [noisy(counts, noise, seed).imbalance > 1.0 for seed in range(1000)]
    assert sum(unequal) <= 10


def test_rare_classes_are_seen_through_the_noise_and_not_exaggerated() -> None:
    truth = 10 * float((RARE**2).sum()) / 14_775**2
    assert truth == pytest.approx(2.06, abs=0.01)
    exact = Census(classes=tuple(RARE), noise=1e-9)
    assert exact.imbalance == pytest.approx(truth, rel=1e-6)
    imbalances = [noisy(RARE, 118.0, seed).imbalance for seed in range(1000)]
    assert np.mean(imbalances) == pytest.approx(truth, rel=0.1)
    assert np.mean(np.array(imbalances) > truth) < 0.05
    assert max(imbalances) < truth * 1.1


def test_tiny_data_under_huge_noise_counts_as_balanced() -> None:
    counts = RARE / 1000
    imbalances = [noisy(counts, 118.0, seed).imbalance for seed in range(1000)]
    assert sum(imbalance > 1.0 for imbalance in imbalances) <= 5


def test_one_class_is_the_most_imbalanced() -> None:
    only = Census(classes=(10_000.0, 0.0, 0.0, 0.0), noise=1.0)
    assert 3.98 < only.imbalance <= 4.0


def test_classes_that_matter_alike_need_no_weights() -> None:
    assert BALANCED.weights is None


def test_weights_make_rare_classes_count_as_much() -> None:
    census = Census(classes=tuple(RARE), noise=1.0)
    assert census.weights is not None
    assert census.weights[0] == 1.0
    assert [w * n for w, n in zip(census.weights, RARE, strict=True)] == pytest.approx(
        [RARE[0]] * 10
    )


def test_weighted_rows_are_as_many_as_the_rarest_class_allows() -> None:
    census = Census(classes=tuple(RARE), noise=1.0)
    assert census.effective_share == pytest.approx(10 * RARE[0] / RARE.sum())
    assert census.balanced.imbalance == 1.0 and census.imbalance > 2.0
    assert BALANCED.effective_share == 1.0 and BALANCED.balanced == BALANCED


@given(
    st.lists(st.floats(-1e3, 1e6), min_size=2, max_size=20),
    st.floats(1e-3, 1e4),
)
def test_any_counts_give_sane_facts(counts: list[float], noise: float) -> None:
    census = Census(classes=tuple(counts), noise=noise)
    assert 1.0 <= census.imbalance <= len(counts)
    if census.weights is not None:
        # A row may add no more than 1 to a score: the price of scores rests on this.
        assert all(0 < weight <= 1 for weight in census.weights)
        assert max(census.weights) == 1.0 or min(counts) < 2 * noise
    assert 0 < census.effective_share <= 1.0
