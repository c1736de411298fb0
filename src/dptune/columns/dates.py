"""Dates as whole hours since 1970-01-01 in UTC, which float32 holds exactly up to the year 3883.

A date without a time is its midnight; a time without a zone is read as UTC.
"""

from datetime import UTC, date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dptune.errors import InvalidInput

PARTS = {
    "weekday": ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
    "month": (
        *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
        *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
    ),
    "hour": tuple(map(str, range(24))),
}
SECONDS_AN_HOUR = 3600
_HOURS_A_DAY = 24
_WEEKDAY_OF_DAY_0 = 3  # 1970-01-01 was a Thursday


def iso_text(value: object, name: str) -> str:
    """A date as text that can be stored; the date types of TOML and Python are accepted, too."""
    if isinstance(value, str):
        try:
            datetime.fromisoformat(value.strip())
        except ValueError:
            pass
        else:
            return value.strip()
    elif isinstance(value, date):  # a datetime is one
        return value.isoformat()
    raise InvalidInput(f"{name} must be dates such as 2025-12-31; got {value!r}.")


def hours_of(text: str) -> int:
    """The hours of a text from `iso_text`."""
    moment = datetime.fromisoformat(text)
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return since.days * _HOURS_A_DAY + since.seconds // SECONDS_AN_HOUR


def part(name: str, hours: NDArray[np.int64]) -> NDArray[Any]:
    """The index into `PARTS[name]` of each hour."""
    if name == "hour":
        return hours % _HOURS_A_DAY
    if name == "weekday":
        return (hours // _HOURS_A_DAY + _WEEKDAY_OF_DAY_0) % 7
    return hours.astype("datetime64[h]").astype("datetime64[M]").astype(np.int64) % 12
