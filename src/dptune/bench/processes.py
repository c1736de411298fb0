"""Parallel measurements, each in its own process."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.context import BaseContext
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(
    work: Callable[[Item], Result], items: Sequence[Item], workers: int, *, preload: str
) -> Iterator[tuple[Item, Result]]:
    """Yield each item with its result of `work` as soon as it is ready; one worker or one item runs
    in this process. Noise is fresh in every run, so results do not depend on the process. `preload`
    is the module that all processes need."""
    if workers == 1 or len(items) < 2:
        for item in items:
            yield item, work(item)
        return
    workers = min(workers, len(items))
    threads = max(1, torch.get_num_threads() // workers)
    pool = ProcessPoolExecutor(workers, _context(preload), torch.set_num_threads, (threads,))
    with pool:
        jobs = {pool.submit(work, item): number for number, item in enumerate(items)}
        try:
            for job in as_completed(jobs):
                yield items[jobs[job]], job.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _context(preload: str) -> BaseContext:
    """If possible, fork from a process that has imported everything, so that starting many
    processes takes no longer than starting one."""
    if "forkserver" not in get_all_start_methods():
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload([preload])
    return context
