"""Read one Arrow column as float64, NaN for a missing value.

Errors never show a value.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dptune.columns.dates import SECONDS_AN_HOUR
from dptune.columns.problems import Unfit

# How files write a missing value, in any case.
GAPS = ("", "na", "n/a", "#n/a", "<na>", "nan", "nat", "null")
_TRUE, _FALSE = ("true", "t", "yes", "y", "1", "1.0"), ("false", "f", "no", "n", "0", "0.0")
TRUTHS = (*_FALSE, *_TRUE)
_FRACTION = r"(:[0-9]{2})[.,][0-9]+"  # of a second
_HAS_ZONE = r"[T ].*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"
_WITHOUT_ZONE, _IN_UTC = pa.timestamp("s"), pa.timestamp("s", "UTC")
# Values that programs write in several ways: whole numbers with a point, booleans in capitals.
_ALSO_WRITTEN = {
    r"^(-?[0-9]+)\.0+$": r"\1",
    "^(True|TRUE)$": "true",
    "^(False|FALSE)$": "false",
}
_WHOLE_IN_FLOATS = 2.0**53
_ADVICE = 'change them, or declare the column as a "category"'
Codes = NDArray[np.float64]


def flat(column: Any) -> Any:
    """The column without a dictionary, with texts as large_string."""
    if pa.types.is_dictionary(column.type):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        kind = _plain_type(column.type.value_type)
        column = pa.chunked_array(
            [chunk.dictionary.cast(kind).take(chunk.indices) for chunk in chunks], kind
        )
    kind = _plain_type(column.type)
    return column if kind == column.type else column.cast(kind)


def numbers(column: Any) -> Codes:
    kind = column.type
    if kind == pa.large_string():
        return _numbers_of_texts(column)
    if pa.types.is_boolean(kind) or is_number(kind):
        return _floats(column.cast(pa.float64(), safe=False))
    raise wrong_type(kind, "a number")


def booleans(column: Any) -> Codes:
    kind = column.type
    wrong = Unfit(
        "holds values other than true and false (yes and no, t and f, y and n, 1 and 0)", _ADVICE
    )
    if pa.types.is_boolean(kind):
        return _floats(column.cast(pa.uint8()).cast(pa.float64()))
    if is_number(kind):
        codes = _floats(column.cast(pa.float64(), safe=False))
        if not bool((np.isnan(codes) | (codes == 0) | (codes == 1)).all()):
            raise wrong
        return codes
    if kind != pa.large_string():
        raise wrong_type(kind, "a boolean")
    distinct, which = distinct_values(column)
    lowered = pc.utf8_lower(pc.utf8_trim_whitespace(distinct))
    places = _floats(pc.index_in(lowered, value_set=_texts(TRUTHS)).cast(pa.float64()))
    if bool((np.isnan(places) & ~is_gap(distinct)).any()):
        raise wrong
    return take_codes(np.where(np.isnan(places), np.nan, places >= len(_FALSE)), which)


def hours(column: Any) -> Codes:
    """Whole hours since 1970-01-01 in UTC."""
    kind = column.type
    if kind == pa.large_string():
        return _hours_of_texts(column)
    if pa.types.is_date(kind):
        days = column.cast(pa.timestamp("ms"))
        return _whole_hours(days, "ms")
    if pa.types.is_timestamp(kind):  # one with a zone is stored in UTC
        return _whole_hours(column, kind.unit)
    raise wrong_type(kind, "a date")


def category_texts(column: Any) -> tuple[Any, NDArray[np.int64]]:
    """The distinct values as trimmed texts, in order of first use; and the index of each row's
    value, -1 for a missing one."""
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise wrong_type(kind, "a category")
    distinct, which = distinct_values(column)
    if pa.types.is_decimal(kind):
        distinct = distinct.cast(pa.float64())
    texts = distinct.cast(pa.large_string())
    if pa.types.is_floating(distinct.type):
        texts = pc.coalesce(_whole_as_text(distinct), texts)
    names = pc.utf8_trim_whitespace(texts)
    for written, name in _ALSO_WRITTEN.items():
        names = pc.replace_substring_regex(names, written, name)
    return names, which


def _whole_as_text(floats: Any) -> Any:
    """Whole numbers as integers in text, null for all others."""
    wide = floats.cast(pa.float64())
    whole = pc.and_(pc.equal(pc.trunc(wide), wide), pc.less_equal(pc.abs(wide), _WHOLE_IN_FLOATS))
    return pc.if_else(whole, wide, None).cast(pa.int64()).cast(pa.large_string())


def distinct_values(column: Any) -> tuple[Any, NDArray[np.int64]]:
    """The distinct values in order of first use, and the index of each row's value (-1: none)."""
    encoded = pc.dictionary_encode(column)
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    which = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return encoded.dictionary, which.astype(np.int64, copy=False)


def is_gap(texts: Any) -> NDArray[np.bool_]:
    """Which texts stand for a missing value."""
    lowered = pc.utf8_lower(pc.utf8_trim_whitespace(texts))
    written = pc.is_in(lowered, value_set=_texts(GAPS))
    gaps: NDArray[np.bool_] = pc.or_(written, pc.is_null(texts)).to_numpy(zero_copy_only=False)
    return gaps


def _texts(words: Sequence[str]) -> Any:
    """As an Arrow array. Made late, because `pa.array` loads pandas where it is installed."""
    return pa.array(words, pa.large_string())


def take_codes(codes: NDArray[Any], which: NDArray[np.int64]) -> Codes:
    """The code of each row, NaN where `which` is -1."""
    return np.append(codes.astype(np.float64), np.nan)[which]  # index -1 is the appended NaN


def _numbers_of_texts(column: Any) -> Codes:
    try:
        return _floats(column.cast(pa.float64()))
    except pa.ArrowInvalid:  # missing values or blanks, most often
        pass
    try:
        return _floats(_without_gaps(column).cast(pa.float64()))
    except pa.ArrowInvalid:  # whose message shows a value
        raise Unfit(
            'holds texts that are not numbers (write 1234.5, without "," or a unit)',
            _ADVICE,
        ) from None


def _without_gaps(texts: Any) -> Any:
    """Trimmed texts, null where they stand for a missing value."""
    trimmed = pc.utf8_trim_whitespace(texts)
    gaps = pc.is_in(pc.utf8_lower(trimmed), value_set=_texts(GAPS))
    return pc.if_else(gaps, pa.scalar(None, pa.large_string()), trimmed)


def _hours_of_texts(column: Any) -> Codes:
    for seconds in (_WITHOUT_ZONE, _IN_UTC):  # most files write all dates alike
        try:
            return _whole_hours(column.cast(seconds), "s")
        except pa.ArrowInvalid:
            continue
    texts = pc.replace_substring_regex(_without_gaps(column), _FRACTION, r"\1")
    zoned = pc.match_substring_regex(texts, _HAS_ZONE)
    none = pa.scalar(None, pa.large_string())
    try:
        with_zone = pc.if_else(zoned, texts, none).cast(_IN_UTC)
        without = pc.if_else(zoned, none, texts).cast(_WITHOUT_ZONE)
    except pa.ArrowInvalid:
        raise Unfit(
            "holds texts that are not dates (write 2025-12-31 or 2025-12-31T18:30:00)",
            _ADVICE,
        ) from None
    moments = pc.coalesce(with_zone.cast(pa.int64()), without.cast(pa.int64()))
    return _whole_hours(moments, "s")


def _whole_hours(column: Any, unit: str) -> Codes:
    an_hour = SECONDS_AN_HOUR * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    counted = column.cast(pa.int64())
    gaps = pc.is_null(counted).to_numpy(zero_copy_only=False)
    whole = counted.fill_null(0).to_numpy(zero_copy_only=False) // an_hour
    return np.where(gaps, np.nan, whole)


def _floats(column: Any) -> Codes:
    """As float64; null becomes NaN."""
    floats: Codes = column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    return floats


def _plain_type(kind: Any) -> Any:
    return pa.large_string() if is_text(kind) or pa.types.is_null(kind) else kind


def is_text(kind: Any) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def is_number(kind: Any) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def wrong_type(kind: Any, declared: str) -> Unfit:
    name = str(kind).partition("<")[0]  # the field names of a struct may be private, too
    return Unfit(
        f"has the type {name}, which cannot be {declared}",
        'declare another kind, or declare it as "drop"',
    )
