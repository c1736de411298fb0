"""For engines that have every row's gradient as a table: the rows of a step, their clipped sum, and
the descent along it."""

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from dptune.data.rows import Chunk, Rows
from dptune.engines.optimizers import KINDS
from dptune.engines.randomness import Randomness, Stream
from dptune.errors import InvalidInput
from dptune.noise import round_to_grid_, rounder
from dptune.plan import TrainPlan

_SAMPLED_ROWS_AT_ONCE = 8192
_UNIT = 2.0**-24  # of a clip norm: float64 sums of its multiples are exact up to 2^29 rows
RowGradients = Callable[[Tensor, Tensor, Tensor], Tensor]
_BELOW_ONE = 1 - 1e-6  # norms are rounded, and so is the sum once it is in units of its own


class ClippedSum:
    """The sum of gradients of so many numbers, each clipped, in float64; private until there is
    noise on it. A gradient that is not finite contributes nothing.

    Guarantees: in whatever order and whatever parts rows are added, up to 2^29 of them, one row
    moves the sum by at most `clip_norm`. Entries are rounded towards zero to multiples of 2^-24
    clip norms, which shortens a row and never lengthens it, and float64 adds so many multiples
    exactly. What is rounded besides, each norm and the multiplication at the end, is less than
    2^-22 of a clip norm, and rows are clipped a millionth lower.
    """

    def __init__(self, numbers: int, clip_norm: float | None, device: torch.device) -> None:
        self._clip_norm = clip_norm
        self._total = torch.zeros(numbers, dtype=torch.float64, device=device)

    def add(self, gradients: Tensor, rows: int) -> None:
        """One gradient a row: (rows, numbers)."""
        if gradients.shape != (rows, len(self._total)):
            raise InvalidInput(
                f"{rows} rows have gradients of shape {(rows, len(self._total))}, one each; the "
                f"engine gives {tuple(gradients.shape)}."
            )
        wide = gradients.detach().to(torch.float64)
        if self._clip_norm is not None:
            norms = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
            wide = wide * (_BELOW_ONE / _UNIT / norms.clamp(min=self._clip_norm))
            wide = torch.where(torch.isfinite(norms), wide, 0.0).trunc_()
        self._total += wide.sum(0)

    def value(self) -> Tensor:
        """Of all that was added."""
        unit = 1.0 if self._clip_norm is None else _UNIT * self._clip_norm
        return self._total * unit


def add_noise_(exact: Tensor, noise: float, stream: Stream) -> Tensor:
    """Fresh noise of this deviation on sums in float64, in place, rounded to its grid: what may be
    seen of them."""
    if noise:
        exact.add_(stream.normal_(torch.empty_like(exact)), alpha=noise)
    return round_to_grid_(exact, float(rounder(noise)))


def batches(plan: TrainPlan, rows: Rows, randomness: Randomness) -> Callable[[], Iterable[Chunk]]:
    """What one step reads, in chunks: all rows, or a fresh Poisson sample of them."""
    if plan.sampling_rate is None:
        return rows.chunks
    stream = randomness.sampling(rows.device)
    return lambda: read_rows(rows, drawn_rows(plan, rows, stream))


def drawn_rows(plan: TrainPlan, rows: Rows, stream: Stream) -> Tensor | None:
    """The numbers of a fresh Poisson sample, which may be empty; None for all rows."""
    if plan.sampling_rate is None:
        return None
    # Double precision: the inclusion probability must be the one that is accounted for.
    return (stream.uniform(rows.count) < plan.sampling_rate).nonzero().squeeze(1)


def read_rows(rows: Rows, chosen: Tensor | None) -> Iterator[Chunk]:
    """Those of these numbers, some at a time; all where that is None."""
    if chosen is None:
        yield from rows.chunks()
        return
    for start in range(0, len(chosen), _SAMPLED_ROWS_AT_ONCE):
        yield rows.pick(chosen[start : start + _SAMPLED_ROWS_AT_ONCE])


def descend(
    plan: TrainPlan,
    rows: Rows,
    randomness: Randomness,
    weights: Tensor,
    velocity: Tensor,
    gradients: RowGradients,
) -> tuple[Tensor, Tensor]:
    """A whole run of `plan` from `weights`, all in one row, and the momentum buffer `velocity`:
    both as they are after it.

    `gradients(weights, features, targets)` gives every row's own gradient (rows, weights) for
    features (rows, copies, ...), of which it may average as many copies as the plan says.
    """
    if plan.averaging != "none" or plan.free_steps:
        raise InvalidInput(
            "this engine releases its last weights; leave averaging and free_steps out."
        )
    moved = weights.detach().to(rows.device).clone()[None, None]
    optimizer = KINDS[plan.optimizer]([plan], moved)
    optimizer.first.copy_(velocity)
    steps, noise = batches(plan, rows, randomness), randomness.noise(rows.device)
    for step in range(plan.steps):
        total = ClippedSum(moved.numel(), plan.clip_norm, rows.device)
        for chunk in steps():
            copies = chunk.features[:, : plan.augmentations]
            total.add(gradients(moved[0, 0], copies, chunk.targets), len(chunk.targets))
        noisy = add_noise_(total.value(), plan.noise, noise)
        mean = (noisy / plan.divisor).to(moved.dtype)
        optimizer.update_(moved, mean[None, None], step)
    return moved[0, 0], optimizer.first[0, 0]
