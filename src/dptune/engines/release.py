"""From exact sums to what may be seen: fresh noise, then division by a public number."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dptune.engines.optimizers import per_trial
from dptune.engines.randomness import Stream
from dptune.noise import round_to_grid_, rounder
from dptune.plan import TrainPlan


@dataclass(frozen=True)
class Release:
    """What turns clipped sums into something that may be seen, for every trial of a batch."""

    clip_norms: Tensor | None
    class_weights: Tensor | None  # (trials, classes), never above those of the plans
    noise: Tensor
    rounders: Tensor  # to the grid of each trial's noise
    divisor: Tensor
    dtype: torch.dtype  # of what is released

    @staticmethod
    def of(plans: Sequence[TrainPlan], like: Tensor) -> "Release":
        clips = [plan.clip_norm for plan in plans if plan.clip_norm is not None]
        wide = like.new_empty(0, dtype=torch.float64)
        return Release(
            clip_norms=per_trial(clips, like)[:, 0, 0] if clips else None,
            class_weights=_class_weights(plans, like),
            noise=per_trial([plan.noise for plan in plans], wide),
            rounders=per_trial([float(rounder(plan.noise)) for plan in plans], wide),
            divisor=per_trial([plan.divisor for plan in plans], wide),
            dtype=like.dtype,
        )

    def private_mean(self, exact: Tensor, standard_normal: Tensor) -> Tensor:
        """Noise on the sums, in place, which are rounded to its grid, then division by a public
        number."""
        round_to_grid_(exact.addcmul_(self.noise, standard_normal), self.rounders)
        return torch.div(exact, self.divisor, out=torch.empty_like(exact, dtype=self.dtype))


def _class_weights(plans: Sequence[TrainPlan], like: Tensor) -> Tensor | None:
    given = [plan.class_weights for plan in plans if plan.class_weights is not None]
    if not given:
        return None
    exact = torch.tensor(given, dtype=torch.float64, device=like.device)
    rounded = exact.to(like.dtype)
    down = torch.nextafter(rounded, torch.zeros_like(rounded))
    return torch.where(rounded.double() > exact, down, rounded)


class Noise:
    """Standard normal numbers for every trial and step, each trial from its own stream. In float64,
    whose own grid is far finer than that of what is released.

    Several steps are drawn at once: a GPU is quick to fill a large tensor and slow to be asked. How
    many depends on the model's shape only, so a trial's numbers do not depend on its company.
    """

    def __init__(self, streams: list[Stream], weights: Tensor) -> None:
        self._streams = streams
        self._steps = max(1, min(16, 2**22 // weights[0].numel()))
        self._drawn = torch.empty((len(weights), 0, *weights.shape[1:]), device=weights.device)
        self._next = 0

    def draw(self) -> Tensor:
        """The next step's numbers: (trials, outputs, columns)."""
        if self._next == self._drawn.shape[1]:
            trials, _, *shape = self._drawn.shape
            size = (trials, self._steps, *shape)
            self._drawn = torch.empty(size, dtype=torch.float64, device=self._drawn.device)
            for trial, stream in enumerate(self._streams):
                stream.normal_(self._drawn[trial])
            self._next = 0
        self._next += 1
        return self._drawn[:, self._next - 1]

    def keep(self, trials: list[int]) -> None:
        """Forget the trials that have ended."""
        self._streams = [self._streams[trial] for trial in trials]
        self._drawn = self._drawn[trials]
