"""Whether the last bits of noisy sums tell what is beneath them, and what noise costs to draw.

On a GPU it mounts the attack on pairs (tests/test_noise.py does on a CPU what is known of the
kernel): torch makes two normal numbers of two whole numbers below 2^53. Whoever has both numbers
and knows the sums beneath can compute the first of these, and sees whether it is a whole one.
"""

import random
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dptune.bench.harness import Report
from dptune.engines.per_row import add_noise_
from dptune.engines.randomness import Randomness
from dptune.noise import add_noise
from dptune.study.measure import fresh_normal

Array = NDArray[np.float64]
NOISE, MANY = 40.0, 2**20
FEWEST = 30  # pairs that can be judged, or a share says nothing


def share_that_fits(released: Array, exact: Array, stride: int) -> float:
    """Of pairs `stride` apart whose whole number can be computed to a tenth, how many have one."""
    first, second = ((released - exact)[start : start + stride] / NOISE for start in (0, stride))
    squares = first**2 + second**2
    spacing = np.maximum(*(np.spacing(np.abs(released[s : s + stride])) for s in (0, stride)))
    uniform = np.exp(-squares / 2)
    room = 2**54 * uniform * (np.sqrt(squares) * spacing / NOISE + squares * 2.0**-52)
    whole = uniform * 2.0**53 - 0.5
    computable = (room < 0.1) & (uniform < 2.0**-6)  # near 1, float64 has no finer digits
    fits = (np.abs(whole - np.rint(whole)) <= room)[computable]
    return float(fits.mean()) if len(fits) >= FEWEST else 0.0


def attack(device: torch.device, report: Report) -> None:
    """How many pairs fit the true sums, and those of another data set."""
    chance = np.random.default_rng(0)
    sums: Array = np.asarray(chance.integers(-(2**30), 2**30, size=MANY) * 2.0**-24, np.float64)
    others: Array = sums + chance.integers(-(2**20), 2**20, size=MANY) * 2.0**-24
    exact = torch.tensor(sums, device=device)
    strides = [256 * count for count in range(1, MANY // 512 + 1)]

    def show(name: str, released: Tensor) -> None:
        seen = released.cpu().numpy()
        # Which numbers are a pair depends on the GPU: the distance that fits best.
        stride = max(strides, key=lambda each: share_that_fits(seen, sums, each))
        shares = [share_that_fits(seen, beneath, stride) for beneath in (sums, others)]
        fit = f"{shares[0]:.3f} fit the true sums, {shares[1]:.3f} others"
        report(f"{name}: {fit} (pairs {stride:,} apart)")

    show("torch's normal_, as added up", exact + NOISE * torch.empty_like(exact).normal_())
    drawn = Randomness().noise(device).normal_(torch.empty_like(exact))
    show("dptune's noise, as added up", exact + NOISE * drawn)
    show("as released", add_noise_(exact.clone(), NOISE, Randomness().noise(device)))


# The discrete Gaussian of Canonne, Kamath and Steinke (2020), by whole numbers alone


def bernoulli_exp(top: int, bottom: int) -> bool:
    """True with probability exp(-top / bottom)."""
    while top > bottom:
        if not bernoulli_exp(1, 1):
            return False
        top -= bottom
    count = 1
    while _SECRET.randrange(bottom * count) < top:
        count += 1
    return count % 2 == 1


def discrete_laplace(scale: int) -> int:
    while True:
        rest = _SECRET.randrange(scale)
        if not bernoulli_exp(rest, scale):
            continue
        whole = 0
        while bernoulli_exp(1, 1):
            whole += 1
        negative, size = _SECRET.randrange(2) == 1, rest + scale * whole
        if size or not negative:
            return -size if negative else size


def discrete_gaussian(deviation: int) -> int:
    scale, square = deviation + 1, deviation**2
    while True:
        drawn = discrete_laplace(scale)
        if bernoulli_exp((abs(drawn) * scale - square) ** 2, 2 * square * scale**2):
            return drawn


_SECRET = random.SystemRandom()


def time_of(numbers: int, draw: Callable[[], object]) -> float:
    """Microseconds a number, the fastest of three."""
    taken = []
    for _ in range(3):
        before = time.perf_counter()
        draw()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - before)
    return 1e6 * min(taken) / numbers


def costs(device: torch.device, report: Report) -> None:
    """What a number takes to draw."""
    zeros = np.zeros(MANY)
    rounded = time_of(MANY, lambda: add_noise(zeros, NOISE, fresh_normal))
    discrete = time_of(2000, lambda: [discrete_gaussian(int(NOISE)) for _ in range(2000)])
    report(f"microseconds a number: {rounded:.3f} rounded, {discrete:.0f} discrete")
    if device.type == "cuda":
        sums, noise = torch.zeros(2**24, device=device).double(), Randomness().noise(device)
        rounded = time_of(2**24, lambda: add_noise_(sums, NOISE, noise))
        report(f"on {device}: {rounded:.6f} rounded, {time_of(2**24, sums.normal_):.6f} by torch")
