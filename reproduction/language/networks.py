"""Pretrained encoders with a new head, as modules that take rows of whole numbers."""

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dptune.errors import InvalidInput

# A factory takes no arguments, so this says in which folder models lie.
ROOT = "REPRODUCTION_LANGUAGE"
_SEPARATOR = 102  # of BERT's vocabulary


class MeanPooled(nn.Module):
    """The mean of an encoder's last states over a row's words, and one linear layer from zero."""

    def __init__(self, encoder: nn.Module, classes: int) -> None:
        super().__init__()
        self.model = encoder
        width: Any = encoder.config.hidden_size  # type: ignore[union-attr]
        self.head = nn.Linear(width, classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, rows: Tensor) -> Tensor:
        logits: Tensor = self.head(self.pooled(rows))
        return logits

    def pooled(self, rows: Tensor) -> Tensor:
        """(rows, width) from words (rows, length), where what is below 0 is padding."""
        mask = (rows >= 0).long()
        words = rows.clamp(min=0)
        ends = words == _SEPARATOR
        second = (ends.cumsum(1) - ends.long() > 0).long() * mask  # of two texts
        states = self.model(
            input_ids=words, attention_mask=mask, token_type_ids=second
        ).last_hidden_state
        weights = mask[:, :, None].to(states.dtype)
        mean: Tensor = (states * weights).sum(1) / weights.sum(1).clamp(min=1)
        return mean


def two_classes() -> nn.Module:
    return classifier(2)


def four_classes() -> nn.Module:
    return classifier(4)


def six_classes() -> nn.Module:
    return classifier(6)


def twenty_classes() -> nn.Module:
    return classifier(20)


FACTORIES = {2: two_classes, 4: four_classes, 6: six_classes, 20: twenty_classes}


def classifier(classes: int) -> nn.Module:
    folder = os.environ.get(ROOT)
    if folder is None:
        raise InvalidInput(f"set {ROOT} to the folder that language prepare made.")
    return MeanPooled(_encoder(Path(folder) / "minilm"), classes)


def _encoder(folder: Path) -> nn.Module:
    from transformers import BertConfig, BertModel

    config = BertConfig.from_pretrained(folder)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    model = BertModel(config, add_pooling_layer=False)
    model.load_state_dict(_weights(folder), strict=False)
    return model


@lru_cache(maxsize=1)
def _weights(folder: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return {
        name: tensor.to(torch.float32) if tensor.is_floating_point() else tensor
        for name, tensor in load_file(str(folder / "model.safetensors")).items()
    }
