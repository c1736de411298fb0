"""Timing that waits for the GPU to finish."""

import gc
from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch


def median_seconds(work: Callable[[], object], repeats: int) -> float:
    """The median time of a call, after one warm-up call."""
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
    """Free unused memory; hooks and graphs refer to each other in cycles."""
    if gpu_is_used():
        gc.collect()
        torch.cuda.empty_cache()


def gpu_is_used() -> bool:
    used: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return used
