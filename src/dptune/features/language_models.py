"""Language models of the Hugging Face hub, or of a folder, whose last layer gives features.

Weights are read from safetensors files only, and no code of a repository is ever run.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from dptune.features.backbone import Network, Way
from dptune.features.hugging_face import load, made_of
from dptune.features.words import Words
from dptune.hub import ModelPlace
from dptune.texts import Encoder
from dptune.texts.inputs import seen, tells_texts_apart, which_text

_FILES = "config.json, model.safetensors and the files of its tokenizer"


def open_language_model(named: str, encoder: Encoder) -> Network:
    """Open the model for texts encoded by `encoder`."""
    model, config, _ = load(ModelPlace.of(named), _FILES, "text")
    module: Any = model
    if getattr(config, "is_encoder_decoder", False):
        module = module.get_encoder()  # the part that reads texts
    # Other attention implementations skip the mask, and round differently, if all texts are full:
    # one short text would then change the features of the others.
    module.set_attn_implementation("eager")
    reader = _Reader(module, encoder.words)
    return Network(module, reader.ways(), Words.of(encoder), made_of(config))


class _Reader:
    """Computes features of each kind from the token states of the last layer."""

    def __init__(self, module: nn.Module, tokenizer: Any) -> None:
        first = tokenizer.cls_token_id
        self._has_class = first is not None and tokenizer("").input_ids[:1] == [first]
        self._padding = tokenizer.pad_token_id or 0
        self._separator: int | None = None
        if tells_texts_apart(module):
            self._separator = tokenizer.sep_token_id

    def ways(self) -> Mapping[str, Way]:
        ways: dict[str, Way] = {"mean": self._mean}
        if self._has_class:
            ways["class-token"] = self._class_token
        return ways

    def _last(self, module: nn.Module, ids: Tensor) -> Tensor:
        there, more = ids >= 0, {}
        if self._separator is not None:
            more["token_type_ids"] = which_text(ids, self._separator)
        last: Tensor = module(
            input_ids=ids.where(there, self._padding), attention_mask=seen(there).long(), **more
        ).last_hidden_state
        return last

    def _mean(self, module: nn.Module, ids: Tensor) -> Tensor:
        there = (ids >= 0)[..., None]
        last = self._last(module, ids).float()
        return last.where(there, 0).sum(1) / there.sum(1).clamp_min(1)

    def _class_token(self, module: nn.Module, ids: Tensor) -> Tensor:
        return self._last(module, ids)[:, 0]
