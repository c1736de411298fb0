"""Pretrained language models as the modules of an engine."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import nn

from dptune.engines.language import pretrained
from dptune.engines.modules.source import Source
from dptune.own_code import is_pretrained, pretrained_name
from dptune.prior import PRETRAINED, Prior


class LanguageModel(Source):
    """A language model of the Hugging Face hub or in a folder. It is trained as it was measured: in
    larger samples, by Adam, at a rate that falls to zero."""

    own_code: ClassVar[bool] = False
    trained: ClassVar[str] = "body"
    takes_ids: ClassVar[bool] = True
    prior: ClassVar[Prior] = PRETRAINED
    batch: ClassVar[float] = 16.0
    steps: ClassVar[int] = 200
    recipe: ClassVar[Mapping[str, Any]] = {"optimizer": "adam", "schedule": "linear"}

    @property
    def name(self) -> str:
        return pretrained_name(self.factory).rpartition("/")[2]

    def pinned(self) -> str:
        return pretrained.pinned(self.factory)

    def must_know_words(self, tokenizer: str) -> None:
        pretrained.must_know_words(self.factory, tokenizer)

    def make(self, *, loss: str, outputs: int | None, ids: bool, untied: bool) -> nn.Module:
        return pretrained.make(self.factory, loss=loss, outputs=outputs, untied=untied)


def source_of(factory: str) -> Source:
    """What makes the modules of such a factory."""
    return LanguageModel(factory) if is_pretrained(factory) else Source(factory)
