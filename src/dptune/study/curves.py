"""Curves over the numbers and dates of a table, in place of straight lines: of which degree.

They cost no privacy: what they make of a row depends on that row and on its columns' ranges alone,
and their degree on public numbers, before anything is paid. But every degree is one more feature a
column, and every feature has weights that carry noise. Measurements: docs/law.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dptune.data.rows import DataFacts
from dptune.prior import signal
from dptune.study.config import Config

# The highest degree that nobody asked for; how many rows, and how much signal, there must be for
# every weight of the model then. Columns that nobody declared may be features that some network
# made, which tell alike: they gain less.
_HIGHEST, _LEAST_ROWS, _LEAST_SIGNAL, _LEAST_SIGNAL_AS_GIVEN = 6, 40, 2.0, 5.0
_MOST_NUMBERS = 1 << 28  # in all rows together: a gibibyte


@dataclass(frozen=True)
class Curves:
    """Of one degree, 1 for straight lines, over the columns of these names."""

    degree: int
    columns: tuple[str, ...]

    def seen(self, facts: DataFacts) -> DataFacts:
        """What a model sees of the rows; the same for facts that were told of them already."""
        if facts.named is None:
            return facts
        width = facts.straight_columns + (self.degree - 1) * len(self.columns)
        return replace(facts, shape=(width,))


def highest(config: Config, facts: DataFacts, columns: Sequence[str]) -> int:
    """The degree that was asked for or, where it was left to us, as high a one as public numbers
    allow over these columns."""
    asked = config.preparation.curves
    if isinstance(asked, int):
        return asked
    if columns and not against(config):
        wanted = _LEAST_SIGNAL_AS_GIVEN if facts.as_given else _LEAST_SIGNAL
        for degree in range(_HIGHEST, 1, -1):
            width = facts.straight_columns + (degree - 1) * len(columns)
            told = signal(config.budget.mu, facts.count, width, facts.outputs)
            per_weight = facts.count / (width * facts.outputs)
            small = facts.count * width <= _MOST_NUMBERS
            if told >= wanted and per_weight >= _LEAST_ROWS and small:
                return degree
    return 1


def against(config: Config) -> str:
    """Why there are none, whatever the rows; empty where nothing speaks against them."""
    if not config.engine.linear_in_rows:
        return f"nothing is known of what they do for a {config.engine.trains}"
    return "" if config.preparation.unit_rows else "rows are not scaled to unit length"
