"""What an engine trains."""

from typing import Protocol, TypeVar

from torch import Tensor


class Model(Protocol):
    """Gives logits for rows."""

    def logits(self, features: Tensor) -> Tensor:
        """(rows, outputs) for a batch of rows (rows, *shape), on whatever device that is: a number
        for every class, or for regression the value itself, from -1 to 1. Where rows hold what is
        asked, a row's loss comes first: `DataFacts.width`.

        A row's logits depend on that row alone, whatever else is in the batch. Otherwise one
        private row would move what is counted of the others.
        """
        ...


M = TypeVar("M", bound=Model)
