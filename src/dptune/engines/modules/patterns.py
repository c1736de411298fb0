"""Patterns of names, separated by commas: "encoder.layer.11.*, head.*"."""

from collections.abc import Iterable
from fnmatch import fnmatchcase


def patterns_in(text: str) -> list[str]:
    return [pattern.strip() for pattern in text.split(",") if pattern.strip()]


def fits(name: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns means `name`."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)
