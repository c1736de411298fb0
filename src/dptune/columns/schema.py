"""What the types of a table say of its columns: where to start from when nothing is declared."""

from typing import Any

import pyarrow as pa

from dptune.columns.kinds import (
    PAID,
    Boolean,
    Category,
    Column,
    Date,
    Drop,
    Number,
    category_text,
)
from dptune.columns.spec import Columns


def guess(source: Any, label: str | None = None) -> Columns:
    """The kind of every column but the label's, from the types of a schema or a table alone.

    Texts become categories whose names are paid for, unless a table's own type lists them; dates
    lack the range that must be declared; what no kind can read is dropped.
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
        listed = _listed(column)
        return Category(values=listed or PAID)
    if types.is_boolean(kind):
        return Boolean()
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return Number()
    if types.is_date(kind) or types.is_timestamp(kind):
        return Date()
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return Category(values=PAID)
    return Drop()


def _listed(column: Any) -> tuple[str, ...]:
    """The names that the column's own type lists, whether rows have them or not."""
    if column is None or not column.num_chunks:
        return ()
    names = column.chunk(0).dictionary.to_pylist()
    return tuple(category_text(name, "a name") for name in names if name is not None)
