"""Numbers by their logarithm, for rows of which nobody knows ranges: a noisy count says whether
their numbers are of very unlike size. Decided before anything is paid, by public numbers alone."""

import numpy as np
from numpy.typing import NDArray

from dptune import rounding
from dptune.data.rows import DataFacts
from dptune.errors import InvalidInput
from dptune.study.config import AUTO, MOST_SHARE, Config
from dptune.study.paid_columns import (
    ALONE,
    MOST_SHARE_UNASKED,
    numbers_without_range,
    ranges_bought,
)

# The count may be off by this part of all rows, which costs so much of mu^2 at least.
# Of features and the like up to 3 % of the rows are unlike, of tables as they come half or more, as
# a rule: unlike are rows where so many of them are.
_NOISE, _ENOUGH = 0.08, 0.25
_LEAST_SHARE = 0.001
_DONE = "taken by the logarithm of their numbers"


def share(config: Config, facts: DataFacts) -> float:
    """Of mu^2, for the count; 0 where nobody asks, or it would not tell."""
    asked = config.preparation.logarithm_share
    if not isinstance(asked, str):
        return asked
    # Who wants no ranges wants rows as they are.
    wanted = config.preparation.range_share != 0 and not _against(config, facts)
    sure = sure_share(config, facts)
    return sure if wanted and sure <= MOST_SHARE_UNASKED else 0.0


def must_be_of_use(config: Config, facts: DataFacts) -> None:
    """Refuse a share that somebody named and that buys nothing."""
    asked = config.preparation.logarithm_share
    if asked in (AUTO, 0):
        return
    why_not, sure = _against(config, facts), sure_share(config, facts)
    if why_not:
        raise InvalidInput(
            f"logarithm_share is {asked}, and rows are not taken by the logarithm of their "
            f"numbers: {why_not}. Nothing was spent; leave it out."
        )
    if float(asked) < sure:
        more = f"make it {sure:g} or more, or" if sure <= MOST_SHARE else "please"
        raise InvalidInput(
            f"logarithm_share is {asked}, too little to tell whether the numbers of "
            f"{facts.count:,} rows differ much in size. Nothing was spent; {more} leave it out."
        )


def sure_share(config: Config, facts: DataFacts) -> float:
    """What makes the count sure, however dear."""
    return max(rounding.share((_NOISE * facts.count * config.budget.mu) ** -2), _LEAST_SHARE)


def unlike(count: NDArray[np.float64] | None, rows: int) -> bool:
    """Whether so many unlike rows, by a noisy count, make all of them be taken for such; not where
    it was cut off."""
    return count is not None and float(count[0]) > _ENOUGH * rows


def in_words(config: Config, facts: DataFacts, found: str | None) -> list[str]:
    """What is planned, or was `found`, or that looking would be too dear; nothing where nobody
    looks at all."""
    bought = share(config, facts)
    if bought:
        planned = f"{_DONE} if these differ much in size, paid for either way"
        return [f"{found or planned}: {100 * bought:g} % of the budget"]
    if _against(config, facts) or sure_share(config, facts) <= MOST_SHARE_UNASKED:
        return []
    return [f"not {_DONE}: to tell whether these differ much in size takes more rows or budget"]


def found_in_words(count: NDArray[np.float64] | None, rows: int) -> str:
    """What became of rows."""
    if count is None:
        return f"not {_DONE}, as a count was cut off"
    counted = min(max(float(count[0]) / rows, 0.0), 1.0)
    why = f"as these differ much in size in {100 * counted:.0f} % of them by a noisy count"
    return f"{_DONE}, {why}" if unlike(count, rows) else f"not {_DONE}, {why}"


def _against(config: Config, facts: DataFacts) -> str:
    """Why rows cannot be taken so, or need not be; nothing where there are numbers without a range,
    nor any to be bought, that a linear model takes in rows of unit length."""
    asked = config.preparation
    if config.search.sealing is not None:
        return ALONE
    if not (asked.unit_rows and asked.rescale and config.engine.traits.linear_in_rows):
        return "that is for linear models and rows that are scaled to unit length"
    if not facts.has_classes:
        return "it is for classes, and these rows have values"
    if facts.columns == 1:
        return "there is one column"
    known = asked.ranges or asked.standardize or ranges_bought(config, facts).columns
    if known or not numbers_without_range(facts):
        return "all of these have a range, get one, or are of one scale"
    return ""
