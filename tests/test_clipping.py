"""Sensitivity: no row ever adds more than the clip norm, in the numbers that are really summed."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from dptune.data.rows import Chunk, MemoryRows
from dptune.engines import clipping
from dptune.engines.randomness import Randomness
from dptune.engines.release import Release
from support.linear import LinearPlan

Array = NDArray[np.float64]

PRECISIONS = ("float64", "float32", "bfloat16")
KINDS = ("ordinary", "huge", "tiny", "denormal", "equal", "one-hot", "zero", "mixture")
# Decimal exponents of what each precision can hold, denormal numbers included.
EXPONENTS = {"float64": (-322, 307), "float32": (-44, 38), "bfloat16": (-40, 38)}


def numbers(rng: np.random.Generator, kind: str, precision: str, *shape: int) -> Array:
    """Values of one kind that `precision` can hold."""
    low, high = EXPONENTS[precision]
    ordinary = rng.normal(size=shape)
    if kind == "huge":
        return np.asarray(np.sign(ordinary) * 10.0**high)
    if kind == "tiny":
        return ordinary * 10.0 ** (low * 0.6)
    if kind == "denormal":
        return np.sign(ordinary) * 10.0**low
    if kind == "equal":
        return np.full(shape, 0.3)
    if kind == "one-hot":
        return np.eye(shape[-1])[rng.integers(shape[-1], size=shape[:-1])]
    if kind == "zero":
        return np.zeros(shape)
    if kind == "mixture":
        return np.sign(ordinary) * 10.0 ** rng.uniform(low, high, shape)
    return ordinary


def chunk_of(features: Array, targets: NDArray[Any], precision: str, bias: bool = False) -> Chunk:
    """As the engine gets it."""
    rows = MemoryRows(features, targets, precision=precision)
    return next(rows.chunks()).prepared(rows.copies, bias)


def clipped(
    residuals: Tensor | Array, chunk: Chunk, *clip_norms: float, weights: Tensor | None = None
) -> Tensor:
    wide = torch.promote_types(chunk.features.dtype, torch.float32)
    given = torch.as_tensor(residuals).to(wide).clone()
    return clipping.clip_(given, chunk, torch.tensor(clip_norms, dtype=wide), weights)


def exact_norms(left: Array, right: Array) -> Array:
    """Norm of sum_a left_a (x) right_a, for (..., outputs, a) and (..., a, columns).

    Powers of two are taken out first, which is exact, so squares neither overflow nor vanish.
    """
    left_power = np.frexp(np.abs(left).max((-2, -1)))[1]
    right_power = np.frexp(np.abs(right).max((-2, -1)))[1]
    left = np.ldexp(left, -left_power[..., None, None])
    right = np.ldexp(right, -right_power[..., None, None])
    norms: Array = np.sqrt(np.square(left @ right).sum((-2, -1)))
    return np.asarray(np.ldexp(norms, left_power + right_power))


def contributions(residuals: Tensor, chunk: Chunk) -> Array:
    """Norm of what each row adds to each trial's sum, in float64: (trials, rows)."""
    rows, copies, _ = chunk.features.shape
    features = chunk.features.double().numpy()
    if chunk.bias:
        features = np.concatenate([features, np.ones((rows, copies, 1))], 2)
    parts = residuals.double().numpy().reshape(*residuals.shape[:2], rows, copies)
    return exact_norms(
        parts.transpose(0, 2, 1, 3), np.broadcast_to(features, (len(parts), *features.shape))
    )


def assert_bounded(residuals: Tensor, chunk: Chunk, *clip_norms: float) -> None:
    assert residuals.dtype == chunk.features.dtype
    assert bool(torch.isfinite(residuals).all())
    assert np.all(contributions(residuals, chunk) <= np.array(clip_norms)[:, None])


def logits_of(weights: Array, biases: Array, chunk: Chunk) -> Tensor:
    """(trials, outputs, rows * copies), overflow and all."""
    wide = torch.promote_types(chunk.features.dtype, torch.float32)
    features = chunk.features.reshape(-1, chunk.features.shape[2]).to(wide)
    narrow = torch.as_tensor(weights).to(chunk.features.dtype)
    logits = narrow.to(wide) @ features.T
    if chunk.bias:
        logits += torch.as_tensor(biases).to(wide)[..., None]
    return logits


@settings(max_examples=300)
@given(
    seed=st.integers(0, 2**32 - 1),
    precision=st.sampled_from(PRECISIONS),
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=6),
    loss=st.sampled_from(["softmax", "binary", "squared"]),
    outputs=st.integers(2, 200),
    columns=st.integers(1, 20),
    copies=st.integers(1, 4),
    bias=st.booleans(),
    weight_kind=st.sampled_from(KINDS),
    target_kind=st.sampled_from(KINDS),
    clip_norm=st.sampled_from([1.0, 0.1, 1e-3, 37.0]),
)
def test_no_row_adds_more_than_the_clip_norm(
    seed: int,
    precision: str,
    kinds: list[str],
    loss: str,
    outputs: int,
    columns: int,
    copies: int,
    bias: bool,
    weight_kind: str,
    target_kind: str,
    clip_norm: float,
) -> None:
    """Rows and weights of every kind, from features to what is multiplied and summed."""
    rng = np.random.default_rng(seed)
    features = np.stack([numbers(rng, kind, precision, copies, columns) for kind in kinds])
    targets: NDArray[Any]
    if loss == "softmax":
        targets = rng.integers(outputs, size=len(kinds))
    elif loss == "binary":
        outputs, targets = 1, rng.integers(2, size=len(kinds))
    else:
        targets = numbers(rng, target_kind, precision, len(kinds), outputs)
    chunk = chunk_of(features, targets, precision, bias)
    weights = numbers(rng, weight_kind, precision, 2, outputs, columns)
    logits = logits_of(weights, numbers(rng, weight_kind, precision, 2, outputs), chunk)
    residuals = clipping.residuals_(logits, chunk.targets.repeat_interleave(copies, 0), loss)
    assert_bounded(clipped(residuals, chunk, clip_norm, 1.0), chunk, clip_norm, 1.0)


@settings(max_examples=300)
@given(
    seed=st.integers(0, 2**32 - 1),
    precision=st.sampled_from(PRECISIONS),
    outputs=st.integers(1, 200),
    copies=st.integers(1, 4),
    bias=st.booleans(),
    # Near -0.5 the squares of numbers underflow though the numbers do not.
    sizes=st.tuples(*[st.floats(-1, 1) | st.floats(-0.53, -0.47) | st.floats(0.4, 0.6)] * 2),
    spreads=st.tuples(*[st.sampled_from([0.0, 1.0, 3.0, 12.0])] * 2),
    clip_norm=st.sampled_from([1.0, 0.1, 1e-3, 1e-10, 1e6]),
    broken=st.sampled_from([None, np.nan, np.inf, -np.inf]),
)
def test_no_residuals_at_all_pass_the_clip_norm(
    seed: int,
    precision: str,
    outputs: int,
    copies: int,
    bias: bool,
    sizes: tuple[float, float],
    spreads: tuple[float, float],
    clip_norm: float,
    broken: float | None,
) -> None:
    """Whatever the model made of a row: residuals and features of any size are multiplied."""
    rng = np.random.default_rng(seed)

    def around(size: float, spread: float, *shape: int) -> Array:
        low, high = EXPONENTS[precision]
        center = size * (high if size > 0 else -low)
        exponents = np.clip(center + rng.uniform(-spread, spread, shape), low, high)
        return np.sign(rng.normal(size=shape)) * 10.0**exponents

    rows = 8
    chunk = chunk_of(around(sizes[0], spreads[0], rows, copies, 5), np.zeros(rows), precision, bias)
    residuals = around(sizes[1], spreads[1], 1, outputs, rows * copies)
    if broken is not None:
        residuals[0, rng.integers(outputs), rng.integers(rows * copies)] = broken
    assert_bounded(clipped(residuals, chunk, clip_norm), chunk, clip_norm)


@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**32 - 1),
    precision=st.sampled_from(PRECISIONS),
    features_kind=st.sampled_from(KINDS),
    residuals_kind=st.sampled_from(KINDS),
    bias=st.booleans(),
    clip_norm=st.sampled_from([1.0, 1e-3, 1e6]),
)
def test_one_output_without_copies_or_weights_is_cut_off_at_the_clip_norm(
    seed: int,
    precision: str,
    features_kind: str,
    residuals_kind: str,
    bias: bool,
    clip_norm: float,
) -> None:
    """Equal, up to rounding, to what a scale makes of it, and bounded for numbers of every kind."""
    rng = np.random.default_rng(seed)
    chunk = chunk_of(numbers(rng, features_kind, precision, 8, 1, 5), np.zeros(8), precision, bias)
    residuals = numbers(rng, residuals_kind, precision, 1, 1, 8)
    cut = clipped(residuals, chunk, clip_norm)
    assert_bounded(cut, chunk, clip_norm)
    scaled = clipped(residuals, chunk, clip_norm, weights=torch.ones(1, 8))
    counted = scaled != 0
    tolerance = {"float64": 1e-12, "float32": 1e-5, "bfloat16": 2e-2}[precision]
    torch.testing.assert_close(cut[counted], scaled[counted], rtol=tolerance, atol=0.0)


@settings(max_examples=300)
@given(
    seed=st.integers(0, 2**32 - 1),
    precision=st.sampled_from(PRECISIONS),
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=6),
    outputs=st.integers(2, 50),
    copies=st.integers(1, 3),
    bias=st.booleans(),
    clip_norm=st.sampled_from([1.0, 0.1, 1e-6, 37.0]),
    weights=st.lists(st.floats(0, 1, exclude_min=True), min_size=50, max_size=50),
)
def test_no_row_adds_more_than_the_clip_norm_times_its_weight(
    seed: int,
    precision: str,
    kinds: list[str],
    outputs: int,
    copies: int,
    bias: bool,
    clip_norm: float,
    weights: list[float],
) -> None:
    """Weights of every size, as the engine takes them from a plan: never above what it says."""
    rng = np.random.default_rng(seed)
    features = np.stack([numbers(rng, kind, precision, copies, 5) for kind in kinds])
    targets = rng.integers(outputs, size=len(kinds))
    chunk = chunk_of(features, targets, precision, bias)
    logits = logits_of(rng.normal(size=(1, outputs, 5)), rng.normal(size=(1, outputs)), chunk)
    plan = LinearPlan(
        rows=9,
        steps=1,
        learning_rate=1.0,
        noise_multiplier=1.0,
        clip_norm=clip_norm,
        class_weights=tuple(weights[:outputs]),
    )
    given = Release.of([plan], logits).class_weights
    assert given is not None
    exact = np.array(weights)[targets]
    assert np.all(given[0, targets].double().numpy() <= exact)
    residuals = clipping.residuals_(logits, chunk.targets.repeat_interleave(copies, 0), "softmax")
    found = clipped(residuals, chunk, clip_norm, weights=given[:, chunk.targets])
    assert bool(torch.isfinite(found).all())
    assert np.all(contributions(found, chunk) <= clip_norm * exact)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_residuals_whose_squares_underflow_are_counted(precision: str) -> None:
    """199 outputs at 2^-75, whose squares vanish in float32, next to one at 2^-70."""
    residuals = np.full((1, 200, 1), 0.99 * 2.0**-75)
    residuals[0, 0] = 2.0**-70
    chunk = chunk_of(np.array([[2.0**80]]), np.zeros(1), precision)
    assert_bounded(clipped(residuals, chunk, 1.0), chunk, 1.0)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_confident_softmax_on_a_huge_row_is_clipped(precision: str) -> None:
    """The same through the loss: nearly all wrong classes have a probability below 2^-75."""
    logits = torch.full((1, 200, 1), -75.1 * np.log(2))
    logits[0, 0], logits[0, 1] = 0.0, -70 * np.log(2)
    residuals = clipping.residuals_(logits, torch.zeros(1, dtype=torch.long), "softmax")
    chunk = chunk_of(np.array([[1e30, 1e30]]), np.zeros(1), precision)
    assert_bounded(clipped(residuals, chunk, 1.0), chunk, 1.0)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("clip_norm", [1.0, 1e-3, 1e-6])
def test_a_scale_that_is_denormal_does_not_round_past_the_clip_norm(
    precision: str, clip_norm: float
) -> None:
    """Squared loss with values near 2^63 on rows of norm near 2^63."""
    residuals = np.linspace(2.0**61, 2.0**63, 500).reshape(1, 1, -1)
    chunk = chunk_of(np.full((500, 1), 2.0**63), np.zeros(500), precision)
    assert_bounded(clipped(residuals, chunk, clip_norm), chunk, clip_norm)


def test_features_whose_squares_underflow_are_counted() -> None:
    """Only in float64: the other precisions take their norms in a wider one."""
    chunk = chunk_of(np.full((1, 7), 1e-163), np.zeros(1), "float64")
    assert_bounded(clipped(np.full((1, 3, 1), 1e152), chunk, 1e-12), chunk, 1e-12)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("clip_norm", [1e-3, 1e-4, 1e-5])
def test_copies_whose_inner_products_underflow_are_counted(
    precision: str, clip_norm: float
) -> None:
    """Features near 1e-23 on large residuals: the Gram matrix vanishes, the gradient does not."""
    features = np.logspace(-24, -21, 60)[:, None, None] * np.ones((60, 2, 50))
    chunk = chunk_of(features, np.zeros(60), precision)
    for size in (1e17, 1e18, 8e18):
        found = clipped(np.full((1, 1, 120), size), chunk, clip_norm)
        assert_bounded(found, chunk, clip_norm)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("clip_norm", [0.1, 0.3, 0.7, 1.0, 3.3])
@pytest.mark.parametrize("bias", [True, False])
def test_a_lone_row_moves_trained_weights_by_at_most_its_clip_norm(
    precision: str, clip_norm: float, bias: bool
) -> None:
    """The whole engine: no noise, rate 1 and divisor 1, so the weights are the contribution."""
    rng = np.random.default_rng(0)
    plan = LinearPlan(
        rows=1, steps=1, learning_rate=1.0, noise_multiplier=0.0, clip_norm=clip_norm, bias=bias
    )
    for size in (10.0, 1e3, 1e15):
        rows = MemoryRows(size * rng.normal(size=(1, 30)), np.array([2]), precision=precision)
        (model,) = plan.engine(7).fit_many([plan], rows, [Randomness()])
        weights = model.weights.double().numpy()
        if model.bias is not None:
            weights = np.concatenate([weights, model.bias.double().numpy()[:, None]], 1)
        norm = np.sqrt(np.square(weights).sum())
        assert 0.98 * clip_norm <= norm <= clip_norm


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_clipping_is_not_vacuous(precision: str, copies: int, bias: bool) -> None:
    """Large gradients come out at the clip norm, not far below it. (Copies of a row that cancel
    are bounded from above in bfloat16; copies that resemble each other, as here, hardly.)"""
    rng = np.random.default_rng(1)
    rows, outputs = 50, 10
    features = rng.normal(size=(rows, 1, 16)) + 0.1 * rng.normal(size=(rows, copies, 16))
    chunk = chunk_of(features, np.zeros(rows), precision, bias)
    residuals = np.repeat(10 * rng.normal(size=(2, outputs, rows)), copies, 2)
    found = contributions(clipped(residuals, chunk, 1.0, 0.2), chunk)
    least = 0.98 if copies == 1 or precision != "bfloat16" else 0.97
    assert np.all(found[0] >= least)
    assert np.all(found[1] >= least * 0.2)


@pytest.mark.parametrize("copies", [1, 2, 4])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("precision", "tolerance"), [("float64", 1e-6), ("float32", 1e-6), ("bfloat16", 2.0**-8)]
)
def test_small_gradients_are_left_as_they_are(
    copies: int, bias: bool, precision: str, tolerance: float
) -> None:
    rng = np.random.default_rng(2)
    rows, outputs = 40, 5
    chunk = chunk_of(rng.normal(size=(rows, copies, 8)), np.zeros(rows), precision, bias)
    residuals = torch.as_tensor(rng.normal(size=(1, outputs, rows * copies)))
    raw = contributions(residuals / copies, chunk)
    limit = float(raw.max()) / 0.89
    found = clipped(residuals, chunk, limit).double()
    torch.testing.assert_close(found, residuals / copies, rtol=tolerance, atol=0)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_copy_that_is_already_right_does_not_silence_its_row(precision: str) -> None:
    """Its residual is exactly 0 (a saturated sigmoid); the other copy's gradient still counts."""
    chunk = chunk_of(np.array([[[1.0, 2.0], [3.0, 1.0]]]), np.ones(1), precision)
    found = clipped(np.array([[[0.0, -0.5]]]), chunk, 10.0)
    assert found.double().tolist() == [[[0.0, -0.25]]]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_copies_are_averaged_before_clipping(precision: str) -> None:
    """Opposite gradients of 100 leave nothing to clip: each copy alone would have been cut."""
    features = np.array([[[1.0, 0.0], [1.0, 0.0]]])
    chunk = chunk_of(features, np.zeros(1), precision)
    found = clipped(np.array([[[100.0, -99.0]]]), chunk, 50.0).double()
    added = float((found[0, 0] * torch.tensor([1.0, 1.0])).sum())
    assert added == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("copies", [1, 2])
def test_a_row_is_clipped_without_regard_to_the_others(precision: str, copies: int) -> None:
    rng = np.random.default_rng(3)
    features, residuals = rng.normal(size=(9, copies, 6)), rng.normal(size=(1, 4, 9, copies))
    before = clipped(residuals.reshape(1, 4, -1), chunk_of(features, np.zeros(9), precision), 1.0)
    features[4], residuals[:, :, 4] = 1e6, np.inf
    after = clipped(residuals.reshape(1, 4, -1), chunk_of(features, np.zeros(9), precision), 1.0)
    others = torch.arange(9 * copies) // copies != 4
    assert torch.equal(before[..., others], after[..., others])
    assert not after[..., ~others].any()
    assert before[..., ~others].any()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_row_of_zeros_adds_nothing_and_a_bias_sees_it(precision: str) -> None:
    residuals = np.array([[[3.0], [4.0]]])
    for bias, expected in ((False, 0.0), (True, 1.0)):
        chunk = chunk_of(np.zeros((1, 4)), np.zeros(1), precision, bias)
        found = clipped(residuals, chunk, 1.0)
        assert_bounded(found, chunk, 1.0)
        assert contributions(found, chunk)[0, 0] == pytest.approx(expected, rel=0.02)


def test_without_a_clip_norm_only_the_copies_are_averaged() -> None:
    chunk = chunk_of(np.full((3, 2, 4), 1e6), np.zeros(3), "float64")
    residuals = torch.linspace(-9, 9, 30, dtype=torch.float64).reshape(1, 5, 6)
    found = clipping.clip_(residuals.clone(), chunk, None)
    torch.testing.assert_close(found, residuals / 2, rtol=1e-15, atol=0)


@pytest.mark.parametrize("loss", ["softmax", "binary", "squared"])
def test_residuals_are_the_derivative_of_the_loss(loss: str) -> None:
    rng = np.random.default_rng(4)
    outputs = 1 if loss == "binary" else 5
    logits = torch.as_tensor(rng.normal(size=(2, outputs, 7)), dtype=torch.float64)
    targets = torch.as_tensor(rng.integers(2, size=7))
    if loss == "squared":
        targets = torch.as_tensor(rng.normal(size=(7, outputs)))
    leaf = logits.clone().requires_grad_()
    if loss == "softmax":
        wanted = torch.nn.functional.cross_entropy(leaf, targets.expand(2, 7), reduction="sum")
    elif loss == "binary":
        expected = targets.double().expand(2, 1, 7)
        wanted = torch.nn.functional.binary_cross_entropy_with_logits(
            leaf, expected, reduction="sum"
        )
    else:
        wanted = (leaf - targets.T).square().sum() / 2
    (gradient,) = torch.autograd.grad(wanted, leaf)
    torch.testing.assert_close(clipping.residuals_(logits, targets, loss), gradient)
