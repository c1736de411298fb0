"""A [columns] section to start from: names and types of a file, and what is left to fill in.

A type may list the names of a category, either from a code book or as pandas' astype("category")
took them from the rows. A file does not tell which, so they are written only on request.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dptune.columns import Boolean, Category, Column, Columns, Date, Drop, Number, guess
from dptune.errors import InvalidInput
from dptune.printable import printable
from dptune.table_files import (
    listed,
    must_be_told_apart,
    must_hold_something,
    must_not_be_nearly_csv,
    parquet_files,
    perhaps_meant,
    table_kind,
    without_rows,
)

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEAD = """\
# What the columns of {name} are: names and types as it has them, the rest to fill in.{guessed}
# Ranges and values become public with the model. Take them from general knowledge (a form, a
# standard, physics), NEVER from the rows: the lowest and the highest are values of two people.
#   number     add range = [LOW, HIGH]; without one it is estimated if that is worth its price
#   category   values = ["a", "b"] if you know them, "paid" to estimate them, or buckets = 32
#   date       range must be given; parts = ["weekday", "month", "hour"] as you like
#   gaps       fill = VALUE (of a number also "middle"), and indicator = true for a column that
#              says where they were
#   "drop"     leaves a column out: names, numbers of rows, whatever identifies people
"""
_GUESSED = (
    "\n# Types are guessed from the rows at the beginning of the file: correct what is wrong."
)
# Also patient_id, "Patient ID" and PatientId, but not paid; and names of people.
_KEY = re.compile(
    r"(?i:(.*[_ .-])?(id|uuid|key)|pid|rownames|index|unnamed: 0"
    r"|((first|last|full)[_ ]?)?name|surname|e-?mail)|.*[a-z]I[dD]"
)


def columns_section(
    source: str | Path, label: str | None = None, *, values: bool = False
) -> tuple[Columns, str]:
    """The columns of a file by their types, without the label, and the TOML to begin with.

    Types are those of a schema, or guessed from the first rows of a csv. No value of a row becomes
    part of it, unless `values` asks for the names that types list: right only if they come from a
    code book and not from the rows.
    """
    path = _file_of(Path(source))
    table = without_rows(path)
    names = table.schema.names
    must_be_told_apart(names, repr(str(source)))
    _must_be_printable(names, str(source))
    if label is not None and label not in names:
        raise InvalidInput(
            f"{str(source)!r} has no column of labels {label!r}; found the columns "
            f"{listed(names)}.{perhaps_meant(label, names, path)} Say which it is with --label."
        )
    typed = guess(table).declared
    written = typed if values else guess(table.schema).declared
    columns = Columns(
        {
            name: Drop() if _KEY.fullmatch(name) else column
            for name, column in written.items()
            if name != label
        }
    )
    types = {field.name: printable(str(field.type)) for field in table.schema}
    lines = [
        f"{_key(name)} = {_entry(column)}  # {types[name]}{_note(typed[name], column)}"
        for name, column in columns.declared.items()
    ]
    if label is not None:
        lines.append(_about_label(label, written[label]))
    head = _HEAD.format(
        name=printable(Path(source).name), guessed=_GUESSED if table_kind(path) == "csv" else ""
    )
    return columns, "\n".join([head, "[columns]", *lines]) + "\n"


def _must_be_printable(names: Sequence[str], source: str) -> None:
    """Refuse names that a declaration cannot have."""
    odd = [name for name in names if not name.isprintable()]
    if odd:
        raise InvalidInput(
            f"{source!r} has columns whose names are not one line of printable text "
            f"({listed(odd)}); rename them in the file."
        )


def _file_of(path: Path) -> Path:
    """The file itself, or the first Parquet file of a folder."""
    if not path.exists():
        raise InvalidInput(f"there is no file or folder {str(path)!r}; look at the path.")
    must_not_be_nearly_csv(path)
    files = parquet_files(path) if path.is_dir() else [path]
    if not files or table_kind(files[0]) is None:
        raise InvalidInput(
            f"columns are those of a .csv, .csv.gz or .parquet file, or of a folder of .parquet "
            f"files, and {str(path)!r} is "
            f"{'a folder without any' if path.is_dir() else 'none'}."
        )
    must_hold_something(files[0])
    return files[0]


def _note(typed: Column, written: Column) -> str:
    """Why less is written than the type says."""
    if isinstance(typed, Drop):
        return ", which cannot be used"
    if isinstance(written, Drop):
        return ", and by its name a key, which identifies people"
    if isinstance(typed, Category) and typed != written and isinstance(typed.values, tuple):
        return (
            f"; its type lists {len(typed.values)} names: if they come from a code book and not "
            "from the rows, --values writes them"
        )
    return ""


def _entry(column: Column) -> str:
    if isinstance(column, Number):
        return '{ kind = "number" }'
    if isinstance(column, Category):
        return f'{{ kind = "category", values = {_plain(column.values)} }}'
    if isinstance(column, Date):
        return '{ kind = "date", range = ["FIRST", "LAST"] }'
    return _plain(column.kind)


def _about_label(name: str, column: Column) -> str:
    """A comment that the user can make an entry."""
    entry = '{ kind = "category", values = ["A", "B"] }'
    why = "not declared, names that many rows have are estimated, for about 1 % of the budget"
    if isinstance(column, Number):
        entry, why = '{ kind = "number", range = [LOW, HIGH] }', "to learn values, not classes"
    elif isinstance(column, Category) and isinstance(column.values, tuple):
        entry = _entry(column)
    elif isinstance(column, Boolean):
        entry, why = '"boolean"', "not declared, the values that occur are its classes, and public"
    return f"# {_key(name)} = {entry}  # the label: {why}"


def _plain(value: Any) -> str:
    """In TOML, which escapes letters as JSON does, except those that JSON writes in two halves."""
    written = json.dumps(value, ensure_ascii=False)
    return "".join(
        letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in written
    )


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _plain(name)
