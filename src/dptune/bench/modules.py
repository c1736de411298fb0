"""Time and memory of private training of whole networks, compared with non-private training.

All ratios come from one run, with the same batch size and the same synthetic rows. A non-private
step is the usual one: autocast, backward, Adam. A private step is a whole step of the engine:
clipped sums, noise, division, Adam. Opacus, used directly, is compared as well.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from dptune.bench.largest import RANK, largest
from dptune.bench.module_steps import PlainStep, PrivateStep, adam
from dptune.bench.networks import MeanLoss, Network, Sizes, with_adapters
from dptune.bench.opacus_steps import MODES, opacus_step, quiet
from dptune.bench.speed import must_be_here
from dptune.bench.timing import empty_gpu, gpu_is_used, median_seconds
from dptune.data.rows import PRECISIONS
from dptune.engines.modules.checks import FEWEST_ROWS
from dptune.engines.modules.precision import computing

Report = Callable[[str], None]

GPU_NETWORKS = (
    Network("GPT-2 small", "gpt2", Sizes(12, 768, words=50_257, length=1_024), rows=32),
    Network("GPT-2 small", "gpt2", Sizes(12, 768, words=50_257, length=128), rows=256),
    Network("RoBERTa base", "roberta", Sizes(12, 768, 50_265, length=128, classes=2), rows=512),
    Network("ViT-B/16", "vit", Sizes(12, 768, pixels=224, patch=16, classes=1_000), rows=256),
)
CPU_NETWORKS = (
    Network("tiny GPT-2", "gpt2", Sizes(2, 64, words=200, length=32), rows=16),
    Network("tiny RoBERTa", "roberta", Sizes(2, 64, words=200, length=32, classes=2), rows=16),
    Network("tiny ViT", "vit", Sizes(2, 64, pixels=32, patch=8, classes=10), rows=16),
)
REPEATS = 10
CPU_REPEATS = 3
OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True)
class Cost:
    """Time and memory of one step; `fails` is the reason if it failed."""

    rows: int
    seconds: float | None = None
    peak_gib: float | None = None
    gradients_seconds: float | None = None
    fails: str | None = None


def measure(report: Report, device: str = "cpu") -> dict[str, Any]:
    """Measure private training of modules on this machine's `device`."""
    must_be_here(device)
    place = torch.device(device)
    on_gpu = device == "cuda"
    compute = "bfloat16" if on_gpu else "float32"
    steps = []
    for adapters in (False, True):
        for network in GPU_NETWORKS if on_gpu else CPU_NETWORKS:
            report(f"{network.name}, {network.sizes.shape}{', adapters' if adapters else ''}")
            steps.append(_compare(network, adapters, place, compute))
    if on_gpu:
        report("the largest networks that train")
    return {
        "device": device,
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name() if on_gpu else None,
        "threads": torch.get_num_threads(),
        "compute": compute,
        "rank": RANK,
        "steps": steps,
        "largest": largest(report, place) if on_gpu else [],
    }


def _compare(
    network: Network, adapters: bool, device: torch.device, compute: str
) -> dict[str, Any]:
    def module() -> nn.Module:
        made = network.made(device)
        return with_adapters(made, network, RANK, PRECISIONS[compute]) if adapters else made

    rows, looked_at = network.made_up_rows(device), network.made_up_rows(device, FEWEST_ROWS)
    sizes = [(one.numel(), one.requires_grad) for one in module().parameters()]
    costs = {
        "plain": _cost(lambda: PlainStep(module(), rows, compute), network.rows),
        "private": _cost(lambda: PrivateStep(module(), rows, looked_at, compute), network.rows),
    }
    for mode in MODES:
        costs[f"opacus_{mode}"] = _fitting_cost(mode, module, rows, compute)
    plain, private = costs["plain"], costs["private"]
    return {
        "network": network.name,
        "shape": network.sizes.shape,
        "rows": network.rows,
        "adapters": adapters,
        "parameters": sum(size for size, _ in sizes),
        "trained": sum(size for size, is_trained in sizes if is_trained),
        **{name: asdict(cost) for name, cost in costs.items()},
        "times_slower": {
            name: _ratio(_per_row(cost), _per_row(plain))
            for name, cost in costs.items()
            if name != "plain"
        }
        | {"gradients": _ratio(private.gradients_seconds, plain.seconds)},
        "times_memory": _ratio(private.peak_gib, plain.peak_gib),
    }


def _opacus(
    mode: str, module: nn.Module, features: Tensor, targets: Tensor, compute: str
) -> Callable[[], None]:
    step = opacus_step(
        mode,
        module,
        adam(module),
        MeanLoss(),
        features,
        targets,
        lambda: computing(compute, features.device),
    )

    def quiet_step() -> None:
        with quiet():
            step()

    return quiet_step


def _fitting_cost(
    mode: str, module: Callable[[], nn.Module], rows: tuple[Tensor, Tensor], compute: str
) -> Cost:
    """The cost of Opacus; the batch is halved until it fits in memory."""
    at_once = len(rows[0])
    cost = _cost(lambda: _opacus(mode, module(), *rows, compute), at_once)
    if cost.fails != OUT_OF_MEMORY or at_once == 1:
        return cost
    half = slice(at_once // 2)
    return _fitting_cost(mode, module, (rows[0][half], rows[1][half]), compute)


def _cost(make: Callable[[], Callable[[], object]], rows: int) -> Cost:
    """The cost of a new step, which is discarded afterwards."""
    try:
        cost = _time(make(), rows)
    except torch.cuda.OutOfMemoryError:
        cost = Cost(rows, fails=OUT_OF_MEMORY)
    except (RuntimeError, ValueError, NotImplementedError) as error:
        cost = Cost(rows, fails=f"{type(error).__name__}: {' '.join(str(error).split())}"[:300])
    empty_gpu()
    return cost


def _time(step: Callable[[], object], rows: int) -> Cost:
    repeats = REPEATS if gpu_is_used() else CPU_REPEATS
    step()  # optimizers allocate their state in the first step
    cost = Cost(rows, peak_gib=_peak_gib(step), seconds=median_seconds(step, repeats))
    if isinstance(step, PrivateStep):
        alone = median_seconds(step.gradients_alone, repeats)
        cost = replace(cost, gradients_seconds=alone)
    return cost


def _peak_gib(step: Callable[[], object]) -> float | None:
    """The peak memory of a GPU, including weights and everything else; None on a CPU."""
    if not gpu_is_used():
        return None
    torch.cuda.reset_peak_memory_stats()
    step()
    return torch.cuda.max_memory_allocated() / 2**30


def _per_row(cost: Cost) -> float | None:
    return None if cost.seconds is None else cost.seconds / cost.rows


def _ratio(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one / other
