"""What is bought for columns and for the label, taken from private rows. Whoever calls must have
paid for it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.columns.encoding import Encoding
from dptune.columns.kinds import Category, Pair
from dptune.columns.marks import SMALLEST
from dptune.columns.private_categories import private_categories
from dptune.columns.private_ranges import Range, private_ranges
from dptune.columns.stretch import Stretch
from dptune.study.measure import fresh_normal
from dptune.study.outline import Outline

Codes = Iterable[NDArray[Any]]

# Columns are of unlike size where the mean of their squares is more than so many times that of a
# small one, which is then hardly seen in a row of unit length. Small are this part of them.
# Features in their principal directions look so too, the more the more columns there are, and lose
# where what carries nothing is made as large as what does.
_UNLIKE, _UNLIKE_A_COLUMN, _SMALL = 40.0, 2.0, 0.35
# How many times as wide as found ranges are made that only tell sizes: of one column, and of all.
_WIDER, _WIDER_FOR_ALL = 3.0, 10.0


def buy_ranges(outline: Outline, encoding: Encoding, codes: Codes) -> dict[str, Range]:
    """By column."""
    assert outline.ranks is not None
    found = private_ranges(
        _only(outline.ranged, encoding, codes),
        len(outline.ranged),
        outline.ranks.noise,
        outline.data.count,
        fresh_normal,
        outline.marks,
        stretching=not outline.ranges_are_rough,  # which are hardly known where the middle is
    )
    return dict(zip(outline.ranged, found, strict=True))


def bent(outline: Outline, encoding: Encoding, bought: Mapping[str, Sequence[Any]]) -> Encoding:
    """With the ranges that were bought, and curves over all columns that have a range then; but
    over two values a curve is only the same line again, which leaves room over the others."""
    curves = outline.curves
    found = {name: Range(*each) for name, each in bought.items()}
    ranges = {name: (each.low, each.high) for name, each in found.items()}
    stretches = {name: Stretch(*each.stretch) for name, each in found.items() if each.stretch}
    if outline.tells_sizes and ranges and _alike([*ranges.values()]):
        ranges = _one_for_all(ranges)
    elif outline.ranges_are_rough:
        ranges = {name: _wider(pair) for name, pair in ranges.items()}
    ranged = encoding.with_ranges(ranges, stretches)
    two = {name for name, each in found.items() if not each.between}
    straight = two.union(ranged.undecided)
    names = [name for name in curves.columns if name not in straight]
    return ranged.with_curves(names, curves.degree_over(len(names)))


def of_one_size(encoding: Encoding) -> bool:
    """Whether columns turned out to be, by ranges that tell sizes."""
    return len(set(encoding.ranges.values())) == 1


def _alike(ranges: Sequence[Pair]) -> bool:
    """Whether columns of these ranges are of one size, or nearly."""
    low, high = np.transpose(ranges)
    ends = np.maximum(np.abs(low), np.abs(high))
    # Where many rows are 0, noise puts an end anywhere between that and the other values.
    hardly_known = (ends < 1) & ((np.abs(low) <= SMALLEST) | (np.abs(high) <= SMALLEST))
    known = ends[~hardly_known]
    squares = (known if len(known) > 1 else np.where(hardly_known, 1.0, ends)) ** 2
    times = max(_UNLIKE, _UNLIKE_A_COLUMN * len(ends))
    return bool(squares.mean() <= times * np.quantile(squares, _SMALL, method="lower"))


def _one_for_all(ranges: Mapping[str, Pair]) -> dict[str, Pair]:
    """The same range, beyond all rows, so that these stay what they were."""
    end = _WIDER_FOR_ALL * float(np.abs([*ranges.values()]).max())
    return dict.fromkeys(ranges, (-end, end))


def _wider(pair: Pair) -> Pair:
    """Rough ends would cut off what is far out, and straight lines need none."""
    low, high = pair
    more = (_WIDER - 1) / 2 * (high - low)
    return low - more, high + more


def buy_categories(
    outline: Outline,
    encoding: Encoding,
    codes: Codes,
    vocabularies: Mapping[str, tuple[str, ...]],
) -> dict[str, list[str]]:
    """Names, by column, the commonest first."""
    assert outline.names is not None
    columns = [encoding.columns.declared[name] for name in outline.categorized]
    found = private_categories(
        _only(outline.categorized, encoding, codes),
        [vocabularies[name] for name in outline.categorized],
        [column.slots for column in columns if isinstance(column, Category)],
        outline.names.noise,
        outline.names.threshold,
        fresh_normal,
    )
    return dict(zip(outline.categorized, map(list, found), strict=True))


def buy_classes(outline: Outline, labels: NDArray[Any], names: Sequence[Any]) -> list[Any]:
    """Names of classes in their order; `labels` are places among all names that rows have."""
    assert outline.class_names is not None
    (found,) = private_categories(
        [labels[:, None]],
        [names],
        [len(names)],  # all that reach the threshold
        outline.class_names.noise,
        outline.class_names.threshold,
        fresh_normal,
    )
    return sorted(found)


def _only(names: tuple[str, ...], encoding: Encoding, codes: Codes) -> Codes:
    places = [encoding.columns.kept.index(name) for name in names]
    return (table[:, places] for table in codes)
