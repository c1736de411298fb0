"""Ranges of columns that nobody declared: which are estimated privately, and at what price.

A column that asks for it ("paid") is never left out: where its range cannot be estimated, the study
is refused. Another number without a range gets one where enough rows stand against the noise, else
it is taken as it is. Of rows that nobody called a table, ranges are estimated for polynomial
features, or else rough ones, to see whether columns are of one scale; so are rough ones of a table
without any range.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dptune import rounding
from dptune.columns.kinds import PAID, Pair
from dptune.columns.marks import COARSE, SMALLEST
from dptune.columns.private_ranges import (
    GOOD,
    Range,
    marks_for,
    most_noise,
    noise_for,
    private_ranges,
    rows_needed,
)
from dptune.columns.stretch import Stretch
from dptune.data.rows import MOST_COLUMNS_IN_DOUBT, MOST_COLUMNS_OF_A_TABLE
from dptune.errors import InvalidInput
from dptune.preparation import declared
from dptune.preparation.allowance import against as against_polynomials
from dptune.preparation.allowance import allowance, allowance_over
from dptune.preparation.declared import MOST_SHARE_UNASKED
from dptune.preparation.options import AUTO, MOST_SHARE
from dptune.preparation.step import Case, Decision, Outcome, PrivateRows, Reason, State, Step
from dptune.preparation.words import columns_in_words, reason_in_words
from dptune.privacy import NoisyRanks

RANGES = "ranges of columns"
FOR_SCALES, DEAR_FOR_SCALES = "scales", "dear scales"  # plans
SAME_SCALE, OTHER_SCALES = "same scale", "other scales"  # results
# As little as finds what is in this part of all rows.
_SEEN = 0.02
# Of mu^2, at most, for rough ranges of columns that may be of different scale: without them little
# is learned from rows of which one column hides the others, and columns of one scale lose a few
# tenths. Below so much signal for every weight these few tenths are points, and a noisy count of
# rows (see `logarithms`) does as well for less.
_MOST_FOR_SCALES, _LITTLE_SIGNAL, _MOST_FOR_LITTLE = 0.2, 3.0, 0.02
# Columns are of different scale where the mean of their squares is more than so many times that of
# a small one, which is then hardly seen in a row of unit length. Small are this part of them.
# Features in their principal directions look so too, the more the more columns there are, and lose
# where what carries nothing is made as large as what does.
_TIMES, _TIMES_A_COLUMN, _SMALL = 40.0, 2.0, 0.35
# How many times as wide as found ranges are made that only tell scales: of one column, and of all.
_WIDER, _WIDER_FOR_ALL = 3.0, 10.0


@dataclass(frozen=True, kw_only=True)
class RangesDecision(Decision):
    """For the columns of these names.

    Attributes:
        columns: that get a range.
        left: numbers that could have one and get none.
        against: why these get none, or why ranges are too rough for polynomial features.
        rough: whether ranges are too rough for these.
        rough_ends: whether they are too rough for rows to be clipped at their ends.

    """

    columns: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    against: Reason | None = None
    rough: bool = False
    rough_ends: bool = False

    @property
    def tells_scales(self) -> bool:
        """Whether ranges are estimated to see if columns are of one scale."""
        return self.planned.key in (FOR_SCALES, DEAR_FOR_SCALES)


class Ranges(Step):
    """Ranges from noisy ranks of the rows."""

    name: ClassVar[str] = RANGES
    file: ClassVar[str] = "ranges.json"

    def decide(self, case: Case, earlier: Mapping[str, Any]) -> RangesDecision:
        made = decide_columns(case)
        also = () if made.against is None or not made.left else (_about_left(case, made),)
        if not made.columns:
            return replace(made, skipped=Reason("not for these rows"), also=also)
        count, share = len(made.columns), made.share
        event = NoisyRanks(columns=count, noise=case.noise_of_counts(count, share))
        curved = allowance(case, made.columns, rough=made.rough).room > 0
        dear = share > MOST_SHARE_UNASKED and not curved
        planned = Reason("done", {"columns": made.columns})
        if case.facts.as_given and not curved:
            planned = replace(planned, key=DEAR_FOR_SCALES if dear else FOR_SCALES)
        # What was dear before there were coarse marks; runs of older versions go on with that.
        rough_ends = dear or marks_for(event.noise, case.rows) is COARSE
        rough_ends = rough_ends or planned.key != "done"
        return replace(made, event=event, planned=planned, rough_ends=rough_ends, also=also)

    def options(self, decision: RangesDecision) -> dict[str, Any]:
        return {"range_share": decision.share}

    def measure(
        self, case: Case, decision: RangesDecision, state: State, rows: PrivateRows
    ) -> dict[str, Range]:
        assert state.encoding is not None and isinstance(decision.event, NoisyRanks)
        noise = decision.event.noise
        found = private_ranges(
            declared.codes_of(decision.columns, state.encoding, rows),
            len(decision.columns),
            noise,
            case.rows,
            rows.normal,
            marks_for(noise, case.rows),
            # Of rough ones it is hardly known where the middle is.
            stretching=not decision.rough_ends,
        )
        return dict(zip(decision.columns, found, strict=True))

    def read(
        self, case: Case, decision: RangesDecision, state: State, stored: Any
    ) -> dict[str, Range]:
        return {name: Range(*stored[name]) for name in decision.columns}

    def apply(
        self, case: Case, decision: RangesDecision, statistic: Mapping[str, Range], state: State
    ) -> tuple[State, Outcome]:
        assert state.encoding is not None
        ranges = {name: (each.low, each.high) for name, each in statistic.items()}
        stretches = {
            name: Stretch(*each.stretch) for name, each in statistic.items() if each.stretch
        }
        result = "done"
        if decision.tells_scales:
            result = SAME_SCALE if _alike([*ranges.values()]) else OTHER_SCALES
        if result == SAME_SCALE:
            ranges = _one_for_all(ranges)
        elif decision.rough_ends:
            ranges = {name: _wider(pair) for name, pair in ranges.items()}
        two = tuple(name for name, each in statistic.items() if not each.between)
        values = {"columns": decision.columns, "two": two, "heavy": tuple(stretches)}
        encoding = state.encoding.with_ranges(ranges, stretches)
        return state.with_encoding(encoding), Outcome(result, values, decision.also)


def decide_columns(case: Case) -> RangesDecision:
    """For which columns, and at what price."""
    asked = case.options.range_share
    named = None if isinstance(asked, str) else asked
    paid, free = declared.numbers(case, PAID), declared.numbers(case, None)
    everything = tuple(name for name in case.kept if name in {*paid, *free})
    known = case.options.ranges or case.options.standardize
    unasked = case.facts.as_given and asked in (AUTO, 0)
    if not everything or known:
        declared.must_be_unasked(range_share=asked)
        return RangesDecision()
    if unasked and not _bends(case, everything):
        return _rough(case, everything)

    def share_of(columns: Sequence[str]) -> float:
        return named or declared.usual_share(case, len(columns), noise_for(case.rows, _SEEN))

    def for_scales(columns: Sequence[str]) -> bool:
        return bool(named) and not _bends(case, columns)

    def against(columns: Sequence[str]) -> Reason | None:
        if case.alone and asked in (AUTO, 0):
            return Reason("alone")
        if len(free) > MOST_COLUMNS_OF_A_TABLE and columns != paid and not named:
            return Reason("features of one scale")
        noise = case.noise_of_counts(len(columns), share_of(columns))
        needed = rows_needed(noise, for_sizes=for_scales(columns))
        return declared.too_many(case, columns) if case.rows < needed else None

    if asked == 0:
        why = Reason("share is 0", {"name": "range_share"})
        declared.must_be_free(paid, "range", reason_in_words(why))
        return RangesDecision(left=free, against=against(free) or Reason("as asked"))
    why_not = against(everything)
    if why_not is None:
        return RangesDecision(columns=everything, share=share_of(everything))
    firmly = paid or everything
    if named and (why_firmly := against(firmly)):
        enough = enough_for_ranges(case, len(firmly), for_scales=for_scales(firmly))
        told, larger = reason_in_words(why_firmly), ""
        if enough is not None:
            told = f"too little for {columns_in_words(firmly)} of {case.rows:,} rows"
            larger = f"make it {enough:g} or more, "
        raise InvalidInput(
            f"range_share is {named:g}, and ranges are not estimated ({told}). Nothing was spent; "
            f"{larger}leave it out, or declare ranges."
        )
    if case.facts.as_given or not declared.with_a_range(case):
        roughly = _rough(case, everything, why_not)
        if case.facts.as_given or roughly.columns:
            return roughly
    if asked == AUTO and paid and (why_paid := against(paid)):
        declared.must_be_free(paid, "range", reason_in_words(why_paid))
    return RangesDecision(
        columns=paid, share=share_of(paid) if paid else 0.0, left=free, against=why_not
    )


def _rough(case: Case, columns: tuple[str, ...], against: Reason | None = None) -> RangesDecision:
    """Ranges that only tell scales, good ones by fine marks if these are cheap, else by coarse
    ones; none where even rough ones are too dear, or would not be used. So many columns that they
    are rather features, which lose by it, must be told from others at little expense and without
    fault."""
    asked, features = case.options, len(columns) > MOST_COLUMNS_OF_A_TABLE
    least = enough_for_ranges(case, len(columns), for_scales=not features)
    most = MOST_SHARE_UNASKED if features else _MOST_FOR_SCALES
    if case.signal < _LITTLE_SIGNAL and case.has_classes and asked.logarithm_share != 0:
        most = _MOST_FOR_LITTLE
    of_use = asked.range_share == AUTO and asked.curves in (AUTO, 1)
    of_use = of_use and against_polynomials(case) is None
    # One column has no scale beside others; of a declared table ranges are used whatever they say.
    useless = len(columns) == 1 if case.facts.as_given else features
    if not of_use or useless or least is None or least > most:
        return RangesDecision(against=against)
    good = declared.share_for(case, len(columns), most_noise(case.rows))
    if good > MOST_SHARE_UNASKED and not features:
        good = declared.share_for(case, len(columns), noise_for(case.rows, GOOD, COARSE))
    share = min(max(rounding.share(good), declared.LEAST_SHARE), most)
    return RangesDecision(columns=columns, share=share, against=against, rough=True)


def enough_for_ranges(case: Case, columns: int, *, for_scales: bool) -> float | None:
    """Of mu^2, for ranges of so many columns that are of use; None where there is no such share, or
    so many columns are never asked for theirs."""
    noise = most_noise(case.rows, for_sizes=for_scales)
    share = rounding.share(declared.share_for(case, columns, noise))
    possible = columns <= MOST_COLUMNS_IN_DOUBT and not case.alone
    return share if possible and share <= MOST_SHARE else None


def _about_left(case: Case, made: RangesDecision) -> Reason:
    """Which numbers get no range, why, and what to ask for to have rough ones."""
    enough = None
    table = len(made.left) <= MOST_COLUMNS_OF_A_TABLE and not declared.with_a_range(case)
    if table and made.against != Reason("as asked"):
        enough = enough_for_ranges(case, len(made.left), for_scales=True)
    values = {"columns": made.left, "why": made.against, "enough": enough}
    return Reason("left" if enough is None else "left with a hint", values)


def _bends(case: Case, columns: Sequence[str]) -> bool:
    """Whether some of them may get polynomial features, once their ranges are estimated."""
    return allowance_over(case, columns, estimated=True).room > 0


def _alike(ranges: Sequence[Pair]) -> bool:
    """Whether columns of these ranges are of one scale, or nearly."""
    low, high = np.transpose(ranges)
    ends = np.maximum(np.abs(low), np.abs(high))
    # Where many rows are 0, noise puts an end anywhere between that and the other values.
    hardly_known = (ends < 1) & ((np.abs(low) <= SMALLEST) | (np.abs(high) <= SMALLEST))
    known = ends[~hardly_known]
    squares = (known if len(known) > 1 else np.where(hardly_known, 1.0, ends)) ** 2
    times = max(_TIMES, _TIMES_A_COLUMN * len(ends))
    return bool(squares.mean() <= times * np.quantile(squares, _SMALL, method="lower"))


def _one_for_all(ranges: Mapping[str, Pair]) -> dict[str, Pair]:
    """The same range, beyond all rows, so that these stay what they were."""
    end = _WIDER_FOR_ALL * float(np.abs([*ranges.values()]).max())
    return dict.fromkeys(ranges, (-end, end))


def _wider(pair: Pair) -> Pair:
    """Rough ends would clip heavy tails, and straight lines need none."""
    low, high = pair
    more = (_WIDER - 1) / 2 * (high - low)
    return low - more, high + more
