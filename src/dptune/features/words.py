"""Texts as the numbers of their words, all of one length, as a language model takes them."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dptune.texts import Encoder
from dptune.texts.cutting import PADDING
from dptune.texts.tokenizer import digest_of


@dataclass(frozen=True)
class Words:
    """Longer texts are cut and shorter ones padded on the right, whatever else is in their batch:
    so no text's features depend on the lengths of others."""

    tokenizer: str  # its digest
    pair: bool  # whether every text is two
    length: int  # in words as the tokenizer counts them
    vocabulary: int  # how many words it knows
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
        """Nothing but padding; numbers of words are whole whatever networks compute in."""
        return torch.full((count, self.length), PADDING, device=device)

    def normalised(self, batch: Tensor, dtype: torch.dtype) -> Tensor:
        return batch
