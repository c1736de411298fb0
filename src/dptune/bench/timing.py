"""How long something takes, on a GPU until it has really ended."""

import gc
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
    if gpu_is_used():
        torch.cuda.synchronize()


def empty_gpu() -> None:
    """Give back what nobody holds; hooks and graphs hold each other in circles."""
    if gpu_is_used():
        gc.collect()
        torch.cuda.empty_cache()


def gpu_is_used() -> bool:
    used: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return used
