"""What a column can be, from declared facts only. Whatever is wrong with one is said at once, a
line for each problem."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from dptune import validate
from dptune.columns import dates
from dptune.columns.values import category_texts
from dptune.errors import InvalidInput

PAID: Literal["paid"] = "paid"
MIDDLE: Literal["middle"] = "middle"
DEFAULT_AT_MOST = 10
MOST_VALUES = 10_000
LARGEST = float(np.finfo(np.float32).max)  # rows are coded in single precision
Pair = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number. What is outside its range is clipped, and the range becomes [-1, 1].

    Attributes:
        range: (low, high) from knowledge; "paid" to buy it; None to buy it where that is worth its
            price, and to take the column as it is where it is not.
        fill: what stands for a gap; "middle" is the middle of the range, or 0 without a range.
        indicator: whether one more column says where gaps were.

    """

    range: Pair | Literal["paid"] | None = None
    fill: float | Literal["middle"] | None = None
    indicator: bool = False
    kind: ClassVar[str] = "number"

    def __post_init__(self) -> None:
        faults = _Faults()
        with faults.noted():
            if self.range is not None and not _says(self.range, PAID):
                validate.store(self, range=_pair(self.range))
        with faults.noted():
            if self.fill is not None and not _says(self.fill, MIDDLE):
                validate.store(self, fill=_finite(self.fill, 'fill must be a number or "middle"'))
        with faults.noted():
            validate.store(self, indicator=validate.flag(indicator=self.indicator))
        faults.raise_any()
        pair, fill = self.pair, self.fill
        if pair is not None and isinstance(fill, float) and not pair[0] <= fill <= pair[1]:
            raise InvalidInput(f"fill must lie in the range; got {fill:g}.")

    @property
    def pair(self) -> Pair | None:
        """The range, where it is declared."""
        return self.range if isinstance(self.range, tuple) else None


@dataclass(frozen=True, kw_only=True)
class Category:
    """One of a few names, each a column of zeros and ones, and one more for all other names.

    Attributes:
        values: the names, from knowledge; "paid" to buy those that many rows have.
        buckets: instead of values, into how many a public hash sorts the names.
        at_most: with "paid", how many names there is room for.
        fill: the name that stands for a gap; without it a gap is one of the other names, or none
            where an indicator says so.
        indicator: whether one more column says where gaps were.

    """

    values: tuple[str, ...] | Literal["paid"] | None = None
    buckets: int | None = None
    at_most: int | None = None
    fill: str | None = None
    indicator: bool = False
    kind: ClassVar[str] = "category"

    def __post_init__(self) -> None:
        faults = _Faults()
        with faults.noted():
            if (self.values is None) == (self.buckets is None):
                raise InvalidInput(
                    'a category needs either values (a list of names, or "paid") or buckets (a '
                    "number)."
                )
        with faults.noted():
            if self.values is not None and not _says(self.values, PAID):
                validate.store(self, values=_names(self.values))
        with faults.noted():
            if self.buckets is not None:
                found = validate.whole(2, at_most=MOST_VALUES, buckets=self.buckets)
                validate.store(self, buckets=found)
        with faults.noted():
            if self.paid:
                room = DEFAULT_AT_MOST if self.at_most is None else self.at_most
                validate.store(self, at_most=_room(room))
            elif self.at_most is not None:
                raise InvalidInput('at_most goes with values="paid" only.')
        with faults.noted():
            if self.fill is not None:
                validate.store(self, fill=category_text(self.fill, "fill"))
        with faults.noted():
            validate.store(self, indicator=validate.flag(indicator=self.indicator))
        faults.raise_any()
        if isinstance(self.values, tuple) and self.fill not in (None, *self.values):
            raise InvalidInput(f"fill must be one of the values; got {self.fill!r}.")

    @property
    def paid(self) -> bool:
        return _says(self.values, PAID)

    @property
    def slots(self) -> int:
        """How many names have a column: a public number."""
        if isinstance(self.values, tuple):
            return len(self.values)
        return self.buckets or self.at_most or 0


@dataclass(frozen=True, kw_only=True)
class Date:
    """A date, with or without a time. Its range becomes [-1, 1], each part one column a value.

    Attributes:
        range: the first and the last date, as ISO texts; None only while it is left to fill in.
        parts: any of weekday, month, hour.
        fill: the date that stands for a gap.
        indicator: whether one more column says where gaps were.

    """

    range: tuple[str, str] | None = None
    parts: tuple[str, ...] = ()
    fill: str | None = None
    indicator: bool = False
    kind: ClassVar[str] = "date"

    def __post_init__(self) -> None:
        faults = _Faults()
        with faults.noted():
            if self.range is not None:
                validate.store(self, range=_date_pair(self.range))
        with faults.noted():
            validate.store(self, parts=_parts(self.parts))
        with faults.noted():
            if self.fill is not None:
                validate.store(self, fill=dates.iso_text(self.fill, "fill"))
        with faults.noted():
            validate.store(self, indicator=validate.flag(indicator=self.indicator))
        faults.raise_any()
        if self.range is not None and self.fill is not None:
            low, high = self.pair
            if not low <= dates.hours_of(self.fill) <= high:
                raise InvalidInput(f"fill must lie in the range; got {self.fill!r}.")

    @property
    def pair(self) -> Pair:
        """The range in hours."""
        if self.range is None:
            raise InvalidInput(NO_DATE_RANGE)
        low, high = self.range
        return dates.hours_of(low), dates.hours_of(high)


NO_DATE_RANGE = 'a date needs a range from knowledge, such as range = ["2010-01-01", "2025-12-31"].'


@dataclass(frozen=True, kw_only=True)
class Boolean:
    """True or false, as 1 and -1. `fill` stands for a gap; `indicator`: one more column says where
    gaps were."""

    fill: bool | None = None
    indicator: bool = False
    kind: ClassVar[str] = "boolean"

    def __post_init__(self) -> None:
        faults = _Faults()
        with faults.noted():
            if self.fill is not None:
                validate.store(self, fill=validate.flag(fill=self.fill))
        with faults.noted():
            validate.store(self, indicator=validate.flag(indicator=self.indicator))
        faults.raise_any()


@dataclass(frozen=True, kw_only=True)
class Drop:
    """Left out; a file may lack it."""

    kind: ClassVar[str] = "drop"


Column = Number | Category | Date | Boolean | Drop
KINDS: dict[str, type[Column]] = {one.kind: one for one in (Number, Category, Date, Boolean, Drop)}


def category_text(value: object, name: str) -> str:
    """A name as rows have it: numbers as text, whole ones without a point."""
    if isinstance(value, str | bool | int | float | np.generic):
        try:
            (text,) = category_texts(pa.array([value]))[0].to_pylist()
        except (pa.ArrowException, OverflowError, UnicodeError):
            text = ""
        if text:
            return str(text)
    raise InvalidInput(f"{name} must be text that is not empty; got {value!r}.")


class _Faults:
    """The messages of several checks."""

    def __init__(self) -> None:
        self._found: list[str] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        try:
            yield
        except InvalidInput as error:
            self._found.append(str(error))

    def raise_any(self) -> None:
        if self._found:
            raise InvalidInput("\n".join(self._found))


def _says(value: object, word: str) -> bool:
    return isinstance(value, str) and value == word


def _finite(value: Any, wanted: str) -> float:
    is_number = not isinstance(value, bool) and isinstance(value, Real)
    if is_number and -LARGEST <= value <= LARGEST:
        return float(value)
    raise InvalidInput(f"{wanted}; got {value!r}.")


def _two(given: Any, wanted: str) -> tuple[Any, Any]:
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2:
        return given[0], given[1]
    raise InvalidInput(f"range must be {wanted}; got {given!r}.")


def _pair(given: Any) -> Pair:
    largest = f"{LARGEST:.1e}"
    wanted = f'range must be [low, high] in numbers from -{largest} to {largest}, or "paid"'
    low, high = (_finite(end, wanted) for end in _two(given, '[low, high], or "paid"'))
    if low >= high:
        raise InvalidInput(f"the low end of a range must be below the high end; got {given!r}.")
    return low, high


def _date_pair(given: Any) -> tuple[str, str]:
    low, high = (
        dates.iso_text(end, "both ends of range")
        for end in _two(given, '[first, last], such as ["2010-01-01", "2025-12-31"]')
    )
    if dates.hours_of(low) >= dates.hours_of(high):
        raise InvalidInput(f"the first date of a range must be before the last; got {given!r}.")
    return low, high


def _names(given: Any) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise InvalidInput(f'values must be a list of names, or "paid"; got {given!r}.')
    if len(given) > MOST_VALUES:  # before each is looked at, which takes time
        raise InvalidInput(
            f"values are at most {MOST_VALUES:,}; got {len(given):,}. Take buckets instead."
        )
    names = tuple(category_text(value, "each of values") for value in given)
    if len(set(names)) < len(names):
        twice, _ = Counter(names).most_common(1)[0]
        raise InvalidInput(f"values must be all different; got {twice!r} twice.")
    return names


def _room(given: Any) -> int:
    wanted = f"at_most must be a whole number from 1 to {MOST_VALUES:,}"
    number = _finite(given, wanted)
    if number != int(number) or not 1 <= number <= MOST_VALUES:
        raise InvalidInput(f"{wanted}; got {given!r}.")
    return int(number)


def _parts(given: Any) -> tuple[str, ...]:
    wanted = f"parts must be some of {', '.join(dates.PARTS)}, each once"
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidInput(f"{wanted}; got {given!r}.")
    if any(given.count(part) > 1 or part not in tuple(dates.PARTS) for part in given):
        raise InvalidInput(f"{wanted}; got {given!r}.")
    return tuple(given)
