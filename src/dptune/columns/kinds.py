"""The kinds of columns, made from declared facts only. Each reports all its problems together, one
line each."""

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
LARGEST = float(np.finfo(np.float32).max)  # codes are float32
Pair = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number. It is clipped to its range, and the range is mapped to [-1, 1].

    Attributes:
        range: (low, high) from public knowledge; "paid" to estimate it privately; None to estimate
            it privately where that is worth its price, and else to use the column unscaled.
        fill: replaces a missing value; "middle" is the middle of the range, or 0 without a range.
        indicator: whether one more feature marks missing values.

    """

    range: Pair | Literal["paid"] | None = None
    fill: float | Literal["middle"] | None = None
    indicator: bool = False
    kind: ClassVar[str] = "number"

    def __post_init__(self) -> None:
        faults = _Faults()
        with faults.collect():
            if self.range is not None and not _is_word(self.range, PAID):
                validate.store(self, range=_pair(self.range))
        with faults.collect():
            if self.fill is not None and not _is_word(self.fill, MIDDLE):
                validate.store(self, fill=_finite(self.fill, 'fill must be a number or "middle"'))
        with faults.collect():
            validate.store(self, indicator=validate.flag(indicator=self.indicator))
        faults.raise_any()
        pair, fill = self.pair, self.fill
        if pair is not None and isinstance(fill, float) and not pair[0] <= fill <= pair[1]:
            raise InvalidInput(f"fill must lie in the range; got {fill:g}.")

    @property
    def pair(self) -> Pair | None:
        """The declared range, if any."""
        return self.range if isinstance(self.range, tuple) else None


@dataclass(frozen=True, kw_only=True)
class Category:
    """A category, one-hot encoded, with one more feature for all values that are not listed.

    Attributes:
        values: the values, from public knowledge; "paid" to estimate the frequent ones privately.
        buckets: instead of values, the number of buckets of a public hash of the value.
        at_most: with "paid", the largest number of values to estimate.
        fill: replaces a missing value; without it a missing value counts as not listed, or, with
            an indicator, as no value.
        indicator: whether one more feature marks missing values.

    """

    values: tuple[str, ...] | Literal["paid"] | None = None
    buckets: int | None = None
    at_most: int | None = None
    fill: str | None = None
    indicator: bool = False
    kind: ClassVar[str] = "category"

    def __post_init__(self) -> None:
        faults = _Faults()
        with faults.collect():
            if (self.values is None) == (self.buckets is None):
                raise InvalidInput(
                    'a category needs either values (a list of names, or "paid") or buckets (a '
                    "number)."
                )
        with faults.collect():
            if self.values is not None and not _is_word(self.values, PAID):
                validate.store(self, values=_names(self.values))
        with faults.collect():
            if self.buckets is not None:
                buckets = validate.whole(2, at_most=MOST_VALUES, buckets=self.buckets)
                validate.store(self, buckets=buckets)
        with faults.collect():
            if self.paid:
                most = DEFAULT_AT_MOST if self.at_most is None else self.at_most
                validate.store(self, at_most=_at_most(most))
            elif self.at_most is not None:
                raise InvalidInput('at_most needs values = "paid"; declare that, or no at_most.')
        with faults.collect():
            if self.fill is not None:
                validate.store(self, fill=category_text(self.fill, "fill"))
        with faults.collect():
            validate.store(self, indicator=validate.flag(indicator=self.indicator))
        faults.raise_any()
        if isinstance(self.values, tuple) and self.fill not in (None, *self.values):
            raise InvalidInput(f"fill must be one of the values; got {self.fill!r}.")

    @property
    def paid(self) -> bool:
        return _is_word(self.values, PAID)

    @property
    def slots(self) -> int:
        """The number of values that have a feature of their own: a public number."""
        if isinstance(self.values, tuple):
            return len(self.values)
        return self.buckets or self.at_most or 0


@dataclass(frozen=True, kw_only=True)
class Date:
    """A date, with or without a time. Its range is mapped to [-1, 1], its parts are one-hot.

    Attributes:
        range: the first and the last date, as ISO texts; None only in a schema to fill in.
        parts: any of weekday, month, hour.
        fill: the date that replaces a missing value.
        indicator: whether one more feature marks missing values.

    """

    range: tuple[str, str] | None = None
    parts: tuple[str, ...] = ()
    fill: str | None = None
    indicator: bool = False
    kind: ClassVar[str] = "date"

    def __post_init__(self) -> None:
        faults = _Faults()
        with faults.collect():
            if self.range is not None:
                validate.store(self, range=_date_pair(self.range))
        with faults.collect():
            validate.store(self, parts=_parts(self.parts))
        with faults.collect():
            if self.fill is not None:
                validate.store(self, fill=dates.iso_text(self.fill, "fill"))
        with faults.collect():
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


NO_DATE_RANGE = (
    'a date needs a range from public knowledge, such as range = ["2010-01-01", "2025-12-31"].'
)


@dataclass(frozen=True, kw_only=True)
class Boolean:
    """True or false, as 1 and -1. `fill` replaces a missing value; `indicator` adds one more
    feature that marks missing values."""

    fill: bool | None = None
    indicator: bool = False
    kind: ClassVar[str] = "boolean"

    def __post_init__(self) -> None:
        faults = _Faults()
        with faults.collect():
            if self.fill is not None:
                validate.store(self, fill=validate.flag(fill=self.fill))
        with faults.collect():
            validate.store(self, indicator=validate.flag(indicator=self.indicator))
        faults.raise_any()


@dataclass(frozen=True, kw_only=True)
class Drop:
    """A column that is not used; a file may lack it."""

    kind: ClassVar[str] = "drop"


Column = Number | Category | Date | Boolean | Drop
KINDS: dict[str, type[Column]] = {one.kind: one for one in (Number, Category, Date, Boolean, Drop)}


def category_text(value: object, name: str) -> str:
    """A value as rows have it: numbers as text, whole numbers without a decimal point."""
    if isinstance(value, str | bool | int | float | np.generic):
        try:
            (text,) = category_texts(pa.array([value]))[0].to_pylist()
        except (pa.ArrowException, OverflowError, UnicodeError):
            text = ""
        if text:
            return str(text)
    raise InvalidInput(f"{name} must be text that is not empty; got {value!r}.")


class _Faults:
    """Collects the messages of several checks."""

    def __init__(self) -> None:
        self._messages: list[str] = []

    @contextmanager
    def collect(self) -> Iterator[None]:
        try:
            yield
        except InvalidInput as error:
            self._messages.append(str(error))

    def raise_any(self) -> None:
        if self._messages:
            raise InvalidInput("\n".join(self._messages))


def _is_word(value: object, word: str) -> bool:
    return isinstance(value, str) and value == word


def _finite(value: Any, rule: str) -> float:
    is_number = not isinstance(value, bool) and isinstance(value, Real)
    if is_number and -LARGEST <= value <= LARGEST:
        return float(value)
    raise InvalidInput(f"{rule}; got {value!r}.")


def _two(given: Any, form: str) -> tuple[Any, Any]:
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == 2:
        return given[0], given[1]
    raise InvalidInput(f"range must be {form}; got {given!r}.")


def _pair(given: Any) -> Pair:
    largest = f"{LARGEST:.1e}"
    rule = f'range must be [low, high] in numbers from -{largest} to {largest}, or "paid"'
    low, high = (_finite(end, rule) for end in _two(given, '[low, high], or "paid"'))
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
    if len(given) > MOST_VALUES:  # checked first, because the check of each value takes time
        raise InvalidInput(
            f"values must be at most {MOST_VALUES:,}; got {len(given):,}. Use buckets instead."
        )
    names = tuple(category_text(value, "each of values") for value in given)
    if len(set(names)) < len(names):
        twice, _ = Counter(names).most_common(1)[0]
        raise InvalidInput(f"values must be all different; got {twice!r} twice.")
    return names


def _at_most(given: Any) -> int:
    rule = f"at_most must be a whole number from 1 to {MOST_VALUES:,}"
    number = _finite(given, rule)
    if number != int(number) or not 1 <= number <= MOST_VALUES:
        raise InvalidInput(f"{rule}; got {given!r}.")
    return int(number)


def _parts(given: Any) -> tuple[str, ...]:
    rule = f"parts must be some of {', '.join(dates.PARTS)}, each once"
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidInput(f"{rule}; got {given!r}.")
    if any(given.count(part) > 1 or part not in tuple(dates.PARTS) for part in given):
        raise InvalidInput(f"{rule}; got {given!r}.")
    return tuple(given)
