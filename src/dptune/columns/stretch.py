"""Numbers of which some lie far out, by their logarithm there.

    asinh((x - center) / scale)

is nearly a straight line within a scale of the center, and further out a logarithm on either side.
So neither do a few huge numbers squeeze all others into one place of a range, nor is their order
lost.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dptune.columns.kinds import Pair

Values = NDArray[np.float64]


class Stretch(NamedTuple):
    """Where the middle of a column is, and how wide."""

    center: float
    scale: float

    def of(self, values: Any) -> Values:
        """Stretched."""
        return np.asarray(np.arcsinh((np.asarray(values) - self.center) / self.scale), np.float64)

    def ends(self, pair: Pair) -> Pair:
        """Of a range, stretched."""
        low, high = self.of(pair).tolist()
        return low, high

    def farthest(self, low: float, high: float) -> float:
        """How far from the center the farther of two ends is, in scales."""
        return max(abs(low - self.center), abs(high - self.center)) / self.scale
