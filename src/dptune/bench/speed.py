"""The speed of training private linear probes, compared with Opacus and bare matrix products.

All ratios come from one run. The rows are random and in memory; loading is not timed.
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dptune import validate
from dptune.bench.opacus_steps import MODES, opacus_step, quiet
from dptune.bench.timing import median_seconds, seconds_of
from dptune.data.disk import DiskRows, write_chunks
from dptune.data.rows import PRECISIONS, MemoryRows, Rows
from dptune.engines.linear import LinearEngine
from dptune.engines.modules.memory import resident_bytes
from dptune.engines.randomness import Randomness
from dptune.errors import InvalidInput
from dptune.plan import TrainPlan
from dptune.scratch import scratch_folder

Report = Callable[[str], None]
DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Shape:
    rows: int
    columns: int
    classes: int

    def __str__(self) -> str:
        return f"{self.rows:,} x {self.columns:,}, {self.classes:,} classes"


NARROW = Shape(50_000, 256, 10)
WIDE = Shape(50_000, 1_280, 10)
IMAGENET = Shape(1_281_167, 1_024, 1_000)

TRIALS = 7
CPU_TRIALS = (1, TRIALS, 50)
GPU_TRIALS = (1, 12)
# The time of a step is the slope between a short and a long fit, which excludes the setup.
CPU_STEPS = (2, 12)
GPU_STEPS = (20, 220)
STUDY_TRIALS, STUDY_STEPS = 6, 100
IMAGENET_STEPS = 20
IMAGENET_CHUNKS = 1_251
MEMORY_STEPS = 3
OPACUS_REPEATS = 7
PRODUCT_REPEATS = 15
COPIED_BYTES = 4 * 10**9
MATRIX_SIDE = 8192

_ALL_PROCESSES = Path("/proc/stat")


def measure(report: Report, device: str = "cpu") -> dict[str, Any]:
    """Measure the linear engine's speed on this machine's `device`."""
    must_be_here(device)
    return _on_cpu(report) if device == "cpu" else _on_gpu(report)


def must_be_here(device: str) -> None:
    validate.one_of(DEVICES, device=device)
    if device == "cuda" and not torch.cuda.is_available():
        raise InvalidInput(
            "--device cuda needs a GPU that PyTorch can use, and PyTorch finds none; measure with "
            "--device cpu, or install a build of PyTorch for this GPU."
        )


def _on_cpu(report: Report) -> dict[str, Any]:
    rows = _random_rows(NARROW)
    others_before, start = _cpu_seconds_of_others(), time.perf_counter()
    opacus = {}
    for mode in MODES:
        report(f"Opacus, {mode}: one trial on {NARROW}")
        opacus[mode] = _opacus_step_seconds(mode, rows)
    report("the two bare matrix products")
    products = _bare_products_seconds(rows)
    steps = {}
    for trials in CPU_TRIALS:
        report(f"dptune: trials at once: {trials}")
        steps[trials] = _step_seconds(NARROW, rows, trials, CPU_STEPS)
    others = (_cpu_seconds_of_others() - others_before) / (time.perf_counter() - start)
    report(f"peak memory on {WIDE}")
    together = steps[TRIALS]
    return {
        "device": "cpu",
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cores_used_by_others": max(0.0, others),
        "shape": asdict(NARROW),
        "trials": TRIALS,
        "vs_opacus_ghost": opacus["ghost"] / (together / TRIALS),
        "vs_opacus_hooks": opacus["hooks"] / (together / TRIALS),
        "vs_bare_products": together / min(products.values()),
        "per_trial_step_ms": {str(n): 1e3 * seconds / n for n, seconds in steps.items()},
        "opacus_step_ms": {mode: 1e3 * seconds for mode, seconds in opacus.items()},
        "bare_products_ms": {layout: 1e3 * seconds for layout, seconds in products.items()},
        "memory_shape": asdict(WIDE),
        "peak_extra_gib": _peak_extra_gib(),
    }


def _cpu_seconds_of_others() -> float:
    """Processor time of all other processes so far; 0 if the system does not report it.

    Code that waits for threads more often slows down more on a busy machine. There Opacus has been
    ten times slower, so the ratios are meaningless.
    """
    if not _ALL_PROCESSES.exists():
        return 0.0
    user, nice, system, _, _, *rest = _ALL_PROCESSES.read_text().split("\n")[0].split()[1:9]
    everyone = sum(map(int, (user, nice, system, *rest))) / os.sysconf("SC_CLK_TCK")
    return everyone - sum(os.times()[:4])


def _opacus_step_seconds(mode: str, rows: MemoryRows) -> float:
    """The time of one step of one trial."""
    model = torch.nn.Linear(rows.columns, NARROW.classes, bias=False)
    step = opacus_step(
        mode,
        model,
        torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9),
        torch.nn.CrossEntropyLoss(),
        rows.features[:, 0],
        rows.targets,
    )
    with quiet():
        return median_seconds(step, OPACUS_REPEATS)


def _bare_products_seconds(rows: MemoryRows) -> dict[str, float]:
    """The time of only the products for logits and sums of all trials, for both logit layouts."""
    features = rows.features[:, 0]
    wide = TRIALS * NARROW.classes
    weights, sums = torch.randn(wide, rows.columns), torch.empty(wide, rows.columns)

    def by_trials(logits: Tensor) -> None:
        torch.mm(weights, features.T, out=logits)
        torch.mm(logits, features, out=sums)

    def by_rows(logits: Tensor) -> None:
        torch.mm(features, weights.T, out=logits)
        torch.mm(logits.T, features, out=sums)

    one, other = torch.empty(wide, rows.count), torch.empty(rows.count, wide)
    return {
        "rows contiguous": median_seconds(lambda: by_trials(one), PRODUCT_REPEATS),
        "classes contiguous": median_seconds(lambda: by_rows(other), PRODUCT_REPEATS),
    }


def _peak_extra_gib() -> float | None:
    """The peak memory of a new process beyond its memory with the rows loaded; None if the system
    does not report it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
        return fresh.submit(_peak_extra_of, WIDE, TRIALS, MEMORY_STEPS).result()


def _peak_extra_of(shape: Shape, trials: int, steps: int) -> float | None:
    rows = _random_rows(shape)
    before = resident_bytes("VmRSS")
    _fit(shape, rows, trials, steps)
    peak = resident_bytes("VmHWM")
    return None if before is None or peak is None else (peak - before) / 2**30


def _on_gpu(report: Report) -> dict[str, Any]:
    report("memory bandwidth and matrix rate of the device")
    bandwidth, rate = _copy_bytes_per_second(), _flops_per_second()
    rows = _random_rows(WIDE, "cuda", "bfloat16")
    steps = {}
    for trials in GPU_TRIALS:
        report(f"{WIDE}, trials at once: {trials}")
        steps[trials] = _step_seconds(WIDE, rows, trials, GPU_STEPS)
    report("a whole study")
    study = _study_seconds(rows)
    read = 2 * rows.features.nbytes  # once for each product
    del rows
    report(f"peak memory on {WIDE}, float32")
    peak = _gpu_peak_extra_gib()
    report(f"{IMAGENET}")
    imagenet = _imagenet_seconds()
    report(f"{IMAGENET}, streamed from disk in {IMAGENET_CHUNKS:,} chunks")
    streamed = _streamed_imagenet_seconds()
    # Two products of one multiplication and one addition each, for every weight and row.
    flops = 4 * IMAGENET.rows * IMAGENET.columns * IMAGENET.classes * TRIALS * IMAGENET_STEPS
    one, twelve = (steps[trials] for trials in GPU_TRIALS)
    return {
        "device": "cuda",
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(),
        "shape": asdict(WIDE),
        "step_ms": {str(n): 1e3 * seconds for n, seconds in steps.items()},
        "twelve_vs_one": twelve / one,
        "study_seconds": study,
        "imagenet_shape": asdict(IMAGENET),
        "imagenet_seconds": imagenet,
        "imagenet_streamed_seconds": streamed,
        "bandwidth_gb_per_s": bandwidth / 1e9,
        "bandwidth_fraction": {str(n): read / t / bandwidth for n, t in steps.items()},
        "matrix_tflop_per_s": rate / 1e12,
        "imagenet_matrix_fraction": flops / imagenet / rate,
        "peak_extra_gib": peak,
    }


def _copy_bytes_per_second() -> float:
    source = torch.zeros(COPIED_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPIED_BYTES / median_seconds(lambda: target.copy_(source), 10)


def _flops_per_second() -> float:
    shape = (MATRIX_SIDE, MATRIX_SIDE)
    left, right = (torch.randn(shape, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    result = torch.empty_like(left)
    return 2 * MATRIX_SIDE**3 / median_seconds(lambda: torch.mm(left, right, out=result), 20)


def _study_seconds(rows: MemoryRows) -> float:
    def study() -> None:
        _fit(WIDE, rows, STUDY_TRIALS, STUDY_STEPS)
        _fit(WIDE, rows, 1, STUDY_STEPS)

    return median_seconds(study, 3)


def _imagenet_seconds() -> float:
    rows = _random_rows(IMAGENET, "cuda", "bfloat16")
    _fit(IMAGENET, rows, TRIALS, 1)
    return seconds_of(lambda: _fit(IMAGENET, rows, TRIALS, IMAGENET_STEPS))


def _streamed_imagenet_seconds() -> float:
    """The same from chunks in a temporary folder, possibly from the system's file cache."""
    rng = np.random.default_rng(0)
    sizes = [len(part) for part in np.array_split(np.arange(IMAGENET.rows), IMAGENET_CHUNKS)]
    features = rng.normal(size=(max(sizes), IMAGENET.columns)).astype(np.float32)
    chunks = ((features[:n], rng.integers(0, IMAGENET.classes, n)) for n in sizes)
    with scratch_folder() as folder:
        write_chunks(folder, chunks, precision="bfloat16")
        rows = DiskRows(folder, device="cuda")
        return seconds_of(lambda: _fit(IMAGENET, rows, TRIALS, IMAGENET_STEPS))


def _gpu_peak_extra_gib() -> float:
    rows = _random_rows(WIDE, "cuda")
    torch.cuda.reset_peak_memory_stats()
    _fit(WIDE, rows, TRIALS, MEMORY_STEPS)
    return float(torch.cuda.max_memory_allocated() - rows.features.nbytes) / 2**30


def _random_rows(shape: Shape, device: str = "cpu", precision: str = "float32") -> MemoryRows:
    generator = torch.Generator(device).manual_seed(0)
    features = torch.randn(
        (shape.rows, shape.columns),
        generator=generator,
        dtype=PRECISIONS[precision],
        device=device,
    )
    targets = torch.randint(shape.classes, (shape.rows,), generator=generator, device=device)
    return MemoryRows(features, targets, device=device, precision=precision)


def _fit(shape: Shape, rows: Rows, trials: int, steps: int) -> None:
    plan = TrainPlan(rows=shape.rows, steps=steps, learning_rate=1.0, noise_multiplier=1.0)
    randomness = [Randomness(trial=trial) for trial in range(trials)]
    LinearEngine(outputs=shape.classes).fit_many([plan] * trials, rows, randomness)


def _step_seconds(shape: Shape, rows: MemoryRows, trials: int, steps: tuple[int, int]) -> float:
    """The time of one step of all trials."""
    short, long = steps

    def slope() -> float:
        more = seconds_of(lambda: _fit(shape, rows, trials, long))
        less = seconds_of(lambda: _fit(shape, rows, trials, short))
        return (more - less) / (long - short)

    _fit(shape, rows, trials, short)
    return median(slope() for _ in range(3))
