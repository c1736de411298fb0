"""A WideResNet-16-4 from random pictures alone, within a given time.

The private set chooses nothing here. Every constant of this package was fixed before the first
run, from the papers or by looking at the random pictures; no real picture is read.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Generator, Tensor, nn

from dptune.features.networks import WideResNet
from experiments.synthetic import bank
from experiments.synthetic.contrast import Learner
from experiments.synthetic.views import DEVIATION, MEAN, SIZE, plain

BATCH = 768
TRAINED_ON = "pictures from random processes only, no real picture"

_REPORT_SECONDS, _SAVE_SECONDS = 10.0, 60.0
_SETTLING_BATCHES = 100
Report = Callable[[str], None]


@contextmanager
def _quick_products() -> Iterator[None]:
    """Rounded products are good enough here, and refused where a bound depends on them."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.benchmark = before[1]


@_quick_products()
def pretrain(
    out: Path,
    *,
    minutes: float,
    device: str = "cuda",
    pictures: int,
    batch: int = BATCH,
    seed: int = 0,
    report: Report = print,
) -> WideResNet:
    """Train for so many minutes, the making of pictures included; weights are written on the way
    and at the end. More time means a slower schedule, so a run that was stopped is no shorter run.
    """
    begin = time.monotonic()
    torch.manual_seed(seed)
    random = Generator(device).manual_seed(seed)
    shown = bank.pictures(pictures, random)
    if random.device.type == "cuda":
        torch.cuda.synchronize()
    learning = time.monotonic()
    report(f"{pictures:,} pictures in {learning - begin:.0f} s")
    network = WideResNet()
    learner = Learner(network, network.columns, random)
    if random.device.type == "cuda":
        _compile(learner, shown[:batch], report)
    steps = _learn(learner, shown, batch, begin, 60 * minutes, out, report)
    _settle(network, shown, batch, random)
    save(network, out, pictures=pictures, batch=batch, steps=steps, seed=seed)
    report(f"{steps:,} steps of {batch} pictures, weights in {out}")
    return network


def save(network: nn.Module, out: Path, **facts: int) -> None:
    """Weights as `wrn16-4:FILE` reads them."""
    weights = {name: value.cpu().contiguous() for name, value in network.state_dict().items()}
    metadata = {
        "mean": json.dumps([MEAN] * 3),
        "deviation": json.dumps([DEVIATION] * 3),
        "size": str(SIZE),
        "trained_on": TRAINED_ON,
        **{name: str(value) for name, value in facts.items()},
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    save_file(weights, out, metadata=metadata)


def _learn(
    learner: Learner,
    shown: Tensor,
    batch: int,
    begin: float,
    seconds: float,
    out: Path,
    report: Report,
) -> int:
    start = told = saved = time.monotonic()
    left = max(1e-9, begin + seconds - start)
    steps = told_steps = 0
    while (now := time.monotonic()) - start < left or steps == 0:
        chosen = torch.randint(
            len(shown), (batch,), generator=learner.random, device=learner.random.device
        )
        loss = learner.step(shown[chosen], (now - start) / left)
        steps += 1
        if now - told > _REPORT_SECONDS:
            rate = (steps - told_steps) * batch / (now - told)
            report(
                f"{now - begin:4.0f} s, step {steps:,}, {rate:,.0f} pictures/s: "
                f"alignment {loss.alignment.item():.3f}, uniformity {loss.uniformity.item():.3f}"
            )
            told, told_steps = now, steps
        if now - saved > _SAVE_SECONDS:
            save(learner.module.network, out, steps=steps)
            saved = now
    return steps


def _compile(learner: Learner, pictures: Tensor, report: Report) -> None:
    """Fused kernels where this machine can build them; else everything runs, more slowly."""
    begin = time.monotonic()
    learner.run = torch.compile(learner.module)
    try:
        learner.step(pictures, 0.0)
    except Exception as problem:  # whatever a compiler can fail with
        learner.run = learner.module
        report(f"not compiled ({type(problem).__name__}: {str(problem)[:200]})")
    else:
        torch.cuda.synchronize()
        report(f"compiled in {time.monotonic() - begin:.0f} s")


def _settle(network: nn.Module, shown: Tensor, batch: int, random: Generator) -> None:
    """Means and deviations of the normalising layers as whole, unchanged pictures have them: such
    will come, not crops in wild colours."""
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.reset_running_stats()
            layer.momentum = None  # the plain mean over all batches
    network.train()
    with torch.no_grad():
        for _ in range(_SETTLING_BATCHES):
            chosen = torch.randint(len(shown), (batch,), generator=random, device=random.device)
            network(plain(shown[chosen]))
    network.eval()
