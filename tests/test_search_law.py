"""The law's guess from public and paid facts."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptune import TrainPlan
from dptune.prior import Prior
from dptune.search.base import Census, Facts
from dptune.search.law import best_noise, displacement

RECIPE = TrainPlan(rows=50_000, steps=100, learning_rate=1.0, noise_multiplier=30.0)
FACTS = Facts(columns=2048, outputs=10, unit_rows=True)
BALANCED = Census(classes=(5000.0,) * 10, noise=50.0)

# From 1 to 38 rows in geometric steps over ten classes, 14,775 in all.
_RAW = [38 ** (k / 9) for k in range(10)]
RARE = np.array([14_775 * share / sum(_RAW) for share in _RAW])


# Clipped far below their gradients, as the law was measured.
CLIPPED = 0.1


def recipe(rows: int, **changes: Any) -> TrainPlan:
    usual = {"steps": 100, "learning_rate": 1.0, "noise_multiplier": 30.0, "clip_norm": CLIPPED}
    return TrainPlan(rows=rows, **usual | changes)


@pytest.mark.parametrize(
    ("mu", "rows", "columns", "outputs", "noise"),
    [
        (1.0, 100, 100, 5, 1 / math.hypot(1 / 1.8, 5)),  # 18 / sqrt(100) = 1.8 beside 0.2
        (0.2 / 1.8, 100, 100, 5, 1.8 / math.sqrt(2)),  # as much of both
        (1e-9, 100, 100, 5, 1.8),  # only noise limits it
        (1e-9, 100, 100, 2, 1.8),  # whatever the classes, if they are few
        (1e-9, 100, 400, 1000, 0.9),  # or columns many
        (1e-9, 100, 50, 12, 1.8),  # in between: as of sqrt(50 * 200) columns
        (1e-9, 100, 2, 10**9, 18 / math.sqrt(200)),  # of very many classes, whatever the columns
        (1e9, 100, 100, 10, 0.2e-9),  # only the rows limit it
        (1e9, 2_700, 100, 10, 1.8e-9),  # 27^(2/3) = 9
    ],
)
def test_known_guesses(mu: float, rows: int, columns: int, outputs: int, noise: float) -> None:
    facts = Facts(columns=columns, outputs=outputs, unit_rows=True)
    assert best_noise(mu, recipe(rows), facts, None) == pytest.approx(noise, rel=1e-6)


@given(
    mu=st.floats(1e-3, 100),
    rows=st.integers(10, 10**8),
    columns=st.integers(1, 10_000),
    outputs=st.integers(1, 1000),
    clip_norm=st.sampled_from([None, 1.0, 0.51, 0.5, 0.1]),
    averaging=st.sampled_from(["none", "swa"]),
    row_norm=st.floats(0.1, 10),
)
def test_the_guess_is_what_its_docstring_says(
    mu: float,
    rows: int,
    columns: int,
    outputs: int,
    clip_norm: float | None,
    averaging: str,
    row_norm: float,
) -> None:
    """A second derivation, in logarithms and with numbers of its own."""
    many = (outputs - 6) / outputs if outputs > 6 and columns < 200 else 0
    log_near = math.log(18) - math.log(columns) / 2 + many * math.log(columns / 200) / 2
    log_far = math.log(0.2) + 2 * math.log(rows / columns) / 3 - math.log(mu)
    told = math.exp(log_near) * mu * rows / (columns * outputs)
    if averaging == "swa" and columns <= 200:
        log_near += math.log1p(max(outputs - 2, 0) / outputs * told / 10) / 2
        log_far += math.log(3)
    wanted = -np.logaddexp(-2 * log_near, -2 * log_far) / 2
    if averaging == "swa":  # from 1 to 9 / 5, half of the way at 50
        wanted += math.log((50 + 9 / 5 * told) / (50 + told))
        wanted -= math.log(2) if outputs < 3 else 0
    if clip_norm is None or clip_norm > 0.5:
        wanted += math.log(2 / 3)
    plan = recipe(
        rows, clip_norm=clip_norm, averaging=averaging, noise_multiplier=30.0 if clip_norm else 0.0
    )
    facts = Facts(columns=columns, outputs=outputs, unit_rows=True)
    assert math.log(best_noise(mu, plan, facts, None)) == pytest.approx(wanted, abs=1e-9)
    census = Census(classes=(1.0,) * outputs, noise=1.0, row_norm=row_norm)
    shorter = wanted - math.log(row_norm)
    assert math.log(best_noise(mu, plan, facts, census)) == pytest.approx(shorter, abs=1e-9)


@given(st.floats(1e-3, 10), st.integers(10, 10**7), st.floats(1.01, 100))
def test_more_rows_allow_more_noise_and_more_columns_less(
    mu: float, rows: int, more: float
) -> None:
    here = best_noise(mu, recipe(rows), FACTS, None)
    assert best_noise(mu, recipe(math.ceil(rows * more)), FACTS, None) >= here
    wider = replace(FACTS, columns=math.ceil(FACTS.columns * more))
    assert best_noise(mu, recipe(rows), wider, None) < here


@given(st.floats(1e-3, 1e3), st.integers(10, 10**7), st.floats(1.01, 100))
def test_a_larger_budget_trains_longer_but_never_longer_than_the_rows_bear(
    mu: float, rows: int, more: float
) -> None:
    """Without noise more training would fit the rows too closely."""
    plan = recipe(rows)
    here, there = (displacement(best_noise(m, plan, FACTS, None), m, plan) for m in (mu, mu * more))
    most = 0.2 * (rows / FACTS.columns) ** (2 / 3) * rows / CLIPPED
    assert here <= there <= most * (1 + 1e-12)


def test_engine_without_measurements_aims_at_unit_noise_at_any_budget() -> None:
    facts = replace(FACTS, prior=Prior())
    plans = (recipe(100), recipe(100, clip_norm=1.0), recipe(100, averaging="swa"))
    assert {best_noise(mu, plan, facts, None) for mu in (0.01, 100.0) for plan in plans} == {1.0}


def test_counts_of_classes_change_nothing_and_short_rows_raise_the_noise() -> None:
    plain = best_noise(0.2, RECIPE, FACTS, None)
    rare = Census(classes=tuple(RARE), noise=1.0)
    assert {best_noise(0.2, RECIPE, FACTS, census) for census in (BALANCED, rare)} == {plain}
    short = Census(classes=(5000.0,) * 10, noise=50.0, row_norm=0.5)
    assert best_noise(0.2, RECIPE, FACTS, short) == pytest.approx(2 * plain)


def test_rows_that_are_no_longer_than_one_are_seldom_clipped_at_one() -> None:
    """Unless nobody knows how long they are."""
    long = replace(FACTS, unit_rows=False)
    for facts, ratio in ((FACTS, 2 / 3), (long, 1.0)):
        at_one, far_below = (
            best_noise(0.2, recipe(50_000, clip_norm=norm), facts, None) for norm in (1.0, 0.1)
        )
        assert at_one == pytest.approx(ratio * far_below)


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
