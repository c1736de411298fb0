"""Curves over the numbers and dates of a table, in place of straight lines: of which degree.

They cost no privacy: what they make of a row depends on that row and on its columns' ranges alone,
and their degree on public numbers, before anything is paid. But every degree is one more feature a
column, and every feature has weights that carry noise. Measurements:
experiments/notes/law-measured.md.
"""

from bisect import bisect_left
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
# Of rows as given, ranges are bought where there is room for so many of the columns: of those of
# our tables about a third have more than two values. But more columns than these may be features.
_LEAST_ROOM, _MOST_IN_DOUBT = 0.5, 50
_MOST_NUMBERS = 1 << 28  # in all rows together: a gibibyte


@dataclass(frozen=True)
class Curves:
    """Over the columns of these names, as far as is known before anything is paid: of a degree up
    to `up_to`, 1 for straight lines, with `room` for so many features more than straight lines
    make. Some columns may turn out to have two values, which leaves more of it for the others."""

    columns: tuple[str, ...] = ()
    room: int = 0
    up_to: int = 1

    def degree_over(self, columns: int) -> int:
        """Over so many of them: as high as there is room."""
        return min(self.up_to, 1 + self.room // columns) if columns else 1

    @property
    def degree(self) -> int:
        """Over all of them."""
        return self.degree_over(len(self.columns))

    def seen(self, facts: DataFacts) -> DataFacts:
        """What a model sees of the rows, at most; the same for facts that were told of them
        already."""
        if facts.named is None:
            return facts
        return replace(facts, shape=(facts.straight_columns + self.room,))


def planned(config: Config, facts: DataFacts, columns: Sequence[str], *, bought: bool) -> Curves:
    """Over these columns, of the degree that was asked for or, where that was left to us, of as
    high a one as public numbers allow. `bought`: their ranges are, so that some may turn out to
    have two values."""
    asked, count = config.preparation, len(columns)
    if isinstance(asked.curves, int):
        highest = asked.curves_up_to or asked.curves
        room = (asked.curves - 1) * count
        if bought and asked.curves_room is not None:
            room = min(max(room, asked.curves_room), (highest - 1) * count)
    else:
        highest = asked.curves_up_to or _HIGHEST
        room = _room(config, facts, (highest - 1) * count)
        in_doubt = bought and facts.as_given
        if in_doubt and room < count * (_LEAST_ROOM if count <= _MOST_IN_DOUBT else 1):
            room = 0
        if asked.curves_room is not None:
            room = min(room, asked.curves_room)
        if not in_doubt:
            room -= room % max(count, 1)
    if not (bought and room):
        highest = 1 + room // max(count, 1)
    return Curves(tuple(columns), room, highest)


def _room(config: Config, facts: DataFacts, most: int) -> int:
    """How many features more than straight lines make, up to so many, public numbers allow."""
    straight = Curves().seen(facts)
    if against(config):
        return 0

    def too_many(more: int) -> bool:
        bent = replace(straight, shape=(straight.columns + more,))
        return not _borne(config, straight, bent)

    return bisect_left(range(1, most + 1), True, key=too_many)


def _borne(config: Config, straight: DataFacts, bent: DataFacts) -> bool:
    """Whether rows and budget bear the features of these curves."""
    mu, width = config.budget.mu, bent.columns
    enough = _LEAST_SIGNAL_AS_GIVEN if bent.as_given else _LEAST_SIGNAL
    return (
        not (bent.as_given and bent.rather_features)
        and signal(mu, bent.count, width, bent.outputs) >= enough
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
    if not config.engine.traits.linear_in_rows:
        return f"nothing is known of what they do for a {config.engine.traits.trains}"
    return "" if config.preparation.unit_rows else "rows are not scaled to unit length"
