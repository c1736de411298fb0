"""Sums of per-row gradients keep their bound as they are really added up."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dptune.data.rows import MemoryRows
from dptune.engines.per_row import ClippedSum, descend
from dptune.engines.randomness import Randomness
from dptune.errors import InvalidInput
from dptune.plan import TrainPlan

CPU = torch.device("cpu")


def total(gradients: Tensor, clip_norm: float | None, parts: list[int] | None = None) -> Tensor:
    added = ClippedSum(gradients.shape[1], clip_norm, CPU)
    for part in gradients.split(parts or len(gradients)):
        added.add(part, len(part))
    return added.value()


def awkward(seed: int, count: int, numbers: int, dtype: torch.dtype) -> Tensor:
    """Gradients of all sizes, some that are no numbers, most of them nearly alike: those whose sums
    round worst."""
    rng = np.random.default_rng(seed)
    one = rng.normal(size=numbers)
    rows = one + 1e-3 * rng.normal(size=(count, numbers))
    rows *= 10.0 ** rng.choice([0.0, 0.0, -30.0, 20.0], size=(count, 1))
    rows[rng.integers(count)] = rng.choice([math.nan, math.inf, -math.inf, 1e300])
    return torch.as_tensor(rows).to(dtype)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(2, 400),
    numbers=st.integers(1, 60),
    clip_norm=st.sampled_from([1e-6, 0.1, 0.3, 1.0, 7.7, 1e6]),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    cut=st.integers(1, 399),
)
def test_no_row_moves_a_sum_by_more_than_the_clip_norm_in_whatever_parts(
    seed: int, count: int, numbers: int, clip_norm: float, dtype: torch.dtype, cut: int
) -> None:
    gradients = awkward(seed, count, numbers, dtype)
    whole = total(gradients, clip_norm)
    assert bool(torch.isfinite(whole).all())
    cut = min(cut, count - 1)
    assert torch.equal(whole, total(gradients, clip_norm, [cut, count - cut]))
    assert torch.equal(whole, total(gradients.flip(0), clip_norm, [1] * count))
    row = seed % count
    rest = torch.cat([gradients[:row], gradients[row + 1 :]])
    assert float((whole - total(rest, clip_norm)).norm()) <= clip_norm


def test_parts_of_many_rows_add_up_as_one() -> None:
    """Were each part rounded in units of its own, a row could move the sum of millions by more than
    a clip norm: a hundredth is what these would be off by."""
    gradient = torch.full((1, 1), 5.0)
    added, again = (ClippedSum(1, 0.3, CPU) for _ in range(2))
    added.add(gradient, 1)
    for many in (added, again):
        for _ in range(30):
            many._total += 2.0**24 * 1_000_003  # a million rows at a time
    moved = float(added.value() - again.value())
    assert 0.29999 < moved <= 0.3


def test_small_gradients_are_added_as_they_are_and_without_a_bound_all_are() -> None:
    gradients = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(total(gradients, None), gradients.double().sum(0))
    torch.testing.assert_close(
        total(gradients * 1e-3, 1.0), gradients.double().sum(0) * 1e-3, rtol=0, atol=50 * 2.0**-23
    )


@pytest.mark.parametrize("shape", [(5, 1), (5, 7, 1), (1, 7), (7,), (4, 7)])
def test_gradients_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    """They would be broadcast, or clipped column by column, and no bound would hold."""
    with pytest.raises(InvalidInput, match=r"5 rows have gradients of shape \(5, 7\), one each"):
        ClippedSum(7, 1.0, CPU).add(torch.ones(shape), 5)
    rows = MemoryRows(np.ones((5, 3)), np.zeros(5, dtype=int))
    plan = TrainPlan(rows=5, steps=1, learning_rate=1.0, noise_multiplier=1.0)
    start = torch.zeros(7)
    with pytest.raises(InvalidInput, match="one each"):
        descend(plan, rows, Randomness(), start, start, lambda *_: torch.ones(shape))


def test_what_descend_cannot_do_is_refused() -> None:
    rows = MemoryRows(np.ones((5, 3)), np.zeros(5, dtype=int))
    start = torch.zeros(2)
    for changes in ({"averaging": "ema"}, {"free_steps": 2}):
        plan = TrainPlan(rows=5, steps=1, learning_rate=1.0, noise_multiplier=1.0, **changes)
        with pytest.raises(InvalidInput, match="leave averaging"):
            descend(plan, rows, Randomness(), start, start, lambda *_: torch.ones(5, 2))
