"""Rows that report results or score trials are kept apart from the rows that they judge."""

from collections.abc import Iterable

from dptune.data.copies import has_copies
from dptune.data.row_sources import RowSource
from dptune.errors import InvalidInput


def must_hold_no_private_rows(other: RowSource, which: str, private: RowSource) -> None:
    """Compares features alone: a private row with another label is still private."""
    if _share_rows(private, other, rows=private.count):
        raise InvalidInput(
            f"some {which} rows are private rows, more than chance would give: whatever is "
            "measured on them would leak them. Give other rows, or leave out those whose "
            "features are among the private ones."
        )


def must_hold_no_reporting_rows(
    public: RowSource, reporting: Iterable[tuple[str, RowSource]]
) -> None:
    """Trials may be compared on public rows, but never on those that report the result."""
    for which, other in reporting:
        if _share_rows(other, public):
            raise InvalidInput(
                f"some public rows are {which} rows: choosing by the rows that report the result "
                "makes the report too good. Give other public rows, or pay for noisy scores."
            )


def _share_rows(one: RowSource, other: RowSource, rows: int = 0) -> bool:
    return has_copies(*(part.tables(copies=part.copies) for part in (one, other)), rows=rows)
