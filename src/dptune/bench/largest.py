"""The largest networks that take a private step on a GPU with one row: layers are added until the
memory is full."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from dptune.bench.module_steps import PrivateStep
from dptune.bench.networks import Network, Sizes, with_adapters
from dptune.bench.timing import empty_gpu, seconds_of
from dptune.engines.modules.checks import FEWEST_ROWS

Report = Callable[[str], None]
RANK = 8
LENGTH, WORDS = 1_024, 50_257
SECONDS = 30.0  # limit of each search


@dataclass(frozen=True)
class Ladder:
    """A way to train, and the networks to try it on."""

    training: str
    optimizer: str
    adapters: bool
    width: int
    layers: tuple[int, ...]


LADDERS = (
    Ladder("all weights", "sgd", False, 4_096, (20, 24, 28, 32, 36)),
    Ladder("all weights", "adam", False, 4_096, (16, 20, 24, 28, 32)),
    Ladder("adapters", "adam", True, 8_192, (24, 32, 40, 48, 56, 64, 72)),
)


def largest(report: Report, device: torch.device) -> list[dict[str, Any]]:
    """For every way to train, the largest network that took a step, and whether memory or time
    ended the search."""
    return [_climb(ladder, report, device) for ladder in LADDERS]


def _climb(ladder: Ladder, report: Report, device: torch.device) -> dict[str, Any]:
    result: dict[str, Any] = {
        "training": ladder.training,
        "optimizer": ladder.optimizer,
        "words": LENGTH,
        "width": ladder.width,
        "layers": 0,
        "parameters": 0,
        "ended_by": "the last that was tried",
    }
    began = perf_counter()
    for layers in ladder.layers:
        report(f"{ladder.training}, {ladder.optimizer}: {layers} layers of {ladder.width:,}")
        try:
            result |= {"layers": layers} | _step(ladder, layers, device)
        except torch.cuda.OutOfMemoryError:
            result["ended_by"] = f"memory, at {layers} layers"
        empty_gpu()
        if result["ended_by"].startswith("memory"):
            break
        if perf_counter() - began > SECONDS:
            result["ended_by"] = "time"
            break
    return result


def _step(ladder: Ladder, layers: int, device: torch.device) -> dict[str, Any]:
    network = Network("", "gpt2", Sizes(layers, ladder.width, words=WORDS, length=LENGTH), rows=1)
    module = network.made(device, torch.bfloat16 if ladder.adapters else torch.float32)
    if ladder.adapters:
        module = with_adapters(module, network, RANK, torch.bfloat16)
    parameters = sum(one.numel() for one in module.parameters())
    rows, looked_at = network.made_up_rows(device), network.made_up_rows(device, FEWEST_ROWS)
    step = PrivateStep(module, rows, looked_at, "bfloat16", ladder.optimizer)
    return {"parameters": parameters, "step_seconds": seconds_of(step)}
