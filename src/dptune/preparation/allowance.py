"""How many polynomial features rows and budget bear, in place of straight lines over columns.

They cost no privacy: what they make of a row depends on that row and on its columns' ranges alone,
and their degree on public numbers, before anything is paid. But every degree is one more feature a
column, and every feature has weights that carry noise. Measurements: docs/law-measured.md.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from dptune.preparation import declared
from dptune.preparation.gates import noisy_moment
from dptune.preparation.step import Case, Reason

# The highest degree that nobody asked for; how many rows, and how much signal, there must be for
# every weight of the model then. Columns that nobody declared may be features that some network
# made, which tell alike: they gain less.
_HIGHEST, _LEAST_ROWS, _LEAST_SIGNAL, _LEAST_SIGNAL_AS_GIVEN = 6, 40, 2.0, 5.0
# Of rows as given, ranges are estimated where there is room for so many of the columns: of those of
# our tables about a third have more than two values. But more columns than these may be features.
_LEAST_ROOM, _MOST_IN_DOUBT = 0.5, 50
_MOST_NUMBERS = 1 << 28  # in all rows together: a gibibyte


@dataclass(frozen=True)
class Allowance:
    """Over the columns of these names: `room` for so many features more than straight lines make,
    of a degree up to `up_to`, 1 for straight lines. Some columns may turn out to have two values,
    which leaves more of it for the others."""

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


def allowance(case: Case, estimated: Sequence[str], *, rough: bool) -> Allowance:
    """Over all columns that have a range or get one, because it is `estimated`; none where these
    are too `rough`."""
    columns: tuple[str, ...] = ()
    if case.options.ranges:  # of all columns, by position
        columns = tuple(case.kept)
    else:
        ranged = {*estimated, *declared.with_a_range(case)}
        columns = tuple(name for name in case.kept if name in ranged)
    if rough:
        return Allowance(columns)
    return allowance_over(case, columns, estimated=bool(estimated))


def allowance_over(case: Case, columns: Sequence[str], *, estimated: bool) -> Allowance:
    """Over these columns, of the degree that was asked for or, where that was left to us, of as
    high a one as public numbers allow. `estimated`: their ranges are, so that some may turn out to
    have two values."""
    asked, count = case.options, len(columns)
    if isinstance(asked.curves, int):
        highest = asked.curves_up_to or asked.curves
        room = (asked.curves - 1) * count
        if estimated and asked.curves_room is not None:
            room = min(max(room, asked.curves_room), (highest - 1) * count)
    else:
        highest = asked.curves_up_to or _HIGHEST
        room = _room(case, (highest - 1) * count)
        in_doubt = estimated and case.facts.as_given
        if in_doubt and room < count * (_LEAST_ROOM if count <= _MOST_IN_DOUBT else 1):
            room = 0
        if asked.curves_room is not None:
            room = min(room, asked.curves_room)
        if not in_doubt:
            room -= room % max(count, 1)
    if not (estimated and room):
        highest = 1 + room // max(count, 1)
    return Allowance(tuple(columns), room, highest)


def against(case: Case) -> Reason | None:
    """Why there are none, whatever the rows; None where nothing speaks against them."""
    if not case.engine.linear_in_rows:
        return Reason("unmeasured", {"trains": case.engine.trains})
    return None if case.options.unit_rows else Reason("not unit length")


def _room(case: Case, most: int) -> int:
    """How many features more than straight lines make, up to so many, public numbers allow."""
    if against(case):
        return 0
    return bisect_left(range(1, most + 1), True, key=lambda more: not _bears(case, more))


def _bears(case: Case, more: int) -> bool:
    """Whether rows and budget bear so many features more."""
    facts, width = case.facts, case.straight + more
    enough = _LEAST_SIGNAL_AS_GIVEN if facts.as_given else _LEAST_SIGNAL
    return (
        not (facts.as_given and facts.rather_features)
        and case.signal_of(width) >= enough
        and case.rows >= _LEAST_ROWS * width * facts.outputs
        and case.rows * width <= _MOST_NUMBERS
        and not (facts.as_given and _too_wide(case, width))
    )


def _too_wide(case: Case, width: int) -> bool:
    """Whether rows would no longer be whitened, or iterates no longer averaged: where columns may
    turn out to have two values, a lower degree loses less, and may rise."""
    unwhitened = noisy_moment(case, width) and not noisy_moment(case, case.straight)
    return unwhitened or not case.engine.averages(width)
