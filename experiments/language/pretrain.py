"""A small GPT-2 from nothing, on public text, in a minute or two of a GPU."""

import math
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dptune.bench.harness import Report
from dptune.engines.language.word_losses import word_losses
from experiments.language.public_text import LENGTH, NETWORK, TEXTS, VOCABULARY

_RATE, _DECAY, _WARM, _DROPOUT = 1.5e-3, 0.1, 0.05, 0.1
_TOLD_EVERY = 100


def pretrain(
    root: Path,
    *,
    layers: int,
    width: int,
    batch: int,
    steps: int,
    seconds: float,
    device: str,
    report: Report,
) -> dict[str, float]:
    """Writes the network beside its tokenizer, weights in half precision. Ends after so many
    steps, or where `seconds` will be over; the rate falls to nothing with whichever comes first."""
    from transformers import GPT2Config, GPT2LMHeadModel

    with np.load(root / f"{TEXTS}.npz", allow_pickle=False) as arrays:
        train, valid = (
            torch.from_numpy(arrays[part].astype(np.int64)).to(device)
            for part in ("train", "valid")
        )
    torch.manual_seed(0)
    drops: dict[str, Any] = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), _DROPOUT)
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=width,
        n_layer=layers,
        n_head=max(1, width // 64),
        bos_token_id=0,
        eos_token_id=0,
        **drops,
    )
    model: Any = GPT2LMHeadModel(config)  # type: ignore[no-untyped-call]
    model.to(device)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": _DECAY}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=_RATE, betas=(0.9, 0.95), fused=device == "cuda")
    began, step, done = perf_counter(), 0, 0.0
    model.train()
    while done < 1:
        done = max((step + 1) / steps, (perf_counter() - began) / seconds)
        for group in optimizer.param_groups:
            group["lr"] = _RATE * min(
                1.0, done / _WARM, 0.5 * (1 + math.cos(math.pi * min(done, 1)))
            )
        loss = _loss(model, _windows(train, batch), device)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % _TOLD_EVERY == 0:
            report(f"step {step}: perplexity {math.exp(loss.item()):.1f}")
    found = {
        "steps": step,
        "seconds": perf_counter() - began,
        "parameters": sum(p.numel() for p in model.parameters()),
        "words": len(train),
        "valid_perplexity": _perplexity(model.eval(), valid, device),
    }
    model.half().save_pretrained(root / NETWORK)
    report(f"perplexity of public text that was held back: {found['valid_perplexity']:.1f}")
    return found


def _windows(words: Tensor, count: int) -> Tensor:
    """Pieces of the stream, from anywhere."""
    starts = torch.randint(len(words) - LENGTH + 1, (count, 1), device=words.device)
    return words[starts + torch.arange(LENGTH, device=words.device)]


def _loss(model: Any, words: Tensor, device: str) -> Tensor:
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        logits = model(words, use_cache=False).logits
    return word_losses(logits[:, :-1], words[:, 1:]).mean()


def _perplexity(model: Any, words: Tensor, device: str) -> float:
    length = min(LENGTH, len(words))
    whole = words[: len(words) // length * length].view(-1, length)
    with torch.no_grad():
        losses = [_loss(model, some, device).item() * len(some) for some in torch.split(whole, 64)]
    return math.exp(sum(losses) / len(whole))
