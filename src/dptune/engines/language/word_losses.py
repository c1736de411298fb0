"""How unlikely words were, without copies of all likelihoods in float32: a vocabulary is long."""

from typing import Any

import torch
from torch import Tensor

_AT_ONCE = 2**26  # logits that are widened to float32


def word_losses(logits: Tensor, words: Tensor) -> Tensor:
    """(rows, places) in float32: minus the log-likelihood of each of `words` under `logits` (rows,
    places, vocabulary); 0 where the word is negative, which means that nothing is asked."""
    found: Tensor = _WordLosses.apply(logits, words)  # type: ignore[no-untyped-call]
    return found


class _WordLosses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, words: Tensor) -> Tensor:
        asked, words = words >= 0, words.clamp(min=0)[..., None]
        totals = torch.empty(asked.shape, dtype=torch.float32, device=logits.device)
        for part in _parts(logits):
            totals[part] = logits[part].float().logsumexp(-1)
        ctx.save_for_backward(logits, words, asked, totals)
        losses = totals - logits.gather(-1, words)[..., 0].float()
        return torch.where(asked, losses, 0.0)

    @staticmethod
    def backward(ctx: Any, *flowing: Tensor) -> tuple[Tensor, None]:
        logits, words, asked, totals = ctx.saved_tensors
        scale = torch.where(asked, flowing[0], 0.0)[..., None]
        found = torch.empty_like(logits)
        for part in _parts(logits):
            shares = (logits[part].float() - totals[part][..., None]).exp_().mul_(scale[part])
            found[part] = shares.scatter_add_(-1, words[part], -scale[part])
        return found, None


def _parts(logits: Tensor) -> list[slice]:
    """Some rows at a time."""
    rows = max(1, _AT_ONCE // logits[0].numel()) if len(logits) else 1
    return [slice(start, start + rows) for start in range(0, len(logits), rows)]
