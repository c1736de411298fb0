"""ZerothOrder: what a step is, what a row adds to it, what it costs, and that it learns."""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import dptune
import own_networks
from dptune.accounting import Budget, price
from dptune.data import Data, MemoryRows
from dptune.data.rows import DataFacts
from dptune.engines import LinearEngine, Randomness
from dptune.engines.checkpoint import Checkpoint
from dptune.engines.modules.torch_module import TorchModule
from dptune.engines.modules.zeroth_order import ZerothOrder
from dptune.engines.randomness import Stream
from dptune.errors import InvalidInput
from dptune.ledger import Ledger
from dptune.plan import TrainPlan
from dptune.privacy import ZerothOrderRun
from dptune.study.config import engine_from
from support.engine_conformance import EngineConformance

COUNT = 24
FACTS = DataFacts(COUNT, (4,), 1, 3, "softmax")
PLAIN = TrainPlan(
    rows=1,
    steps=1,
    learning_rate=1.0,
    noise_multiplier=0.0,
    clip_norm=None,
    momentum=0.0,
    directions=1,
)


def some_rows(count: int = COUNT, size: float = 1.0, copies: int = 1) -> MemoryRows:
    rng = np.random.default_rng(0)
    features = size * rng.normal(size=(count, copies, 4))
    return MemoryRows(features, rng.integers(0, 3, count), augmented=True)


def some_data(count: int = 200) -> Data:
    features = np.random.default_rng(0).normal(size=(count, 4))
    return Data(features, features[:, :3].argmax(1))


def engine(factory: Any = own_networks.small, **options: Any) -> ZerothOrder:
    return ZerothOrder(factory, **{"rows_at_once": COUNT} | options).for_data(FACTS)


def flat(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().double().flatten() for p in module.parameters()])


def fitted(plan: TrainPlan, rows: Any, made: ZerothOrder | None = None, seed: int = 0) -> Tensor:
    (model,) = (made or engine()).fit_many([plan], rows, [Randomness(noise_seed=seed)])
    return flat(model.module)


def begin(made: ZerothOrder | None = None) -> Tensor:
    return flat((made or engine()).made(Randomness(noise_seed=0)))


def direction(number: int = 0, step: int = 0, weights: int = 51) -> Tensor:
    """That anybody can draw: of the seed of the study and the number of the trial."""
    key = Randomness().public_number(f"direction {number} of step {step}")
    return Stream(key, torch.device("cpu")).normal_(torch.empty(weights)).double()


def slopes(rows: MemoryRows, along: Tensor) -> Tensor:
    """Of every row's loss along a direction: its derivative, by small steps in float64."""
    module = engine().made(Randomness(noise_seed=0)).double()
    start, found = torch.nn.utils.parameters_to_vector(module.parameters()).detach(), []
    for side in (1e-5, -1e-5):
        torch.nn.utils.vector_to_parameters(start + side * along, module.parameters())
        outputs = module(rows.features[:, 0].double()).detach()
        found.append(nn.functional.cross_entropy(outputs, rows.targets, reduction="none"))
    return (found[0] - found[1]) / 2e-5


class TestAsAnEngine(EngineConformance):
    """Along the first direction a run is like any other: its sums are sums of slopes."""

    engine: ClassVar = ZerothOrder(own_networks.small, rows_at_once=300)

    def plan(self, **changes: Any) -> TrainPlan:
        only = {"directions": 1, "optimizer": "sgd"}
        return super().plan(**changes | only)

    def weights(self, model: Any) -> Tensor:
        z = direction()
        return (flat(model.module) @ z / z.square().sum())[None]


# -- steps


def moved(plan: TrainPlan, rows: Any, **options: Any) -> float:
    """By how much a step of rate 1 and divisor 1 goes against its only direction."""
    found, z = begin() - fitted(plan, rows, engine(**options)), direction()
    along = float(found @ z / z.square().sum())
    # And it goes nowhere else, up to the rounding of three moves there and back.
    torch.testing.assert_close(found, along * z, rtol=1e-4, atol=3e-6)
    return along


def test_without_noise_and_clipping_a_step_follows_the_derivative_along_its_direction() -> None:
    rows = some_rows()
    assert moved(PLAIN, rows) == pytest.approx(float(slopes(rows, direction()).sum()), rel=2e-3)


def test_clipped_slopes_are_summed_however_a_batch_is_split() -> None:
    rows, clip = some_rows(), 0.5
    exact = slopes(rows, direction())
    assert 5 < int((exact.abs() > clip).sum()) < COUNT  # or nothing was tested
    wanted = float(exact.clamp(-clip, clip).sum())
    for size in (1, 7, COUNT):
        found = moved(replace(PLAIN, clip_norm=clip), rows, rows_at_once=size)
        assert found == pytest.approx(wanted, rel=5e-3)


def test_several_directions_are_clipped_together_and_averaged() -> None:
    rows, clip = some_rows(), 1.0
    both = torch.stack([slopes(rows, direction(number)) for number in range(2)], 1)
    scale = (clip / both.norm(dim=1, keepdim=True)).clamp(max=1)
    assert 5 < int((scale < 1).sum()) < COUNT
    sums = (both * scale).sum(0)
    wanted = sum(float(sums[number]) * direction(number) / 2 for number in range(2))
    found = begin() - fitted(replace(PLAIN, clip_norm=clip, directions=2), rows)
    torch.testing.assert_close(found, wanted, rtol=5e-3, atol=2e-3)


def test_copies_of_a_row_are_averaged_before_clipping() -> None:
    one = some_rows(1, copies=3)
    apart = [
        moved(PLAIN, MemoryRows(one.features[:, [copy]], one.targets, augmented=True))
        for copy in range(3)
    ]
    found = moved(replace(PLAIN, augmentations=3), one)
    assert found == pytest.approx(float(np.mean(apart)), rel=5e-3, abs=2e-4)


def test_copies_that_are_made_now_are_the_same_in_both_passes() -> None:
    """Else noise of the copies, over twice the scale, would be all there is: some 50."""
    plan = replace(PLAIN, augmentations=2, clip_norm=1e3)
    rows = some_rows()
    found = moved(plan, rows, augment=own_networks.jitter)
    assert found == pytest.approx(float(slopes(rows, direction()).sum()), abs=8)


@pytest.mark.parametrize("size", [1e-8, 1.0, 1e4, 1e15, 1e38])
@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_no_row_moves_the_sum_by_more_than_the_clip_norm(size: float, compute: str) -> None:
    rows, clip = some_rows(size=size), 0.1
    plan = replace(PLAIN, clip_norm=clip, directions=3)
    made = engine(compute=compute)
    basis = torch.stack([direction(number) for number in range(3)], 1)

    def sums(some: Any) -> Tensor:
        return torch.linalg.lstsq(basis, begin() - fitted(plan, some, made)).solution * 3

    whole = sums(rows)
    assert bool(torch.isfinite(whole).all())
    for number in range(0, COUNT, 5):
        rest = sums(rows.taken(torch.arange(COUNT) != number))
        # Weights are rounded to float32 at every move.
        assert float((whole - rest).norm()) <= clip * (1 + 1e-4) + 1e-5


def test_a_canary_sings_as_loud_as_it_was_paid_for() -> None:
    clip, sigma, runs = 0.01, 2.0, 200
    rows = some_rows()
    plan = replace(PLAIN, clip_norm=clip, learning_rate=100.0)
    without = rows.taken(torch.arange(COUNT) != 0)
    z = direction()

    start = begin()

    def along(plan: TrainPlan, some: Any, seed: int = 0) -> float:
        return float((start - fitted(plan, some, seed=seed)) @ z / z.square().sum()) / 100

    still = along(plan, rows)
    noisy = replace(plan, noise_multiplier=sigma)
    drawn = [along(noisy, rows, seed) - still for seed in range(runs)]
    measured, paid = abs(still - along(plan, without)) / float(np.std(drawn)), price(noisy.event).mu
    error = 5 / np.sqrt(2 * runs)  # the seeds are fixed
    assert 0.9 * paid * (1 - error) <= measured <= paid * (1 + error)
    assert paid == pytest.approx(1 / sigma, rel=1e-12)


# -- memory


SEEN: list[bool] = []


class Spy(nn.Linear):
    def forward(self, features: Tensor) -> Tensor:
        found = super().forward(features)
        SEEN.append(torch.is_grad_enabled() or found.requires_grad or self.training)
        return found


def spied() -> nn.Module:
    return nn.Sequential(Spy(4, 6), nn.Dropout(0.5), Spy(6, 3))


def test_no_gradient_is_ever_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a gradient was taken")

    monkeypatch.setattr(torch.autograd, "grad", refuse)
    monkeypatch.setattr(torch.autograd, "backward", refuse)
    SEEN.clear()
    made = engine(spied, rows_at_once=None)
    made.inspection.rehearse(FACTS, torch.device("cpu"))
    (model,) = made.fit_many([replace(PLAIN, steps=2)], some_rows(), [Randomness()])
    assert len(SEEN) > 8 and not any(SEEN)
    assert not any(parameter.requires_grad for parameter in model.module.parameters())


def test_a_direction_is_drawn_in_pieces_that_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fitted(PLAIN, some_rows())
    monkeypatch.setattr("dptune.engines.modules.zeroth_order._PIECE", 7)
    torch.testing.assert_close(fitted(PLAIN, some_rows()), whole, rtol=1e-4, atol=1e-6)


# -- long runs


def test_a_run_that_was_cut_off_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    rows = some_rows()
    plan = replace(
        PLAIN, steps=6, rows=COUNT, clip_norm=1.0, noise_multiplier=1.0, sampling_rate=0.5
    )

    class Cut(Exception):
        pass

    class Cutting(Checkpoint):
        def due(self) -> bool:
            return True

        def save(self, tensors: Any, steps: int) -> None:
            super().save(tensors, steps)
            if steps == 4:
                raise Cut

    made, stream = engine(), [Randomness(noise_seed=3)]
    file = tmp_path / "run"
    with pytest.raises(Cut):
        made.fit_many([plan], rows, stream, keep=[Cutting(file, "run")])
    (model,) = made.fit_many([plan], rows, stream, keep=[Checkpoint(file, "run")])
    (whole,) = made.fit_many([plan], rows, stream)
    assert torch.equal(flat(model.module), flat(whole.module))
    loaded = Checkpoint(file, "run").load()
    assert loaded is not None and loaded[1] == 6 and set(loaded[0]) == {"weights", "module.sha256"}


# -- plans and studies


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": "adam"}, "asks for adam"),
        ({"momentum": 0.9}, "momentum 0.9"),
        ({"averaging": "ema"}, "averaging ema"),
        ({"directions": None}, "needs directions"),
        ({"class_weights": (1.0, 0.5, 0.5)}, "does not weigh rows"),
    ],
)
def test_plans_it_cannot_run_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        fitted(replace(PLAIN, **changes), some_rows())


def test_other_engines_take_no_directions() -> None:
    rows = some_rows()
    for other in (TorchModule(own_networks.small), LinearEngine()):
        with pytest.raises(InvalidInput, match="takes gradients"):
            other.for_data(FACTS).fit_many([PLAIN], rows, [Randomness()])
    with pytest.raises(InvalidInput, match="takes gradients"):
        dptune.tune(some_data(), budget=Budget(8.0, 1e-5), recipe={"directions": 1})


@pytest.mark.parametrize("options", [{"scale": 0.0}, {"scale": 1.0}, {"checkpointed": "0"}])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        ZerothOrder(own_networks.small, **options)


def test_its_record_is_plain_and_builds_it_again() -> None:
    made = engine(scale=0.01)
    assert engine_from({"name": made.name, **made.options()}) == made


def tuned(data: Data, factory: Any = own_networks.small, **asked: Any) -> dptune.StudyResult:
    space = dptune.Space(learning_rate=(1e-4, 10.0), steps=(5, 5))
    asked = {"space": space, "budget": Budget(8.0, 1e-5)} | asked
    return dptune.tune(data, engine=ZerothOrder(factory, rows_at_once=200), **asked)


@pytest.mark.parametrize("recipe", [{}, {"sampling_rate": 0.2, "directions": 2}], ids=repr)
def test_it_is_tuned_and_its_ledger_says_what_it_did(
    recipe: dict[str, Any], tmp_path: Path
) -> None:
    result = tuned(some_data(), out=tmp_path / "run", recipe=recipe)
    state = Ledger.open(str(tmp_path / "run" / "ledger.db")).state()
    runs = [p.event for p in state.payments if isinstance(p.event, ZerothOrderRun)]
    assert len(runs) >= 4 and {run.directions for run in runs} == {recipe.get("directions", 1)}
    assert {run.sampling_rate for run in runs} == {recipe.get("sampling_rate")}
    assert result.guarantee.epsilon <= 8.0 and result.guarantee.covers_selection
    assert "the random directions of every step" in result.guarantee.public_facts
    features = np.random.default_rng(1).normal(size=(9, 4))
    assert (dptune.load(tmp_path / "run").predict(features) == result.model.predict(features)).all()


@pytest.mark.parametrize(
    "search", [dptune.PrivateSelection(), dptune.RandomSearch(trials=2)], ids=repr
)
def test_other_searches_drive_it(search: Any) -> None:
    assert tuned(some_data(60), search=search).guarantee.epsilon <= 8.0


def test_rows_that_mix_are_refused_and_weights_that_are_shared_are_not() -> None:
    with pytest.raises(InvalidInput, match=r"(?s)cannot be trained privately.*other rows"):
        tuned(some_data(60), own_networks.Mixing)
    tuned(some_data(60), own_networks.Tied)
    tuned(some_data(60), own_networks.with_batch_norm)  # in eval() it mixes nothing


def digits_network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10))


@pytest.mark.parametrize("rate", [None, 0.2])
def test_it_learns_to_read_digits(rate: float | None) -> None:
    pictures, labels = load_digits(return_X_y=True)
    rows = MemoryRows(pictures[:1500] / 16, labels[:1500])
    test = MemoryRows(pictures[1500:] / 16, labels[1500:])
    made = ZerothOrder(digits_network, rows_at_once=1500)
    made = made.for_data(DataFacts(1500, (64,), 1, 10, "softmax"))
    plan = TrainPlan(
        rows=1500,
        steps=150,
        learning_rate=0.25,
        noise_multiplier=5.0 if rate is None else 1.5,
        sampling_rate=rate,
        momentum=0.0,
        directions=1,
    )
    (model,) = made.fit_many([plan], rows, [Randomness(noise_seed=0)])
    (found,) = made.evaluate_many([model], test)
    assert found.correct / found.rows > 0.4  # one in ten by guessing
