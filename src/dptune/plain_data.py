"""The reader of all JSON and TOML texts of the package; every problem becomes a clear error."""

import json
import tomllib
from collections.abc import Callable
from typing import Any

from dptune.errors import InvalidInput

# The deepest nesting of lists and sections, since later code processes them recursively.
_DEEPEST = 100

# The errors that a record raises if it lacks a field or has one of another type.
UNFIT = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


def read_json(text: str | bytes, name: str) -> Any:
    """The value of a JSON text; error messages call it `name`."""
    return _read(json.loads, text, name, "JSON")


def read_toml(text: str, name: str) -> dict[str, Any]:
    """The same for a TOML text."""
    sections: dict[str, Any] = _read(tomllib.loads, text, name, "TOML")
    return sections


def _read(parse: Callable[[Any], Any], text: str | bytes, name: str, language: str) -> Any:
    try:
        value = parse(text)
    except RecursionError:
        raise _too_deep(name) from None
    except ValueError as error:
        raise InvalidInput(f"{name} is not {language}: {_reason(error)}.") from None
    if not _is_shallow(value):
        raise _too_deep(name)
    return value


def _reason(error: ValueError) -> str:
    """The place of the problem, and only the part of the text that is wrong."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not text in UTF-8"
    if "integer string conversion" in str(error):
        return "it has a number with thousands of digits"
    return str(error).rstrip(".")


def _is_shallow(value: Any) -> bool:
    inside = [value]
    for _ in range(_DEEPEST):
        inside = [
            each
            for one in inside
            if isinstance(one, dict | list)
            for each in (one.values() if isinstance(one, dict) else one)
        ]
        if not inside:
            return True
    return False


def _too_deep(name: str) -> InvalidInput:
    return InvalidInput(
        f"{name} has more than {_DEEPEST} nested lists or sections, which no record of dptune has; "
        "check where it came from."
    )
