"""How long something takes, on a GPU until it has really ended."""

from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch


def median_seconds(work: Callable[[], object], repeats: int) -> float:
    """Median time of a call, after one that warms up."""
    work()
    return median(seconds_of(work) for _ in range(repeats))


def seconds_of(work: Callable[[], object]) -> float:
    wait_for_gpu()
    start = perf_counter()
    work()
    wait_for_gpu()
    return perf_counter() - start


def wait_for_gpu() -> None:
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
