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
from dptune.data.moments import (
    nearer_mean,
    private_mean,
    private_second_moment,
    reach_around,
    shrunk,
)
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
from dptune.study.recipe import (
    CURVES,
    FINER_MEAN,
    LENGTHS,
    LOGARITHMS,
    LOST,
    MEAN,
    SECOND_MOMENT,
    STRETCHED,
)

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
        gave_a_leg = _gives_a_leg(outline, self.preprocessing)
        found = (self.curvature, features, gave_a_leg)
        if found == (outline.curvature, outline.features, outline.gave_a_leg):
            return outline  # which may know dear facts by now
        return replace(outline, curvature=self.curvature, features=features, gave_a_leg=gave_a_leg)


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
    return _Preparing(outline, plain, measure).done()


class _Preparing:
    """The steps in their order, each on rows that the earlier ones have prepared."""

    def __init__(self, outline: Outline, plain: Preprocessing, measure: Measure) -> None:
        self._outline, self._measure, asked = outline, measure, outline.config.preparation
        rescale = asked.unit_rows and asked.rescale
        self._made = replace(plain, rescale=rescale) if outline.measuring else plain
        self._lost = _lost(outline, plain.encoding)
        self._found = _of_columns(outline, plain.encoding, self._lost)
        self._curvature = 1.0

    def done(self) -> Prepared:
        outline = self._outline
        if outline.unlike:
            self._tell_unlike(outline.unlike.noise)
        if outline.lengths:
            self._mind_lengths(outline.lengths.noise)
        if outline.mean:
            center = self._center(outline.mean.noise_multiplier)
            self._made = replace(self._made, center=center)
        if outline.second_moment:
            self._whiten(outline.second_moment.noise_multiplier)
        if outline.constant:
            self._made = replace(self._made, constant=outline.constant)
            of_constant = outline.constant**2
            self._curvature = max(self._curvature, of_constant) / (1 + of_constant)
        if outline.data.loss == "squared" and not outline.engine.traits.wants_constant:
            self._curvature += 1.0  # of a bias, whose column all rows share
        return Prepared(self._made, self._curvature, self._found, self._lost)

    def _taken(self, label: str, figure: Callable[..., Figure], noise: float) -> Figure | None:
        raw = label in (LOGARITHMS, LENGTHS)
        before = replace(self._made, unit_rows=False) if raw else self._made
        columns, rows = before.columns(self._outline.data.columns), self._outline.data.count
        shapes = {LOGARITHMS: (1,), LENGTHS: (CELLS_OF_LENGTHS,), SECOND_MOMENT: (columns,) * 2}
        taken = self._measure(
            label,
            lambda tables: figure(tables(before), columns, noise, rows, fresh_normal),
            shapes.get(label, (columns,)),
        )
        self._lost += [label] * (taken is None)
        return taken

    def _tell_unlike(self, noise: float) -> None:
        count, rows = self._taken(LOGARITHMS, private_unlike, noise), self._outline.data.count
        self._made = replace(self._made, logarithms=logarithms.unlike(count, rows))
        self._found[LOGARITHMS] = logarithms.found_in_words(count, rows)

    def _mind_lengths(self, noise: float) -> None:
        counts = self._taken(LENGTHS, private_lengths, noise)
        typical = None if counts is None else typical_length(counts, noise)
        if not typical:
            hidden = "that was cut off" if counts is None else "noise hides that"
            self._found[LENGTHS] = hidden
        if typical and self._outline.shortens:
            self._made = replace(self._made, unit_rows=False, rescale=False, reach=typical)
        elif self._outline.second_moment:
            self._made = replace(self._made, anchor=typical or 0.0)

    def _center(self, noise: float) -> Figure | None:
        """What is subtracted: a noisy mean, or, of unlike rows, one that begins at it and is finer;
        they share nearly all of their length, and of a coarse mean the noise would be most of what
        it leaves."""
        outline, rows = self._outline, self._outline.data.count
        mean = self._taken(MEAN, private_mean, noise)
        self._found[MEAN] = LOST
        if mean is not None:
            shared = _shared(mean, noise / rows, self._made)
            self._found[MEAN] = f"they shared {shared:.2f} of their length"
        center = _trusted(mean, noise / rows, outline)
        if not _gives_a_leg(outline, self._made):
            return center
        start = np.zeros(self._made.columns(outline.data.columns)) if center is None else center
        reach = 1.0 if mean is None else reach_around(mean, noise / rows)
        finer = outline.finer_mean.noise_multiplier

        def around(*measured: Any) -> Figure:  # kept whole, so that it needs the first no more
            nearer = nearer_mean(*measured, start=start, reach=reach)
            return start + reach * shrunk(nearer, finer / rows)

        taken = self._taken(FINER_MEAN, around, finer)
        self._found[FINER_MEAN] = _finer_in_words(taken, mean, outline)
        return center if taken is None else taken

    def _whiten(self, noise: float) -> None:
        moment = self._taken(SECOND_MOMENT, private_second_moment, noise)
        self._found[SECOND_MOMENT] = LOST
        if moment is None:
            return
        whitening = Whitening.of(moment, noise, self._outline.data.count)
        self._made = replace(self._made, whitening=whitening.matrix)
        self._curvature = whitening.curvature / self._made.shrinks_whitened**2
        self._found[SECOND_MOMENT] = (
            f"one direction held {100 * whitening.largest:.0f} % of them, now "
            f"{100 * self._curvature:.0f} %"
        )


def _gives_a_leg(outline: Outline, made: Preprocessing) -> bool:
    """Whether rows turned out so that the first leg of the final run is given for a finer mean."""
    return outline.refines and made.logarithms


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


def _finer_in_words(taken: Figure | None, first: Figure | None, outline: Outline) -> str:
    leg = f"the first of the {outline.legs} legs of the final run"
    if taken is None:
        return f"not centred once more, as the {FINER_MEAN} was {LOST}, which {leg} paid for"
    done = "centred once more" if first is not None else f"centred by a {FINER_MEAN} alone"
    return f"{done}, as they are unlike: for {leg}"


def _shared(mean: Figure, noise: float, made: Preprocessing) -> float:
    """The length of the mean beside that of rows, freed of its noise and of the anchor."""
    own = mean[:-1] if made.anchor else mean
    squared = float(own @ own) - len(own) * noise**2
    beside = 1 - float(mean[-1]) ** 2 if made.anchor else 1.0
    return math.sqrt(min(max(squared, 0.0) / max(beside, 1e-9), 1.0))
