"""What repeats of a run or of a whole search came to."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

ORACLE = "oracle"


@dataclass(frozen=True)
class Runs:
    """Test accuracies in percent, one a repeat."""

    accuracies: tuple[float, ...]

    @property
    def mean(self) -> float:
        return math.fsum(self.accuracies) / len(self.accuracies)

    @property
    def spread(self) -> float:
        """Standard deviation over repeats."""
        return float(np.std(self.accuracies, ddof=1)) if len(self.accuracies) > 1 else 0.0

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return self.spread / math.sqrt(len(self.accuracies))


@dataclass(frozen=True, kw_only=True)
class Outcome(Runs):
    """Repeats of a whole search, the r of their final runs, and what one study spends; None where
    nobody paid."""

    task: str
    method: str
    epsilon: float
    delta: float
    spent_epsilon: float | None
    total_step_sizes: tuple[float, ...]
    seconds: float
    compute_seconds: float  # of all cores, or for which the GPU was held
    note: str = ""

    @property
    def label(self) -> str:
        """The method as tables and pictures call it."""
        return f"{self.method} (unpaid)" if self.spent_epsilon is None else self.method

    @property
    def typical_r(self) -> float:
        """The geometric mean."""
        return math.exp(float(np.mean(np.log(self.total_step_sizes))))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(plain: Mapping[str, Any]) -> "Outcome":
        """The reverse."""
        lists = {name: tuple(plain[name]) for name in ("accuracies", "total_step_sizes")}
        return Outcome(**{**plain, **lists})


def error_reduction(own: Runs, random: Runs | None, oracle: Runs | None) -> float | None:
    """RERR = 100 * (own - random) / (oracle - random): how much of the gap between a setting drawn
    at random and the best one known at no cost is closed; None where there is no gap to close."""
    if random is None or oracle is None or oracle.mean <= random.mean:
        return None
    return 100 * (own.mean - random.mean) / (oracle.mean - random.mean)
