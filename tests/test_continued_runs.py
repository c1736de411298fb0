"""A run in segments: where one run ended, the next goes on as if there had been no end."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dptune.data.rows import Chunk, MemoryRows
from dptune.engines.linear import LinearEngine, LinearModel
from dptune.engines.randomness import Randomness
from dptune.errors import InvalidInput
from support.linear import LinearPlan

LOSSES = ("softmax", "binary", "squared")
OUTPUTS = {"softmax": 4, "binary": 1, "squared": 2}
COUNT, COLUMNS = 60, 9


def plan(**changes: Any) -> LinearPlan:
    fields: dict[str, Any] = {
        "rows": COUNT,
        "steps": 12,
        "learning_rate": 0.5,
        "noise_multiplier": 0.0,
        "clip_norm": None,
    }
    return LinearPlan(**(fields | changes))


class NeverRead(MemoryRows):
    """Rows that must not be looked at."""

    def chunks(self) -> Iterator[Chunk]:
        raise AssertionError("rows were read")


def make_rows(
    loss: str = "softmax", precision: str = "float64", kind: type[MemoryRows] = MemoryRows
) -> MemoryRows:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(COUNT, COLUMNS))
    targets: Any = rng.normal(size=(COUNT, OUTPUTS[loss]))
    if loss != "squared":
        targets = rng.integers(2 if loss == "binary" else OUTPUTS[loss], size=COUNT)
    return kind(features, targets, precision=precision, chunk_rows=16)


def engine(loss: str = "softmax") -> LinearEngine:
    return LinearEngine(outputs=OUTPUTS[loss], loss=loss)


def fit(
    plans: Sequence[LinearPlan],
    rows: MemoryRows,
    loss: str = "softmax",
    start: Sequence[LinearModel | None] | None = None,
) -> list[LinearModel]:
    streams = [Randomness(trial=trial) for trial in range(len(plans))]
    return plans[0].engine(OUTPUTS[loss], loss).fit_many(plans, rows, streams, start)


def in_segments(
    chosen: LinearPlan, steps: Sequence[int], rows: MemoryRows, loss: str = "softmax"
) -> LinearModel:
    """`chosen`, run as segments of so many steps; its free steps belong to the last one."""
    model: LinearModel | None = None
    for number, segment in enumerate(steps):
        free = chosen.free_steps if number == len(steps) - 1 else 0
        (model,) = fit([replace(chosen, steps=segment, free_steps=free)], rows, loss, [model])
    assert model is not None
    return model


def assert_same(one: LinearModel, other: LinearModel, tolerance: float = 1e-6) -> None:
    def close(left: Tensor | None, right: Tensor | None) -> None:
        assert (left is None) == (right is None)
        if left is not None:
            torch.testing.assert_close(left, right, rtol=tolerance, atol=tolerance)

    close(one.weights, other.weights)
    close(one.bias, other.bias)
    close(one.velocity, other.velocity)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("segments", [[3, 3, 3, 3], [5, 4, 3], [1, 11], [12]])
def test_the_mean_of_a_tail_goes_over_segments(bias: bool, segments: list[int]) -> None:
    """Of the second half of all steps, each segment takes what lies in it; stored between them."""
    rows = make_rows("softmax")
    chosen = plan(bias=bias, momentum=0.9, averaging="swa")
    (whole,) = fit([chosen], rows)
    engine, model, start = chosen.engine(OUTPUTS["softmax"], "softmax"), None, 0
    for steps in segments:
        tail = max(0, start + steps - max(start, chosen.steps // 2))
        (model,) = fit([replace(chosen, steps=steps, tail=tail)], rows, start=[model])
        model, start = engine.unpack(engine.pack(model)), start + steps
    assert model is not None
    assert_same(model, whole)
    assert model.averaged == whole.averaged == 6
    assert model.last is not None and whole.last is not None
    torch.testing.assert_close(model.last, whole.last, rtol=1e-6, atol=1e-6)
    (last,) = fit([replace(chosen, averaging="none")], rows)
    assert not torch.allclose(whole.weights, last.weights)
    torch.testing.assert_close(whole.last[:, : whole.weights.shape[1]], last.weights)


def test_a_tail_that_begins_later_forgets_an_earlier_average() -> None:
    rows = make_rows("softmax")
    chosen = plan(averaging="swa")
    (begun,) = fit([chosen], rows)
    (on,) = fit([replace(chosen, steps=4, tail=2)], rows, start=[begun])
    (plain,) = fit([replace(chosen, averaging="none")], rows)
    (same,) = fit([replace(chosen, steps=4, tail=2)], rows, start=[plain])
    assert on.averaged == 2
    assert_same(on, same)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("segments", [[3, 3, 3, 3], [1, 11], [12]])
def test_segments_equal_one_run(
    loss: str, bias: bool, momentum: float, segments: list[int]
) -> None:
    rows = make_rows(loss)
    chosen = plan(bias=bias, momentum=momentum, initialization="random", weight_decay=0.01)
    (whole,) = fit([chosen], rows, loss)
    assert_same(in_segments(chosen, segments, rows, loss), whole)
    assert not torch.allclose(whole.weights, fit([replace(chosen, steps=3)], rows, loss)[0].weights)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_segments_equal_one_run_in_every_precision(precision: str) -> None:
    """Weights are kept in at least float32 between steps, and so between segments."""
    rows, chosen = make_rows(precision=precision), plan(bias=True)
    assert_same(in_segments(chosen, [4, 4, 4], rows), fit([chosen], rows)[0])


def test_segments_with_clipping_equal_one_run() -> None:
    rows = make_rows()
    chosen = plan(bias=True, clip_norm=0.5, noise_multiplier=1e-9)
    assert_same(in_segments(chosen, [5, 7], rows), fit([chosen], rows)[0])


def test_the_momentum_buffer_matters() -> None:
    rows, chosen = make_rows(), plan()
    (whole,) = fit([chosen], rows)
    (half,) = fit([replace(chosen, steps=6)], rows)
    assert half.velocity is not None
    stopped = replace(half, velocity=torch.zeros_like(half.velocity))
    (other,) = fit([replace(chosen, steps=6)], rows, start=[stopped])
    assert float((other.weights - whole.weights).abs().max()) > 1e-3


def test_trials_with_segments_of_different_lengths_go_together() -> None:
    """Some begin, some continue; one ends early and one takes free steps."""
    rows = make_rows()
    plans = [
        plan(steps=12),
        plan(steps=7, momentum=0.5),
        plan(steps=10, free_steps=3),
        plan(steps=5),
        plan(steps=9, averaging="ema"),
    ]
    wanted = fit(plans, rows)
    first = [replace(p, steps=s, free_steps=0) for p, s in zip(plans, (4, 6, 1), strict=False)]
    begun: list[LinearModel | None] = [*fit(first, rows), None, None]
    rest = [replace(p, steps=p.steps - s) for p, s in zip(plans, (4, 6, 1, 0, 0), strict=True)]
    # A random start depends on the trial's number, so the order stays.
    for found, whole in zip(fit(rest, rows, start=begun), wanted, strict=True):
        assert_same(found, whole)


@pytest.mark.parametrize("free", [1, 4])
def test_free_steps_act_only_at_the_end(free: int) -> None:
    rows = make_rows()
    chosen = plan(free_steps=free, bias=True)
    (whole,), (without,) = fit([chosen], rows), fit([replace(chosen, free_steps=0)], rows)
    assert_same(in_segments(chosen, [6, 6], rows), whole)
    assert not torch.allclose(whole.weights, without.weights)
    assert whole.velocity is not None and without.velocity is not None
    torch.testing.assert_close(whole.velocity, without.velocity)  # free steps are no part of it


def test_a_start_is_not_changed_and_not_shared() -> None:
    rows = make_rows()
    (model,) = fit([plan(steps=3, bias=True)], rows)
    assert model.velocity is not None and model.bias is not None
    before = (model.weights.clone(), model.bias.clone(), model.velocity.clone())
    (more,) = fit([plan(steps=3, bias=True)], rows, start=[model])
    for kept, now in zip(before, (model.weights, model.bias, model.velocity), strict=True):
        assert torch.equal(kept, now)
    assert more.velocity is not None
    more.weights.fill_(7), more.velocity.fill_(7)
    assert torch.equal(before[0], model.weights) and torch.equal(before[2], model.velocity)


def test_sampled_runs_continue_with_noise_and_samples_of_their_own() -> None:
    chosen = plan(sampling_rate=0.5, clip_norm=1.0, noise_multiplier=1.0)
    rows = make_rows()
    (model,) = fit([chosen], rows)
    one, other = (fit([chosen], rows, start=[model])[0] for _ in range(2))
    assert not torch.equal(one.weights, other.weights)


@pytest.mark.parametrize(
    "changes",
    [{"optimizer": "adam"}, {"optimizer": "lamb"}, {"averaging": "ema"}],
)
def test_other_plans_leave_no_velocity(changes: dict[str, Any]) -> None:
    (model,) = fit([plan(**changes)], make_rows())
    assert model.velocity is None
    with pytest.raises(InvalidInput, match="no velocity"):
        fit([plan()], make_rows(kind=NeverRead), start=[model])


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "adam"},
        {"optimizer": "lamb"},
        {"optimizer": "wosm", "noise_multiplier": 1.0, "clip_norm": 1.0},
        {"averaging": "ema"},
        {"schedule": "linear"},
        {"schedule": "cosine"},
    ],
)
def test_a_plan_that_cannot_continue_is_refused(changes: dict[str, Any]) -> None:
    (model,) = fit([plan(steps=2)], make_rows())
    with pytest.raises(InvalidInput, match="only sgd at a constant rate"):
        fit([plan(**changes)], make_rows(kind=NeverRead), start=[model])


@pytest.mark.parametrize(
    "changes",
    [
        {"weights": torch.zeros(4, COLUMNS + 1)},
        {"weights": torch.zeros(3, COLUMNS)},
        {"bias": torch.zeros(4)},
        {"velocity": torch.zeros(4, COLUMNS + 1)},
        {"loss": "squared"},
    ],
)
def test_a_start_that_does_not_fit_is_refused(changes: dict[str, Any]) -> None:
    (model,) = fit([plan(steps=2)], make_rows())
    with pytest.raises(InvalidInput, match="this plan on these rows continues a model of"):
        fit([plan()], make_rows(kind=NeverRead), start=[replace(model, **changes)])


def test_a_bias_is_neither_gained_nor_lost() -> None:
    (plain,), (biased,) = fit([plan()], make_rows()), fit([plan(bias=True)], make_rows())
    for chosen, model in ((plan(bias=True), plain), (plan(), biased)):
        with pytest.raises(InvalidInput, match="continues a model of"):
            fit([chosen], make_rows(kind=NeverRead), start=[model])


def test_plans_without_a_start_each_are_refused() -> None:
    with pytest.raises(InvalidInput, match="2 plans need as many streams, starts"):
        fit([plan(), plan()], make_rows(kind=NeverRead), start=[None])
