"""Numbers by their logarithm, for rows of which nobody knows ranges: a noisy count says whether
their numbers are of very unlike size. Decided before anything is paid, by public numbers alone."""

import numpy as np
from numpy.typing import NDArray

from dptune import rounding
from dptune.data.rows import DataFacts
from dptune.study import paid_columns
from dptune.study.config import Config

# The count may be off by this part of all rows, which costs so much of mu^2, at least and at most.
# Of features and the like up to 3 % of the rows are unlike, of tables as they come half or more, as
# a rule: unlike are rows where so many of them are.
_NOISE, _ENOUGH = 0.08, 0.25
_LEAST_SHARE, _MOST_SHARE = 0.001, 0.05


def share(config: Config, facts: DataFacts) -> float:
    """Of mu^2, for the count; 0 where nobody asks, or it would not tell."""
    asked = config.preparation.logarithm_share
    if not isinstance(asked, str):
        return asked if _wanted(config, facts) else 0.0
    wanted = (_NOISE * facts.count * config.budget.mu) ** -2
    possible = _wanted(config, facts) and wanted <= _MOST_SHARE
    # Who wants no ranges wants rows as they are.
    declined = config.preparation.range_share == 0
    return max(rounding.share(wanted), _LEAST_SHARE) if possible and not declined else 0.0


def unlike(count: NDArray[np.float64] | None, rows: int) -> bool:
    """Whether so many unlike rows, by a noisy count, make all of them be taken for such; not where
    it was cut off."""
    return count is not None and float(count[0]) > _ENOUGH * rows


def in_words(config: Config, facts: DataFacts, found: str | None) -> list[str]:
    """What is planned, or was `found`; nothing where nobody looks."""
    bought = share(config, facts)
    if not bought:
        return []
    planned = "taken by the logarithm of their numbers if these differ much in size"
    return [f"{found or planned}: {100 * bought:g} % of the budget"]


def found_in_words(count: NDArray[np.float64] | None, rows: int) -> str:
    """What became of rows."""
    if count is None:
        return "not taken by the logarithm of their numbers, as a count was cut off"
    counted = min(max(float(count[0]) / rows, 0.0), 1.0)
    part = f"numbers of {100 * counted:.0f} % of them differ much in size"
    done = "taken by the logarithm of their numbers"
    return f"{done}, as {part}" if unlike(count, rows) else f"not {done}, as {part}"


def _wanted(config: Config, facts: DataFacts) -> bool:
    """Whether there are numbers without a range, nor any to be bought, that a linear model takes in
    rows of unit length."""
    asked = config.preparation
    known = asked.ranges or asked.standardize
    scaled = asked.unit_rows and asked.rescale and config.engine.linear_in_rows
    alone = config.search.sealing is not None
    if known or alone or not scaled or not facts.has_classes or facts.columns == 1:
        return False
    bought = paid_columns.ranges_bought(config, facts)
    return not bought.columns and bool(paid_columns.numbers_without_range(facts))
