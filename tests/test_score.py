"""Scores: what they cost, and what they release."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dptune import accounting
from dptune.accounting.split import score_counts
from dptune.errors import InvalidInput
from dptune.noise import grid_step
from dptune.privacy import NoisyCount
from dptune.search.score import (
    HeldOutScore,
    NoisyScore,
    PublicScore,
    Score,
    UnpaidScore,
    release_counts,
)


def squared_sensitivity(trials: int) -> float:
    """Of centred counts, by trying every number of models that are right about a row."""
    return max(right * (trials - right) / trials for right in range(trials + 1))


@given(trials=st.integers(2, 50), mu_squared=st.floats(1e-12, 1e3))
def test_counts_cost_what_was_asked_and_never_more(trials: int, mu_squared: float) -> None:
    event = score_counts(trials, mu_squared)
    assert event is not None and event.centered and event.counts == trials
    assert accounting.price(event).mu_squared <= mu_squared
    by_hand = squared_sensitivity(trials) / event.noise**2
    assert by_hand <= mu_squared * (1 + 1e-15)
    assert by_hand == pytest.approx(mu_squared, rel=1e-12)


def test_half_a_percent_of_epsilon_1_buys_this_noise() -> None:
    """Two sweeps of three trials share it: noise 60.9 (mu = 0.268051 at delta 1e-5)."""
    event = score_counts(3, 0.0025 * 0.268051**2)
    assert event is not None
    assert event.noise == pytest.approx(60.92, abs=0.01)
    assert event.noise == pytest.approx(math.sqrt(2 / 3 / (0.0025 * 0.268051**2)))


def test_a_single_trial_has_nothing_to_be_compared_with() -> None:
    assert score_counts(1, 0.1) is None


@pytest.mark.parametrize(
    ("score", "rows", "paid", "every"),
    [
        (NoisyScore(), "training", True, None),
        (HeldOutScore(every=7), "held-out", True, 7),
        (PublicScore(), "public", False, None),
        (UnpaidScore(), "training", False, None),
    ],
)
def test_a_score_says_where_it_looks_and_whether_it_is_paid(
    score: Score, rows: str, paid: bool, every: int | None
) -> None:
    assert (score.rows, score.paid, score.held_out_every) == (rows, paid, every)
    assert (score.share > 0) is paid
    # Private rows that nobody pays for are what a guarantee must not cover and must name.
    assert score.covers_selection is (paid or rows == "public")
    assert bool(score.caveats) is not score.covers_selection


def test_public_and_unpaid_scores_cost_nothing_and_only_one_covers_selection() -> None:
    assert PublicScore().share == 0 and PublicScore().covers_selection
    assert UnpaidScore().share == 0 and not UnpaidScore().covers_selection
    assert NoisyScore().covers_selection and HeldOutScore().covers_selection
    assert [kind.kind for kind in (NoisyScore, HeldOutScore, PublicScore, UnpaidScore)] == [
        "noisy",
        "held-out",
        "public",
        "unpaid",
    ]


def normal(seed: int) -> Any:
    random = np.random.default_rng(seed)

    def draw(shape: tuple[int, ...]) -> NDArray[np.float64]:
        return random.normal(size=shape)

    return draw


@given(
    exact=st.lists(st.floats(0, 1e6), min_size=2, max_size=10),
    noise=st.floats(0, 1e4),
    seed=st.integers(0, 2**32),
)
def test_released_counts_sum_to_zero(exact: list[float], noise: float, seed: int) -> None:
    released = release_counts(exact, noise, normal(seed))
    step = grid_step(noise) * (noise > 0)  # each is rounded after it was centred
    assert math.fsum(released) == pytest.approx(0, abs=1e-6 + len(exact) * step)


def test_released_counts_carry_centred_noise_of_the_priced_size() -> None:
    """Covariance noise^2 (I - 11'/n), around the centred truth."""
    exact, noise = [100.0, 400.0, 250.0, 250.0], 60.0
    draw = normal(7)
    many = np.array([release_counts(exact, noise, draw) for _ in range(20_000)])
    assert many.mean(axis=0) == pytest.approx([-150, 150, 0, 0], abs=2)
    covariance = np.cov(many.T) / noise**2
    expected = np.eye(4) - 1 / 4
    assert np.abs(covariance - expected).max() < 0.025


def test_without_noise_only_the_differences_are_left() -> None:
    assert release_counts([1.0, 2.0, 6.0], 0.0, normal(0)) == [-2.0, -1.0, 3.0]
    assert release_counts([1001.0, 1002.0, 1006.0], 0.0, normal(0)) == [-2.0, -1.0, 3.0]


def test_a_row_moves_released_counts_by_no_more_than_is_priced() -> None:
    """Same random numbers, one row more: every way five models can be right about it."""
    trials = 5
    before = np.array(release_counts([10.0] * trials, 3.0, normal(1)))
    moved = []
    for right in range(2**trials):
        exact = [10.0 + (right >> model & 1) for model in range(trials)]
        moved.append(float(((np.array(release_counts(exact, 3.0, normal(1))) - before) ** 2).sum()))
    price = accounting.price(NoisyCount(counts=trials, noise=3.0, centered=True)).mu_squared
    assert max(moved) / 9 == pytest.approx(price, rel=1e-4)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (NoisyScore, {"share": 0.0}),
        (NoisyScore, {"share": 1.0}),
        (NoisyScore, {"measure": "accuracy"}),
        (NoisyScore, {"loss_bound": 0.0}),
        (HeldOutScore, {"every": 1}),
        (HeldOutScore, {"measure": "accuracy"}),
        (PublicScore, {"measure": "accuracy"}),
        (PublicScore, {"loss_bound": -1.0}),
        (UnpaidScore, {"measure": "accuracy"}),
    ],
)
def test_invalid_scores_are_refused(kind: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="must"):
        kind(**options)
