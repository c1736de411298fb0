"""What a search takes in time, on this machine."""

import math
from collections.abc import Callable
from dataclasses import asdict
from time import perf_counter, process_time

import torch

from dptune.bench.charts import Dots, Picture
from dptune.bench.experiment import UNKNOWN, Experiment, Result
from dptune.bench.experiments.methods import names
from dptune.bench.harness import accuracies, run_method
from dptune.bench.lab import DELTA, Lab, make_method, priced
from dptune.bench.tables import Table
from dptune.engines.linear import LinearEngine
from dptune.errors import DptuneError
from dptune.plan import TrainPlan
from dptune.privacy import Budget
from dptune.search.base import SearchMethod


def _runtime(lab: Lab) -> Result:
    task, budget = lab.task(lab.source), Budget(1.0, DELTA)
    engine = LinearEngine(outputs=task.outputs)
    plan = priced(task, budget, lab.effort.steps)

    def trials(count: int) -> Callable[[], object]:
        plans: list[TrainPlan] = [plan] * count
        return lambda: accuracies(engine, task, plans)

    work: dict[str, tuple[int, Callable[[], object]]] = {
        f"one run of {plan.steps} steps": (1, trials(1)),
        f"6 runs of {plan.steps} steps together": (1, trials(6)),
    }
    for name in names():
        method = make_method(name, budget)
        for count in (1, lab.repeats):

            def study(method: SearchMethod = method, count: int = count) -> object:
                return run_method(task, method, budget, count, lab.report)

            called = f"{name}, one study" if count == 1 else f"{name}, {count} studies in lockstep"
            work[called] = (count, study)
    rows: list[list[object]] = []
    first = math.nan
    for called, (count, job) in work.items():
        key = lab.key(
            lab.source, "time", work=called, device=lab.device, plan=asdict(plan), repeats=1
        )

        def measure(job: Callable[[], object] = job) -> list[float]:
            return list(_timed(lab.device, job))

        try:
            wall, busy = lab.cell(key, measure)
        except DptuneError as error:
            rows.append([called, None, None, None, None, f"not run: {error}"])
            continue
        if not rows:
            first = wall
        rows.append([called, wall, busy, wall / count, wall / count / first, ""])
    timed = [row for row in rows if row[1] is not None]
    return Result(
        Table(
            {
                "work": "",
                "wall-clock s": ".3f",
                "device s": ".3f",
                "s a study": ".3f",
                "in single runs": ".2f",
                "note": "",
            },
            rows,
        ),
        Picture(
            f"{task.name}: time on this machine ({_machine(lab.device)})",
            [
                Dots(
                    "wall-clock for one study, or for the runs",
                    "seconds",
                    [str(row[0]) for row in timed],
                    [("wall-clock a study", [_number(row[3]) for row in timed], ())],
                    xlog=True,
                )
            ],
        ),
        notes=(
            "Device seconds are processor seconds of all threads on a CPU, and on a GPU the time "
            "that kernels ran, measured in a second pass. Ratios are from one run on a machine "
            "that others may use too.",
        ),
    )


def _timed(device: str, job: Callable[[], object]) -> tuple[float, float]:
    """Wall-clock and device seconds, after one run that warms everything up."""
    job()
    if not device.startswith("cuda"):
        began, used = perf_counter(), process_time()
        job()
        return perf_counter() - began, process_time() - used
    torch.cuda.synchronize()
    began = perf_counter()
    job()
    torch.cuda.synchronize()
    wall = perf_counter() - began
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        job()
        torch.cuda.synchronize()
    return wall, sum(event.self_device_time_total for event in profile.key_averages()) / 1e6


def _machine(device: str) -> str:
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    return f"CPU, {torch.get_num_threads()} threads"


def _number(value: object) -> float:
    return value if isinstance(value, float) else math.nan


EXPERIMENTS = (
    Experiment(
        "runtime",
        "Time of a search",
        "Trials are cheap in time as well; its times are " + UNKNOWN + ".",
        "Linear models on frozen features, all trials of a sweep in the same passes over the rows.",
        _runtime,
    ),
)
