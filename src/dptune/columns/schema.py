"""What the types of a table say of its columns: where to start from when nothing is declared."""

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

# How polars marks categories that it found among the rows; those of an Enum are declared.
_POLARS_FOUND = b"_PL_CATEGORICAL2"


def guess(source: Any, label: str | None = None) -> Columns:
    """The kind of every column but the label's, from the types of a schema or a table alone.

    Texts become categories whose names are paid for. So do types that list names, of a schema; of
    a table these names are taken, which is right only where they were declared and not found in the
    rows. Dates lack the range that must be declared; what no kind can read is dropped.
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
        names = () if _POLARS_FOUND in (field.metadata or {}) else _listed(column)
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


def _listed(column: Any) -> tuple[str, ...]:
    """The names that the column's own type lists, whether rows have them or not."""
    if column is None or not column.num_chunks:
        return ()
    whole = column.unify_dictionaries().chunk(0).dictionary
    texts, which = category_texts(flat(whole))
    names = [texts[place].as_py() for place in which.tolist() if place >= 0]
    return tuple(dict.fromkeys(name for name in names if name))
