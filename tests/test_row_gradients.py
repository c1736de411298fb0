"""Clipped sums of rows' gradients in any module, against each row's gradient by itself."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from dptune.engines.modules import ghost
from dptune.engines.modules.gradients import RowGradients
from dptune.errors import InvalidInput

pytestmark = pytest.mark.usefixtures("one_thread")

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
    aim = clip_norm * (1 - ghost.margin("float32"))
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
}


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


def tiny(kind: str) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    common = {"num_labels": 3, "pad_token_id": 1, "vocab_size": 50, "max_position_embeddings": 12}
    layers = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
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
