"""Describe the inputs of an exported model, for its users and its metadata."""

from collections.abc import Mapping

from dptune.columns import Category, Encoding
from dptune.export.column_facts import features_of_gap


def in_words(encoding: Encoding, takes: Mapping[type, tuple[str, str]]) -> dict[str, str]:
    """Describe the input of each kept column by its kind, and how a missing value is written."""
    described = {}
    for name in encoding.columns.kept:
        kind = type(encoding.columns.declared[name])
        what, gap = takes[kind]
        may_be_missing = kind is Category or features_of_gap(encoding, name) is not None
        described[name] = f"{what}; {gap} for a gap" if may_be_missing else f"{what}; no gaps"
    return described
