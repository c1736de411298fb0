"""Where training happens: in this process, or each trial in one of its own.

A job is handed over at most once: noise is fresh, so a second run would be a second release. What
does not come back is lost, but for what its checkpoint holds.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any, Protocol

import torch

from dptune import validate
from dptune.data.rows import Rows
from dptune.engines.base import Engine
from dptune.engines.checkpoint import Checkpoint
from dptune.engines.randomness import Randomness
from dptune.plan import TrainPlan


class Executor(Protocol):
    """Runs the trials of a sweep."""

    def fit(
        self,
        engine: Engine[Any],
        plans: Sequence[TrainPlan],
        rows: Rows,
        randomness: Sequence[Randomness],
        start: Sequence[Any | None] | None = None,
        keep: Sequence[Checkpoint] | None = None,
    ) -> list[Any | None]:
        """One model per plan, which goes on from the one in `start`, if any; None for each that was
        lost. `keep` is given to engines with `checkpoints` only."""
        ...


@dataclass(frozen=True)
class SerialExecutor:
    """In this process, all plans at once where the engine can."""

    def fit(
        self,
        engine: Engine[Any],
        plans: Sequence[TrainPlan],
        rows: Rows,
        randomness: Sequence[Randomness],
        start: Sequence[Any | None] | None = None,
        keep: Sequence[Checkpoint] | None = None,
    ) -> list[Any | None]:
        if keep is None:  # engines without checkpoints may know nothing of them
            return list(engine.fit_many(plans, rows, randomness, start))
        with ExitStack() as held:
            for one in keep:
                held.enter_context(one.held())
            return list(engine.fit_many(plans, rows, randomness, start, keep))


@dataclass(frozen=True)
class ProcessExecutor:
    """Each plan in a process of its own, `workers` at a time: for engines that train one model at a
    time. A process that dies takes only its own trial with it."""

    workers: int = 2

    def __post_init__(self) -> None:
        validate.store(self, workers=validate.whole(1, at_most=1024, workers=self.workers))

    def fit(
        self,
        engine: Engine[Any],
        plans: Sequence[TrainPlan],
        rows: Rows,
        randomness: Sequence[Randomness],
        start: Sequence[Any | None] | None = None,
        keep: Sequence[Checkpoint] | None = None,
    ) -> list[Any | None]:
        threads = max(1, torch.get_num_threads() // self.workers)
        models: list[Any | None] = []
        begun = [None] * len(plans) if start is None else start
        # A process cannot tell how far it is: who listens lives in this one.
        kept = [None] * len(plans) if keep is None else [[replace(one, told=None)] for one in keep]
        jobs = [
            (engine, [plan], rows, [streams], [one], its)
            for plan, streams, one, its in zip(plans, randomness, begun, kept, strict=True)
        ]
        for first in range(0, len(jobs), self.workers):
            batch = jobs[first : first + self.workers]
            with ExitStack() as running:
                # A pool breaks as a whole, so every process is a pool of one.
                pools = [ProcessPoolExecutor(1, get_context("spawn")) for _ in batch]
                futures = [
                    running.enter_context(pool).submit(_fit_one, threads, *job)
                    for pool, job in zip(pools, batch, strict=True)
                ]
                models += map(_result, futures)
        return models


def _result(job: "Future[Any]") -> Any | None:
    try:
        return job.result()
    except BrokenProcessPool:
        return None


def _fit_one(threads: int, *job: Any) -> Any:
    torch.set_num_threads(threads)
    (model,) = SerialExecutor().fit(*job)
    return model
