"""Turn codes into features, by one row, the declared columns and the private estimates alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune import validate
from dptune.columns import blocks
from dptune.columns.blocks import Features
from dptune.columns.coding import Vocabularies, code
from dptune.columns.kinds import (
    LARGEST,
    NO_DATE_RANGE,
    Boolean,
    Category,
    Column,
    Date,
    Number,
    Pair,
)
from dptune.columns.problems import Problems
from dptune.columns.spec import Columns
from dptune.columns.stretch import Stretch
from dptune.errors import InvalidInput

MOST_CURVED = 20  # the highest degree of polynomial features; more would fit single rows


@dataclass(frozen=True)
class Encoding:
    """Turns rows of codes into features.

    Attributes:
        columns: the declared columns, without the label.
        ranges: the privately estimated ranges of numbers, by column.
        categories: the privately estimated values of categories, by column.
        degrees: the degrees of polynomial features of numbers and dates, by column; 1 elsewhere.
        stretches: the log scales of numbers with an estimated range and heavy tails, by column.

    """

    columns: Columns
    ranges: Mapping[str, Pair] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    degrees: Mapping[str, int] = field(default_factory=dict)
    stretches: Mapping[str, Stretch] = field(default_factory=dict)
    # Private, so neither shown nor stored.
    _read_with: Vocabularies | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.columns.kept:
            raise InvalidInput("all columns are dropped; keep at least one of them.")
        kept = {name: self.columns.declared[name] for name in self.columns.kept}
        problems = Problems()
        for name, column in kept.items():
            if isinstance(column, Date) and column.range is None:
                problems.add(name, NO_DATE_RANGE)
        problems.raise_any("the declared columns need a change")
        validate.store(
            self,
            ranges={name: _check_range(name, kept, pair) for name, pair in self.ranges.items()},
            categories={
                name: _check_values(name, kept, names) for name, names in self.categories.items()
            },
            degrees={
                name: _check_degree(name, kept, self.ranges, degree)
                for name, degree in self.degrees.items()
            },
            stretches={
                name: _check_stretch(name, self.ranges, stretch)
                for name, stretch in self.stretches.items()
            },
        )

    @property
    def width(self) -> int:
        """The number of features of a row; it does not depend on the rows."""
        return sum(map(self._width, self.columns.kept))

    @property
    def blocks(self) -> dict[str, slice]:
        """The features of each column, by name."""
        places, start = {}, 0
        for name in self.columns.kept:
            stop = start + self._width(name)
            places[name] = slice(start, stop)
            start = stop
        return places

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        return tuple(
            text
            for name in self.columns.kept
            for text in blocks.names(
                name,
                self.columns.declared[name],
                self.degrees.get(name, 1),
                self.categories.get(name, ()),
            )
        )

    @property
    def undecided(self) -> tuple[str, ...]:
        """The numbers that have neither a declared nor an estimated range."""
        return tuple(
            name
            for name in self.columns.kept
            if isinstance(column := self.columns.declared[name], Number)
            and column.pair is None
            and name not in self.ranges
        )

    @property
    def unbought(self) -> tuple[str, ...]:
        """The categories whose values are still to be estimated."""
        return tuple(name for name in self._paid() if name not in self.categories)

    def with_ranges(
        self, ranges: Mapping[str, Pair], stretches: Mapping[str, Stretch] | None = None
    ) -> "Encoding":
        """Return this encoding with more estimated ranges and log scales."""
        more = {**self.stretches, **(stretches or {})}
        return replace(self, ranges={**self.ranges, **ranges}, stretches=more)

    def with_categories(self, categories: Mapping[str, Sequence[str]]) -> "Encoding":
        """Return this encoding with more estimated values of categories."""
        more = {name: tuple(names) for name, names in categories.items()}
        return replace(self, categories={**self.categories, **more})

    def with_curves(self, names: Iterable[str], degree: int) -> "Encoding":
        """Return this encoding with polynomial features of this degree for these columns only."""
        return replace(self, degrees=dict.fromkeys(names, degree) if degree > 1 else {})

    def reading(self, vocabularies: Vocabularies) -> "Encoding":
        """Return this encoding for rows that were coded with these private vocabularies."""
        return replace(self, _read_with=dict(vocabularies))

    def released(self) -> "Encoding":
        """Return this encoding without private vocabularies: for models, and codes of new rows."""
        return replace(self, _read_with=None)

    def __getstate__(self) -> dict[str, Any]:
        if self._read_with is not None:
            raise InvalidInput(
                "this encoding holds the private vocabularies of rows, so it is never stored or "
                "sent; use released()."
            )
        return dict(self.__dict__)

    def code(self, table: Any, *, where: str) -> NDArray[np.float32]:
        """Code new rows for `apply`; only for an encoding without private vocabularies."""
        values = {name: self.categories.get(name, ()) for name in self._paid()}
        return code(table, self.columns, where=where, vocabularies=values).rows

    def apply(self, raw: NDArray[Any]) -> Features:
        """Return the features of rows of codes."""
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
        """As JSON stores it; `of` reads it back."""
        return {
            "columns": self.columns.to_plain(),
            "ranges": {name: list(pair) for name, pair in self.ranges.items()},
            "categories": {name: list(names) for name, names in self.categories.items()},
            "degrees": dict(self.degrees),
            "stretches": {name: list(stretch) for name, stretch in self.stretches.items()},
        }

    @staticmethod
    def of(plain: Mapping[str, Any]) -> "Encoding":
        """Read the result of `to_plain`, also of versions without degrees or stretches."""
        return Encoding(
            Columns.of(plain["columns"]),
            {name: tuple(pair) for name, pair in plain["ranges"].items()},
            {name: tuple(names) for name, names in plain["categories"].items()},
            plain.get("degrees", {}),
            {name: Stretch(*pair) for name, pair in plain.get("stretches", {}).items()},
        )

    def _paid(self) -> list[str]:
        return [
            name
            for name in self.columns.kept
            if isinstance(column := self.columns.declared[name], Category) and column.paid
        ]

    def _width(self, name: str) -> int:
        return blocks.width(self.columns.declared[name], self.degrees.get(name, 1))

    def _put(self, codes: Features, name: str, features: Features) -> None:
        column, degree = self.columns.declared[name], self.degrees.get(name, 1)
        if isinstance(column, Number):
            pair, stretch = self.ranges.get(name), self.stretches.get(name)
            blocks.put_number(codes, column, degree, pair, stretch, features)
        elif isinstance(column, Boolean):
            blocks.put_boolean(codes, column, features)
        elif isinstance(column, Date):
            blocks.put_date(codes, column, degree, features)
        elif isinstance(column, Category):
            if column.paid:
                codes = self._translate(codes, name)
            blocks.put_category(codes, column, self.categories.get(name, ()), features)

    def _translate(self, codes: Features, name: str) -> Features:
        """Turn indices into the vocabulary of the rows into indices into the estimated values."""
        slots = self._slots[name]
        translated = slots[blocks.whole_places(codes, last=len(slots) - 1)]
        return np.where(np.isnan(codes), np.nan, translated)

    @cached_property
    def _slots(self) -> dict[str, NDArray[np.int64]]:
        """For each index into the vocabulary of the rows, its index among the estimated values: -1
        for a value that is not there, and at the end for a value in no vocabulary."""
        slots = {}
        for name in self._paid():
            estimated = self.categories.get(name, ())
            read_with = estimated if self._read_with is None else self._read_with.get(name, ())
            slot_of = {text: slot for slot, text in enumerate(estimated)}
            slots[name] = np.array([*(slot_of.get(text, -1) for text in read_with), -1])
        return slots


def _check_range(name: str, kept: Mapping[str, Column], pair: Pair) -> Pair:
    column = kept.get(name)
    if not isinstance(column, Number) or column.pair is not None:
        raise InvalidInput(f"{name}: only a number without a declared range has an estimated one.")
    low, high = (float(end) for end in pair)
    if not -LARGEST <= low < high <= LARGEST:
        raise InvalidInput(f"{name}: a range must be low and high, finite and in this order.")
    return low, high


def _check_stretch(name: str, estimated: Mapping[str, Pair], stretch: Stretch) -> Stretch:
    center, scale = (float(number) for number in stretch)
    if name not in estimated or not -LARGEST <= center <= LARGEST or not 0 < scale <= LARGEST:
        raise InvalidInput(
            f"{name}: only a number with an estimated range has a log scale, with a finite center "
            "and a finite scale above 0."
        )
    return Stretch(center, scale)


def _check_degree(
    name: str, kept: Mapping[str, Column], estimated: Mapping[str, Pair], degree: int
) -> int:
    column = kept.get(name)
    ranged = isinstance(column, Number) and (column.pair is not None or name in estimated)
    if not ranged and not isinstance(column, Date):
        raise InvalidInput(f"{name}: only a number or a date with a range has polynomial features.")
    return validate.whole(1, at_most=MOST_CURVED, **{f"the degree of {name}": degree})


def _check_values(name: str, kept: Mapping[str, Column], names: Sequence[str]) -> tuple[str, ...]:
    column = kept.get(name)
    if not isinstance(column, Category) or not column.paid:
        raise InvalidInput(f'{name}: only a category with values = "paid" has estimated values.')
    if len(names) > column.slots or len(set(names)) < len(names):
        raise InvalidInput(
            f"{name}: there must be at most {column.slots} values, each once; got {len(names)}."
        )
    return tuple(names)
