"""How the rows of a study are prepared: by public numbers, and by private ones that are paid for.

The steps are the same whoever takes the figures: a study pays for each and keeps it, so that a
resume finds it again; benchmarks just take them.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.columns.encoding import Encoding
from dptune.data.moments import private_mean, private_second_moment, shrunk
from dptune.data.preprocess import Preprocessing, from_ranges, standardization
from dptune.data.unlike import private_unlike
from dptune.data.whitening import Whitening
from dptune.study import logarithms
from dptune.study.config import Preparation
from dptune.study.gates import clear_mean
from dptune.study.measure import (
    CELLS_OF_LENGTHS,
    fresh_normal,
    private_lengths,
    typical_length,
)
from dptune.study.outline import Outline
from dptune.study.paid_columns import CATEGORIES, RANGES, columns_in_words
from dptune.study.purchases import of_one_size
from dptune.study.recipe import CURVES, LENGTHS, LOGARITHMS, LOST, MEAN, SECOND_MOMENT, STRETCHED

_CUT_OFF = "ranges of {} were cut off"
_TWO = (
    "have two values at most, or values within 1 % or a millionth of each other, as far as can be "
    "seen"
)
Figure = NDArray[np.float64]
# All private rows, prepared so far, in one table or several.
Tables = Callable[[Preprocessing], Iterable[NDArray[Any]]]
Take = Callable[[Tables], Figure]
# What a label of the outline names, taken in this way, of this shape; None where it is lost.
Measure = Callable[[str, Take, tuple[int, ...]], Figure | None]


@dataclass(frozen=True)
class Prepared:
    """What is done to rows, how large the second moment of the rows that come out can be, what it
    did, and what was bought for columns, or of lengths, and is lost, both by label."""

    preprocessing: Preprocessing
    curvature: float
    found: Mapping[str, str]
    lost: Collection[str]

    def known_to(self, outline: Outline) -> Outline:
        """What a search may use of it."""
        encoding = self.preprocessing.encoding
        features = None if encoding is None else encoding.width
        if (self.curvature, features) == (outline.curvature, outline.features):
            return outline  # which may know dear facts by now
        return replace(outline, curvature=self.curvature, features=features)


def public_steps(
    asked: Preparation,
    public_features: Callable[[], NDArray[Any]],
    encoding: Encoding | None = None,
) -> Preprocessing:
    """What needs no private figure."""
    plain = Preprocessing()
    if asked.standardize:
        plain = standardization(public_features())
    elif asked.ranges and not (encoding and encoding.ranges):
        plain = from_ranges(asked.ranges)
    return replace(plain, unit_rows=asked.unit_rows, encoding=encoding)


def prepare(outline: Outline, plain: Preprocessing, measure: Measure) -> Prepared:
    """The public steps and those that are paid for. What is lost is left out."""
    rows, asked = outline.data.count, outline.config.preparation
    made = replace(plain, rescale=asked.unit_rows and asked.rescale) if outline.measuring else plain
    lost = _lost(outline, plain.encoding)
    curvature = 1.0
    found = _of_columns(outline, plain.encoding, lost) | dict.fromkeys((MEAN, SECOND_MOMENT), LOST)
    values = outline.data.loss == "squared"

    def taken(label: str, figure: Callable[..., Figure], noise: float) -> Figure | None:
        before = replace(made, unit_rows=False) if label in (LOGARITHMS, LENGTHS) else made
        columns = before.columns(outline.data.columns)
        shapes = {LOGARITHMS: (1,), LENGTHS: (CELLS_OF_LENGTHS,), MEAN: (columns,)}
        shape = shapes.get(label, (columns, columns))
        take: Take = lambda tables: figure(  # noqa: E731
            tables(before), columns, noise, rows, fresh_normal
        )
        return measure(label, take, shape)

    if outline.unlike:
        count = taken(LOGARITHMS, private_unlike, outline.unlike.noise)
        lost += [LOGARITHMS] * (count is None)
        made = replace(made, logarithms=logarithms.unlike(count, rows))
        found[LOGARITHMS] = logarithms.found_in_words(count, rows)
    if outline.lengths:
        counts = taken(LENGTHS, private_lengths, outline.lengths.noise)
        typical = None if counts is None else typical_length(counts, outline.lengths.noise)
        if counts is None:
            lost.append(LENGTHS)
        if not typical:
            found[LENGTHS] = "that was cut off" if counts is None else "noise hides that"
        if typical and outline.shortens:
            made = replace(made, unit_rows=False, rescale=False, reach=typical)
        elif outline.second_moment:
            made = replace(made, anchor=typical or 0.0)
    if outline.mean:
        noise = outline.mean.noise_multiplier
        mean = taken(MEAN, private_mean, noise)
        if mean is not None:
            found[MEAN] = f"what all share was {_shared(mean, noise / rows, made):.2f} of them"
        made = replace(made, center=_trusted(mean, noise / rows, outline))
    if outline.second_moment:
        noise = outline.second_moment.noise_multiplier
        moment = taken(SECOND_MOMENT, private_second_moment, noise)
        if moment is not None:
            whitening = Whitening.of(moment, noise, rows)
            made = replace(made, whitening=whitening.matrix)
            curvature = whitening.curvature / made.shrinks_whitened**2
            found[SECOND_MOMENT] = (
                f"one direction held {100 * whitening.largest:.0f} % of them, now "
                f"{100 * curvature:.0f} %"
            )
    if outline.constant:
        made = replace(made, constant=outline.constant)
        of_constant = outline.constant**2
        curvature = max(curvature, of_constant) / (1 + of_constant)
    if values and not outline.engine.wants_constant:
        curvature += 1.0  # of a bias, whose column all rows share
    return Prepared(made, curvature, found, lost)


def _lost(outline: Outline, encoding: Encoding | None) -> list[str]:
    """What was bought for columns and is."""
    if encoding is None:
        return []
    missing = {
        CATEGORIES: set(outline.categorized) & set(encoding.unbought),
        RANGES: set(outline.ranged) & set(encoding.undecided),
    }
    return [label for label, columns in missing.items() if columns]


def _of_columns(outline: Outline, encoding: Encoding | None, lost: Sequence[str]) -> dict[str, str]:
    """What was bought for columns and is lost or of no use, and what became of curves over them;
    nothing where it is what was planned."""
    found = dict.fromkeys(lost, ", which were cut off")
    if encoding is None:
        return found
    if outline.tells_sizes and RANGES not in lost and of_one_size(encoding):
        found[RANGES] = ", which are of one size"
    if encoding.stretches:
        far = columns_in_words(tuple(encoding.stretches))
        found[STRETCHED] = f"numbers far out in {far} by their logarithm: free"
    if outline.curves.room and outline.ranged:
        found[CURVES] = _curves_found(outline, encoding, lost=RANGES in lost)
    return found


def _curves_found(outline: Outline, encoding: Encoding, *, lost: bool) -> str:
    """Once it is known over which columns they are drawn."""
    bent, planned = encoding.degrees, columns_in_words(outline.curves.columns)
    if bent:
        where = planned
        if len(bent) < len(outline.curves.columns):
            two = f"the others {_TWO}"
            where = f"{len(bent)} of {planned} ({_CUT_OFF.format('the others') if lost else two})"
        return f"bent to curves of degree {max(bent.values())} in {where}: free"
    why = f"they {_TWO}"
    if lost:
        why = _CUT_OFF.format("these")
    elif outline.curves.degree == 1:
        more = f"{outline.curves.room} feature{'s' * (outline.curves.room > 1)} more"
        why = f"room for {more} is too little for those of more than "
        why += "two values, or there are none"
    return f"not bent to curves in {planned}: {why}"


def _trusted(mean: Figure | None, noise: float, outline: Outline) -> Figure | None:
    """What of a mean is subtracted: all of it where its noise was planned to be small."""
    config = outline.config
    clear = clear_mean(config, outline.data, outline.shares.center)
    if mean is None or clear or not config.preparation.shrink_mean:
        return mean
    return shrunk(mean, noise)


def _shared(mean: Figure, noise: float, made: Preprocessing) -> float:
    """The length of the mean beside that of rows, freed of its noise and of the anchor."""
    own = mean[:-1] if made.anchor else mean
    squared = float(own @ own) - len(own) * noise**2
    beside = 1 - float(mean[-1]) ** 2 if made.anchor else 1.0
    return math.sqrt(min(max(squared, 0.0) / max(beside, 1e-9), 1.0))
