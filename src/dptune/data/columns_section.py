"""A [columns] section to start from: names and types of a file, and what is left to fill in."""

import json
import re
from pathlib import Path
from typing import Any

from dptune.columns import Boolean, Category, Column, Columns, Date, Drop, Number, guess
from dptune.errors import InvalidInput
from dptune.table_files import (
    listed,
    must_be_told_apart,
    must_hold_something,
    parquet_files,
    table_kind,
    without_rows,
)

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEAD = """\
# What the columns of {name} are: names and types from its header, the rest to fill in.
# Ranges and values become public with the model. Take them from what is known of such columns (a
# form, a standard, physics), NEVER from the rows: the lowest and the highest are two people's.
#   number     add range = [LOW, HIGH]; without one it is bought where that is worth its price
#   category   values = ["a", "b"] if they are known, "paid" to buy them, or buckets = 32
#   date       range must be given; parts = ["weekday", "month", "hour"] as you like
#   gaps       fill = VALUE (of a number also "middle"), and indicator = true for a column that
#              says where they were
#   "drop"     leaves a column out: names, numbers of rows, whatever tells people apart
"""
# A type cannot say where its names come from: pandas' astype("category") takes them from the rows.
_WHOSE_NAMES = ', which lists these names; if it got them from the rows, take "paid"'


def columns_section(source: str | Path, label: str | None = None) -> tuple[Columns, str]:
    """What the types of a file say of its columns, the label's apart, and the TOML to begin with.

    No row becomes part of it: types are those of a schema, or of a csv's first lines. But a type
    may list the names of a category, and whoever made it may have found them among the rows.
    """
    path = _file_of(Path(source))
    table = without_rows(path)
    names = table.schema.names
    must_be_told_apart(names, repr(str(source)))
    if label is not None and label not in names:
        raise InvalidInput(
            f"{str(source)!r} has no column of labels {label!r}; found the columns "
            f"{listed(names)}. Say which it is with --label."
        )
    columns = guess(table, label)
    shown = {name: str(table.schema.field(name).type) for name in names}
    lines = [_line(name, column, shown[name]) for name, column in columns.declared.items()]
    if label is not None:
        lines.append(_about_label(label, guess(table.select([label])).declared[label]))
    return columns, "\n".join([_HEAD.format(name=Path(source).name), "[columns]", *lines]) + "\n"


def _file_of(path: Path) -> Path:
    """Itself, or the first Parquet file of a folder."""
    files = parquet_files(path) if path.is_dir() else [path]
    if not files or not files[0].exists() or table_kind(files[0]) is None:
        raise InvalidInput(
            f"columns are those of a .csv, .csv.gz or .parquet file, or of a folder of .parquet "
            f"files, and {str(path)!r} is none."
        )
    must_hold_something(files[0])
    return files[0]


def _line(name: str, column: Column, kind: str) -> str:
    note = ", which cannot be used" * isinstance(column, Drop)
    if isinstance(column, Category) and isinstance(column.values, tuple):
        note = _WHOSE_NAMES
    return f"{_key(name)} = {_entry(column)}  # {kind}{note}"


def _entry(column: Column) -> str:
    if isinstance(column, Number):
        return '{ kind = "number" }'
    if isinstance(column, Category):
        return f'{{ kind = "category", values = {_plain(column.values)} }}'
    if isinstance(column, Date):
        return '{ kind = "date", range = ["FIRST", "LAST"] }'
    return _plain(column.kind)


def _about_label(name: str, column: Column) -> str:
    """A line that is no entry until somebody fills it in."""
    entry, why = '{ kind = "category", values = ["A", "B"] }', "else its classes are those found"
    if isinstance(column, Number):
        entry, why = '{ kind = "number", range = [LOW, HIGH] }', "to learn values, not classes"
    elif isinstance(column, Category) and isinstance(column.values, tuple):
        entry = _entry(column)
    elif isinstance(column, Boolean):
        entry = '"boolean"'
    return f"# {_key(name)} = {entry}  # the label: {why}"


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _plain(name)
