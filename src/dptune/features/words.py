"""Texts as token ids of one length, as a language model takes them."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dptune.texts import Encoder
from dptune.texts.cutting import PADDING
from dptune.texts.tokenizer import digest_of


@dataclass(frozen=True)
class Words:
    """Longer texts are truncated and shorter ones padded on the right, whatever else is in their
    batch, so that the features of a text do not depend on the lengths of others."""

    tokenizer: str  # its digest
    pair: bool  # whether every row is a pair of texts
    length: int  # in tokens
    vocabulary: int  # the number of tokens
    things: ClassVar[str] = "texts"

    @staticmethod
    def of(encoder: Encoder) -> "Words":
        words = encoder.words
        return Words(digest_of(words), len(encoder.columns) > 1, encoder.length, len(words))

    @property
    def takes(self) -> str:
        return f"texts of {self.length} tokens (--length)"

    def samples(self) -> Tensor:
        """A text of full length, and one of half that length."""
        texts = torch.arange(2 * self.length).reshape(2, -1) % self.vocabulary
        texts[1, (self.length + 1) // 2 :] = PADDING
        return texts

    def blank(self, count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Rows of padding; token ids are integers whatever the dtype of the network."""
        return torch.full((count, self.length), PADDING, device=device)

    def normalised(self, batch: Tensor, dtype: torch.dtype) -> Tensor:
        return batch
