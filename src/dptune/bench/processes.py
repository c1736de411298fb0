"""Measurements side by side, each in a process of its own."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.context import BaseContext
from typing import TypeVar

import torch

Item = TypeVar("Item")
Found = TypeVar("Found")


def side_by_side(
    work: Callable[[Item], Found], items: Sequence[Item], workers: int, *, preload: str
) -> Iterator[tuple[Item, Found]]:
    """Each item with what `work` makes of it, as soon as that is there; in this process where one
    worker or one item is all. Noise is fresh in every run, so nothing depends on which process it
    was. `preload` is the module that all of them need."""
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
    """Where processes can be forked from one that has all imported, starting many takes no longer
    than starting one."""
    if "forkserver" not in get_all_start_methods():
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload([preload])
    return context
