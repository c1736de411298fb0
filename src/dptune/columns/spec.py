"""The declared columns of a table, by name."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from dptune.columns.kinds import (
    DEFAULT_AT_MOST,
    KINDS,
    NO_DATE_RANGE,
    Boolean,
    Category,
    Column,
    Date,
    Drop,
    Number,
)
from dptune.columns.problems import Problems
from dptune.errors import InvalidInput


@dataclass(frozen=True)
class LabelFacts:
    """The classes of a declared label, in the order of their codes, or the range of its values.
    Both are None for a number without a range."""

    classes: tuple[str, ...] | None = None
    target_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Columns:
    """All columns by name, in the order of their declaration. Rows of codes have the `kept` ones,
    in this order."""

    declared: dict[str, Column]

    @staticmethod
    def of(given: "Mapping[str, Any] | Columns") -> "Columns":
        """Read the declaration of a config or a program: for each name a kind, or a mapping with a
        kind and more facts. Reports all problems together."""
        if isinstance(given, Columns):
            return given
        if not isinstance(given, Mapping):
            raise InvalidInput(
                'columns must be declared by name, such as {"age": {"kind": "number", "range": '
                f"[0, 100]}}}}; got {type(given).__name__}."
            )
        problems = Problems()
        declared: dict[str, Column] = {}
        for name, entry in given.items():
            if not isinstance(name, str) or not name.strip() or not name.isprintable():
                problems.add(repr(name), "the name of a column must be one line of text.")
                continue
            try:
                declared[name] = _read_column(entry)
            except InvalidInput as error:
                for line in str(error).split("\n"):
                    problems.add(name, line)
        problems.raise_any("the declared columns need a change")
        return Columns(declared)

    @staticmethod
    def of_numbers(names: Iterable[str]) -> "Columns":
        """Columns of numbers without any other fact."""
        return Columns({name: Number() for name in names})

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.declared)

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of all columns that are not dropped."""
        return tuple(name for name, one in self.declared.items() if not isinstance(one, Drop))

    def without(self, label: str) -> "Columns":
        """The columns without the label."""
        return Columns({name: one for name, one in self.declared.items() if name != label})

    def only(self, name: str) -> "Columns":
        """One column alone: labels are coded like any column."""
        return Columns({name: self.declared[name]})

    def label_facts(self, name: str) -> LabelFacts | None:
        """The declared facts of the label's column; None if it is not declared."""
        column = self.declared.get(name)
        if column is None:
            return None
        if isinstance(column, Boolean):
            return LabelFacts(classes=("false", "true"))
        if isinstance(column, Number):
            return LabelFacts(target_range=column.pair)
        if isinstance(column, Category) and isinstance(column.values, tuple):
            return LabelFacts(classes=column.values)
        raise InvalidInput(
            f"{name}: a label must be a category with all its values, a boolean, or a number with "
            f"a range; it is declared as {''.join(_summarize(column))}."
        )

    def to_plain(self) -> dict[str, Any]:
        """As a config writes it; `of` reads it back."""
        return {name: _to_plain(column) for name, column in self.declared.items()}

    def in_words(self) -> str:
        """Count the columns of each kind: "2 numbers with a range, 1 category in 64 buckets"."""
        counts = Counter(_summarize(column) for column in self.declared.values())
        return ", ".join(
            f"{count} {noun if count == 1 else _PLURALS[noun]}{rest}"
            for (noun, rest), count in counts.items()
        )


def _read_column(entry: Any) -> Column:
    if isinstance(entry, Column):
        return entry
    given = {"kind": entry} if isinstance(entry, str) else entry
    if not isinstance(given, Mapping) or not isinstance(given.get("kind"), str):
        raise InvalidInput(
            f"needs a kind, one of {', '.join(KINDS)}; got {type(entry).__name__} without one."
        )
    kind = KINDS.get(given["kind"])
    if kind is None:
        raise InvalidInput(f"kind must be one of {', '.join(KINDS)}; got {given['kind']!r}.")
    keys = [field.name for field in fields(kind)]
    faults = [
        f"{kind.kind} has no key {name!r}; its keys are {', '.join(('kind', *keys))}."
        for name in given
        if name != "kind" and name not in keys
    ]
    facts = {name: _hashable(value) for name, value in given.items() if name in keys}
    if kind is Date and facts.get("range") is None:
        faults.append(NO_DATE_RANGE)
    try:
        column = kind(**facts)
    except InvalidInput as error:
        faults.append(str(error))
    if faults:
        raise InvalidInput("\n".join(faults))
    return column


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _to_plain(column: Column) -> Any:
    facts: dict[str, Any] = {}
    for field in fields(column):
        value = getattr(column, field.name)
        if value == field.default or (field.name == "at_most" and value == DEFAULT_AT_MOST):
            continue
        facts[field.name] = list(value) if isinstance(value, tuple) else value
    return {"kind": column.kind, **facts} if facts else column.kind


_PLURALS = {
    "number": "numbers",
    "category": "categories",
    "date": "dates",
    "boolean": "booleans",
    "dropped": "dropped",
}


def _summarize(column: Column) -> tuple[str, str]:
    """The kind as a noun, and its main fact."""
    if isinstance(column, Number):
        if column.pair is not None:
            return "number", " with a range"
        return "number", " with a privately estimated range" if column.range else ""
    if isinstance(column, Category):
        if column.paid:
            return "category", " with privately estimated values"
        return "category", f" in {column.buckets} buckets" if column.buckets else " with values"
    return "dropped" if isinstance(column, Drop) else column.kind, ""
