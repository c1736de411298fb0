"""Declared columns in ONNX: one input per column, (rows, 1), and their features."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dptune.columns import Boolean, Category, Date, Encoding, Number, Stretch
from dptune.columns.dates import PARTS
from dptune.columns.kinds import Pair
from dptune.export.column_facts import features_of_gap, names_of
from dptune.export.inputs import in_words
from dptune.export.onnx_nodes import FLOAT, LEARNERS, TEXT, WHOLE, Nodes, value
from dptune.export.steps import Numbers

_LARGEST = float(np.finfo(np.float32).max)
_WEEKDAY_OF_DAY_0 = 3  # 1970-01-01 was a Thursday
_DAYS_BEFORE = 719_468  # from 1 March of the year 0 to 1970-01-01
_DAYS_OF_400_YEARS = 146_097
_TAKES: dict[type, tuple[str, str]] = {
    Number: ("float, a number", "NaN"),
    Boolean: ("float, 1 for true or yes, 0 for false or no", "NaN"),
    Date: ("float, whole hours since 1970-01-01 in UTC", "NaN"),
    Category: ("string, a text without spaces around it", "an empty text"),
}


def inputs(encoding: Encoding) -> list[Any]:
    """One input for each kept column."""
    declared = encoding.columns.declared
    return [
        value(name, TEXT if isinstance(declared[name], Category) else FLOAT, 1)
        for name in encoding.columns.kept
    ]


def inputs_in_words(encoding: Encoding) -> dict[str, str]:
    """Describe each input."""
    return in_words(encoding, _TAKES)


def columns_of(nodes: Nodes, matrix: str, encoding: Encoding) -> dict[str, str]:
    """Split one input with all columns into the columns, by name."""
    return {
        name: nodes.add("Gather", matrix, nodes.constant(np.array([number])), axis=1)
        for number, name in enumerate(encoding.columns.kept)
    }


def encoded_columns(
    nodes: Nodes, encoding: Encoding, columns: Mapping[str, str] | None = None
) -> str:
    """Concatenate the features of all columns; `columns` are the inputs by default."""
    source = columns or {name: name for name in encoding.columns.kept}
    blocks = [_column(nodes, encoding, name, source[name]) for name in encoding.columns.kept]
    return nodes.add("Concat", *blocks, axis=1)


def _column(nodes: Nodes, encoding: Encoding, name: str, source: str) -> str:
    column = encoding.columns.declared[name]
    if isinstance(column, Category):
        return _category(nodes, encoding, name)
    codes, degree = nodes.doubles(source), encoding.degrees.get(name, 1)
    if isinstance(column, Number):
        pair, number = column.pair or encoding.ranges.get(name), codes
        if pair and name in encoding.stretches:
            number, pair = _stretch(nodes, codes, pair, encoding.stretches[name])
        present = _polynomials(nodes, number, pair, degree) if pair else [_finite(nodes, codes)]
    elif isinstance(column, Boolean):
        present = [_scale(nodes, codes, (0, 1))]
    else:
        assert isinstance(column, Date)
        present = _polynomials(nodes, codes, column.pair, degree) + _parts(nodes, codes, column)
    if getattr(column, "indicator", False):
        present.append(nodes.add("Mul", _finite(nodes, codes), nodes.constant(0.0)))
    features = nodes.add("Concat", *present, axis=1)
    width = encoding.blocks[name].stop - encoding.blocks[name].start
    gap = features_of_gap(encoding, name)
    instead: Numbers = np.full(width, np.nan) if gap is None else gap
    is_gap = nodes.add("IsNaN", codes)
    return nodes.add("Where", is_gap, nodes.constant(instead), features)


def _finite(nodes: Nodes, codes: str) -> str:
    return nodes.add("Clip", codes, nodes.constant(-_LARGEST), nodes.constant(_LARGEST))


def _stretch(nodes: Nodes, codes: str, pair: Pair, stretch: Stretch) -> tuple[str, Pair]:
    """Codes on the log scale, and the ends of their range."""
    beside = nodes.add("Sub", codes, nodes.constant(stretch.center))
    place = nodes.add("Div", beside, nodes.constant(stretch.scale))
    return nodes.asinh(place), stretch.ends(pair)


def _polynomials(nodes: Nodes, codes: str, pair: tuple[float, float], degree: int) -> list[str]:
    """Chebyshev polynomials, by their recurrence."""
    inside = _scale(nodes, codes, pair)
    polynomials = [inside]
    for power in range(2, degree + 1):
        before = polynomials[-2] if power > 2 else nodes.constant(1.0)
        twice = nodes.add("Mul", nodes.add("Add", inside, inside), polynomials[-1])
        polynomials.append(nodes.add("Sub", twice, before))
    return polynomials


def _scale(nodes: Nodes, codes: str, pair: tuple[float, float]) -> str:
    """Clip to the range and map it to [-1, 1]."""
    low, high = (float(end) / 2 for end in pair)  # halves, so that no sum or difference overflows
    middle, half = nodes.constant(low + high), nodes.constant(high - low)
    inside = nodes.add("Clip", codes, nodes.constant(2 * low), nodes.constant(2 * high))
    return nodes.add("Div", nodes.add("Sub", inside, middle), half)


def _parts(nodes: Nodes, codes: str, column: Date) -> list[str]:
    gone = nodes.add("Where", nodes.add("IsNaN", codes), nodes.constant(0.0), codes)
    hours = nodes.add("Cast", gone, to=WHOLE)
    return [nodes.one_hot(_part(nodes, hours, part), len(PARTS[part])) for part in column.parts]


def _part(nodes: Nodes, hours: str, part: str) -> str:
    def whole(operator: str, left: str, right: int | str) -> str:
        right = right if isinstance(right, str) else nodes.constant(np.array(right))
        return nodes.add(operator, left, right)

    hour = whole("Mod", hours, 24)  # never negative, like every dividend below
    if part == "hour":
        return hour
    days = whole("Div", whole("Sub", hours, hour), 24)
    if part == "weekday":
        return whole("Mod", whole("Add", days, _WEEKDAY_OF_DAY_0), 7)
    # The calendar repeats after 400 years; years begin in March here, so that 29 February is last.
    day = whole("Mod", whole("Add", days, _DAYS_BEFORE), _DAYS_OF_400_YEARS)
    leap_days = whole("Sub", whole("Div", day, 36_524), whole("Div", day, 1_460))
    leap_days = whole("Sub", leap_days, whole("Div", day, _DAYS_OF_400_YEARS - 1))
    year = whole("Div", whole("Add", day, leap_days), 365)
    before = whole("Sub", whole("Div", year, 4), whole("Div", year, 100))
    of_year = whole("Sub", day, whole("Add", whole("Mul", year, 365), before))
    # Months from March on repeat 31, 30, 31, 30, 31 days: 153 in five months.
    month = whole("Div", whole("Add", whole("Mul", of_year, 5), 2), 153)
    return whole("Mod", whole("Add", month, 2), 12)


def _category(nodes: Nodes, encoding: Encoding, name: str) -> str:
    names = names_of(encoding, name)
    width = names.features.shape[1]
    # The first feature that is 1; a missing value may also set the last.
    first = names.features.indices[names.features.indptr[:-1]].astype(np.int64)
    places = nodes.add(
        "LabelEncoder",
        name,
        domain=LEARNERS,
        keys_strings=list(names.texts),
        values_int64s=first[:-1].tolist(),
        default_int64=int(first[-1]),
    )
    features = nodes.one_hot(places, width)
    twice = np.flatnonzero(np.diff(names.features.indptr) == 2)
    if not len(twice):
        return features
    gaps = nodes.add(
        "LabelEncoder",
        name,
        domain=LEARNERS,
        keys_strings=[names.texts[place] for place in twice],
        values_int64s=[width - 1] * len(twice),
        default_int64=-1,
    )
    return nodes.add("Add", features, nodes.one_hot(gaps, width))
