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
from dptune.study.gates import noisy_moment

# The highest degree that nobody asked for; how many rows, and how much signal, there must be for
# every weight of the model then. Columns that nobody declared may be features that some network
# made, which tell alike: they gain less.
_HIGHEST, _LEAST_ROWS, _LEAST_SIGNAL, _LEAST_SIGNAL_AS_GIVEN = 6, 40, 2.0, 5.0
_MOST_NUMBERS = 1 << 28  # in all rows together: a gibibyte


@dataclass(frozen=True)
class Curves:
    """Of one degree, 1 for straight lines, over the columns of these names, as far as is known
    before anything is paid; `up_to` is how far it may rise where some of them cannot be bent."""

    degree: int
    columns: tuple[str, ...]
    up_to: int = 1

    def degree_over(self, columns: int) -> int:
        """Over so many of them: as high as makes no more features than were planned."""
        room = (self.degree - 1) * len(self.columns)
        return max(self.degree, min(self.up_to, 1 + room // max(columns, 1)))

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
        straight = Curves(1, ()).seen(facts)
        for degree in range(risen(config), 1, -1):
            width = straight.columns + (degree - 1) * len(columns)
            if _borne(config, straight, replace(straight, shape=(width,))):
                return degree
    return 1


def risen(config: Config) -> int:
    """Up to which degree curves may go where that is left to us, or rise over few columns."""
    asked, most = config.preparation.curves, config.preparation.curves_up_to
    return most or (asked if isinstance(asked, int) else _HIGHEST)


def _borne(config: Config, straight: DataFacts, bent: DataFacts) -> bool:
    """Whether rows and budget bear the features of these curves."""
    mu, width = config.budget.mu, bent.columns
    enough = _LEAST_SIGNAL_AS_GIVEN if bent.as_given else _LEAST_SIGNAL
    return (
        signal(mu, bent.count, width, bent.outputs) >= enough
        and bent.count >= _LEAST_ROWS * width * bent.outputs
        and bent.count * width <= _MOST_NUMBERS
        and not (bent.as_given and _too_wide(config, straight, bent))
    )


def _too_wide(config: Config, straight: DataFacts, bent: DataFacts) -> bool:
    """Whether rows would no longer be whitened, or iterates no longer averaged: where columns may
    turn out to have two values, a lower degree loses less, and may rise."""
    usual = config.engine.usual_recipe(bent, unit_rows=True, mu=config.budget.mu)
    unwhitened = noisy_moment(config, bent) and not noisy_moment(config, straight)
    return unwhitened or usual.get("averaging") != "swa"


def against(config: Config) -> str:
    """Why there are none, whatever the rows; empty where nothing speaks against them."""
    if not config.engine.linear_in_rows:
        return f"nothing is known of what they do for a {config.engine.trains}"
    return "" if config.preparation.unit_rows else "rows are not scaled to unit length"
