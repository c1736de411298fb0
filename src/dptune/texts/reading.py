"""Read the texts of a source, and check columns, texts and units.

Messages show names of columns, never a text.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dptune import validate
from dptune.errors import InvalidInput
from dptune.table_files import listed, perhaps_meant
from dptune.texts.sources import open_splits
from dptune.texts.texts import Texts


def read(
    source: Any,
    columns: str | Sequence[str],
    label: str | None = None,
    unit: str | None = None,
    *,
    answers: bool = False,
    splits: Sequence[str] = ("train",),
    unit_is_needed: bool = True,
    for_model: bool = False,
) -> Texts:
    """Read the texts in `columns` of a csv, jsonl (both also .gz) or Parquet file, a folder written
    by save_to_disk, "hub:NAME", or a mapping of columns to lists.

    Args:
        source: where the texts are.
        columns: the columns of texts.
        label: the column of labels.
        unit: the column that names the person or group of each row.
        answers: whether the last column holds answers, which may be empty, as text or in SQuAD's
            form {"text", "answer_start"}.
        splits: the first of these that a data set has is read.
        unit_is_needed: whether a missing column `unit` is an error.
        for_model: whether the texts are for a trained model, whose columns have these names.

    """
    names = names_of_columns(columns)
    # Units are read as text, too: 007 and 7 are two people.
    opened = open_splits(source, names if unit is None else (*names, unit))
    table = opened.first_of(splits)
    if not unit_is_needed and unit not in table.names:
        unit = None
    for name, what in (*[(name, "texts") for name in names], (label, "labels"), (unit, "units")):
        if name is not None and name not in table.names:
            raise InvalidInput(
                f"{opened.where!r} has no column {name!r} of {what}; found the columns "
                f"{listed(table.names)}.{perhaps_meant(name, table.names, Path(opened.where))} "
                + (_OF_MODEL if for_model else f"Name it with {_NAMED[what]}.")
            )
    values = {name: table.values(name) for name in names}
    counts = {len(texts) for texts in values.values()}
    if counts == {0}:
        raise InvalidInput(f"{opened.where!r} holds no rows, only columns: {listed(table.names)}.")
    starts = None
    if answers:
        values[names[-1]], starts = _split_answers(values[names[-1]])
    for name, texts in values.items():
        _check_texts(texts, name, opened.where)
    given = names[:-1] if answers else names
    _check_not_empty(values, given, opened.where)
    for name in given:
        _check_letters(values[name], name, opened.where)
    labels = None if label is None else table.values(label)
    units = None if unit is None else table.values(unit)
    if units is not None:
        _check_units(units, str(unit), opened.where)
        # White space around a name does not make another person.
        units = [value.strip() if isinstance(value, str) else value for value in units]
    if len({*counts, *(len(some) for some in (labels, units) if some is not None)}) > 1:
        raise InvalidInput("the columns of texts differ in length; give one value per row.")
    return Texts(values, labels, units, starts, table.classes(label) if label else ())


_NAMED = {
    "texts": "--column (text= in Python)",
    "labels": "--label (label= in Python; default: label)",
    "units": "--unit (unit= in Python)",
}

_OF_MODEL = "The model was trained on a column of that name; rename yours."

# How files write a missing name: all those rows would be taken for one person's.
_MISSING = ("", "nan", "na", "n/a", "#n/a", "<na>", "null", "none")


def names_of_columns(columns: object) -> tuple[str, ...]:
    """The names of one or several columns, all different."""
    names = (columns,) if isinstance(columns, str) else columns
    if not isinstance(names, Sequence) or not names or len(set(names)) != len(names):
        raise InvalidInput(
            f"the columns of texts must be one or several different names; got {columns!r}."
        )
    for name in names:
        validate.text(column=name)
    return tuple(names)


def _split_answers(values: Sequence[Any]) -> tuple[list[Any], list[int] | None]:
    """Answers as texts, and their positions; -1 where none is given."""
    texts, starts = [], []
    for value in values:
        text, start = value, -1
        if isinstance(value, dict) and isinstance(value.get("text"), list):
            text = value["text"][0] if value["text"] else ""
            begins = value.get("answer_start") or [-1]
            start = begins[0]
        texts.append("" if text is None else text)
        starts.append(start if isinstance(start, int) else -1)
    return texts, starts


def _check_texts(values: Sequence[Any], name: str, where: str) -> None:
    if any(value is None for value in values):
        raise InvalidInput(
            f"the column {name!r} of {where!r} has missing texts; fill them or remove those rows "
            "first."
        )
    others = {type(value).__name__ for value in values if not isinstance(value, str)}
    if others:
        raise InvalidInput(
            f"the column {name!r} of {where!r} must hold texts; found {listed(sorted(others))}. "
            "Name another column, or convert its values to text."
        )
    if not all(value.isascii() or _is_unicode(value) for value in values):
        raise InvalidInput(
            f"the column {name!r} of {where!r} holds invalid characters (unpaired UTF-16 "
            "surrogates), which no tokenizer accepts; remove them first."
        )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_letters(values: Sequence[str], name: str, where: str) -> None:
    if not any(letter.isalpha() for value in values for letter in value):
        raise InvalidInput(
            f"the column {name!r} of {where!r} must hold texts, but none of its values has a "
            "letter; name the column of the texts. For tables of numbers use tune --data."
        )


def _check_not_empty(values: dict[str, Sequence[Any]], names: Sequence[str], where: str) -> None:
    """Refuse rows whose texts are empty in all of these columns."""
    rows = zip(*(values[name] for name in names), strict=False)
    if not all(any(text.strip() for text in row) for row in rows):
        raise InvalidInput(
            f"some rows of {where!r} have empty texts in {listed(names)}; remove those rows first."
        )


def _check_units(units: Sequence[Any], name: str, where: str) -> None:
    if any(value is None or str(value).strip().casefold() in _MISSING for value in units):
        raise InvalidInput(
            f"the column {name!r} of {where!r} does not name the unit of some rows; fill it in or "
            "remove those rows first."
        )
    # Not both: 1 and "1" may be one person.
    if {str if isinstance(value, str) else type(value) for value in units} not in ({str}, {int}):
        raise InvalidInput(
            f"the column {name!r} of {where!r} must identify people by names or numbers: all text, "
            "or all whole numbers."
        )
