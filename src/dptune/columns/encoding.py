"""From codes to features: a function of one row, of what is declared, and of what was bought."""

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

MOST_CURVED = 20  # the degree of a curve; more would follow single rows


@dataclass(frozen=True)
class Encoding:
    """Turns rows of codes into features.

    Attributes:
        columns: as declared, the label's not among them.
        ranges: of numbers, by name, as bought.
        categories: names of categories, by column, as bought.
        degrees: of the curves that a linear model draws over numbers and dates, by name; straight
            lines where there is none.
        stretches: how numbers with a bought range are taken of which some lie far out, by name.

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
            ranges={name: _bought_range(name, kept, pair) for name, pair in self.ranges.items()},
            categories={
                name: _bought_names(name, kept, names) for name, names in self.categories.items()
            },
            degrees={
                name: _degree(name, kept, self.ranges, degree)
                for name, degree in self.degrees.items()
            },
            stretches={
                name: _stretch(name, self.ranges, stretch)
                for name, stretch in self.stretches.items()
            },
        )

    @property
    def width(self) -> int:
        """How many features a row has: known before anything is bought."""
        return sum(map(self._width, self.columns.kept))

    @property
    def blocks(self) -> dict[str, slice]:
        """Which features each column becomes."""
        found, start = {}, 0
        for name in self.columns.kept:
            stop = start + self._width(name)
            found[name] = slice(start, stop)
            start = stop
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """Of the features."""
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

    def with_ranges(
        self, ranges: Mapping[str, Pair], stretches: Mapping[str, Stretch] | None = None
    ) -> "Encoding":
        """With these, too."""
        more = {**self.stretches, **(stretches or {})}
        return replace(self, ranges={**self.ranges, **ranges}, stretches=more)

    def with_categories(self, categories: Mapping[str, Sequence[str]]) -> "Encoding":
        """With these, too."""
        more = {name: tuple(names) for name, names in categories.items()}
        return replace(self, categories={**self.categories, **more})

    def with_curves(self, names: Iterable[str], degree: int) -> "Encoding":
        """With curves of this degree over these columns, and straight lines over all others."""
        return replace(self, degrees=dict.fromkeys(names, degree) if degree > 1 else {})

    def reading(self, vocabularies: Vocabularies) -> "Encoding":
        """The same for rows that were coded with these private vocabularies."""
        return replace(self, _read_with=dict(vocabularies))

    def released(self) -> "Encoding":
        """The same without private vocabularies: for models, and for codes of new rows."""
        return replace(self, _read_with=None)

    def __getstate__(self) -> dict[str, Any]:
        if self._read_with is not None:
            raise InvalidInput(
                "this encoding holds names that only private rows have, so it is not stored or "
                "sent; take released()."
            )
        return dict(self.__dict__)

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
            "degrees": dict(self.degrees),
            "stretches": {name: list(stretch) for name, stretch in self.stretches.items()},
        }

    @staticmethod
    def of(plain: Mapping[str, Any]) -> "Encoding":
        """From what `to_plain` gave, also before there were curves, or anything was stretched."""
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
        column, bought = self.columns.declared[name], self.categories.get(name, ())
        degree = self.degrees.get(name, 1)
        if isinstance(column, Number):
            pair, stretch = self.ranges.get(name), self.stretches.get(name)
            blocks.put_number(codes, column, degree, pair, stretch, features)
        elif isinstance(column, Boolean):
            blocks.put_boolean(codes, column, features)
        elif isinstance(column, Date):
            blocks.put_date(codes, column, degree, features)
        elif isinstance(column, Category):
            if column.paid:
                codes = self._among_bought(codes, name)
            blocks.put_category(codes, column, bought, features)

    def _among_bought(self, codes: Features, name: str) -> Features:
        """Places in the vocabulary that rows were coded with as places among the names that were
        bought."""
        slots = self._slots[name]
        found = slots[blocks.whole_places(codes, last=len(slots) - 1)]
        return np.where(np.isnan(codes), np.nan, found)

    @cached_property
    def _slots(self) -> dict[str, NDArray[np.int64]]:
        """For each place in the vocabulary that rows were coded with its place among the names that
        were bought; -1 for others, and at the end for those in no vocabulary."""
        found = {}
        for name in self._paid():
            bought = self.categories.get(name, ())
            read_with = bought if self._read_with is None else self._read_with.get(name, ())
            slot_of = {text: slot for slot, text in enumerate(bought)}
            found[name] = np.array([*(slot_of.get(text, -1) for text in read_with), -1])
        return found


def _bought_range(name: str, kept: Mapping[str, Column], pair: Pair) -> Pair:
    column = kept.get(name)
    if not isinstance(column, Number) or column.pair is not None:
        raise InvalidInput(f"{name}: a range is bought for a number that declares none.")
    low, high = (float(end) for end in pair)
    if not -LARGEST <= low < high <= LARGEST:
        raise InvalidInput(f"{name}: a range must be low and high, finite and in this order.")
    return low, high


def _stretch(name: str, bought: Mapping[str, Pair], stretch: Stretch) -> Stretch:
    center, scale = (float(number) for number in stretch)
    if name not in bought or not -LARGEST <= center <= LARGEST or not 0 < scale <= LARGEST:
        raise InvalidInput(
            f"{name}: numbers with a bought range are stretched, around a finite center, by a "
            "finite scale above 0."
        )
    return Stretch(center, scale)


def _degree(name: str, kept: Mapping[str, Column], bought: Mapping[str, Pair], degree: int) -> int:
    column = kept.get(name)
    ranged = isinstance(column, Number) and (column.pair is not None or name in bought)
    if not ranged and not isinstance(column, Date):
        raise InvalidInput(f"{name}: a curve is drawn over a number or a date with a range.")
    return validate.whole(1, at_most=MOST_CURVED, **{f"the degree of {name}": degree})


def _bought_names(name: str, kept: Mapping[str, Column], names: Sequence[str]) -> tuple[str, ...]:
    column = kept.get(name)
    if not isinstance(column, Category) or not column.paid:
        raise InvalidInput(f'{name}: names are bought for a category with values = "paid".')
    if len(names) > column.slots or len(set(names)) < len(names):
        raise InvalidInput(f"{name}: at most {column.slots} names, each once; got {len(names)}.")
    return tuple(names)
