"""The sum over one step, however many rows it has."""

import torch
from torch import Tensor

from dptune.engines import sums
from dptune.engines.modules import blocks


class StepTotal:
    """A flat float64 vector to which physical batches are added one after another. After as many
    rows as that is proven for, another is begun, and all of them are added pairwise: so a step may
    have as many rows as any sum (docs/design/modules-bound.md)."""

    def __init__(self, numbers: int, device: torch.device) -> None:
        self._part = torch.zeros(numbers, dtype=torch.float64, device=device)
        self.begin()

    def begin(self) -> None:
        """A new step, of no rows."""
        self._part.zero_()
        self._rows = 0
        self._full: sums.Total | None = None  # of the parts that were

    def part(self, rows: int) -> Tensor:
        """To which a batch of so many rows is to be added next."""
        if self._rows + rows > blocks.MOST_ROWS:
            self._full = self._full or sums.Total(len(self._part), device=self._part.device)
            self._full.add(self._part)
            self._part, self._rows = torch.zeros_like(self._part), 0
        self._rows += rows
        return self._part

    def value(self) -> Tensor:
        """The sum of this step, whose memory the next one uses again."""
        if self._full is None:
            return self._part
        self._full.add(self._part)
        return self._full.value()
