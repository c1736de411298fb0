"""What a language model is told beside the numbers of words, which end in -1: one that is trained
and one that makes features are told the same."""

import inspect
from typing import Any

import torch
from torch import Tensor


def tells_texts_apart(model: Any) -> bool:
    """Whether the model marks which text of a pair a word is of."""
    kinds = getattr(model.config, "type_vocab_size", 0) or 0
    return kinds > 1 and "token_type_ids" in inspect.signature(model.forward).parameters


def which_text(words: Tensor, separator: int) -> Tensor:
    """Of each word: 0 for the first text, 1 for what comes after its separator."""
    ends = (words == separator).long()
    return ((ends.cumsum(1) - ends) > 0).long() * (words >= 0)


def seen(known: Tensor) -> Tensor:
    """Which places are looked at: those with a word, and the first, so that a row without a word
    has something to look at."""
    return torch.cat([torch.ones_like(known[:, :1]), known[:, 1:]], 1)
