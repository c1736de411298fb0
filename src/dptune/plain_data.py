"""Texts in JSON and TOML from outside, read so that whatever is wrong with one is a clear sentence.

Every JSON or TOML text of the package is read here.
"""

import json
import tomllib
from collections.abc import Callable
from typing import Any

from dptune.errors import InvalidInput

# Of lists and sections inside each other: what walks through them later calls itself as often.
_DEEPEST = 100

# What goes wrong where a record that was read lacks something, or holds another kind of thing.
UNFIT = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)


def read_json(text: str | bytes, name: str) -> Any:
    """The value of a text in JSON; `name` is what a message calls it."""
    return _read(json.loads, text, name, "JSON")


def read_toml(text: str, name: str) -> dict[str, Any]:
    """The same of a text in TOML."""
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
    """The place, and no more of the text than what must not stand there."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not text in UTF-8"
    if "integer string conversion" in str(error):
        return "it holds a number of thousands of digits"
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
        f"{name} has more than {_DEEPEST} lists or sections inside each other, which no record "
        "that dptune reads has; look at where it came from."
    )
