"""Losses of single rows, by name or from a user's own function."""

from typing import Any

from torch import Tensor
from torch.nn import functional

from dptune.data.rows import ASKED_IN_ROWS
from dptune.engines.evaluation import RowLoss
from dptune.errors import InvalidInput
from dptune.own_code import resolve

NAMES = ("softmax", "squared", *ASKED_IN_ROWS)


def row_loss(loss: str) -> RowLoss:
    """(outputs of some rows, their targets) -> the loss of each."""
    if loss in ASKED_IN_ROWS:
        return _as_given
    if loss in NAMES:
        return _softmax if loss == "softmax" else _squared
    own = resolve(loss, "loss")

    def checked(outputs: Tensor, targets: Tensor) -> Tensor:
        losses = own(outputs, targets)
        if not isinstance(losses, Tensor) or losses.shape != targets.shape[:1]:
            found = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
            raise InvalidInput(
                f"the loss {loss} must give one number a row, shape {tuple(targets.shape[:1])}; it "
                f'gives {found}. A loss of torch does so with reduction="none".'
            )
        return losses

    return checked


def outputs_of(found: Any) -> Tensor:
    """A module's output as a table (rows, outputs); models of transformers wrap theirs."""
    table = found if isinstance(found, Tensor) else getattr(found, "logits", None)
    if not isinstance(table, Tensor):
        raise InvalidInput(
            f"the module returns a {type(found).__name__}; it must return a tensor with a line a "
            "row, or an object whose .logits is one."
        )
    return table[:, None] if table.ndim == 1 else table


def _as_given(outputs: Tensor, targets: Tensor) -> Tensor:
    return outputs[:, 0].float()


def _softmax(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs.float(), targets.long(), reduction="none")


def _squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.float() - targets.reshape(outputs.shape)).square().sum(1) / 2
