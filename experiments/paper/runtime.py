"""What a search takes in time, on this machine."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any

import torch

from dptune.accounting import Budget
from dptune.bench.compare import method_from
from dptune.bench.harness import accuracies, run_method
from dptune.bench.tables import Table
from dptune.engines.linear import LinearEngine
from dptune.errors import DptuneError
from dptune.search.base import SearchMethod
from dptune.search.methods import METHODS
from experiments.charts import Dots, Picture
from experiments.paper.experiment import Result
from experiments.paper.lab import DELTA, PLAIN, Lab, priced


@dataclass(frozen=True)
class Job:
    """Work to be timed; `studies` is by how many its time is divided."""

    called: str
    work: Callable[[], object]
    studies: int = 1


def _jobs(lab: Lab) -> list[Job]:
    task, budget = lab.task(lab.source), Budget(1.0, DELTA)
    engine = LinearEngine(outputs=task.outputs)
    plan = priced(task, budget, lab.effort.steps)

    def runs(count: int) -> Callable[[], object]:
        return lambda: accuracies(engine, task, [plan] * count)

    def studies(method: SearchMethod, count: int) -> Callable[[], object]:
        return lambda: run_method(task, method, budget, count, lab.report, recipe=PLAIN)

    jobs = [
        Job(f"one run of {plan.steps} steps", runs(1)),
        Job(f"6 runs of {plan.steps} steps together", runs(6)),
    ]
    for name in METHODS:
        method, many = method_from(name, budget), lab.repeats
        jobs.append(Job(f"{name}, one study", studies(method, 1)))
        jobs.append(Job(f"{name}, each of {many} studies", studies(method, many), many))
    return jobs


def runtime(lab: Lab) -> Result:
    rows: list[list[object]] = []
    wall, busy, timed, machine = [], [], [], ""
    for job in _jobs(lab):
        key = lab.key(lab.source, "time", work=job.called, device=lab.device)

        def measure(job: Job = job) -> dict[str, Any]:
            seconds, used = _timed(lab.device, job.work)
            return {"wall": seconds, "device": used, "machine": _machine(lab.device)}

        try:
            found = lab.cell(key, measure)
        except DptuneError as error:
            rows.append([job.called, None, None, None, f"not run: {error}"])
            continue
        wall.append(found["wall"] / job.studies)
        busy.append(found["device"] / job.studies)
        timed.append(job.called)
        machine = found["machine"]
        rows.append([job.called, wall[-1], busy[-1], wall[-1] / wall[0], ""])
    return Result(
        Table(
            {
                "work": "",
                "wall-clock s": ".3f",
                "device s": ".3f",
                "in single runs": ".2f",
                "note": "",
            },
            rows,
        ),
        Picture(
            f"{lab.task(lab.source).name}: time at epsilon 1 on one machine ({machine})",
            [
                Dots(
                    "for all runs together, or for each study",
                    "seconds",
                    timed,
                    [("wall-clock", wall, ()), ("device", busy, ())],
                    xlog=True,
                )
            ],
        ),
        notes=(
            "Times of studies are for one of them. Device seconds are processor seconds of all "
            "threads on a CPU, and on a GPU the time that kernels ran, measured in a second pass. "
            "Ratios are from one run on a machine that others may use too.",
        ),
    )


def _timed(device: str, work: Callable[[], object]) -> tuple[float, float]:
    """Wall-clock and device seconds, after one run that warms everything up."""
    work()
    if not device.startswith("cuda"):
        began, used = perf_counter(), process_time()
        work()
        return perf_counter() - began, process_time() - used
    torch.cuda.synchronize()
    began = perf_counter()
    work()
    torch.cuda.synchronize()
    wall = perf_counter() - began
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
        torch.cuda.synchronize()
    return wall, sum(event.self_device_time_total for event in profile.key_averages()) / 1e6


def _machine(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    return f"CPU, {torch.get_num_threads()} threads"
