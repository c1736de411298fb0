"""For engines that have every row's gradient as a table: the rows of a step, their clipped sum, and
the descent along it."""

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from dptune.data.rows import Chunk, Rows
from dptune.engines.optimizers import KINDS
from dptune.engines.randomness import Randomness
from dptune.errors import InvalidInput
from dptune.plan import TrainPlan

_SAMPLED_ROWS_AT_ONCE = 8192
_UNIT = 2.0**-24  # of a clip norm: float64 sums of its multiples are exact up to 2^29 rows
RowGradients = Callable[[Tensor, Tensor, Tensor], Tensor]
_BELOW_ONE = 1 - 1e-6  # norms are rounded, and so is the sum once it is in units of its own


def clipped_sum(gradients: Tensor, clip_norm: float | None) -> Tensor:
    """The sum of gradients (rows, numbers), each clipped, in float64; private until there is noise
    on it. A gradient that is not finite contributes nothing.

    Guarantees: in whatever order and whatever parts rows are added up, up to 2^29 of them, one row
    moves the sum by at most `clip_norm`. Entries are rounded towards zero to multiples of 2^-24
    clip norms, of which float64 adds so many exactly; that shortens a row, never lengthens it. What
    is rounded besides, each norm and the sum's last multiplication, is less than 2^-22 of a clip
    norm, and rows are clipped a millionth lower.
    """
    wide = gradients.detach().to(torch.float64)
    if clip_norm is None:
        return wide.sum(0)
    norms = torch.linalg.vector_norm(wide, dim=1, keepdim=True)
    shares = wide * (_BELOW_ONE / norms.clamp(min=clip_norm))  # of a clip norm
    shares = torch.where(torch.isfinite(norms), shares, 0.0)
    return (shares / _UNIT).trunc_().sum(0) * (_UNIT * clip_norm)


def batches(plan: TrainPlan, rows: Rows, randomness: Randomness) -> Callable[[], Iterable[Chunk]]:
    """What one step reads, in chunks: all rows, or a fresh Poisson sample of them."""
    if plan.sampling_rate is None:
        return rows.chunks
    rate, stream = plan.sampling_rate, randomness.sampling(rows.device)

    def sample() -> Iterator[Chunk]:
        # Double precision: the inclusion probability must be the one that is accounted for. Where
        # nobody is chosen, the noisy step is taken all the same.
        chosen = (stream.uniform(rows.count) < rate).nonzero().squeeze(1)
        for start in range(0, len(chosen), _SAMPLED_ROWS_AT_ONCE):
            yield rows.pick(chosen[start : start + _SAMPLED_ROWS_AT_ONCE])

    return sample


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
        total = torch.zeros(moved.numel(), dtype=torch.float64, device=rows.device)
        for chunk in steps():
            copies = chunk.features[:, : plan.augmentations]
            total += clipped_sum(gradients(moved[0, 0], copies, chunk.targets), plan.clip_norm)
        total += plan.noise * noise.normal_(torch.empty_like(total))
        mean = (total / plan.divisor).to(moved.dtype)
        optimizer.update_(moved, mean[None, None], step)
    return moved[0, 0], optimizer.first[0, 0]
