"""Where searches for the total step size start from: each engine says its own.

The law that the searches of linear models start from (docs/design/law.md) is calibrated for linear
models: a run of price mu that leaves noise of standard deviation c on every weight is best near

    1 / c^2 = 1 / near^2 + 1 / far^2,
    near = noise * counted^columns_power * weights^weights_power,
    far  = reach * (rows / columns)^reach_power / mu:

training stops where more of it would add more noise than signal or, if noise is not what limits it,
where it would fit the rows too closely. Columns count as they are, but many classes lie close to
each other in few columns, where they bear less noise: beyond `few_classes`, rows that are narrower
than `wide` count as

    counted = columns^(few_classes / classes) * wide^(1 - few_classes / classes).

The mean of the last iterates bears more: near an optimum noise no longer adds up, and the mean has
little of it. How near to it a run comes goes with

    converged = near * signal,

and averages are taken where it would be `averaged_from` with few classes. c is then larger by up to
`averaged` times, half of which is reached at `averaged_half`, and with more than two classes near
is longer by

    sqrt(1 + (1 - 2 / classes) * converged / averaged_from),

and far is `averaged_reach` times as long, unless rows are wider than `wide`, which are fitted too
closely then. But with two classes, which are told apart early, c is `averaged_of_two` times as
large.

Another engine states its own numbers, with an error as large as its ignorance.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Prior:
    """The law's numbers for one engine. The defaults are those of an engine about which nothing was
    measured: unit noise, give or take a factor of ten. `weights` are all that is trained.

    `averaged` is what c is multiplied by, at most, where the mean of the last iterates is released,
    `unclipped` where gradients are seldom clipped. `error` is how far the best c may lie from the
    law, one standard deviation of log c; `error_off_unit_rows` the same where rows are not scaled
    to length 1. `by_row_length`: whether c is inversely proportional to the length of rows.
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
    """How much rows and a price of `mu` tell about every weight of a linear model."""
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

# The same for values, on nine tables (experiments/notes/law-measured.md). Squared loss has an
# optimum that is reached in about so many steps whatever the budget, and the mean of iterates
# around it is as good for any rate: so the far end is a displacement in proportion to the columns.
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

# Of pretrained language models every weight may carry more, the less so the fewer are trained:
# adapters of 0.3 and all layers of 11 million weights (experiments/notes/law-measured.md).
PRETRAINED = Prior(noise=1.5, weights_power=-0.3, error=0.6, error_off_unit_rows=0.6)

# The same without gradients, where steps go along random directions: a guess.
ZEROTH_ORDER = Prior(noise=0.1)
