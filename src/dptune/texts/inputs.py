"""The inputs of a language model besides token ids (which end in -1), the same for training and
for features."""

import inspect
from typing import Any

import torch
from torch import Tensor


def tells_texts_apart(model: Any) -> bool:
    """Whether the model takes token type ids: which text of a pair a token belongs to."""
    kinds = getattr(model.config, "type_vocab_size", 0) or 0
    return kinds > 1 and "token_type_ids" in inspect.signature(model.forward).parameters


def which_text(words: Tensor, separator: int) -> Tensor:
    """The token type ids: 0 for the first text and its separator, 1 after it."""
    ends = (words == separator).long()
    return ((ends.cumsum(1) - ends) > 0).long() * (words >= 0)


def seen(known: Tensor) -> Tensor:
    """The attention mask: all tokens, and always the first place, so that an empty row has one."""
    return torch.cat([torch.ones_like(known[:, :1]), known[:, 1:]], 1)
