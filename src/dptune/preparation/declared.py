"""What steps of columns have in common: which columns there are, shares, and refusals."""

from collections.abc import Iterable, Sequence
from typing import Any

from numpy.typing import NDArray

from dptune import rounding
from dptune.columns.encoding import Encoding
from dptune.columns.kinds import Date, Number
from dptune.data.rows import MOST_COLUMNS_IN_DOUBT
from dptune.errors import InvalidInput
from dptune.preparation.options import AUTO
from dptune.preparation.step import Case, PrivateRows, Reason

LEAST_SHARE, MOST_SHARE_UNASKED = 0.005, 0.05  # of mu^2, where the user names no share


def numbers(case: Case, asked: str | None) -> tuple[str, ...]:
    """Numbers that declare this in place of a range."""
    return tuple(
        name
        for name, column in case.kept.items()
        if isinstance(column, Number) and column.range == asked
    )


def with_a_range(case: Case) -> tuple[str, ...]:
    """Numbers and dates that declare one."""
    return tuple(
        name
        for name, column in case.kept.items()
        if isinstance(column, Date) or (isinstance(column, Number) and column.pair is not None)
    )


def codes_of(
    columns: Sequence[str], encoding: Encoding, rows: PrivateRows
) -> Iterable[NDArray[Any]]:
    """The codes of these columns, of all rows."""
    places = [encoding.columns.kept.index(name) for name in columns]
    return (table[:, places] for table in rows.tables(None))


def share_for(case: Case, counts: int, noise: float) -> float:
    """For which so many counts have this noise."""
    return counts / noise**2 / case.budget.mu_squared()


def usual_share(case: Case, counts: int, noise: float) -> float:
    """The same, within reason."""
    wanted = max(share_for(case, counts, noise), LEAST_SHARE)
    return rounding.share(min(wanted, MOST_SHARE_UNASKED))


def too_many(case: Case, columns: Sequence[str]) -> Reason:
    """That a statistic of these columns would be mostly noise."""
    values = {"columns": tuple(columns), "rows": case.rows}
    return Reason("too few rows" if len(columns) == 1 else "too many columns", values)


def must_be_unasked(**named: float | str) -> None:
    """Refuse a share for columns of which there are none."""
    ((name, asked),) = named.items()
    if asked not in (AUTO, 0):
        raise InvalidInput(
            f"{name} is {asked}, and no declared column needs it (arrays may have up to "
            f"{MOST_COLUMNS_IN_DOUBT:,} columns for it); leave it out."
        )


def must_be_free(columns: Sequence[str], what: str, why: str) -> None:
    """Refuse columns that ask for a private statistic which is not measured."""
    if columns:
        raise InvalidInput(
            f"{', '.join(columns)}: a private {what} was asked for, and it is not estimated "
            f"({why}). Nothing was spent; declare the {what}, drop the column, or change the cause."
        )
