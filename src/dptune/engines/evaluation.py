"""Exact results of models on rows, counted so that one row's share is bounded as it is added up."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dptune import validate
from dptune.data.rows import ASKED_IN_ROWS as ASKED_IN_ROWS
from dptune.engines import clipping
from dptune.errors import InvalidInput

RowLoss = Callable[[Tensor, Tensor], Tensor]  # (outputs (rows, ...), targets) -> one a row
_UNIT = 2.0**-24  # float64 sums of its multiples are exact up to 2^29
# Of a loss's bound: the sum is exact, but making a mean of it, and a sum of that, rounds again.
_LARGEST_SHARE = 1 - 2.0**-20


@dataclass(frozen=True)
class Evaluation:
    """Exact results on some rows. On private rows these are private: only a noisy version may
    leave.

    `weighted_correct` is the sum of the weights of all correct rows: `correct` where no weights
    were given. `loss` is a mean.
    """

    correct: int
    loss: float
    rows: int
    weighted_correct: float


class Tally:
    """Adds up what models get right, chunk by chunk. What its arguments mean: `evaluate_many`;
    `own_loss` takes the place of the usual one."""

    def __init__(
        self,
        models: int,
        outputs: int,
        loss: str,
        loss_bound: float | None,
        row_weights: Tensor | None,
        device: torch.device,
        own_loss: RowLoss | None = None,
    ) -> None:
        self._loss, self._own_loss, self._bound = loss, own_loss, None
        if loss_bound is not None:
            self._bound = validate.positive(loss_bound=loss_bound)
        self._weights: Tensor | None = None
        if row_weights is not None:
            weights = _checked_weights(row_weights, outputs, loss).to(device)
            self._weights = (weights / _UNIT).floor() * _UNIT
        self._correct = torch.zeros(models, dtype=torch.long, device=device)
        self._weighted = torch.zeros(models, dtype=torch.float64, device=device)
        self._losses = torch.zeros(models, dtype=torch.float64, device=device)

    def add(self, logits: Tensor, targets: Tensor) -> None:
        """Some rows: logits (models, outputs, rows)."""
        hits, loss = _hits_and_losses(logits, targets, self._loss)
        if self._own_loss is not None:
            loss = torch.stack([self._own_loss(one.T, targets).double() for one in logits])
        if self._bound is not None:
            # A model that diverged has losses that are no numbers: they must not escape.
            share = (loss / self._bound).nan_to_num(nan=1.0).clamp(0, _LARGEST_SHARE)
            loss = (share / _UNIT).floor()
        self._correct += hits.sum(1)
        self._losses += loss.sum(1)
        if self._weights is not None:
            self._weighted += hits.double() @ self._weights[targets.long()]

    def evaluations(self, rows: int) -> list[Evaluation]:
        """One a model, of `rows` rows."""
        unit = 1.0 if self._bound is None else self._bound * _UNIT
        weighted = self._correct if self._weights is None else self._weighted
        return [
            Evaluation(int(hits), float(loss) * unit / max(rows, 1), rows, float(weight))
            for hits, loss, weight in zip(self._correct, self._losses, weighted, strict=True)
        ]


def _checked_weights(row_weights: Tensor, outputs: int, loss: str) -> Tensor:
    classes = {"softmax": outputs, "binary": 2}.get(loss)
    if classes is None or (loss == "binary" and outputs > 1):
        raise InvalidInput(
            f"weights by class need one label a row; {loss} loss with {outputs} outputs has none. "
            "Leave row_weights out."
        )
    weights = torch.as_tensor(row_weights).detach().to(torch.float64)
    if weights.shape != (classes,) or not bool(((weights >= 0) & (weights <= 1)).all()):
        raise InvalidInput(
            f"row_weights are {classes} numbers from 0 to 1, one per class; got shape "
            f"{tuple(weights.shape)} with {weights.flatten().tolist()[:20]}."
        )
    return weights


def _hits_and_losses(logits: Tensor, targets: Tensor, loss: str) -> tuple[Tensor, Tensor]:
    """Whether each row is correct, and its loss, for each model: (models, rows) from logits
    (models, outputs, rows). Losses are float64, in which a bound on them is exact."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if loss in ASKED_IN_ROWS:  # whose models give the loss first, then, if they do, the classes
        correct = torch.zeros_like(logits[:, 0], dtype=torch.bool)
        if loss == "inside":
            correct = logits[:, 1:].argmax(1) == targets
        return correct, logits[:, 0].double()
    if loss == "softmax":
        correct = logits.argmax(1) == targets
        rows = torch.arange(len(targets), device=targets.device)
        log_likelihood = logits[:, targets.long(), rows] - logits.logsumexp(1)
        return correct, -log_likelihood.double()
    values = clipping.as_columns(targets, logits)
    if loss == "binary":
        correct = ((logits > 0) == (values > 0.5)).all(1)
        losses = torch.nn.functional.softplus(logits) - values * logits
    else:
        correct = torch.zeros_like(logits[:, 0], dtype=torch.bool)
        losses = (logits - values).square() / 2
    return correct, losses.sum(1, dtype=torch.float64)
