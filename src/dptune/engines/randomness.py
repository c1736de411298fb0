"""Where the numbers of a run come from.

Noise and sampling protect rows, so by default they come from the operating system's entropy,
drawn anew whenever a run asks: two runs, or a run before and after a crash, never share a stream,
not even if they share this object. Public choices (initial weights) come from a seed through named
streams, so that adding a trial shifts no other numbers.
"""

import hashlib
import math
import secrets
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dptune import validate

# The state of torch's generator on a CPU: words after a header, in 64 bits each.
_WORDS, _HEADER = 624, 24
_WHOLE = 2.0**53  # whole numbers below it are float64 numbers
_AT_ONCE = 2**22  # pairs of normal numbers, which need a few times their own memory


class Stream:
    """Normal and uniform numbers, made on the device that needs them.

    On a CPU they are NumPy's, because torch's own generator there keeps 32 bits of its seed; on a
    GPU they are made of those of torch's counter-based generator, whose seed and counter take 124.
    """

    def __init__(self, key: int, device: torch.device) -> None:
        self._device = device
        self._generator: torch.Generator | np.random.Generator
        if device.type == "cuda":
            self._generator = torch.Generator(device)
            _seed(self._generator, key)
        else:
            seeds = np.random.SeedSequence(key, pool_size=8)  # keeps 256 bits of the key
            self._generator = np.random.Generator(np.random.PCG64DXSM(seeds))

    def normal_(self, out: Tensor) -> Tensor:
        """Fill with standard normal numbers; noise on private sums takes float64."""
        if isinstance(self._generator, torch.Generator):
            if out.dtype == torch.float64:
                return fill_in_pairs_(out, self._generator)
            return out.normal_(generator=self._generator)
        wide = np.float64 if out.dtype == torch.float64 else np.float32
        drawn = self._generator.standard_normal(tuple(out.shape), dtype=wide)
        return out.copy_(torch.from_numpy(drawn))

    def uniform(self, count: int) -> Tensor:
        """`count` numbers in [0, 1), in double precision."""
        if isinstance(self._generator, torch.Generator):
            return torch.rand(
                count, generator=self._generator, dtype=torch.float64, device=self._device
            )
        return torch.from_numpy(self._generator.random(count))


def fill_in_pairs_(out: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal numbers in float64 by the method of Box and Muller, of 159 bits a pair.

    Torch's own kernel on a GPU takes 106: so few pairs lie far from 0 that they could tell what is
    beneath a rounded sum. Here the uniform number that a length comes from is as fine near 0 as
    float64 is (docs/design/noise.md has the bound).
    """
    for part in torch.split(out.view(-1), 2 * _AT_ONCE):
        pairs = torch.empty((len(part) + 1) // 2, dtype=torch.float64, device=out.device)
        whole, fraction, turn = (
            torch.empty_like(pairs).random_(int(_WHOLE), generator=generator) for _ in range(3)
        )
        uniform = whole.add_(fraction.add_(0.5), alpha=1 / _WHOLE).div_(_WHOLE)
        length, angle = uniform.log_().mul_(-2).sqrt_(), turn.mul_(2 * math.pi / _WHOLE)
        part.copy_(torch.cat([length * angle.cos(), length * angle.sin()])[: len(part)])
    return out


@dataclass(frozen=True)
class Passes:
    """What torch's own generators draw while rows pass (dropout, augmentations), from 256 bits.

    It is as secret as the sample: what a row draws depends on which rows came before it, and
    anyone who knew all draws would see in those of the others whether it was there.
    """

    key: int
    device: torch.device

    def begin(self) -> None:
        """From here on, torch draws the same numbers as after any other call."""
        if self.device.type == "cuda":
            with torch.cuda.device(self.device):
                _seed(torch.cuda.default_generators[torch.cuda.current_device()], self.key)
        # Of a seed torch's generator on a CPU keeps 32 bits; its state is 624 words.
        state = torch.default_generator.manual_seed(0).get_state().numpy()
        secret = hashlib.shake_256(self.key.to_bytes(32, "big")).digest(4 * _WORDS)
        words = np.frombuffer(secret, dtype=np.uint32).astype(np.uint64)
        state[_HEADER : _HEADER + words.nbytes] = words.view(np.uint8)
        torch.default_generator.set_state(torch.from_numpy(state))


@dataclass(frozen=True)
class Randomness:
    """The streams of one trial.

    `noise_seed` is for research only: anyone who knows it can subtract the noise, so nothing is
    private. None, the default, asks the operating system.
    """

    seed: int = 0
    trial: int = 0
    noise_seed: int | None = None

    def __post_init__(self) -> None:
        seed = validate.whole(0, at_most=2**256, seed=self.seed)
        validate.store(self, seed=seed, trial=validate.whole(0, trial=self.trial))
        if self.noise_seed is not None:
            noise_seed = validate.whole(0, at_most=2**256, noise_seed=self.noise_seed)
            validate.store(self, noise_seed=noise_seed)

    @property
    def is_private(self) -> bool:
        return self.noise_seed is None

    def initial(self) -> Stream:
        """For initial weights: public, and the same for every device."""
        return Stream(_key(self.seed, self.trial, "initial"), torch.device("cpu"))

    def public_number(self, purpose: str) -> int:
        """For generators of torch's own that draw initial weights: public, as these are."""
        return _key(self.seed, self.trial, purpose) % 2**63

    def noise(self, device: torch.device, step: int | None = None) -> Stream:
        """For noise on sums: of a whole run, or of the `step` of that number alone, so that with a
        noise seed an interrupted run goes on as if it had not been."""
        return self._secret("noise", step, device)

    def sampling(self, device: torch.device, step: int | None = None) -> Stream:
        """The same for Poisson samples, which must stay as secret as the noise."""
        return self._secret("sampling", step, device)

    def passes(self, step: int, device: torch.device) -> Passes:
        """For what torch draws while the rows of a step pass: as secret as its sample."""
        return Passes(self._secret_key("passing", step), device)

    def _secret(self, purpose: str, step: int | None, device: torch.device) -> Stream:
        return Stream(self._secret_key(purpose, step), device)

    def _secret_key(self, purpose: str, step: int | None) -> int:
        if self.noise_seed is None:
            return secrets.randbits(256)
        if step is not None:
            purpose = f"{purpose}/{step}"
        return _key(self.noise_seed, self.trial, purpose)


def seed_torch(number: int) -> None:
    """Seed torch's own generators, of the CPU and of the GPUs in use, with a public number.

    Like `torch.manual_seed`, which also formats the call stack for each kind of device that is not
    in use: more time than a small network needs for its step.
    """
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(number)


def _seed(generator: torch.Generator, key: int) -> None:
    """Of a generator on a GPU: 64 bits of seed, and 60 of the place where it begins to count."""
    generator.manual_seed(key % 2**64)
    generator.set_offset(4 * ((key >> 64) % 2**60))


def _key(seed: int, trial: int, purpose: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{trial}/{purpose}".encode()).digest(), "big")
