"""Numbers log-scaled, where columns have no ranges: a noisy count says in how many rows they are of
very different scale.

So are the numbers of a table that comes as it is: an income beside a year, an age, and a yes or no.
Features that a network made, pixels and answers from 1 to 5 are not.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dptune import rounding, validate
from dptune.data.row_maps import Asinh
from dptune.data.tables import table_of, wide_chunks
from dptune.errors import InvalidInput
from dptune.noise import add_noise
from dptune.preparation import declared
from dptune.preparation.options import AUTO, MOST_SHARE
from dptune.preparation.ranges import RANGES
from dptune.preparation.step import Case, Decision, Outcome, PrivateRows, Reason, State, Step
from dptune.preparation.words import reason_in_words
from dptune.privacy import NoisyCount

LOGARITHMS = "rows of unlike numbers"
TAKEN, NOT_TAKEN = "taken", "not taken"  # results
# The count may be off by this part of all rows, which costs so much of mu^2 at least. Of features
# and the like up to 3 % of the rows are of very different scale, of tables as they come half or
# more, as a rule: numbers are log-scaled where so many of them are.
_NOISE, _ENOUGH = 0.08, 0.25
_LEAST_SHARE = 0.001
# Signs and zeros aside, the largest number of such a row is more than so many times as large as
# what this part of its numbers do not exceed. Principal directions shrink about as one over their
# number, so beyond so many columns each adds to that.
_TIMES, _COLUMNS, _TIMES_A_COLUMN, _SMALL = 30.0, 40, 3.0, 1 / 3


def sure_share(case: Case) -> float:
    """Of mu^2: what makes the count sure, however dear."""
    return max(rounding.share((_NOISE * case.rows * case.budget.mu) ** -2), _LEAST_SHARE)


def _against(case: Case, earlier: Mapping[str, Any]) -> Reason | None:
    """Why numbers cannot be log-scaled, or need not be: that is for linear models and rows of unit
    length, of which some numbers neither have a range nor get one."""
    asked = case.options
    if case.alone:
        return Reason("alone")
    if not (asked.unit_rows and asked.rescale and case.engine.linear_in_rows):
        return Reason("linear and unit length")
    if not case.has_classes:
        return Reason("for classes")
    if case.columns == 1:
        return Reason("one column")
    known = asked.ranges or asked.standardize or earlier[RANGES].columns
    return Reason("ranges known") if known or not declared.numbers(case, None) else None


class Logarithms(Step):
    """Numbers log-scaled where a noisy count of rows says that their scales differ."""

    name: ClassVar[str] = LOGARITHMS
    file: ClassVar[str] = "models/unlike.safetensors"

    def decide(self, case: Case, earlier: Mapping[str, Any]) -> Decision:
        share, sure, why = case.options.logarithm_share, sure_share(case), _against(case, earlier)
        if why is None and sure > declared.MOST_SHARE_UNASKED:
            why = Reason("too dear")
        if isinstance(share, str):  # who wants no ranges wants rows as they are
            share = 0.0 if why or case.options.range_share == 0 else sure
        if not share:
            return Decision(skipped=why or Reason("as asked"))
        return Decision(share=share, event=NoisyCount(noise=case.noise(share)))

    def must_be_of_use(self, case: Case, earlier: Mapping[str, Any]) -> None:
        asked = case.options.logarithm_share
        if asked in (AUTO, 0):
            return
        why_not, sure = _against(case, earlier), sure_share(case)
        if why_not:
            raise InvalidInput(
                f"logarithm_share is {asked}, and numbers are not log-scaled: "
                f"{reason_in_words(why_not)}. Nothing was spent; leave it out."
            )
        if float(asked) < sure:
            more = f"make it {sure:g} or more, or" if sure <= MOST_SHARE else "please"
            raise InvalidInput(
                f"logarithm_share is {asked}, too little to tell whether the columns of "
                f"{case.rows:,} rows differ much in scale. Nothing was spent; {more} leave it out."
            )

    def options(self, decision: Decision) -> dict[str, Any]:
        return {"logarithm_share": decision.share}

    def shape(self, case: Case, decision: Decision, state: State) -> tuple[int, ...]:
        return (1,)

    def measure(
        self, case: Case, decision: Decision, state: State, rows: PrivateRows
    ) -> NDArray[np.float64]:
        assert isinstance(decision.event, NoisyCount)
        return private_unlike(rows.tables(state.maps), decision.event.noise, rows.normal)

    def apply(
        self, case: Case, decision: Decision, statistic: NDArray[np.float64], state: State
    ) -> tuple[State, Outcome]:
        part = min(max(float(statistic[0]) / case.rows, 0.0), 1.0)
        values = {"percent": 100 * part}
        if float(statistic[0]) > _ENOUGH * case.rows:
            return state.then(Asinh()), Outcome(TAKEN, values)
        return state, Outcome(NOT_TAKEN, values)


def are_unlike(rows: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Of each row, by that row alone; one of zeros is not."""
    sizes = np.sort(np.abs(rows), axis=1)
    zeros = (sizes == 0).sum(1)
    last = sizes.shape[1] - 1
    place = zeros + np.maximum(last - zeros, 0) * _SMALL
    small = np.take_along_axis(sizes, np.minimum(place.astype(int), last)[:, None], axis=1)[:, 0]
    times = _TIMES + _TIMES_A_COLUMN * max(0, last + 1 - _COLUMNS)
    return np.asarray(sizes[:, -1] / times > small)


def private_unlike(
    tables: Iterable[NDArray[Any]], noise: float, stream_normal: validate.Normal
) -> NDArray[np.float64]:
    """A noisy count of such rows: a row is counted once, so this is one `NoisyCount`."""
    counted = sum(
        int(are_unlike(chunk).sum()) for table in tables for chunk in wide_chunks(table_of(table))
    )
    return add_noise(np.array([counted]), noise, stream_normal)
