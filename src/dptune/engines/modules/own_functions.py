"""What a user's own loss and augmentation make of a row must not depend on the others beside it:
made-up rows show whether it does. As in `row_check`, a batch of the same shape whose other rows
hold something else must give the same bit for bit; only another number of rows rounds otherwise."""

from collections.abc import Callable

import torch
from torch import Tensor

from dptune.engines.evaluation import RowLoss
from dptune.engines.randomness import seed_torch
from dptune.errors import InvalidInput

_ROUNDING = 1e-4  # with much to spare


def loss_takes_rows_apart(loss: RowLoss, like: Tensor, targets: Tensor) -> None:
    """Refuse a loss of a row that changes with the other rows, or with how many there are; of
    outputs `like` these, as many as there are targets."""
    generator = torch.Generator().manual_seed(0)
    # Between 0 and 1, for losses of probabilities; not the module's own, which may all be alike.
    outputs = torch.rand(like.shape, generator=generator).to(like)

    def found(rows: list[int], seed: int = 0) -> Tensor:
        seed_torch(seed)
        return loss(outputs[rows], targets[rows]).detach()

    every = list(range(len(targets)))
    together = found(every)
    apart = _equal(together[:1], found([0, 0, *every[1:-1]])[:1])
    apart = apart and _equal(together[-1:], found([*every[1:-1], 0, every[-1]])[-1:])
    if apart and _equal(together, found(every, seed=1)):  # nothing is drawn at random
        apart = _same(together, torch.cat([found([row]) for row in every]))
    if not apart:
        raise InvalidInput(
            "the loss of a row must be its own, and yours changes with the other rows of its "
            "batch, or with how many there are, so one private row would move the losses of all. "
            "Take no mean, sum or count over rows; dividing by their number is not for the loss to "
            "do."
        )


def augment_takes_rows_apart(augment: Callable[[Tensor], Tensor], rows: Tensor) -> None:
    """Refuse an augmentation that brings something of one row into another."""

    def found(given: Tensor) -> Tensor:
        seed_torch(0)
        return augment(given.clone())

    made = found(rows)
    if not isinstance(made, Tensor) or made.shape != rows.shape:
        what = tuple(made.shape) if isinstance(made, Tensor) else type(made).__name__
        raise InvalidInput(
            f"augment must give a tensor of the shape that it gets, {tuple(rows.shape)}; it gives "
            f"{what}."
        )
    if not _equal(made, found(rows)):
        return  # it draws from generators that we do not know, and nothing can be told
    others = rows.square() * -1000 if rows.is_floating_point() else rows.roll(1, 0)
    for row in (0, len(rows) - 1):
        beside = others.clone()
        beside[row] = rows[row]
        if not _equal(made[row], found(beside)[row]):
            raise InvalidInput(
                "augment must change every row for itself, and what yours makes of a row changes "
                "with the other rows of its batch, so one private row would be in the gradients "
                "of all. Leave mixing (mixup, cutmix, statistics of a batch) out."
            )


def _equal(one: Tensor, other: Tensor) -> bool:
    """Bit for bit; a number that is none is one."""
    return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())


def _same(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    return torch.allclose(
        one.double(), other.double(), rtol=_ROUNDING, atol=_ROUNDING, equal_nan=True
    )
