"""Clipped sums of rows' gradients in any module, against each row's gradient by itself."""

from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from dptune.engines.modules import blocks, ghost
from dptune.engines.modules.gradients import RowGradients, clip
from dptune.engines.modules.recording import recorded
from dptune.engines.modules.standardized import StandardizedConv2d
from dptune.engines.modules.step_total import StepTotal
from dptune.errors import InvalidInput
from support import zoo

# Of processors without bfloat16: torch goes another way, to the same numbers.
pytestmark = pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")

ROWS, WORDS = 7, 13


def loss(outputs: Any, targets: Tensor) -> Tensor:
    logits = outputs if isinstance(outputs, Tensor) else outputs.logits
    return functional.cross_entropy(logits.float(), targets, reduction="none")


def row_gradients(module: nn.Module, features: Tensor, targets: Tensor) -> Tensor:
    """Each row alone, by autograd: (rows, numbers)."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    found = []
    for copies, target in zip(features, targets, strict=True):
        mean = loss(module(copies), target.expand(len(copies))).mean()
        gradients = torch.autograd.grad(mean, trained)
        found.append(torch.cat([gradient.flatten() for gradient in gradients]))
    return torch.stack(found).double()


def prepared(module: nn.Module, features: Tensor, compute: str = "float32") -> RowGradients:
    module.train()
    trained = {name: own for name, own in module.named_parameters() if own.requires_grad}
    gradients = RowGradients(module, trained, loss, compute=compute)
    gradients.trace(features[:4], torch.arange(4) % 3)
    return gradients


def added(
    gradients: RowGradients,
    features: Tensor,
    targets: Tensor,
    clip_norm: float | None,
    weights: Tensor | None = None,
) -> Tensor:
    numbers = sum(parameter.numel() for parameter in gradients._trained.values())
    total = torch.zeros(numbers, dtype=torch.float64)
    gradients.add(total, features, targets, clip_norm, weights)
    return total


def assert_same(found: Tensor, wanted: Tensor, cosine: float = 1 - 1e-6) -> None:
    assert functional.cosine_similarity(found, wanted, dim=0) > cosine
    assert found.norm() == pytest.approx(wanted.norm().item(), rel=2e-4)


def assert_clips_as_autograd(module: nn.Module, features: Tensor) -> RowGradients:
    """Some rows are clipped and some are not; and nothing is, where nobody asks for it."""
    targets = torch.arange(len(features)) % 3
    gradients = prepared(module, features)
    each = row_gradients(module, features, targets)
    norms = each.norm(dim=1)
    clip_norm = norms.median().item()
    # What is aimed at: a little below.
    aim = clip_norm * (1 - blocks.margin("float32"))
    scale = (aim / norms).clamp(max=1.0)
    assert_same(added(gradients, features, targets, clip_norm), scale @ each)
    assert_same(added(gradients, features, targets, None), each.sum(0))
    return gradients


class Own(nn.Module):
    """A parameter of its own, and one that begins with a dimension of 1."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 8)
        self.first = nn.Parameter(torch.randn(1, 1, 8))
        self.gain = nn.Parameter(torch.randn(8))
        self.outer = nn.Linear(8, 3)

    def forward(self, rows: Tensor) -> Tensor:
        hidden = torch.cat([self.first.expand(len(rows), -1, -1), self.inner(rows)], 1)
        answer: Tensor = self.outer(hidden.tanh().mean(1) * self.gain)
        return answer


class Positions(nn.Module):
    """Embeddings of words and of positions, which are the same for all rows."""

    def __init__(self, leading: bool, **options: Any) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 8, **options)
        self.places = nn.Embedding(9, 8)
        self.outer = nn.Linear(8, 3)
        self.leading = leading

    def forward(self, rows: Tensor) -> Tensor:
        places = torch.arange(rows.shape[1])
        hidden = self.words(rows) + self.places(places[None] if self.leading else places)
        answer: Tensor = self.outer(hidden.tanh().sum(1))
        return answer


class Attention(nn.Module):
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=batch_first)
        self.outer = nn.Linear(8, 3)
        self.batch_first = batch_first

    def forward(self, rows: Tensor) -> Tensor:
        seen = rows if self.batch_first else rows.transpose(0, 1)
        hidden = self.attention(seen, seen, seen)[0]
        answer: Tensor = self.outer(hidden.mean(1 if self.batch_first else 0))
        return answer


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(6, 5, batch_first=True)
        self.outer = nn.Linear(5, 3)

    def forward(self, rows: Tensor) -> Tensor:
        answer: Tensor = self.outer(self.inner(rows)[0][:, -1])
        return answer


class Twice(nn.Module):
    """Its layers are called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(6, 6), nn.LayerNorm(6)
        self.outer = nn.Linear(6, 3)

    def forward(self, rows: Tensor) -> Tensor:
        hidden = self.norm(self.inner(rows)).tanh()
        answer: Tensor = self.outer(self.norm(self.inner(hidden)).mean(1))
        return answer


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.start, self.outer = nn.Linear(6, 8), nn.Linear(8, 3)
        self.places = nn.Embedding(5, 8)
        self.block = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8), nn.LayerNorm(8))

    def again(self, hidden: Tensor) -> Tensor:
        answer: Tensor = self.block(hidden) + self.places(torch.arange(5)[None])
        return answer

    def forward(self, rows: Tensor) -> Tensor:
        hidden = checkpoint(self.again, self.start(rows), use_reentrant=False)
        answer: Tensor = self.outer(hidden.mean(1))
        return answer


def convolution(kind: type, norm: nn.Module, size: int, **options: Any) -> nn.Module:
    first = kind(4, 6, 3, **options)
    return nn.Sequential(first, norm, nn.Tanh(), nn.Flatten(), nn.Linear(size, 3))


def vectors(*shape: int) -> Tensor:
    return torch.randn(ROWS, *shape)


def words(copies: int, length: int) -> Tensor:
    return torch.randint(0, WORDS, (ROWS, copies, length))


LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "linear": (
        lambda: nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3)),
        lambda: vectors(1, 6),
    ),
    "linear with copies": (
        lambda: nn.Sequential(nn.Linear(6, 9, bias=False), nn.ReLU(inplace=True), nn.Linear(9, 3)),
        lambda: vectors(4, 6),
    ),
    "convolution 1d": (
        lambda: convolution(nn.Conv1d, nn.GroupNorm(3, 6), 30, stride=2, padding=1),
        lambda: vectors(2, 4, 10),
    ),
    "convolution 2d": (
        lambda: convolution(nn.Conv2d, nn.InstanceNorm2d(6, affine=True), 96, dilation=2, groups=2),
        lambda: vectors(1, 4, 8, 8),
    ),
    "convolution 2d, circular": (
        lambda: convolution(
            nn.Conv2d, nn.Identity(), 54, padding="same", padding_mode="circular", groups=2
        ),
        lambda: vectors(2, 4, 3, 3),
    ),
    "convolution 3d": (
        lambda: convolution(nn.Conv3d, nn.GroupNorm(1, 6), 48, stride=2, padding=1),
        lambda: vectors(1, 4, 4, 4, 4),
    ),
    "few positions, many channels": (
        lambda: nn.Sequential(nn.Conv2d(16, 24, 3), nn.Flatten(), nn.Linear(96, 3)),
        lambda: vectors(2, 16, 4, 4),
    ),
    "weights made of others": (
        lambda: nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Linear(6, 5)), nn.PReLU(5), nn.Linear(5, 3)
        ),
        lambda: vectors(2, 6),
    ),
    "norms": (
        lambda: nn.Sequential(nn.LayerNorm((4, 6)), nn.RMSNorm(6), nn.Flatten(), nn.Linear(24, 3)),
        lambda: vectors(2, 4, 6),
    ),
    "embedding": (lambda: Positions(True, padding_idx=2), lambda: words(1, 9)),
    "positions without rows": (lambda: Positions(False), lambda: words(2, 9)),
    "own parameters": (Own, lambda: vectors(2, 4, 6)),
    "attention": (lambda: Attention(True), lambda: vectors(2, 5, 8)),
    "attention, rows second": (lambda: Attention(False), lambda: vectors(1, 5, 8)),
    "encoder layer": (
        lambda: nn.Sequential(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
            nn.Flatten(),
            nn.Linear(40, 3),
        ),
        lambda: vectors(1, 5, 8),
    ),
    "recurrent": (Recurrent, lambda: vectors(1, 5, 6)),
    "called twice": (Twice, lambda: vectors(2, 4, 6)),
    "checkpointed": (Checkpointed, lambda: vectors(1, 5, 6)),
    **{name: (make, partial(rows, ROWS)) for name, (make, rows) in zoo.APART.items()},
}

STANDARDIZED: tuple[Callable[[], nn.Module], Callable[[], Tensor]] = (
    lambda: nn.Sequential(StandardizedConv2d(4, 6, 3), nn.Tanh(), nn.Flatten(), nn.Linear(24, 3)),
    lambda: vectors(2, 4, 4, 4),
)


@pytest.mark.parametrize("name", LAYERS)
def test_rows_are_clipped_as_autograd_has_them(name: str) -> None:
    torch.manual_seed(1)
    module, features = LAYERS[name][0](), LAYERS[name][1]()
    assert_clips_as_autograd(module, features)


def test_each_layer_goes_the_way_that_costs_least() -> None:
    torch.manual_seed(1)
    few, many = nn.Linear(40, 40), nn.Linear(6, 6)
    assert prepared(nn.Sequential(few, Mean()), vectors(1, 4, 40)).routes == {"0": "ghost"}
    assert prepared(nn.Sequential(many, Mean()), vectors(1, 4, 6)).routes == {"0": "per row"}
    assert prepared(Own(), vectors(1, 4, 6)).routes == {
        "inner": "per row",
        "outer": "ghost",
        "": "torch.func",
        "first": "expanded",
    }


class Mean(nn.Module):
    def forward(self, rows: Tensor) -> Tensor:
        return rows.mean(1)


@pytest.mark.parametrize("kind", ["gpt2", "roberta", "vit", "opt", "llama"])
def test_models_of_transformers_are_clipped_as_autograd_has_them(kind: str) -> None:
    torch.manual_seed(2)
    model = tiny(kind)
    features = vectors(2, 3, 8, 8) if kind == "vit" else torch.randint(3, 50, (ROWS, 1, 6))
    gradients = assert_clips_as_autograd(model, features)
    again = {name for name, route in gradients.routes.items() if route == "torch.func"}
    # Nothing large is run again: norms of their own kind, and positions that know of a mask.
    assert all("norm" in name or "embed_positions" in name for name in again)


def test_adapters_of_peft_are_clipped_as_autograd_has_them() -> None:
    peft = pytest.importorskip("peft")
    torch.manual_seed(2)
    config = peft.LoraConfig(
        r=2, target_modules=["query", "value"], lora_dropout=0.0, init_lora_weights=False
    )
    model = peft.get_peft_model(tiny("roberta"), config)
    gradients = assert_clips_as_autograd(model, torch.randint(3, 50, (ROWS, 1, 6)))
    assert set(gradients.routes.values()) <= {"ghost", "per row"}
    assert all("lora" in name for name in gradients.routes)


def tiny(kind: str, depth: int = 2) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    common = {"num_labels": 3, "pad_token_id": 1, "vocab_size": 50, "max_position_embeddings": 12}
    layers = {"hidden_size": 16, "num_hidden_layers": depth, "num_attention_heads": 2}
    silent = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    if kind == "gpt2":
        config = transformers.GPT2Config(
            **common, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0
        )
        return transformers.GPT2ForSequenceClassification(config)
    if kind == "roberta":
        config = transformers.RobertaConfig(**common, **layers, **silent, intermediate_size=32)
        return transformers.RobertaForSequenceClassification(config)
    if kind == "vit":
        config = transformers.ViTConfig(
            **layers, **silent, num_labels=3, intermediate_size=32, image_size=8, patch_size=4
        )
        return transformers.ViTForImageClassification(config)
    if kind == "opt":
        config = transformers.OPTConfig(
            **common, **layers, ffn_dim=32, word_embed_proj_dim=16, dropout=0.0
        )
        return transformers.OPTForSequenceClassification(config)
    config = transformers.LlamaConfig(**common, **layers, intermediate_size=32)
    return transformers.LlamaForSequenceClassification(config)


def test_weights_multiply_what_was_clipped() -> None:
    torch.manual_seed(3)
    module, features = Own(), vectors(2, 4, 6)
    targets = torch.arange(ROWS) % 3
    gradients, weights = prepared(module, features), torch.rand(ROWS)
    each = row_gradients(module, features, targets)
    aim = 0.1 * (1 - blocks.margin("float32"))
    scale = (aim / each.norm(dim=1)).clamp(max=1.0)
    assert_same(added(gradients, features, targets, 0.1, weights), (scale * weights) @ each)


def test_only_what_is_trained_has_a_part() -> None:
    torch.manual_seed(3)
    module = nn.Sequential(nn.Linear(6, 9), nn.LayerNorm(9), nn.Linear(9, 3))
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in ("0.bias", "2.weight", "1.weight"))
    assert_clips_as_autograd(module, vectors(2, 6))


def test_batches_add_up() -> None:
    torch.manual_seed(3)
    module, features, targets = Own(), vectors(2, 4, 6), torch.arange(ROWS) % 3
    gradients = prepared(module, features)
    whole = added(gradients, features, targets, 0.2)
    parts = added(gradients, features[:3], targets[:3], 0.2)
    gradients.add(parts, features[3:], targets[3:], 0.2)
    gradients.add(parts, features[:0], targets[:0], 0.2)  # nobody was sampled
    assert torch.allclose(whole, parts, rtol=1e-4, atol=1e-6)


def test_bfloat16_passes_clip_as_float32_ones_do() -> None:
    torch.manual_seed(4)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.GroupNorm(2, 8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.Tanh(),
        nn.Linear(32, 3),
    )
    features, targets = vectors(2, 3, 8, 8), torch.arange(ROWS) % 3
    gradients = prepared(module, features, "bfloat16")
    each = row_gradients(module, features, targets)
    clip_norm = each.norm(dim=1).median().item()
    wanted = (clip_norm / each.norm(dim=1)).clamp(max=1.0) @ each
    found = added(gradients, features, targets, clip_norm)
    assert functional.cosine_similarity(found, wanted, dim=0) > 0.999
    assert 0.93 < found.norm() / wanted.norm() < 1.0
    plain = added(gradients, features, targets, None)
    assert functional.cosine_similarity(plain, each.sum(0), dim=0) > 0.999


class Given(nn.Module):
    """Layers whose inputs are a row's first numbers; what comes back to their outputs is a row's
    targets, so both factors of every gradient are anybody's choice."""

    def __init__(self, layer: str, columns: int, outputs: int) -> None:
        super().__init__()
        self.bias = nn.Linear(columns, outputs)
        if layer == "convolution":
            self.layer: nn.Module = nn.Conv1d(columns, outputs, 2, padding=1)
        elif layer == "embedding":
            self.layer = nn.Embedding(4, outputs)
        else:
            self.layer = nn.Linear(columns, outputs, bias=False)
        self.kind = layer

    def forward(self, rows: Tensor) -> Tensor:
        linear = self.bias(rows)
        if self.kind == "convolution":
            return torch.cat([linear, self.layer(rows.mT).mT], 1)
        if self.kind == "embedding":
            return torch.cat([linear, self.layer(rows[..., 0].abs().clamp(max=3).long())], 1)
        return torch.cat([linear, self.layer(rows)], 1)


def product(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs * targets).flatten(1).sum(1)


@cache
def chosen(layer: str, compute: str, columns: int, outputs: int) -> RowGradients:
    module = Given(layer, columns, outputs)
    gradients = RowGradients(module, dict(module.named_parameters()), product, compute=compute)
    seen = 5 if layer == "convolution" else 4
    gradients.trace(torch.randn(3, 1, 2, columns), torch.randn(3, seen, outputs))
    return gradients


def of_kind(kind: str, *shape: int) -> Tensor:
    ordinary = torch.randn(shape)
    if kind == "huge":
        return ordinary * 1e17
    if kind == "overflowing":
        return ordinary * 1e30
    if kind == "tiny":
        return ordinary * 1e-25
    if kind == "denormal":
        return ordinary * 1e-42
    if kind == "equal":
        return torch.full(shape, 0.3) * (1 + 1e-7 * ordinary)
    if kind == "cancelling":
        signs = torch.tensor([1.0, -1.0]).repeat(shape[1])[: shape[1], None]
        return ordinary[:, :1] * signs * 1e5 * (1 + 1e-7 * torch.randn(shape))
    if kind == "mixture":
        return ordinary.sign() * 10.0 ** (torch.rand(shape) * 40 - 25)
    return ordinary


KINDS = ["ordinary", "huge", "overflowing", "tiny", "denormal", "equal", "cancelling", "mixture"]


@settings(max_examples=100)
@given(
    seed=st.integers(0, 2**32 - 1),
    compute=st.sampled_from(["float32", "bfloat16"]),
    layer=st.sampled_from(["linear", "convolution", "embedding"]),
    sizes=st.sampled_from([(2, 3), (24, 24), (3, 40)]),
    rows=st.sampled_from([1, 2, 5, 40]),
    terms=st.sampled_from([1, 2, 9, 60]),
    left=st.sampled_from([*KINDS, "same"]),
    right=st.sampled_from(KINDS),
    clip_norm=st.sampled_from([1.0, 1e-3, 37.0]),
)
def test_taking_a_row_away_moves_the_sum_by_at_most_the_clip_norm(
    seed: int,
    compute: str,
    layer: str,
    sizes: tuple[int, int],
    rows: int,
    terms: int,
    left: str,
    right: str,
    clip_norm: float,
) -> None:
    gradients = chosen(layer, compute, *sizes)
    torch.manual_seed(seed)
    columns, outputs = sizes
    seen = 2 * terms + 1 if layer == "convolution" else 2 * terms
    kind = "ordinary" if left == "same" else left
    features = of_kind(kind, rows, terms, columns)[:, None]
    if left == "same":  # the same input everywhere, outputs that cancel
        features[:] = features[:1, :, :1]
    targets = of_kind(right, rows, seen, outputs)
    targets[rows // 2 :] = of_kind("ordinary", *targets[rows // 2 :].shape)
    whole = added(gradients, features, targets, clip_norm)
    assert bool(torch.isfinite(whole).all())
    for row in {0, rows // 2, rows - 1}:
        others, aims = features.clone(), targets.clone()
        others[row], aims[row] = 0.0, 0.0
        moved = whole - added(gradients, others, aims, clip_norm)
        assert moved.norm() <= clip_norm


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    sizes=st.sampled_from([(1, 30, 30), (3, 5, 9), (1, 700, 20)]),
    terms=st.sampled_from([1, 2, 9, 60]),
    left=st.sampled_from(KINDS),
    right=st.sampled_from(KINDS),
)
@example(0, torch.float32, (1, 30, 30), 2, "tiny", "huge")
def test_lengths_are_never_below_what_they_are(
    seed: int, dtype: torch.dtype, sizes: tuple[int, int, int], terms: int, left: str, right: str
) -> None:
    torch.manual_seed(seed)
    groups, outputs, columns = sizes
    a, b = (
        torch.stack([of_kind(kind, 4, terms, size) for _ in range(groups)], 1).to(dtype)
        for kind, size in ((left, columns), (right, outputs))
    )
    outer = ghost.Outer([ghost.Factors(a, b, lambda *sides: sides)], 4, sizes)
    ids = torch.randint(0, 3, (4, terms))
    lookup = ghost.Lookup(ids, b[:, 0])
    wide = b.double().mT @ a.double()
    lines = functional.one_hot(ids, 3).double().mT @ b[:, 0].double()
    kept = ghost.Kept(outer.as_rows())
    for piece, exact in ((outer, wide), (lookup, lines), (kept, kept.gradients.double())):
        lengths = ghost.lengths([piece])
        norms = exact.flatten(1).norm(dim=1)
        counted = torch.isfinite(lengths.squared) & torch.isfinite(norms)
        tiny = 1e-12  # what vanishes when squares do is nothing beside a clip norm
        assert bool((lengths.squared.sqrt() + tiny >= norms)[counted].all())
        assert bool((lengths.squared <= 4 * terms * lengths.uncancelled + tiny)[counted].all())
        if left == right == "ordinary" and piece is not lookup:
            assert bool((lengths.squared.sqrt() <= norms * 1.004).all())
    assert_rounding_is_foreseen(a, b, outer)


def assert_rounding_is_foreseen(a: Tensor, b: Tensor, outer: ghost.Outer) -> None:
    """Outputs are rounded once they are scaled; what that moves is part of what is measured."""
    rounded = ghost.lengths([outer]).rounded
    if b.dtype != torch.bfloat16:
        assert bool((rounded[torch.isfinite(rounded)] == 0).all())
        return
    scale = torch.rand(len(b))
    exact = b.double() * scale.double()[:, None, None, None]
    off = (b * scale[:, None, None, None]).bfloat16().double() - exact
    moved = (off.mT @ a.double()).flatten(1).norm(dim=1)
    counted = torch.isfinite(rounded)
    assert bool((moved <= scale * rounded.sqrt() + 1e-12)[counted].all())


def test_a_row_whose_terms_cancel_is_bounded_by_what_is_rounded() -> None:
    gradients = chosen("linear", "float32", 24, 24)
    features = torch.ones(3, 1, 2, 24)
    targets = torch.zeros(3, 4, 24)
    targets[1, 2], targets[1, 3] = 1.0, -0.99
    found = added(gradients, features, targets, 0.5)
    uncancelled = 24 * (1 + 0.99**2) ** 0.5
    assert found.norm() == pytest.approx(0.01 * 24 * 4 * 0.5 / uncancelled, rel=1e-3)


@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_rounding_to_bfloat16_does_not_lengthen_a_row(compute: str) -> None:
    """Many pairs that nearly cancel: what is rounded up does not meet what is rounded down."""
    gradients = chosen.__wrapped__("linear", compute, 160, 160)
    features, targets = torch.ones(1, 1, 60, 160), torch.zeros(1, 120, 160)
    targets[:, 60::2], targets[:, 61::2] = 1.0, -0.9296875
    if compute == "float32":  # but the weights are bfloat16
        gradients._module.to(torch.bfloat16)
        features, targets = features.bfloat16(), targets.bfloat16()
    for clip_norm in torch.linspace(0.5, 1.0, 12).tolist():
        assert added(gradients, features, targets, clip_norm).norm() <= clip_norm


def test_float16_is_refused() -> None:
    module = nn.Linear(6, 3).half()
    with pytest.raises(InvalidInput, match="Load it in bfloat16"):
        prepared(module, vectors(1, 6).half())


def test_many_nearly_equal_rows_keep_the_bound() -> None:
    """What one block rounds, and many blocks: rows that all round the same way."""
    torch.manual_seed(5)
    gradients = chosen("linear", "float32", 30, 30)
    assert gradients.routes == {"bias": "ghost", "layer": "ghost"}
    features = torch.full((600, 1, 2, 30), 0.1) + 1e-7 * torch.randn(600, 1, 2, 30)
    targets = torch.full((600, 4, 30), 0.7)
    whole = added(gradients, features, targets, 1.0)
    features[300], targets[300] = 0.0, 0.0
    moved = whole - added(gradients, features, targets, 1.0)
    assert 0.98 < moved.norm() <= 1.0


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan, 1e30])
@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_rows_that_are_not_finite_contribute_nothing(bad: float, compute: str) -> None:
    torch.manual_seed(6)
    module = nn.Sequential(nn.Linear(30, 30), nn.LayerNorm(30), nn.Linear(30, 3), Mean())
    features, targets = vectors(1, 4, 30), torch.arange(ROWS) % 3
    gradients = prepared(module, features, compute)
    weights = torch.ones(ROWS)
    weights[2] = 0.0
    wanted = added(gradients, features, targets, 1.0, weights)
    features[2, 0, 1, 3] = bad
    assert torch.equal(added(gradients, features, targets, 1.0), wanted)


def test_no_gradient_of_a_row_is_made_where_that_is_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(7)
    module = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), Mean())
    rows = torch.randn(40, 1, 2, 64)
    gradients = prepared(module, rows)
    made = []
    plain = blocks.products

    def watched(left: Tensor, right: Tensor) -> Tensor:
        found = plain(left, right)
        made.append(found.numel())
        return found

    monkeypatch.setattr(blocks, "products", watched)
    added(gradients, rows, torch.arange(40) % 3, 1.0)
    assert max(made) <= 2 * 64 * 64  # rows are added up as they are multiplied, some in a block


def test_parts_are_as_good_as_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(8)
    module = nn.Sequential(
        Positions(True).words, nn.Linear(8, 40), nn.Linear(40, 40), Mean(), nn.Linear(40, 3)
    )
    features, targets = words(2, 5), torch.arange(ROWS) % 3
    gradients = prepared(module, features)
    whole = added(gradients, features, targets, 0.1)
    monkeypatch.setattr(blocks, "LARGEST_PART", 64)
    assert torch.allclose(added(gradients, features, targets, 0.1), whole, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("kind", ["recurrent", "attention", "standardized"])
def test_what_is_too_large_to_be_kept_is_made_again(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(8)
    made = {**LAYERS, "standardized": STANDARDIZED}[kind]
    module, features, targets = made[0](), made[1](), torch.arange(ROWS) % 3
    broken = features.clone()
    broken[3] = torch.nan
    gradients, weights = prepared(module, features), torch.rand(ROWS)
    asked: list[tuple[Tensor, float | None]] = [(features, 0.1), (features, None), (broken, 0.1)]
    wanted = [added(gradients, rows, targets, norm, weights) for rows, norm in asked]
    several: list[int] = []
    plain = ghost.Remade._made

    def watched(remade: ghost.Remade, part: slice) -> ghost.Kept:
        several.append(part.stop - part.start)
        return plain(remade, part)

    monkeypatch.setattr(ghost.Remade, "_made", watched)
    monkeypatch.setattr(blocks, "LARGEST_PART", 40)
    for (rows, norm), known in zip(asked, wanted, strict=True):
        found = added(gradients, rows, targets, norm, weights)
        # Norms are raised by a little less where gradients do not share a table.
        assert torch.allclose(found, known, rtol=1e-4, atol=1e-7)
    assert several
    assert max(several) < ROWS


def test_what_is_longer_the_second_time_is_shortened() -> None:
    sizes = iter([1.0, 1.5, 0.5])
    remade = ghost.Remade(lambda part: torch.full((2, 4), next(sizes)), 2, 4)
    assert remade.measure().tolist() == pytest.approx([4.0, 4.0], rel=1e-5)
    scale = torch.tensor([0.5, 0.25])
    for size in (1.0, 0.5):  # as measured, and shorter than that
        total = torch.zeros(4, dtype=torch.float64)
        remade.add_to(total, scale, 1)
        assert total.tolist() == pytest.approx([0.75 * size] * 4, rel=1e-5)


class Counting(TorchDispatchMode):
    """How often each kind of kernel runs."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.calls[function.overloadpacket.__name__] += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_wide_layer_takes_few_kernels_however_many_rows_there_are(dtype: torch.dtype) -> None:
    torch.manual_seed(9)
    words, width, known = 128, 256, 5001  # an odd number, as vocabularies have
    times = []
    for rows in (4, 12):
        a, b = (torch.randn(rows, words, size).to(dtype) for size in (width, known))
        total = torch.zeros(width * known, dtype=torch.float64)
        with Counting() as counting:
            outer = ghost.Outer([ghost.Factors(a, b)], rows, (1, known, width))
            scale = clip([outer], 1.0, torch.ones(rows, dtype=torch.float64))
            outer.add_to(total, scale.float(), outer.most_rows)
        assert 0.88 < total.norm() / rows**0.5 < 1.0
        times.append(counting.calls)
    # Four products of 1536 columns for what came back, one for what went in, and one for the sum.
    assert times[0]["bmm"] == times[1]["bmm"] == 6
    assert times[1]["add_"] <= 4
    assert times[1]["mul"] + times[1]["mul_"] <= 10
    assert sum(times[1].values()) <= sum(times[0].values()) + 2


def kernels(compute: str, layers: int) -> int:
    """Of one batch in a model of so many layers. What only looks at numbers in another way is none,
    nor are conversions, which a GPU does not need where a CPU has no bfloat16 products."""
    torch.manual_seed(2)
    model = tiny("roberta", layers)
    features, targets = torch.randint(3, 50, (ROWS, 1, 6)), torch.arange(ROWS) % 3
    gradients = prepared(model, features, compute)
    added(gradients, features, targets, 1e-3)
    with Counting() as counting:
        added(gradients, features, targets, 1e-3)
    idle = ("_to_copy", "empty", "empty_like", "promote_types", "detach", "diagonal", "alias")
    views = ("view", "_unsafe_view", "transpose", "unsqueeze", "slice", "select", "split")
    others = ("t", "expand", "squeeze", "permute", "unbind", "_reshape_alias", "as_strided")
    return sum(times for kind, times in counting.calls.items() if kind not in idle + views + others)


@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_a_trained_layer_takes_few_kernels(compute: str) -> None:
    # The passes forward and back, biases and norms included; a block of the model has six linear
    # layers and two norms.
    for_a_block = (kernels(compute, 4) - kernels(compute, 2)) / 2
    assert for_a_block / 6 <= 16


@pytest.mark.parametrize(("terms", "columns"), [(2, 16), (67, 16), (3, 9)])
def test_lines_of_any_length_are_added_up_in_bfloat16(terms: int, columns: int) -> None:
    torch.manual_seed(9)
    a, b = torch.randn(5, terms, columns).bfloat16(), torch.randn(5, terms, 13).bfloat16()
    outer = ghost.Outer([ghost.Factors(a, b)], 5, (1, 13, columns))
    norms = (b.double().mT @ a.double()).flatten(1).norm(dim=1)
    assert ghost.lengths([outer]).squared.sqrt().tolist() == pytest.approx(norms.tolist(), rel=1e-2)
    scale = blocks.cut(torch.rand(5))
    scaled = (b * scale[:, None, None]).bfloat16()
    exact = scaled.double().mT @ a.double()
    total = torch.zeros(13 * columns, dtype=torch.float64)
    outer.add_to(total, scale, 2)
    assert torch.allclose(total.view(13, columns), exact.sum(0), rtol=1e-5, atol=1e-5)


def test_scales_are_cut_to_numbers_of_bfloat16_and_never_grow() -> None:
    torch.manual_seed(3)
    scale = torch.cat([torch.rand(10_000), torch.tensor([0.0, 1.0, 2.0**-130, 2.0**-149])])
    made = blocks.cut(scale)
    assert bool((made <= scale).all()) and bool((made >= scale * (1 - 2.0**-7) - 2.0**-126).all())
    assert made.bfloat16().float().equal(made)
    assert made[-3] == 1.0


def test_layers_that_take_in_the_same_store_one_copy() -> None:
    layers = nn.ModuleDict({name: nn.Linear(4, 4) for name in "qkv"})
    features, other = torch.randn(3, 4), torch.randn(3, 4)
    with recorded(dict(layers), {}, "qkv") as recording, torch.autocast("cpu", torch.bfloat16):
        layers["q"](features)
        layers["k"](features)
        features += 1  # another input, in the same place
        layers["v"](features)
        layers["q"](other)
    first, again = recording.calls["q"][0].input, recording.calls["k"][0].input
    assert first is again and first.dtype == torch.bfloat16
    changed = recording.calls["v"][0].input
    assert changed.equal(features.bfloat16()) and not changed.equal(first)
    assert recording.calls["q"][1].input.equal(other.bfloat16())


def test_a_step_of_many_rows_is_added_up_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MOST_ROWS", 5)
    total = StepTotal(3, torch.device("cpu"))
    for batches in ([2, 3, 1], [5] * 7 + [1], [4], []):
        total.begin()
        parts: dict[int, int] = {}
        kept = []  # so that no two parts have the same place
        for number, rows in enumerate(batches):
            part = total.part(rows)
            kept.append(part)
            parts[id(part)] = parts.get(id(part), 0) + rows
            part += rows * 10.0**number
        assert max(parts.values(), default=0) <= 5
        wanted = sum(rows * 10.0**number for number, rows in enumerate(batches))
        assert total.value().tolist() == [wanted] * 3


@pytest.mark.parametrize("terms", [1, 5, 128, 197, 1024, 5000])
def test_blocks_round_no_more_than_the_margin_has_room_for(terms: int) -> None:
    rows, at_once = blocks.block_shape(terms)
    parts = -(-terms // at_once)
    # Added one after another, term k of n passes n - k + 1 roundings of sums, and three of its own.
    passed = [rows * at_once - place + 4 for place in range(1, rows * at_once + 1)]
    off = (sum(number**2 for number in passed) * rows * parts) ** 0.5
    # So many blocks are then added in float32: each rounding is of at most all of their rows.
    together = blocks.most_together(rows)
    off = off * blocks.CANCELLING + (together - 1) * together * rows
    assert together >= 4
    assert 2 * off * 2.0**-24 <= blocks.margin("float32")
    assert blocks.margin("float32") < 0.0115
    assert blocks.margin("bfloat16") < 0.0215


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, rows: Tensor) -> Tensor:
        hidden = self.inner(rows)
        answer: Tensor = self.outer(hidden - 0.1 * hidden.mean(0))
        return answer


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 3), nn.Linear(3, 3)
        self.outer.weight = self.inner.weight

    def forward(self, rows: Tensor) -> Tensor:
        answer: Tensor = self.outer(self.inner(rows).tanh())
        return answer


class Idle(Tied):
    def __init__(self) -> None:
        super().__init__()
        self.outer.weight = nn.Parameter(torch.randn(3, 3))

    def forward(self, rows: Tensor) -> Tensor:
        answer: Tensor = functional.linear(rows, self.inner.weight)
        return answer


@pytest.mark.parametrize(
    ("module", "shape", "says"),
    [
        (nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)), (6,), "'1' .BatchNorm1d.*GroupNorm"),
        (
            nn.Sequential(nn.Linear(6, 6), nn.InstanceNorm1d(6, track_running_stats=True), Mean()),
            (6, 6),
            "'1.running_mean'.*track_running_stats=False",
        ),
        (Mixed(), (6,), "depend on the other rows.*'inner.weight'"),
        (Tied(), (3,), "'inner.weight' is shared by 'inner.weight' and 'outer.weight'.*Untie"),
        (
            nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), Mean()),
            (5, 8),
            "is not for '0.self_attn.in_proj_weight'.*Set that dropout to 0",
        ),
        (Idle(), (3,), "no part in the loss.*'inner.bias'.*Freeze"),
    ],
)
def test_modules_whose_rows_cannot_be_told_apart_are_refused(
    module: nn.Module, shape: tuple[int, ...], says: str
) -> None:
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with pytest.raises(InvalidInput, match=says):
        prepared(module, torch.randn(ROWS, 1, *shape))
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_a_loss_gives_one_number_a_row() -> None:
    module = nn.Linear(6, 3)
    mean = RowGradients(module, dict(module.named_parameters()), functional.cross_entropy)
    with pytest.raises(InvalidInput, match=r"one number a row.*reduction='none'"):
        mean.trace(vectors(1, 6), torch.arange(ROWS) % 3)
    with pytest.raises(InvalidInput, match="3 made-up rows or more; got 2"):
        mean.trace(vectors(1, 6)[:2], torch.arange(2))


def test_dropout_is_no_reason_to_refuse() -> None:
    module = nn.Sequential(nn.Linear(6, 30), nn.Dropout(0.5), nn.Linear(30, 3))
    state = torch.get_rng_state()
    prepared(module, torch.ones(4, 1, 6))
    assert torch.equal(torch.get_rng_state(), state)


def test_products_that_round_their_operands_are_refused() -> None:
    module = nn.Linear(6, 3)
    gradients = prepared(module, vectors(1, 6))
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(InvalidInput, match="TF32"):
            added(gradients, vectors(1, 6), torch.arange(ROWS) % 3, 1.0)
    finally:
        torch.set_float32_matmul_precision("highest")


def test_inputs_that_are_picked_by_what_rows_hold_are_not_taken_for_other_rows() -> None:
    """Four words of one row, packed beside nothing, would pass for a word of each of four rows,
    and be clipped four times as wide."""
    module = zoo.WithoutPadding()
    gradients = RowGradients(
        module,
        dict(module.named_parameters()),
        lambda found, targets: functional.cross_entropy(found, targets, reduction="none"),
    )
    targets, generator = torch.tensor([0, 1, 2, 0]), torch.Generator().manual_seed(0)
    full = torch.randint(1, 9, (4, 1, 4), generator=generator)
    gradients.trace(full, targets)
    total = torch.zeros(sum(p.numel() for p in module.parameters()), dtype=torch.float64)
    gradients.add(total, full, targets, 1.0)
    padded = full.clone()
    padded[1:] = 0
    with pytest.raises(InvalidInput, match=r"'linear' must get as many inputs for every row"):
        gradients.add(total, padded, targets, 1.0)
