"""The networks of the benchmark, built from public configurations, and synthetic rows for them.
They have random weights, which do not change the cost of a step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from dptune.engines.modules.adapters import add_adapters
from dptune.errors import MissingExtra


@dataclass(frozen=True)
class Sizes:
    """The public sizes of a transformer."""

    layers: int
    width: int
    words: int = 0
    length: int = 0
    pixels: int = 0
    patch: int = 0
    classes: int = 0

    @property
    def heads(self) -> int:
        return max(1, self.width // 64)

    @property
    def shape(self) -> str:
        return f"{self.length:,} words" if self.length else f"{self.pixels} pixels"


@dataclass(frozen=True)
class Network:
    """A network, the number of rows in one step, and the layers that get adapters."""

    name: str
    kind: str
    sizes: Sizes
    rows: int

    def made(self, device: torch.device, dtype: torch.dtype = torch.float32) -> nn.Module:
        """The network with random weights, in training mode."""
        default = torch.get_default_dtype()
        torch.set_default_dtype(dtype)  # the largest would not fit in another type first
        try:
            with device:
                return _KINDS[self.kind].make(self.sizes).train()
        finally:
            torch.set_default_dtype(default)

    def made_up_rows(self, device: torch.device, rows: int | None = None) -> tuple[Tensor, Tensor]:
        with device:
            return _KINDS[self.kind].rows(self.sizes, self.rows if rows is None else rows)

    @property
    def adapted(self) -> str:
        """Patterns of the layers that compute queries and values."""
        return _KINDS[self.kind].adapted


def with_adapters(module: nn.Module, network: Network, rank: int, base: torch.dtype) -> nn.Module:
    """Add trainable adapters of `rank` to queries and values. Frozen weights have the type `base`,
    trained ones float32."""
    model: Any = module.get_submodule("model")
    add_adapters(model, rank=rank, alpha=rank, layers=network.adapted, base_dtype=base)
    for parameter in module.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
    return module


class Logits(nn.Module):
    """A model of transformers that returns a plain tensor."""

    def __init__(self, model: nn.Module, *, positions: bool = False) -> None:
        super().__init__()
        self.model, self.positions = model, positions

    def forward(self, rows: Tensor) -> Tensor:
        options: dict[str, Any] = {}
        if self.positions:  # GPT-2 embeds positions once for all rows, which Opacus cannot handle
            places = torch.arange(rows.shape[1], device=rows.device)
            options = {"position_ids": places.repeat(len(rows), 1), "use_cache": False}
        logits: Tensor = self.model(rows, **options).logits
        return logits


class MeanLoss(nn.Module):
    """The mean loss of the rows or, with reduction "none", the loss of each row."""

    def __init__(self) -> None:
        super().__init__()
        self.reduction = "mean"

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = row_losses(outputs, targets)
        return losses.mean() if self.reduction == "mean" else losses


def row_losses(outputs: Tensor, targets: Tensor) -> Tensor:
    """The cross-entropy of each row, averaged over its words."""
    losses = functional.cross_entropy(
        outputs.flatten(0, -2).float(), targets.flatten(), reduction="none"
    )
    return losses.view(len(targets), -1).mean(1)


@dataclass(frozen=True)
class _Kind:
    make: Callable[[Sizes], nn.Module]
    rows: Callable[[Sizes, int], tuple[Tensor, Tensor]]
    adapted: str


def _gpt2(sizes: Sizes) -> nn.Module:
    transformers = _transformers()
    config = transformers.GPT2Config(
        vocab_size=sizes.words,
        n_positions=sizes.length,
        n_embd=sizes.width,
        n_layer=sizes.layers,
        n_head=sizes.heads,
        tie_word_embeddings=False,  # shared weights have no per-example gradient of their own
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
        **dict.fromkeys(("bos_token_id", "eos_token_id")),
    )
    return Logits(transformers.GPT2LMHeadModel(config), positions=True)


def _roberta(sizes: Sizes) -> nn.Module:
    transformers = _transformers()
    config = transformers.RobertaConfig(
        vocab_size=sizes.words,
        max_position_embeddings=sizes.length + 2,
        type_vocab_size=1,
        num_labels=sizes.classes,
        **_encoder(sizes),
    )
    return Logits(transformers.RobertaForSequenceClassification(config))


def _vit(sizes: Sizes) -> nn.Module:
    transformers = _transformers()
    config = transformers.ViTConfig(
        image_size=sizes.pixels,
        patch_size=sizes.patch,
        num_labels=sizes.classes,
        **_encoder(sizes),
    )
    return Logits(transformers.ViTForImageClassification(config))


def _encoder(sizes: Sizes) -> dict[str, Any]:
    return {
        "hidden_size": sizes.width,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "intermediate_size": 4 * sizes.width,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }


def _next_words(sizes: Sizes, rows: int) -> tuple[Tensor, Tensor]:
    words = torch.randint(sizes.words, (rows, sizes.length + 1))
    return words[:, :-1].contiguous(), words[:, 1:].contiguous()


def _sentences(sizes: Sizes, rows: int) -> tuple[Tensor, Tensor]:
    words = torch.randint(3, sizes.words, (rows, sizes.length))  # word 1 is RoBERTa's padding
    return words, torch.randint(sizes.classes, (rows,))


def _pictures(sizes: Sizes, rows: int) -> tuple[Tensor, Tensor]:
    pictures = torch.randn(rows, 3, sizes.pixels, sizes.pixels)
    return pictures, torch.randint(sizes.classes, (rows,))


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise MissingExtra(
            "these networks need transformers: pip install 'dptune[torch-modules]'."
        ) from None
    return transformers


_KINDS = {
    "gpt2": _Kind(_gpt2, _next_words, "*.c_attn"),
    "roberta": _Kind(_roberta, _sentences, "*.query, *.value"),
    "vit": _Kind(_vit, _pictures, "*.q_proj, *.v_proj, *.query, *.value"),
}
