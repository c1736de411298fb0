"""What a file takes, in words: for people who serve it, and for its own notes."""

from collections.abc import Mapping

from dptune.columns import Category, Encoding
from dptune.export.column_facts import features_of_gap


def in_words(encoding: Encoding, takes: Mapping[type, tuple[str, str]]) -> dict[str, str]:
    """For each column that is kept what it takes, by its kind, and what says that there is a
    gap."""
    found = {}
    for name in encoding.columns.kept:
        kind = type(encoding.columns.declared[name])
        what, gap = takes[kind]
        may_be_missing = kind is Category or features_of_gap(encoding, name) is not None
        found[name] = f"{what}; {gap} for a gap" if may_be_missing else f"{what}; no gaps"
    return found
