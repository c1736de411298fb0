"""From codes to features: a function of one row, of what is declared, and of what was bought."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.columns import dates
from dptune.columns.coding import Vocabularies, bucket, code
from dptune.columns.kinds import Boolean, Category, Column, Date, Number, Pair
from dptune.columns.spec import Columns
from dptune.errors import InvalidInput

_LARGEST = float(np.finfo(np.float32).max)
Features = NDArray[np.float64]


@dataclass(frozen=True)
class Encoding:
    """Turns rows of codes into features.

    Attributes:
        columns: as declared, the label's not among them.
        ranges: of numbers, by name, as bought.
        categories: names of categories, by column, as bought.

    """

    columns: Columns
    ranges: Mapping[str, Pair] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Private, so neither shown nor stored.
    _read_with: Vocabularies | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.columns.kept:
            raise InvalidInput("all columns are dropped; keep at least one of them.")
        kept = {name: self.columns.declared[name] for name in self.columns.kept}
        for name, column in kept.items():
            if isinstance(column, Date) and column.range is None:
                raise InvalidInput(f"{name}: declare the range of this date.")
        validate.store(
            self,
            ranges={name: _bought_range(name, kept, pair) for name, pair in self.ranges.items()},
            categories={
                name: _bought_names(name, kept, names) for name, names in self.categories.items()
            },
        )

    @property
    def width(self) -> int:
        """How many features a row has: known before anything is bought."""
        return sum(_width(self.columns.declared[name]) for name in self.columns.kept)

    @property
    def blocks(self) -> dict[str, slice]:
        """Which features each column becomes."""
        found, start = {}, 0
        for name in self.columns.kept:
            stop = start + _width(self.columns.declared[name])
            found[name] = slice(start, stop)
            start = stop
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """Of the features."""
        return tuple(
            text
            for name in self.columns.kept
            for text in _names(name, self.columns.declared[name], self.categories.get(name, ()))
        )

    @property
    def undecided(self) -> tuple[str, ...]:
        """Numbers that have no range yet."""
        return tuple(
            name
            for name in self.columns.kept
            if isinstance(column := self.columns.declared[name], Number)
            and column.pair is None
            and name not in self.ranges
        )

    @property
    def unbought(self) -> tuple[str, ...]:
        """Categories whose names are still to be paid for."""
        return tuple(name for name in self._paid() if name not in self.categories)

    def with_ranges(self, ranges: Mapping[str, Pair]) -> "Encoding":
        """With these, too."""
        return replace(self, ranges={**self.ranges, **ranges})

    def with_categories(self, categories: Mapping[str, Sequence[str]]) -> "Encoding":
        """With these, too."""
        more = {name: tuple(names) for name, names in categories.items()}
        return replace(self, categories={**self.categories, **more})

    def reading(self, vocabularies: Vocabularies) -> "Encoding":
        """The same for rows that were coded with these private vocabularies."""
        return replace(self, _read_with=dict(vocabularies))

    def code(self, table: Any, *, where: str) -> NDArray[np.float32]:
        """New rows in the codes that this encoding reads, unless it reads private ones."""
        known = {name: self.categories.get(name, ()) for name in self._paid()}
        return code(table, self.columns, where=where, vocabularies=known).rows

    def apply(self, raw: NDArray[Any]) -> Features:
        """The features of some rows of codes."""
        raw = np.asarray(raw)
        kept = self.columns.kept
        if raw.ndim != 2 or raw.shape[1] != len(kept):
            raise InvalidInput(
                f"rows of codes must have {len(kept)} columns, as declared; got shape {raw.shape}."
            )
        features = np.zeros((len(raw), self.width))
        for number, (name, place) in enumerate(self.blocks.items()):
            codes = raw[:, number].astype(np.float64)
            self._put(codes, name, features[:, place])
        return features

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it; `of` gives the same again."""
        return {
            "columns": self.columns.to_plain(),
            "ranges": {name: list(pair) for name, pair in self.ranges.items()},
            "categories": {name: list(names) for name, names in self.categories.items()},
        }

    @staticmethod
    def of(plain: Mapping[str, Any]) -> "Encoding":
        return Encoding(
            Columns.of(plain["columns"]),
            {name: tuple(pair) for name, pair in plain["ranges"].items()},
            {name: tuple(names) for name, names in plain["categories"].items()},
        )

    def _paid(self) -> list[str]:
        return [
            name
            for name in self.columns.kept
            if isinstance(column := self.columns.declared[name], Category) and column.paid
        ]

    def _put(self, codes: Features, name: str, features: Features) -> None:
        column = self.columns.declared[name]
        gaps = np.isnan(codes)
        if isinstance(column, Number):
            _put_number(codes, gaps, column, self.ranges.get(name), features)
        elif isinstance(column, Boolean):
            codes[gaps] = 0.5 if column.fill is None else column.fill  # 0.5 becomes 0
            features[:, 0] = 2 * codes - 1
        elif isinstance(column, Date):
            _put_date(codes, gaps, column, features)
        elif isinstance(column, Category):
            if column.paid:
                codes = self._slots(codes, gaps, name, column)
            _put_category(codes, gaps, column, self.categories.get(name, ()), features)
        if getattr(column, "indicator", False):
            features[:, -1] = gaps

    def _slots(self, codes: Features, gaps: Any, name: str, column: Category) -> Features:
        """Places in the vocabulary that rows were coded with, as places among the names that were
        bought; those of other names as their number of slots."""
        bought = self.categories.get(name, ())
        read_with = bought if self._read_with is None else self._read_with.get(name, ())
        slot_of = {text: slot for slot, text in enumerate(bought)}
        slots = np.array([*(slot_of.get(text, column.slots) for text in read_with), column.slots])
        places = np.where(gaps, -1, codes).astype(np.int64)  # -1 is the last
        return slots[places].astype(np.float64)


def _width(column: Column) -> int:
    if isinstance(column, Category):
        return column.slots + 1 + column.indicator
    if isinstance(column, Date):
        return 1 + sum(len(dates.PARTS[part]) for part in column.parts) + column.indicator
    return 1 + bool(getattr(column, "indicator", False))


def _names(name: str, column: Column, bought: Sequence[str]) -> list[str]:
    found = [name]
    if isinstance(column, Category):
        found = [f"{name}={value}" for value in _values(column, bought)]
        found.append(f"{name}=other" if f"{name}=other" not in found else f"{name}=(other)")
    if isinstance(column, Date):
        for part in column.parts:
            found += [f"{name} ({part}={value})" for value in dates.PARTS[part]]
    if getattr(column, "indicator", False):
        found.append(f"{name} missing")
    return found


def _values(column: Category, bought: Sequence[str]) -> list[str]:
    if isinstance(column.values, tuple):
        return list(column.values)
    if column.buckets is not None:
        return [f"bucket {number}" for number in range(column.buckets)]
    return [*bought, *(f"(unused {slot})" for slot in range(len(bought), column.slots))]


def _put_number(
    codes: Features, gaps: Any, column: Number, bought: Pair | None, features: Features
) -> None:
    pair = column.pair or bought
    if isinstance(column.fill, float):
        codes = np.where(gaps, column.fill, codes)
    if pair is None:
        # Infinite only where a range was asked for and could not be bought.
        features[:, 0] = np.nan_to_num(codes, nan=0.0, posinf=_LARGEST, neginf=-_LARGEST)
    else:
        features[:, 0] = np.nan_to_num(_scaled(codes, pair), nan=0.0)  # gaps: the middle


def _scaled(codes: Features, pair: Pair) -> Features:
    """The range mapped to [-1, 1], what is outside clipped to it."""
    low, high = pair
    half = high / 2 - low / 2  # of halves: no difference overflows
    return ((codes.clip(low, high) / 2 - low / 2) / half * 2 - 1).clip(-1, 1)


def _put_date(codes: Features, gaps: Any, column: Date, features: Features) -> None:
    if column.fill is not None:
        codes = np.where(gaps, dates.hours_of(column.fill), codes)
        gaps = np.zeros(len(codes), dtype=bool)
    features[:, 0] = np.nan_to_num(_scaled(codes, column.pair), nan=0.0)
    (rows,) = np.nonzero(~gaps)
    hours = codes[rows].astype(np.int64)
    start = 1
    for part in column.parts:
        features[rows, start + dates.part(part, hours)] = 1
        start += len(dates.PARTS[part])


def _put_category(
    codes: Features, gaps: Any, column: Category, bought: Sequence[str], features: Features
) -> None:
    unknown = column.slots
    if column.fill is not None:
        codes = np.where(gaps, _code_of_fill(column, column.fill, bought), codes)
    elif column.indicator:  # a gap is no name at all
        (rows,) = np.nonzero(~gaps)
        features[rows, codes[rows].astype(np.int64)] = 1
        return
    else:
        codes = np.where(gaps, unknown, codes)
    features[np.arange(len(codes)), codes.astype(np.int64)] = 1


def _code_of_fill(column: Category, fill: str, bought: Sequence[str]) -> int:
    if column.buckets is not None:
        return bucket(fill, column.buckets)
    values = column.values if isinstance(column.values, tuple) else bought
    return values.index(fill) if fill in values else column.slots


def _bought_range(name: str, kept: Mapping[str, Column], pair: Pair) -> Pair:
    column = kept.get(name)
    if not isinstance(column, Number) or column.pair is not None:
        raise InvalidInput(f"{name}: a range is bought for a number that declares none.")
    low, high = (float(end) for end in pair)
    if not -_LARGEST <= low < high <= _LARGEST:
        raise InvalidInput(f"{name}: a range must be low and high, finite and in this order.")
    return low, high


def _bought_names(name: str, kept: Mapping[str, Column], names: Sequence[str]) -> tuple[str, ...]:
    column = kept.get(name)
    if not isinstance(column, Category) or not column.paid:
        raise InvalidInput(f'{name}: names are bought for a category with values = "paid".')
    if len(names) > column.slots or len(set(names)) < len(names):
        raise InvalidInput(f"{name}: at most {column.slots} names, each once; got {len(names)}.")
    return tuple(names)
