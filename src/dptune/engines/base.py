"""What every engine offers: train many plans on the same rows, and count what the models get right.

Engines clip and SUM, add the noise the plan names, and divide by a public number. They never see
the ledger and never choose their noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from torch import Tensor

from dptune.data.rows import Rows
from dptune.engines.randomness import Randomness
from dptune.plan import TrainPlan

Model = TypeVar("Model")


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


class Engine(Protocol[Model]):
    """Trains models of one kind."""

    def fit_many(
        self,
        plans: Sequence[TrainPlan],
        rows: Rows,
        randomness: Sequence[Randomness],
        start: Sequence[Model | None] | None = None,
    ) -> list[Model]:
        """One model per plan. Equal, up to rounding, to training them one by one. A plan with a
        model in `start` goes on from where that model's run ended."""
        ...

    def evaluate_many(
        self,
        models: Sequence[Model],
        rows: Rows,
        *,
        loss_bound: float | None = None,
        row_weights: Tensor | None = None,
    ) -> list[Evaluation]:
        """How each model does on `rows`. A row's loss counts from 0 to `loss_bound`, and a correct
        row counts as much as `row_weights`, numbers from 0 to 1, say for its class."""
        ...
