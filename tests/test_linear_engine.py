"""The linear engine against autograd, Opacus, plain loops, and the statistics of its noise."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor
from torch.nn import functional

from dptune import gdp
from dptune.data.rows import PRECISIONS, Chunk, MemoryRows
from dptune.engines import clipping, sums
from dptune.engines.base import Evaluation
from dptune.engines.linear import LinearEngine, LinearModel
from dptune.engines.randomness import Randomness
from dptune.errors import InvalidInput
from dptune.noise import grid_step
from support.linear import LinearPlan

LOSSES = ("softmax", "binary", "squared")
OUTPUTS = {"softmax": 5, "binary": 1, "squared": 3}
COUNT, COLUMNS = 40, 12
SIGMAS = 5  # statistical bounds; the seeds are fixed, so they hold always or never


def plan(**changes: Any) -> LinearPlan:
    fields: dict[str, Any] = {
        "rows": COUNT,
        "steps": 1,
        "learning_rate": 0.5,
        "noise_multiplier": 0.0,
    }
    return LinearPlan(**(fields | changes))


def make_data(loss: str, copies: int = 1, size: float = 1.0) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(0)
    features = torch.as_tensor(size * rng.normal(size=(COUNT, copies, COLUMNS)))
    if loss == "squared":
        return features, torch.as_tensor(rng.normal(size=(COUNT, OUTPUTS[loss])))
    classes = 2 if loss == "binary" else OUTPUTS[loss]
    return features, torch.as_tensor(rng.integers(classes, size=COUNT))


def fit(
    chosen: LinearPlan,
    data: tuple[Tensor, Tensor],
    loss: str = "softmax",
    *,
    precision: str = "float64",
    randomness: Randomness | None = None,
    outputs: int | None = None,
) -> LinearModel:
    rows = MemoryRows(*data, precision=precision, chunk_rows=16)
    engine = chosen.engine(outputs or OUTPUTS[loss], loss)
    (model,) = engine.fit_many([chosen], rows, [randomness or Randomness()])
    assert (model.bias is not None) == chosen.bias
    return model


def flat(model: LinearModel) -> Tensor:
    """Weights with the bias, if there is one, as the last column."""
    if model.bias is None:
        return model.weights
    return torch.cat([model.weights, model.bias[:, None]], 1)


def loss_of_row(weights: Tensor, copies: Tensor, target: Tensor, loss: str) -> Tensor:
    """Mean loss over the copies of one row, as autograd sees it."""
    logits = copies @ weights.T
    if loss == "softmax":
        return functional.cross_entropy(logits, target.expand(len(copies)))
    if loss == "binary":
        return functional.binary_cross_entropy_with_logits(
            logits[:, 0], target.to(logits.dtype).expand(len(copies))
        )
    return (logits - target).square().sum(1).mean() / 2


def with_ones(features: Tensor, bias: bool) -> Tensor:
    return torch.cat([features, torch.ones_like(features[..., :1])], -1) if bias else features


def row_gradients(weights: Tensor, features: Tensor, targets: Tensor, loss: str) -> Tensor:
    """(rows, outputs, columns), by torch.func."""

    def of_row(weights: Tensor, copies: Tensor, target: Tensor) -> Tensor:
        return loss_of_row(weights, copies, target, loss)

    per_row: Callable[..., Tensor] = torch.func.vmap(torch.func.grad(of_row), (None, 0, 0))
    return per_row(weights, features, targets)


def aim(clip_norm: float, precision: str = "float64") -> float:
    """Where rows are really clipped: a little lower, so that rounded sums keep the bound."""
    return clip_norm * (1 - sums.margin(PRECISIONS[precision]))


def clipped_mean(
    weights: Tensor,
    chosen: LinearPlan,
    data: tuple[Tensor, Tensor],
    loss: str,
    precision: str = "float64",
) -> Tensor:
    gradients = row_gradients(weights, with_ones(data[0], chosen.bias), data[1], loss)
    if chosen.clip_norm is not None:
        norms, bound = gradients.flatten(1).norm(dim=1), aim(chosen.clip_norm, precision)
        gradients = gradients * (bound / norms).clamp(max=1)[:, None, None]
    return gradients.sum(0) / chosen.rows


def empty_weights(chosen: LinearPlan, loss: str) -> Tensor:
    return torch.zeros(OUTPUTS[loss], COLUMNS + chosen.bias, dtype=torch.float64)


# -- parity of one step and of whole runs


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-10), ("float32", 1e-5)])
def test_steps_equal_the_clipped_sum_of_autograds_row_gradients(
    loss: str, bias: bool, copies: int, precision: str, tolerance: float
) -> None:
    """Three steps: from zero weights and from others; some rows are clipped and some are not."""
    features, targets = make_data(loss, copies)
    data = features * torch.linspace(0.1, 4, COUNT)[:, None, None], targets
    chosen = plan(bias=bias, augmentations=copies, clip_norm=2.0, steps=3, momentum=0.0)
    weights, clipped = empty_weights(chosen, loss), 0
    for _ in range(chosen.steps):
        gradients = row_gradients(weights, with_ones(data[0], bias), data[1], loss)
        clipped += int((gradients.flatten(1).norm(dim=1) > 2.0).sum())
        mean = clipped_mean(weights, chosen, data, loss, precision)
        weights = weights - chosen.learning_rate * mean
    assert 0 < clipped < 3 * COUNT
    found = flat(fit(chosen, data, loss, precision=precision)).double()
    torch.testing.assert_close(found, weights, rtol=tolerance, atol=tolerance * 0.1)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("class_weights", [None, (0.5, 1.0)])
def test_steps_of_two_classes_equal_the_clipped_sum_of_autograds_row_gradients(
    bias: bool, copies: int, class_weights: tuple[float, float] | None
) -> None:
    features, targets = make_data("binary", copies)
    data = features * torch.linspace(0.1, 4, COUNT)[:, None, None], targets
    chosen = plan(
        bias=bias,
        augmentations=copies,
        clip_norm=2.0,
        steps=3,
        momentum=0.0,
        class_weights=class_weights,
    )
    weights, clipped = torch.zeros(2, COLUMNS + bias, dtype=torch.float64), 0
    of_rows = torch.ones(2) if class_weights is None else torch.tensor(class_weights)
    for _ in range(chosen.steps):
        gradients = row_gradients(weights, with_ones(data[0], bias), targets, "softmax")
        norms = gradients.flatten(1).norm(dim=1)
        clipped += int((norms > 2.0).sum())
        factors = (aim(2.0) / norms).clamp(max=1) * of_rows[targets]
        mean = (gradients * factors[:, None, None]).sum(0) / COUNT
        weights = weights - chosen.learning_rate * mean
    assert 0 < clipped < 3 * COUNT
    found = flat(fit(chosen, data, outputs=2))
    torch.testing.assert_close(found, weights, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("columns", "outputs", "threads"), [(9, 2, 1), (600, 100, 2)])
def test_small_steps_take_one_thread_and_the_users_setting_is_kept(
    columns: int, outputs: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = []
    of_rows = clipping.residuals_

    def noting(logits: Tensor, targets: Tensor, loss: str) -> Tensor:
        used.append(torch.get_num_threads())
        return of_rows(logits, targets, loss)

    monkeypatch.setattr(clipping, "residuals_", noting)
    rows = MemoryRows(torch.ones(2000, columns), torch.arange(2000) % outputs)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        LinearEngine(outputs=outputs).fit_many([plan()], rows, [Randomness()])
        with pytest.raises(InvalidInput):
            LinearEngine(outputs=outputs).fit_many(
                [plan(class_weights=(1.0,))], rows, [Randomness()]
            )
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(used) == {threads}


WEIGHTS = (1.0, 0.5, 0.125, 1 / 3, 0.01)


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("clip_norm", [0.5, None])
def test_weights_multiply_clipped_gradients_by_class(copies: int, clip_norm: float | None) -> None:
    """Of autograd's row gradients, clipped one by one."""
    features, targets = make_data("softmax", copies)
    data = features * torch.linspace(0.1, 4, COUNT)[:, None, None], targets
    chosen = plan(augmentations=copies, clip_norm=clip_norm, class_weights=WEIGHTS)
    gradients = row_gradients(empty_weights(chosen, "softmax"), *data, "softmax")
    if clip_norm is not None:
        norms = gradients.flatten(1).norm(dim=1)
        gradients = gradients * (aim(clip_norm) / norms).clamp(max=1)[:, None, None]
    weights = torch.tensor(chosen.class_weights, dtype=torch.float64)[targets]
    wanted = -0.5 * (gradients * weights[:, None, None]).sum(0) / COUNT
    found = fit(chosen, data).weights
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float64"])
def test_a_row_moves_a_weighted_sum_by_at_most_its_weight_in_clip_norms(precision: str) -> None:
    """Every row in turn is left out: rate 1 and divisor 1, so weights are the sum."""
    features, targets = make_data("softmax", size=30.0)
    weights = WEIGHTS
    chosen = plan(rows=1, learning_rate=1.0, clip_norm=0.7, class_weights=weights)
    everything = fit(chosen, (features, targets), precision=precision).weights.double()
    for row in range(COUNT):
        kept = torch.arange(COUNT) != row
        without = fit(chosen, (features[kept], targets[kept]), precision=precision)
        moved = float((everything - without.weights.double()).norm()) / 0.7
        # Models are rounded to their precision, which sums of rows before noise are not.
        weight = weights[int(targets[row])]
        assert 0.97 * weight - 1e-5 <= moved <= weight + 1e-5


def test_weights_change_neither_the_price_nor_the_noise() -> None:
    """With rows that contribute nothing, only the noise is left."""
    weighted = plan(noise_multiplier=3.0, class_weights=WEIGHTS)
    plain = plan(noise_multiplier=3.0)
    assert weighted.event == plain.event
    data = torch.zeros(COUNT, 1, COLUMNS, dtype=torch.float64), make_data("softmax")[1]
    found, wanted = (
        fit(one, data, randomness=Randomness(noise_seed=5)).weights for one in (weighted, plain)
    )
    assert torch.equal(found, wanted) and bool(found.any())


def test_trials_with_weights_of_their_own_train_together() -> None:
    data = make_data("softmax")
    outputs = OUTPUTS["softmax"]
    plans = [
        plan(steps=3),
        plan(steps=2, class_weights=(0.5,) * outputs),
        plan(steps=3, class_weights=WEIGHTS),
    ]
    rows = MemoryRows(*data, precision="float64", chunk_rows=16)
    together = plans[0].engine(outputs).fit_many(plans, rows, [Randomness()] * 3)
    for model, chosen in zip(together, plans, strict=True):
        torch.testing.assert_close(model.weights, fit(chosen, data).weights)


def test_weights_of_no_rows_and_of_other_classes_are_refused() -> None:
    for weights in ((1.0, 0.0), (1.0, 1.5), (float("nan"), 1.0)):
        with pytest.raises(InvalidInput, match="class_weights must be a finite number above 0"):
            plan(class_weights=weights)
    with pytest.raises(InvalidInput, match="class_weights has 9 weights"):
        fit(plan(class_weights=(1.0,) * 9), make_data("softmax"))
    with pytest.raises(InvalidInput, match="squared loss with 2 outputs has no classes"):
        LinearEngine(outputs=2, loss="squared").check(plan(class_weights=(1.0, 1.0)))
    LinearEngine(outputs=1, loss="binary").check(plan(class_weights=(1.0, 0.5)))


def test_only_the_copies_the_plan_names_are_used() -> None:
    features, targets = make_data("softmax", copies=4)
    found = fit(plan(augmentations=2), (features, targets))
    wanted = fit(plan(augmentations=2), (features[:, :2], targets))
    assert torch.equal(found.weights, wanted.weights)
    assert not torch.allclose(found.weights, fit(plan(), (features, targets)).weights)


@pytest.mark.filterwarnings("ignore")  # Opacus has its own
@pytest.mark.parametrize("bias", [False, True])
def test_a_run_equals_opacus(bias: bool) -> None:
    from opacus import PrivacyEngine

    features, targets = make_data("softmax", size=2.0)
    features = features.float()
    layer = torch.nn.Linear(COLUMNS, OUTPUTS["softmax"], bias=bias)
    for parameter in layer.parameters():
        torch.nn.init.zeros_(parameter)
    module, optimizer, loader = PrivacyEngine().make_private(
        module=layer,
        optimizer=torch.optim.SGD(layer.parameters(), lr=0.5, momentum=0.9),
        data_loader=torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(features[:, 0], targets), batch_size=COUNT
        ),
        noise_multiplier=0.0,
        max_grad_norm=aim(1.0, "float32"),
        poisson_sampling=False,
    )
    for _ in range(5):
        for batch, labels in loader:
            optimizer.zero_grad()
            functional.cross_entropy(module(batch), labels).backward()
            optimizer.step()
    found = fit(plan(steps=5, bias=bias), (features, targets), precision="float32")
    torch.testing.assert_close(found.weights, layer.weight.detach(), rtol=1e-5, atol=1e-5)
    if bias:
        torch.testing.assert_close(found.bias, layer.bias.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_training_without_privacy_equals_torchs_optimizers(
    loss: str, bias: bool, decay: float, optimizer: str, schedule: str
) -> None:
    features, targets = data = make_data(loss)
    chosen = plan(
        clip_norm=None,
        steps=6,
        bias=bias,
        weight_decay=decay,
        optimizer=optimizer,
        schedule=schedule,
        momentum=0.8,
    )
    weights = empty_weights(chosen, loss).requires_grad_()
    named = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    momentum = {"momentum": 0.8} if optimizer == "sgd" else {}
    theirs = named[optimizer]([weights], lr=1.0, weight_decay=decay, **momentum)
    rows = with_ones(features, bias)
    for step in range(6):
        theirs.param_groups[0]["lr"] = chosen.rate_at(step)
        theirs.zero_grad()
        pairs = zip(rows, targets, strict=True)
        torch.stack([loss_of_row(weights, *row, loss) for row in pairs]).mean().backward()
        theirs.step()
    found = flat(fit(chosen, data, loss))
    torch.testing.assert_close(found, weights.detach(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_lamb_equals_a_plain_loop(decay: float) -> None:
    data = make_data("softmax")
    chosen = plan(
        clip_norm=None, steps=6, optimizer="lamb", weight_decay=decay, learning_rate=0.1, bias=True
    )
    weights = empty_weights(chosen, "softmax")
    first, second = torch.zeros_like(weights), torch.zeros_like(weights)
    for t in range(1, 7):
        gradient = clipped_mean(weights, chosen, data, "softmax") + decay * weights
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        update = (first / (1 - 0.9**t)) / ((second / (1 - 0.999**t)).sqrt() + 1e-8)
        trust = float(weights.norm() / update.norm()) if t > 1 else 1.0  # weights start at zero
        weights = weights - 0.1 * trust * update
    torch.testing.assert_close(flat(fit(chosen, data)), weights, rtol=1e-7, atol=1e-9)


def test_wosm_equals_a_plain_loop() -> None:
    """Its noise is needed for its scale, so it is there, but too small to matter."""
    data = make_data("softmax")
    chosen = plan(
        steps=6, optimizer="wosm", learning_rate=1e-8, noise_multiplier=1e-8, clip_norm=2.0
    )
    weights = empty_weights(chosen, "softmax")
    first = torch.zeros_like(weights)
    for t in range(1, 7):
        first = 0.9 * first + 0.1 * clipped_mean(weights, chosen, data, "softmax")
        scale = 1e-8 * 2.0 / COUNT + 1e-8
        weights = weights - 1e-8 * first / (1 - 0.9**t) / scale
    found = fit(chosen, data, randomness=Randomness(noise_seed=0)).weights
    torch.testing.assert_close(found, weights, rtol=1e-5, atol=1e-6)


def iterates(chosen: LinearPlan, data: tuple[Tensor, Tensor]) -> tuple[list[Tensor], Tensor]:
    """Weights after each step of sgd, the initial ones first, and the last momentum buffer."""
    weights = [empty_weights(chosen, "softmax")]
    buffer = torch.zeros_like(weights[0])
    for step in range(chosen.steps):
        gradient = clipped_mean(weights[-1], chosen, data, "softmax")
        buffer = chosen.momentum * buffer + gradient
        weights.append(weights[-1] - chosen.rate_at(step) * buffer)
    return weights, buffer


@pytest.mark.parametrize("decay", [0.3, 0.9999])
def test_ema_is_the_warmed_up_moving_average(decay: float) -> None:
    data = make_data("softmax")
    chosen = plan(steps=7, averaging="ema", ema_decay=decay)
    weights, _ = iterates(chosen, data)
    average = weights[0]
    for step, newest in enumerate(weights[1:]):
        kept = min(decay, (1 + step) / (10 + step))
        average = kept * average + (1 - kept) * newest
    torch.testing.assert_close(fit(chosen, data).weights, average, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 7, 8])
def test_swa_is_the_mean_of_the_second_half(steps: int) -> None:
    data = make_data("softmax")
    chosen = plan(steps=steps, averaging="swa")
    weights, _ = iterates(chosen, data)
    mean = torch.stack(weights[1 + steps // 2 :]).mean(0)
    torch.testing.assert_close(fit(chosen, data).weights, mean, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("free", [0, 1, 3, 10])
@pytest.mark.parametrize("schedule", ["constant", "linear"])
def test_free_steps_go_along_the_decaying_buffer(free: int, schedule: str) -> None:
    data = make_data("softmax")
    chosen = plan(steps=5, free_steps=free, schedule=schedule)
    (*_, last), buffer = iterates(chosen, data)
    for _ in range(free):
        last = last - chosen.rate_at(4) * buffer
        buffer = chosen.momentum * buffer
    torch.testing.assert_close(fit(chosen, data).weights, last, rtol=1e-9, atol=1e-12)


# -- many trials at once


class Counted(MemoryRows):
    """Rows that know what was read."""

    def __init__(self, *data: Tensor, precision: str = "float32") -> None:
        super().__init__(*data, precision=precision)
        self.passes = 0
        self.picked: list[list[int]] = []

    def chunks(self) -> Iterator[Chunk]:
        self.passes += 1
        return super().chunks()

    def pick(self, indices: Tensor) -> Chunk:
        self.picked.append(indices.tolist())
        return super().pick(indices)


MIXTURE = [
    plan(steps=6, noise_multiplier=1.0),
    plan(steps=2, noise_multiplier=3.0, clip_norm=0.1, learning_rate=3.0),
    plan(steps=9, momentum=0.5, schedule="cosine", weight_decay=0.01),
    plan(steps=4, clip_norm=None),
    plan(steps=3, noise_multiplier=0.5, free_steps=2),
    plan(steps=5, noise_multiplier=0.5, averaging="ema", ema_decay=0.5),
    plan(steps=5, optimizer="adam", noise_multiplier=1.0),
    plan(steps=3, optimizer="adam", schedule="linear", averaging="swa"),
    plan(steps=3, optimizer="lamb", noise_multiplier=0.1),
    plan(steps=5, optimizer="lamb", noise_multiplier=0.1, learning_rate=0.1),
    plan(steps=6, optimizer="wosm", noise_multiplier=1.0, learning_rate=0.01),
    plan(steps=2, optimizer="wosm", noise_multiplier=2.0, clip_norm=0.5),
    plan(steps=4, sampling_rate=0.3, noise_multiplier=1.0),
    plan(steps=7, sampling_rate=0.7, noise_multiplier=1.0, optimizer="adam"),
    plan(steps=1, augmentations=2, noise_multiplier=1.0, free_steps=1),
    plan(steps=4, augmentations=2, sampling_rate=0.5),
]
ENGINES = [
    LinearEngine(outputs=5),
    LinearEngine(outputs=5, bias=True),
    LinearEngine(outputs=5, bias=True, initialization="random"),
]


@pytest.mark.parametrize("engine", ENGINES, ids=repr)
@pytest.mark.parametrize(
    ("precision", "tolerance"), [("float64", 1e-9), ("float32", 2e-4), ("bfloat16", 2e-2)]
)
def test_many_trials_at_once_equal_one_by_one(
    precision: str, tolerance: float, engine: LinearEngine
) -> None:
    rows = MemoryRows(*make_data("softmax", 2), precision=precision, chunk_rows=16)
    streams = [Randomness(seed=1, trial=i, noise_seed=2) for i in range(len(MIXTURE))]
    together = engine.fit_many(MIXTURE, rows, streams)
    assert len(together) == len(MIXTURE)
    for chosen, stream, model in zip(MIXTURE, streams, together, strict=True):
        (alone,) = engine.fit_many([chosen], rows, [stream])
        torch.testing.assert_close(flat(model), flat(alone), rtol=tolerance, atol=tolerance * 0.1)


@pytest.mark.parametrize("engine", ENGINES, ids=repr)
def test_the_order_of_trials_does_not_matter(engine: LinearEngine) -> None:
    rows = MemoryRows(*make_data("softmax", 2), precision="float64")
    streams = [Randomness(trial=i, noise_seed=2) for i in range(len(MIXTURE))]
    forward = engine.fit_many(MIXTURE, rows, streams)
    backward = engine.fit_many(MIXTURE[::-1], rows, streams[::-1])[::-1]
    for one, other in zip(forward, backward, strict=True):
        torch.testing.assert_close(flat(one), flat(other), rtol=1e-9, atol=1e-10)


def test_trials_share_passes_and_short_ones_leave() -> None:
    """The longest trial decides how often rows are read, and a trial that ended stays as it was."""
    data = make_data("softmax")
    rows = Counted(*data, precision="float64")
    plans = [plan(steps=steps) for steps in (2, 5, 1, 5)]
    models = LinearEngine(outputs=5).fit_many(plans, rows, [Randomness() for _ in plans])
    assert rows.passes == 5
    for chosen, model in zip(plans, models, strict=True):
        wanted = iterates(chosen, data)[0][-1]
        torch.testing.assert_close(model.weights, wanted, rtol=1e-9, atol=1e-12)


def test_models_do_not_share_memory() -> None:
    rows = MemoryRows(*make_data("softmax"))
    first, second = LinearEngine(outputs=5).fit_many(
        [plan(), plan()], rows, [Randomness(), Randomness()]
    )
    before = second.weights.clone()
    first.weights.fill_(7)
    assert torch.equal(second.weights, before)


def test_no_plans_give_no_models() -> None:
    assert LinearEngine(outputs=5).fit_many([], MemoryRows(*make_data("softmax")), []) == []


# -- initial weights


def test_random_initial_weights_repeat_and_spread_as_the_inverse_root_of_columns() -> None:
    """One step at a rate of nearly zero shows them."""
    columns = 400
    rows = MemoryRows(np.zeros((3, columns)), np.zeros(3, dtype=int), precision="float64")
    chosen = plan(initialization="random", learning_rate=1e-300, bias=True)
    streams = [
        Randomness(seed=1),
        Randomness(seed=1, noise_seed=5),
        Randomness(seed=2),
        Randomness(seed=1, trial=1),
    ]
    same, again, *others = chosen.engine(20).fit_many([chosen] * 4, rows, streams)
    assert torch.equal(same.weights, again.weights)
    assert not any(torch.equal(same.weights, other.weights) for other in others)
    spread = float(same.weights.std()) * math.sqrt(columns)
    assert abs(spread - 1) < SIGMAS / math.sqrt(2 * 20 * columns)
    assert same.bias is not None
    assert float(same.bias.abs().max()) < 1e-100  # a bias starts at zero


# -- noise

ZEROS = (torch.zeros(3, 500, dtype=torch.float64), torch.tensor([0, 1, 2]))  # no gradient at all


def pure_noise(trial: int = 0, seed: int = 0, precision: str = "float64", **changes: Any) -> Tensor:
    """What a run adds to its weights when the data say nothing, over rate and public numbers."""
    chosen = plan(**{"rows": 7, "noise_multiplier": 3.0, "momentum": 0.0} | changes)
    stream = Randomness(trial=trial, noise_seed=seed)
    model = fit(chosen, ZEROS, randomness=stream, outputs=40, precision=precision)
    return model.weights.double() * (chosen.divisor / chosen.learning_rate / chosen.noise)


def assert_uncorrelated(one: Tensor, other: Tensor) -> None:
    correlation = float(torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1])
    assert abs(correlation) < SIGMAS / math.sqrt(one.numel())


@pytest.mark.parametrize("precision", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"clip_norm": 0.01},
        {"rows": 50_000, "learning_rate": 300.0},
        {"noise_multiplier": 0.2, "clip_norm": 5.0},
        {"sampling_rate": 0.25},
    ],
)
def test_one_step_adds_the_noise_the_plan_names(precision: str, changes: dict[str, Any]) -> None:
    """Standard deviation rate * multiplier * clip norm / divisor, and a normal shape."""
    noise = pure_noise(precision=precision, **changes).flatten()
    coordinates = noise.numel()
    assert abs(float(noise.mean())) < SIGMAS / math.sqrt(coordinates)
    assert abs(float(noise.square().mean()) - 1) < SIGMAS * math.sqrt(2 / coordinates)
    assert stats.kstest(noise.numpy(), "norm").pvalue > 1e-4


def test_noise_is_independent_across_trials_and_outputs() -> None:
    trials = [pure_noise(trial) for trial in range(6)]
    for one, other in itertools.combinations(trials, 2):
        assert_uncorrelated(one, other)
    rows = trials[0]
    for one, other in itertools.combinations(rows[:10], 2):
        assert_uncorrelated(one, other)


def test_noise_is_independent_across_trials_of_one_batch() -> None:
    rows = MemoryRows(*ZEROS, precision="float64")
    streams = [Randomness() for _ in range(5)]
    chosen = plan(noise_multiplier=1.0)
    models = LinearEngine(outputs=40).fit_many([chosen] * 5, rows, streams)
    for one, other in itertools.combinations(models, 2):
        correlation = float(
            torch.corrcoef(torch.stack([one.weights.flatten(), other.weights.flatten()]))[0, 1]
        )
        assert abs(correlation) < 7 / math.sqrt(one.weights.numel())  # fresh entropy: 7 sigma


def test_noise_is_independent_across_steps() -> None:
    """Runs of one seed that differ only in length share their beginning."""
    sums = [torch.zeros(40, 500, dtype=torch.float64)]
    sums += [pure_noise(steps=steps) for steps in (1, 2, 3, 4)]
    steps = [after - before for before, after in itertools.pairwise(sums)]
    for noise in steps:
        spread = float(noise.square().mean())
        assert abs(spread - 1) < SIGMAS * math.sqrt(2 / noise.numel())
    for one, other in itertools.combinations(steps, 2):
        assert_uncorrelated(one, other)


def test_noise_of_a_long_run_adds_up_to_the_root_of_its_steps() -> None:
    noise = pure_noise(steps=100)
    spread = float(noise.square().mean()) / 100
    assert abs(spread - 1) < SIGMAS * math.sqrt(2 / noise.numel())


def test_noise_knows_nothing_of_the_data() -> None:
    def noise_on(data: tuple[Tensor, Tensor]) -> Tensor:
        noisy = fit(plan(noise_multiplier=2.0), data, randomness=Randomness(noise_seed=3))
        return noisy.weights - fit(plan(), data).weights

    features, targets = make_data("softmax")
    wanted = noise_on((features, targets))
    assert float(wanted.std()) > 0.01
    step = 1e-4 * float(wanted.std())  # of the grid that noisy sums are rounded to, and more
    for other in (100 * features, torch.zeros_like(features), features[:5].repeat(8, 1, 1)):
        torch.testing.assert_close(noise_on((other, targets)), wanted, rtol=0, atol=step)
    torch.testing.assert_close(noise_on((features, targets.flip(0))), wanted, rtol=0, atol=step)


# -- the divisor and Poisson samples


def test_no_row_changes_the_divisor_or_the_noise() -> None:
    """Three rows; one is changed, set to zero, or taken away: only its own part changes."""
    rng = np.random.default_rng(5)
    features, targets = torch.as_tensor(rng.normal(size=(3, 1, 6)) * 10), torch.tensor([0, 1, 2])
    chosen = plan(rows=3, noise_multiplier=1.0, learning_rate=1.0)

    def released(features: Tensor, targets: Tensor) -> Tensor:
        return fit(
            chosen, (features, targets), outputs=4, randomness=Randomness(noise_seed=1)
        ).weights

    def part(row: Tensor, target: int) -> Tensor:
        gradient = row_gradients(
            torch.zeros(4, 6, dtype=torch.float64), row[None], torch.tensor([target]), "softmax"
        )[0]
        return -gradient * min(1.0, aim(1.0) / max(1e-9, float(gradient.norm()))) / 3

    whole = released(features, targets)
    for change in (0.0, -1.0, 1e6):
        other = features.clone()
        other[1] *= change
        wanted = whole - part(features[1], 1) + part(other[1], 1)
        torch.testing.assert_close(released(other, targets), wanted, rtol=0, atol=grid_step(1.0))
    kept = torch.tensor([0, 2])
    wanted = whole - part(features[1], 1)
    torch.testing.assert_close(
        released(features[kept], targets[kept]), wanted, rtol=0, atol=grid_step(1.0)
    )


def sampled(rate: float, count: int, steps: int, trial: int = 0) -> NDArray[np.bool_]:
    """Which rows each step read: (steps, rows)."""
    rows = Counted(torch.zeros(count, 2), torch.zeros(count, dtype=torch.long))
    chosen = plan(rows=count, steps=steps, sampling_rate=rate, noise_multiplier=1.0)
    stream = Randomness(trial=trial, noise_seed=4)
    LinearEngine(outputs=2).fit_many([chosen], rows, [stream])
    assert len(rows.picked) == steps
    taken = np.zeros((steps, count), dtype=bool)
    for step, drawn in enumerate(rows.picked):
        assert len(set(drawn)) == len(drawn)
        taken[step, drawn] = True
    return taken


@pytest.mark.parametrize("rate", [0.03, 0.5, 0.9])
def test_each_row_joins_each_step_with_the_sampling_rate(rate: float) -> None:
    count, steps = 1000, 200
    taken = sampled(rate, count, steps)
    spread = math.sqrt(rate * (1 - rate))
    assert abs(taken.mean() - rate) < SIGMAS * spread / math.sqrt(count * steps)
    assert np.all(np.abs(taken.mean(1) - rate) < SIGMAS * spread / math.sqrt(count))
    assert np.all(np.abs(taken.mean(0) - rate) < SIGMAS * spread / math.sqrt(steps))
    sizes = taken.sum(1)  # Poisson sampling: the sizes vary as binomial ones do
    assert 0.6 < sizes.var() / (count * rate * (1 - rate)) < 1.5
    centered = taken - rate  # a step knows nothing of the one before
    together = float((centered[1:] * centered[:-1]).mean()) / spread**2
    assert abs(together) < SIGMAS / math.sqrt(count * (steps - 1))


def test_trials_draw_samples_of_their_own() -> None:
    one, other = sampled(0.5, 1000, 20), sampled(0.5, 1000, 20, trial=1)
    assert abs(float((one == other).mean()) - 0.5) < SIGMAS * 0.5 / math.sqrt(one.size)


def test_an_empty_sample_still_takes_a_noisy_step() -> None:
    rows = Counted(*make_data("softmax"), precision="float64")
    chosen = plan(sampling_rate=1e-9, noise_multiplier=1.0, steps=3, momentum=0.0)
    (model,) = LinearEngine(outputs=5).fit_many([chosen], rows, [Randomness(noise_seed=0)])
    assert rows.picked == []
    assert chosen.divisor == pytest.approx(COUNT * 1e-9)
    spread = float(model.weights.std()) / (chosen.learning_rate / chosen.divisor * math.sqrt(3))
    assert abs(spread - 1) < SIGMAS / math.sqrt(2 * model.weights.numel())


def test_a_sampled_step_is_the_clipped_sum_of_its_sample_over_the_expected_size() -> None:
    features, targets = make_data("softmax")
    rows = Counted(features, targets, precision="float64")
    chosen = plan(sampling_rate=0.4)
    (model,) = LinearEngine(outputs=5).fit_many([chosen], rows, [Randomness()])
    drawn = torch.tensor(rows.picked[0], dtype=torch.long)
    weights = empty_weights(chosen, "softmax")
    gradients = row_gradients(weights, features[drawn], targets[drawn], "softmax")
    norms = gradients.flatten(1).norm(dim=1)
    total = (gradients * (aim(1.0) / norms).clamp(max=1)[:, None, None]).sum(0)
    wanted = -chosen.learning_rate * total / (COUNT * 0.4)
    torch.testing.assert_close(model.weights, wanted, rtol=1e-9, atol=1e-12)


# -- evaluation


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("precision", "tolerance"), [("float64", 1e-12), ("float32", 1e-5), ("bfloat16", 1e-2)]
)
def test_evaluation_equals_computing_directly(loss: str, precision: str, tolerance: float) -> None:
    features, targets = make_data(loss, copies=2)
    rng = np.random.default_rng(6)
    outputs = OUTPUTS[loss]
    models = [
        LinearModel(
            torch.as_tensor(rng.normal(size=(outputs, COLUMNS))),
            torch.as_tensor(rng.normal(size=outputs)) if biased else None,
            loss,
        )
        for biased in (True, False, True, False)
    ]
    rows = MemoryRows(features, targets, precision=precision, chunk_rows=7)
    found = LinearEngine(outputs=outputs, loss=loss).evaluate_many(models, rows)
    assert len(found) == len(models)
    for model, evaluation in zip(models, found, strict=True):
        narrow = model.weights.to(rows.dtype).double()
        logits = rows.features[:, 0].double() @ narrow.T
        if model.bias is not None:
            logits += model.bias
        if loss == "softmax":
            correct = int((logits.argmax(1) == targets).sum())
            mean = functional.cross_entropy(logits, targets)
        elif loss == "binary":
            correct = int(((logits[:, 0] > 0) == (targets > 0)).sum())
            mean = functional.binary_cross_entropy_with_logits(logits[:, 0], targets.double())
        else:
            correct, mean = 0, (logits - targets).square().sum(1).mean() / 2
        assert (evaluation.correct, evaluation.rows) == (correct, COUNT)
        assert evaluation.loss == pytest.approx(float(mean), rel=tolerance)
        assert evaluation.weighted_correct == evaluation.correct


def test_evaluation_survives_huge_logits() -> None:
    features = torch.tensor([[1.0], [1.0], [-1.0]])
    rows = MemoryRows(features, torch.tensor([0, 1, 1]))
    model = LinearModel(torch.tensor([[1e4], [-1e4]]), None, "softmax")
    (found,) = LinearEngine(outputs=2).evaluate_many([model], rows)
    assert found.correct == 2
    assert found.loss == pytest.approx(2e4 / 3)


@pytest.mark.parametrize("loss", LOSSES)
def test_predictions_agree_with_evaluation(loss: str) -> None:
    features, targets = data = make_data(loss)
    model = fit(plan(steps=5, bias=True), data, loss)
    rows = MemoryRows(*data, precision="float64")
    (found,) = LinearEngine(outputs=OUTPUTS[loss], loss=loss).evaluate_many([model], rows)
    predicted = model.predict(features[:, 0])
    if loss == "squared":
        assert predicted.shape == targets.shape
        mean = float((predicted - targets).square().sum(1).mean()) / 2
        assert found.loss == pytest.approx(mean)
    else:
        assert int((predicted.reshape(-1) == targets).sum()) == found.correct


def random_models(loss: str, count: int = 3, size: float = 3.0) -> list[LinearModel]:
    rng = np.random.default_rng(8)
    shape = (OUTPUTS[loss], COLUMNS)
    return [
        LinearModel(torch.as_tensor(size * rng.normal(size=shape)), None, loss)
        for _ in range(count)
    ]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("precision", ["float64", "float32", "bfloat16"])
def test_each_row_s_loss_is_bounded_before_it_is_summed(loss: str, precision: str) -> None:
    """Against rows evaluated one at a time, whose losses are on both sides of the bound."""
    features, targets = make_data(loss)
    engine, models = LinearEngine(outputs=OUTPUTS[loss], loss=loss), random_models(loss)
    rows = MemoryRows(features, targets, precision=precision, chunk_rows=7)
    single = [
        MemoryRows(features[i : i + 1], targets[i : i + 1], precision=precision)
        for i in range(COUNT)
    ]
    losses = np.array([[e.loss for e in engine.evaluate_many(models, row)] for row in single])
    bound = float(np.median(losses))
    found = engine.evaluate_many(models, rows, loss_bound=bound)
    plain = engine.evaluate_many(models, rows)
    for index, evaluation in enumerate(found):
        wanted = losses[:, index].clip(0, bound).mean()
        assert evaluation.loss == pytest.approx(float(wanted), rel=1e-5)
        assert evaluation.loss < plain[index].loss
        assert evaluation.correct == plain[index].correct


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("size", [1.0, 1e30, math.inf, math.nan])
def test_no_row_moves_a_sum_further_than_promised(loss: str, size: float) -> None:
    """Whatever the row, and whatever became of the weights."""
    features, targets = make_data(loss)
    engine, models = LinearEngine(outputs=OUTPUTS[loss], loss=loss), random_models(loss)
    models += [replace(model, weights=size * model.weights) for model in models]
    by_class = {"softmax": 5, "binary": 2}.get(loss)
    weights = None if by_class is None else torch.linspace(0, 1, by_class)
    bound = 0.1  # float32 would round it up

    def evaluate(features: Tensor, targets: Tensor) -> list[Evaluation]:
        rows = MemoryRows(features, targets, chunk_rows=16)
        return engine.evaluate_many(models, rows, loss_bound=bound, row_weights=weights)

    before = evaluate(features, targets)
    moved = 0.0
    for factor, row in itertools.product((0.0, -1.0, 1e6, 1e30), (0, 17, COUNT - 1)):
        other, labels = features.clone(), targets.clone()
        other[row] *= factor
        labels[row] = 1e30 * factor if loss == "squared" else 1 - labels[row].clamp(0, 1)
        for one, two in zip(before, evaluate(other, labels), strict=True):
            assert abs(one.correct - two.correct) <= 1
            assert abs(one.weighted_correct - two.weighted_correct) <= 1 + 1e-9
            assert abs(one.loss - two.loss) * COUNT <= bound * (1 + 1e-9)
            moved = max(moved, abs(one.loss - two.loss) * COUNT)
    assert moved > 0.5 * bound


@pytest.mark.parametrize("loss", ["softmax", "binary"])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_a_correct_row_weighs_what_its_class_does(loss: str, kind: torch.dtype) -> None:
    features, targets = make_data(loss)
    models = random_models(loss)
    rows = MemoryRows(features, targets, precision="float64", chunk_rows=7)
    engine = LinearEngine(outputs=OUTPUTS[loss], loss=loss)
    weights = torch.tensor([0.0, 1.0, 0.3, 0.7, 0.25][: 2 if loss == "binary" else 5], dtype=kind)
    found = engine.evaluate_many(models, rows, row_weights=weights)
    for model, evaluation in zip(models, found, strict=True):
        right = model.predict(features[:, 0]).reshape(-1) == targets
        wanted = math.fsum(weights.double()[targets[right]].tolist())
        # Each weight is rounded down to a multiple of 2^-24.
        assert 0 <= wanted - evaluation.weighted_correct <= COUNT * 2.0**-24
        assert 0 < evaluation.weighted_correct < evaluation.correct
    ones = engine.evaluate_many(models, rows, row_weights=torch.ones_like(weights))
    assert ones == engine.evaluate_many(models, rows)


@pytest.mark.parametrize(
    ("loss", "outputs", "weights"),
    [
        ("softmax", 5, [1.0, 1.0, 1.0, 1.0]),
        ("softmax", 5, [[1.0, 1.0, 1.0, 1.0, 1.0]]),
        ("softmax", 5, [1.0, 1.0, 1.0, 1.0, 1.0001]),
        ("softmax", 5, [1.0, 1.0, 1.0, 1.0, -0.1]),
        ("softmax", 5, [1.0, 1.0, 1.0, 1.0, math.nan]),
        ("binary", 1, [1.0]),
        ("binary", 2, [1.0, 1.0]),  # two labels a row
        ("squared", 3, [1.0, 1.0, 1.0]),
    ],
)
def test_weights_that_do_not_fit_are_refused(loss: str, outputs: int, weights: list[Any]) -> None:
    rows = MemoryRows(*make_data(loss))
    engine = LinearEngine(outputs=outputs, loss=loss)
    with pytest.raises(InvalidInput, match=r"row_weights|a row"):
        engine.evaluate_many([], rows, row_weights=torch.tensor(weights))


@pytest.mark.parametrize("bound", [0.0, -1.0, math.inf, math.nan])
def test_a_loss_bound_that_is_none_is_refused(bound: float) -> None:
    with pytest.raises(InvalidInput, match="loss_bound must"):
        LinearEngine(outputs=5).evaluate_many(
            [], MemoryRows(*make_data("softmax")), loss_bound=bound
        )


# -- what is refused


def test_an_unknown_loss_is_refused() -> None:
    with pytest.raises(InvalidInput, match="loss"):
        LinearEngine(outputs=2, loss="hinge")


def test_plans_without_a_stream_each_are_refused() -> None:
    rows = MemoryRows(*make_data("softmax"))
    with pytest.raises(InvalidInput, match="streams"):
        LinearEngine(outputs=5).fit_many([plan(), plan()], rows, [Randomness()])


def test_more_copies_than_the_data_hold_are_refused() -> None:
    rows = MemoryRows(*make_data("softmax", copies=2))
    with pytest.raises(InvalidInput, match="copies"):
        LinearEngine(outputs=5).fit_many([plan(augmentations=3)], rows, [Randomness()])


@pytest.mark.parametrize(
    ("loss", "outputs", "targets"),
    [
        ("softmax", 3, [0, 1, 3]),
        ("softmax", 3, [0, 1, -1]),
        ("softmax", 3, [0.0, 1.0, 2.5]),
        ("softmax", 3, [[0, 1], [1, 0], [0, 0]]),
        ("binary", 1, [0, 1, 2]),
        ("binary", 1, [-1, 1, 1]),
        ("squared", 2, [0.0, 1.0, 2.0]),
        ("squared", 1, [0.0, 1.0, math.nan]),
        ("squared", 1, [0.0, 1.0, math.inf]),
    ],
)
def test_targets_that_do_not_fit_the_loss_are_refused(
    loss: str, outputs: int, targets: list[Any]
) -> None:
    with pytest.raises(InvalidInput):
        LinearEngine(outputs=outputs, loss=loss).fit_many(
            [plan(rows=3)], MemoryRows(np.ones((3, 4)), np.array(targets)), [Randomness()]
        )


@pytest.mark.parametrize("kind", ["uint8", "int8", "int32", "int64"])
def test_labels_may_be_integers_of_any_kind(kind: str) -> None:
    features, targets = make_data("softmax")
    found = fit(plan(steps=2), (features, torch.as_tensor(targets.numpy().astype(kind))))
    assert torch.equal(found.weights, fit(plan(steps=2), (features, targets)).weights)


# -- learning


def clusters(count: int, distance: float, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Ten classes around fixed centers."""
    centers = np.random.default_rng(0).normal(size=(10, 32))
    centers /= np.linalg.norm(centers, axis=1, keepdims=True)
    rng = np.random.default_rng(seed)
    labels = rng.integers(10, size=count)
    return distance * centers[labels] + rng.normal(size=(count, 32)), labels


def accuracy(chosen: LinearPlan, count: int, distance: float, precision: str) -> float:
    engine = LinearEngine(outputs=10)
    rows = MemoryRows(*clusters(count, distance, 1), precision=precision)
    models = engine.fit_many([chosen], rows, [Randomness(noise_seed=0)])
    held_out = MemoryRows(*clusters(2000, distance, 2), precision=precision)
    return engine.evaluate_many(models, held_out)[0].correct / 2000


def test_separable_classes_are_learned_without_privacy() -> None:
    chosen = plan(rows=2000, steps=60, clip_norm=None)
    assert accuracy(chosen, 2000, 8.0, "float32") > 0.95


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_private_run_at_epsilon_one_learns(precision: str) -> None:
    steps = 30
    noise = gdp.noise_multiplier(gdp.mu_from_epsilon(1.0, 1e-5), steps)
    chosen = plan(rows=20_000, steps=steps, noise_multiplier=noise, learning_rate=2.0)
    assert chosen.is_private
    assert accuracy(chosen, 20_000, 8.0, precision) > 0.9
