"""What is bought for columns, taken from private rows. Whoever calls must have paid for it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from dptune.columns.encoding import Encoding
from dptune.columns.kinds import Category
from dptune.columns.private_categories import private_categories
from dptune.columns.private_ranges import Range, private_ranges
from dptune.study.curves import Curves
from dptune.study.measure import fresh_normal
from dptune.study.outline import Outline

Codes = Iterable[NDArray[Any]]


def buy_ranges(outline: Outline, encoding: Encoding, codes: Codes) -> dict[str, Range]:
    """By column."""
    assert outline.ranks is not None
    found = private_ranges(
        _only(outline.ranged, encoding, codes),
        len(outline.ranged),
        outline.ranks.noise,
        outline.data.count,
        fresh_normal,
    )
    return dict(zip(outline.ranged, found, strict=True))


def bent(encoding: Encoding, curves: Curves, bought: Mapping[str, Sequence[Any]]) -> Encoding:
    """With the ranges that were bought, and curves over all columns that have a range then; but
    over two values a curve is only the same line again, which leaves room over the others."""
    ranged = encoding.with_ranges({name: (low, high) for name, (low, high, *_) in bought.items()})
    two = {name for name, (_, _, *between) in bought.items() if between == [False]}
    straight = two.union(ranged.undecided)
    names = [name for name in curves.columns if name not in straight]
    return ranged.with_curves(names, curves.degree_over(len(names)))


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


def _only(names: tuple[str, ...], encoding: Encoding, codes: Codes) -> Codes:
    places = [encoding.columns.kept.index(name) for name in names]
    return (table[:, places] for table in codes)
