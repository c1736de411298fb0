"""Plans: what they derive from their own public numbers, and what they refuse."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dptune.errors import InvalidInput, UnpricedEvent
from dptune.plan import ADAPTIVE, OPTIMIZERS, SCHEDULES, TrainPlan
from dptune.privacy import FullBatchRun, SampledRun, ZerothOrderRun


def plan(**changes: Any) -> TrainPlan:
    fields: dict[str, Any] = {
        "rows": 1000,
        "steps": 10,
        "learning_rate": 2.0,
        "noise_multiplier": 5.0,
    }
    return TrainPlan(**(fields | changes))


def pushed(plan: TrainPlan) -> float:
    """Where momentum takes a weight that starts at 0 and always sees the gradient -1."""
    weight = buffer = 0.0
    for _ in range(plan.steps):
        buffer = plan.momentum * buffer - 1.0
        weight -= plan.learning_rate * buffer
    return weight


def test_the_defaults_are_the_papers_recipe() -> None:
    default = plan()
    assert (default.clip_norm, default.momentum, default.optimizer) == (1.0, 0.9, "sgd")
    assert default.weight_decay == 0.0
    assert (default.sampling_rate, default.schedule, default.free_steps) == (None, "constant", 0)
    assert (default.averaging, default.augmentations) == ("none", 1)


def test_a_full_batch_plan_derives_its_event() -> None:
    assert plan(steps=7, noise_multiplier=3.5).event == FullBatchRun(steps=7, noise_multiplier=3.5)


def test_a_sampled_plan_derives_its_event() -> None:
    assert plan(steps=7, noise_multiplier=3.5, sampling_rate=0.25).event == SampledRun(
        steps=7, noise_multiplier=3.5, sampling_rate=0.25
    )


@pytest.mark.parametrize("rate", [None, 0.25])
def test_a_plan_with_directions_derives_its_event(rate: float | None) -> None:
    found = plan(steps=7, noise_multiplier=3.5, sampling_rate=rate, directions=2).event
    assert found == ZerothOrderRun(steps=7, noise_multiplier=3.5, sampling_rate=rate, directions=2)


@pytest.mark.parametrize(
    "post_processing",
    [
        {"clip_norm": 0.01},
        {"learning_rate": 1e4},
        {"optimizer": "adam"},
        {"optimizer": "adamw", "weight_decay": 0.1},
        {"optimizer": "wosm"},
        {"averaging": "swa"},
        {"free_steps": 10},
        {"augmentations": 4},
        {"rows": 17},
    ],
)
def test_what_is_post_processing_does_not_change_the_event(post_processing: dict[str, Any]) -> None:
    assert plan(**post_processing).event == plan().event


@pytest.mark.parametrize(
    "open_run", [{"noise_multiplier": 0.0}, {"noise_multiplier": 0.0, "clip_norm": None}]
)
def test_a_run_without_noise_or_clipping_is_labelled_and_has_no_price(
    open_run: dict[str, Any],
) -> None:
    assert plan().is_private
    assert not plan(**open_run).is_private
    with pytest.raises(UnpricedEvent, match="no finite price"):
        _ = plan(**open_run).event


def test_sums_are_divided_by_a_public_number() -> None:
    assert plan(rows=3).divisor == 3
    assert plan(rows=50_000, sampling_rate=0.02).divisor == pytest.approx(1000)


def test_noise_is_measured_in_clipping_norms() -> None:
    assert plan(noise_multiplier=5.0, clip_norm=0.1).noise == pytest.approx(0.5)
    assert plan(noise_multiplier=0.0, clip_norm=None).noise == 0


@pytest.mark.parametrize(
    ("steps", "factor"),
    [(1, 1.000), (5, 2.629), (10, 4.138), (20, 6.047), (50, 8.209), (100, 9.100), (145, 9.379)],
)
def test_displacement_matches_the_table(steps: int, factor: float) -> None:
    found = plan(steps=steps, momentum=0.9)
    assert found.displacement / found.total_step_size == pytest.approx(factor, abs=5e-4)


@given(steps=st.integers(1, 300), momentum=st.floats(0, 0.99), rate=st.floats(1e-3, 1e3))
def test_displacement_is_where_a_constant_gradient_leads(
    steps: int, momentum: float, rate: float
) -> None:
    tried = plan(steps=steps, momentum=momentum, learning_rate=rate)
    assert tried.displacement == pytest.approx(pushed(tried), rel=1e-9)


@pytest.mark.parametrize("optimizer", ADAPTIVE)
def test_displacement_without_a_momentum_buffer_is_the_total_step_size(optimizer: str) -> None:
    tried = plan(optimizer=optimizer)
    assert tried.displacement == pytest.approx(tried.total_step_size)


def test_total_step_size_is_rate_times_steps() -> None:
    assert plan(steps=40, learning_rate=2.5).total_step_size == 100


def test_schedules_start_at_the_rate_and_fall_as_named() -> None:
    rates = {
        name: [plan(steps=4, schedule=name).rate_at(t) for t in range(4)] for name in SCHEDULES
    }
    assert rates["constant"] == [2.0] * 4
    assert rates["linear"] == pytest.approx([2.0, 1.5, 1.0, 0.5])
    half = math.sqrt(0.5)
    assert rates["cosine"] == pytest.approx([2.0, 1 + half, 1.0, 1 - half])


@given(steps=st.integers(1, 200), schedule=st.sampled_from(SCHEDULES))
def test_rates_stay_positive_and_never_rise(steps: int, schedule: str) -> None:
    tried = plan(steps=steps, schedule=schedule)
    rates = [tried.rate_at(step) for step in range(steps)]
    assert rates[0] == tried.learning_rate
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] > 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rows", 0),
        ("rows", 2.5),
        ("steps", 0),
        ("steps", True),
        ("learning_rate", 0.0),
        ("learning_rate", -1.0),
        ("learning_rate", math.nan),
        ("learning_rate", math.inf),
        ("noise_multiplier", -1.0),
        ("noise_multiplier", math.nan),
        ("noise_multiplier", math.inf),
        ("clip_norm", 0.0),
        ("clip_norm", -1.0),
        ("clip_norm", math.nan),
        ("clip_norm", math.inf),
        ("clip_norm", "1"),
        ("sampling_rate", 0.0),
        ("sampling_rate", 1.5),
        ("sampling_rate", math.nan),
        ("optimizer", "adagrad"),
        ("directions", 0),
        ("directions", 1.5),
        ("momentum", 1.0),
        ("momentum", -0.1),
        ("momentum", math.nan),
        ("weight_decay", -1.0),
        ("weight_decay", math.nan),
        ("schedule", "exponential"),
        ("averaging", "mean"),
        ("ema_decay", 0.0),
        ("ema_decay", 1.0),
        ("free_steps", -1),
        ("free_steps", 11),
        ("augmentations", 0),
    ],
)
def test_nonsense_is_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidInput):
        plan(**{field: value})


def test_noise_without_a_clipping_norm_is_refused() -> None:
    with pytest.raises(InvalidInput, match="needs a clip_norm"):
        plan(clip_norm=None)


@pytest.mark.parametrize("optimizer", [name for name in OPTIMIZERS if name != "sgd"])
def test_free_steps_need_a_momentum_buffer(optimizer: str) -> None:
    with pytest.raises(InvalidInput, match="free_steps"):
        plan(optimizer=optimizer, free_steps=1)


def test_wosm_without_noise_is_refused() -> None:
    with pytest.raises(InvalidInput, match="wosm"):
        plan(optimizer="wosm", noise_multiplier=0.0)


def test_fields_cannot_be_changed_or_given_by_position() -> None:
    with pytest.raises(AttributeError):
        plan().rows = 5  # type: ignore[misc]
    with pytest.raises(TypeError):
        TrainPlan(1000, 10, 2.0, 5.0)  # type: ignore[call-arg]


def test_every_row_may_be_said_by_a_rate_of_one() -> None:
    """Files have no None."""
    plan = TrainPlan(rows=9, steps=1, learning_rate=1.0, noise_multiplier=1.0, sampling_rate=1.0)
    assert plan.sampling_rate is None and isinstance(plan.event, FullBatchRun)
