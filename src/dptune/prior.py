"""The prior of the search for the total step size; each engine states its own.

For linear models the law (docs/design/law.md) is calibrated: a run of price mu, which leaves noise
of standard deviation c on every weight, is best near

    1 / c^2 = 1 / near^2 + 1 / far^2,
    near = noise * counted^columns_power * weights^weights_power,
    far  = reach * (rows / columns)^reach_power / mu:

training stops where more of it would add more noise than signal or, if noise is not the limit,
where it would overfit. Many classes lie close together in few columns and tolerate less noise:
beyond `few_classes`, rows with fewer columns than `wide` count as

    counted = columns^(few_classes / classes) * wide^(1 - few_classes / classes).

The mean of the last iterates tolerates more noise: near an optimum noise no longer accumulates, and
the mean has little of it. The distance to the optimum depends on

    converged = near * signal,

and averages are used from `averaged_from` on, for few classes. c is then larger by a factor of up
to `averaged`, half of which is reached at `averaged_half`. With more than two classes near grows by

    sqrt(1 + (1 - 2 / classes) * converged / averaged_from),

and far by `averaged_reach`, unless rows have more columns than `wide`, which then overfit. With two
classes, which are separated early, c is multiplied by `averaged_of_two`.

Other engines state their own numbers, with an error that reflects how little is measured.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Prior:
    """The law's numbers for one engine. The defaults are for an engine without measurements: unit
    noise, up to a factor of ten. `weights` counts the trained weights.

    `averaged` is the largest factor of c if the mean of the last iterates is released, and
    `unclipped` the factor if gradients are seldom clipped. `error` is the standard deviation of
    log c around the law; `error_off_unit_rows` is the same for rows that are not scaled to length
    1. `by_row_length`: whether c is inversely proportional to the length of rows.
    """

    noise: float = 1.0
    columns_power: float = 0.0
    weights_power: float = 0.0
    reach: float = math.inf
    reach_power: float = 0.0
    averaged: float = 1.0
    averaged_from: float = math.inf
    averaged_half: float = 0.0
    averaged_reach: float = 1.0
    averaged_of_two: float = 1.0
    few_classes: float = math.inf
    wide: float = math.inf
    unclipped: float = 1.0
    error: float = 2.3
    error_off_unit_rows: float = 2.3
    by_row_length: bool = False

    def near(self, columns: int, weights: int = 1, classes: int = 1) -> float:
        """The c at which more training would add more noise than signal."""
        of_columns = min(self.few_classes / classes, 1.0) if columns < self.wide else 1.0
        counted = columns**of_columns * self.wide ** (1 - of_columns)
        noise: float = self.noise * counted**self.columns_power * weights**self.weights_power
        return noise


def signal(mu: float, rows: int, columns: int, outputs: int) -> float:
    """The information per weight of a linear model from these rows at price `mu`."""
    return mu * rows / (columns * outputs)


# Measured over many sets of features and tables: experiments/notes/law-measured.md.
LINEAR = Prior(
    noise=18.0,
    columns_power=-0.5,
    reach=0.2,
    reach_power=2 / 3,
    averaged=1.8,
    averaged_from=10.0,
    averaged_half=50.0,
    averaged_reach=3.0,
    averaged_of_two=0.5,
    few_classes=6,
    wide=200,
    unclipped=2 / 3,
    error=0.6,
    error_off_unit_rows=0.8,
    by_row_length=True,
)

# The same for regression, on nine tables (experiments/notes/law-measured.md). Squared loss reaches
# its optimum in about the same number of steps at every budget, and the mean of iterates around it
# is equally good for any rate. So the far end is a displacement in proportion to the columns.
VALUES = Prior(
    noise=1.0,
    columns_power=-0.5,
    reach=120.0,
    reach_power=-1.0,
    averaged=3.0,
    error=0.6,
    error_off_unit_rows=0.8,
    by_row_length=True,
)

# Measured on a few networks of 5 thousand to 10 million weights: experiments/notes/law-measured.md.
MODULE = Prior(noise=15.0, weights_power=-0.5, error=0.8, error_off_unit_rows=0.8)

# Weights of pretrained language models tolerate more noise than other networks', less so the fewer
# are trained: measured with adapters of 0.3 and all layers of 11 million weights
# (experiments/notes/law-measured.md).
PRETRAINED = Prior(noise=1.5, weights_power=-0.3, error=0.6, error_off_unit_rows=0.6)

# The same for steps along random directions, without gradients: a guess.
ZEROTH_ORDER = Prior(noise=0.1)
