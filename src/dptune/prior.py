"""Where searches for the total step size start from: each engine says its own.

The law that the searches of linear models start from (docs/law.md) is calibrated for linear models:
a run of price mu that leaves noise of standard deviation c on every weight is best near

    c = noise * signal^signal_power * (outputs / 10)^outputs_power,    signal = mu * rows / columns.

Another engine states its own numbers, with an error as large as its ignorance.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Prior:
    """The law's numbers for one engine. The defaults are those of an engine about which nothing was
    measured: unit noise, give or take a factor of ten.

    `error` is how far the best c may lie from the law, one standard deviation of log c;
    `error_off_unit_rows` the same where rows are not scaled to length 1. `by_row_length`: whether c
    is inversely proportional to the length of rows.
    """

    noise: float = 1.0
    signal_power: float = 0.0
    outputs_power: float = 0.0
    error: float = 2.3
    error_off_unit_rows: float = 2.3
    by_row_length: bool = False


# Measured over many sets of features: docs/law.md.
LINEAR = Prior(
    noise=0.5,
    signal_power=0.15,
    outputs_power=1 / 16,
    error=0.45,
    error_off_unit_rows=0.7,
    by_row_length=True,
)
