"""Guess the kinds of columns from the types of a table."""

from typing import Any

import pyarrow as pa

from dptune.columns.kinds import (
    MOST_VALUES,
    PAID,
    Boolean,
    Category,
    Column,
    Date,
    Drop,
    Number,
)
from dptune.columns.spec import Columns
from dptune.columns.values import category_texts, flat, is_number, is_text

# polars marks a Categorical, whose values come from the rows, with this; an Enum declares them.
_FROM_ROWS = b"_PL_CATEGORICAL2"


def guess(source: Any, label: str | None = None) -> Columns:
    """Guess the kind of every column but the label from the types of a schema or a table alone.

    Texts become categories with privately estimated values. Dictionary types of a schema do, too;
    of a table their listed values are used, which is right only where these values were declared
    and not taken from the rows. Dates lack the range that must be declared. A column that no kind
    can read is dropped.
    """
    table = source if isinstance(source, pa.Table) else None
    schema = source if table is None else table.schema
    return Columns(
        {
            field.name: _kind(field, None if table is None else table.column(place))
            for place, field in enumerate(schema)
            if field.name != label
        }
    )


def _kind(field: Any, column: Any) -> Column:
    kind = field.type
    types = pa.types
    if types.is_dictionary(kind):
        names = () if _FROM_ROWS in (field.metadata or {}) else _values_of_type(column)
        return Category(values=names if 0 < len(names) <= MOST_VALUES else PAID)
    if types.is_boolean(kind):
        return Boolean()
    if is_number(kind):
        return Number()
    if types.is_date(kind) or types.is_timestamp(kind):
        return Date()
    if is_text(kind):
        return Category(values=PAID)
    return Drop()


def _values_of_type(column: Any) -> tuple[str, ...]:
    """The values that the type of the column lists, whether rows have them or not."""
    if column is None or not column.num_chunks:
        return ()
    whole = column.unify_dictionaries().chunk(0).dictionary
    texts, which = category_texts(flat(whole))
    names = [texts[place].as_py() for place in which.tolist() if place >= 0]
    return tuple(dict.fromkeys(name for name in names if name))
