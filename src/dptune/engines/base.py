"""What every engine offers: train many plans on the same rows, and count what the models get right.

Engines clip and SUM, add the noise the plan names, and divide by a public number. They never see
the ledger and never choose their noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from dptune.engines.randomness import Randomness
from dptune.engines.rows import Rows
from dptune.plan import TrainPlan

Model = TypeVar("Model")


@dataclass(frozen=True)
class Evaluation:
    """Exact results on some rows. On private rows these are private: only a noisy version may
    leave."""

    correct: int
    loss: float
    rows: int


class Engine(Protocol[Model]):
    """Trains models of one kind."""

    def fit_many(
        self, plans: Sequence[TrainPlan], rows: Rows, randomness: Sequence[Randomness]
    ) -> list[Model]:
        """One model per plan. Equal, up to rounding, to training them one by one."""
        ...

    def evaluate_many(self, models: Sequence[Model], rows: Rows) -> list[Evaluation]:
        """How each model does on `rows`."""
        ...
