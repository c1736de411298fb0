"""Log-scale a column with heavy tails.

    asinh((x - center) / scale)

is nearly linear within one scale of the center, and logarithmic beyond it on either side. It keeps
the order of all numbers, and a few huge ones no longer squeeze the others together.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dptune.columns.kinds import Pair

Values = NDArray[np.float64]


class Stretch(NamedTuple):
    """The center of a column and its scale."""

    center: float
    scale: float

    def of(self, values: Any) -> Values:
        """The values on the logarithmic scale."""
        return np.asarray(np.arcsinh((np.asarray(values) - self.center) / self.scale), np.float64)

    def ends(self, pair: Pair) -> Pair:
        """The ends of a range on the logarithmic scale."""
        low, high = self.of(pair).tolist()
        return low, high

    def farthest(self, low: float, high: float) -> float:
        """The distance from the center to the farther end of a range, in scales."""
        return max(abs(low - self.center), abs(high - self.center)) / self.scale
