"""Texts of a source, checked: every column there, every text a text, everybody's rows somebody's.

What a message shows is names of columns, never a text.
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
    """The texts in `columns` of a csv, jsonl (both also .gz) or Parquet file, a folder that
    save_to_disk wrote, "hub:NAME", or a mapping of columns to lists.

    `label` is the column of labels and `unit` that of whose a row is. With `answers`, the last
    column holds answers, which may be empty, or as SQuAD has them: {"text", "answer_start"}.
    Of a data set with splits, the first of `splits` that is there. Where a `unit` is not needed,
    texts without one are nobody's. `for_model`: a model was trained on columns of these names.
    """
    names = names_of_columns(columns)
    # Units letter by letter, too: 007 and 7 are two people.
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
    counts = {len(found) for found in values.values()}
    if counts == {0}:
        raise InvalidInput(f"{opened.where!r} holds no rows, only columns: {listed(table.names)}.")
    starts = None
    if answers:
        values[names[-1]], starts = _answers(values[names[-1]])
    for name, found in values.items():
        _must_be_texts(found, name, opened.where)
    said = names[:-1] if answers else names
    _must_say_something(values, said, opened.where)
    for name in said:
        _must_have_letters(values[name], name, opened.where)
    labels = None if label is None else table.values(label)
    units = None if unit is None else table.values(unit)
    if units is not None:
        _must_be_somebodys(units, str(unit), opened.where)
        # White space around a name makes nobody another.
        units = [value.strip() if isinstance(value, str) else value for value in units]
    if len({*counts, *(len(some) for some in (labels, units) if some is not None)}) > 1:
        raise InvalidInput("the columns of the texts are not equally long; give one value a row.")
    return Texts(values, labels, units, starts, table.classes(label) if label else ())


_NAMED = {
    "texts": "--column (text= in Python)",
    "labels": "--label (label= in Python); where nobody does, it is called label",
    "units": "--unit (unit= in Python)",
}

_OF_MODEL = "The model was trained on a column of that name; rename yours."

# How files say that nothing is known: all those rows would be taken for one person's.
_NOBODY = ("", "nan", "na", "n/a", "#n/a", "<na>", "null", "none")


def names_of_columns(columns: object) -> tuple[str, ...]:
    """One name or several, all different."""
    names = (columns,) if isinstance(columns, str) else columns
    if not isinstance(names, Sequence) or not names or len(set(names)) != len(names):
        raise InvalidInput(
            f"texts are read from one or several different columns, by name; got {columns!r}."
        )
    for name in names:
        validate.text(column=name)
    return tuple(names)


def _answers(values: Sequence[Any]) -> tuple[list[Any], list[int] | None]:
    """Answers as texts, and where they begin; -1 where nothing says so."""
    found, starts = [], []
    for value in values:
        text, start = value, -1
        if isinstance(value, dict) and isinstance(value.get("text"), list):
            text = value["text"][0] if value["text"] else ""
            begins = value.get("answer_start") or [-1]
            start = begins[0]
        found.append("" if text is None else text)
        starts.append(start if isinstance(start, int) else -1)
    return found, starts


def _must_be_texts(values: Sequence[Any], name: str, where: str) -> None:
    if any(value is None for value in values):
        raise InvalidInput(
            f"the column {name!r} of {where!r} has missing texts; fill them or remove those rows "
            "first."
        )
    others = {type(value).__name__ for value in values if not isinstance(value, str)}
    if others:
        raise InvalidInput(
            f"the column {name!r} of {where!r} must hold texts; found {listed(sorted(others))}. "
            "Name another column, or turn its values into texts."
        )
    if not all(value.isascii() or _is_unicode(value) for value in values):
        raise InvalidInput(
            f"the column {name!r} of {where!r} holds letters that are none (halves of UTF-16 "
            "pairs), which no tokenizer takes; remove them first."
        )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _must_have_letters(values: Sequence[str], name: str, where: str) -> None:
    if not any(letter.isalpha() for value in values for letter in value):
        raise InvalidInput(
            f"the column {name!r} of {where!r} must hold texts, and none of its values has a "
            "letter; name the column of the texts. Numbers are for tune --data."
        )


def _must_say_something(values: dict[str, Sequence[Any]], names: Sequence[str], where: str) -> None:
    """Refuse rows without a letter in any of these columns."""
    said = zip(*(values[name] for name in names), strict=False)
    if not all(any(text.strip() for text in row) for row in said):
        raise InvalidInput(
            f"some rows of {where!r} have empty texts in {listed(names)}; remove those rows first."
        )


def _must_be_somebodys(units: Sequence[Any], name: str, where: str) -> None:
    if any(value is None or str(value).strip().casefold() in _NOBODY for value in units):
        raise InvalidInput(
            f"the column {name!r} of {where!r} does not say whose some rows are; fill it in or "
            "remove those rows first."
        )
    # Not both: 1 and "1" may be one person.
    if {str if isinstance(value, str) else type(value) for value in units} not in ({str}, {int}):
        raise InvalidInput(
            f"the column {name!r} of {where!r} must hold names or numbers that tell people apart, "
            "all of them text or all whole numbers."
        )
