"""A table of results, and the ways it is written down."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Table:
    """Rows of values, one a column; `columns` maps each heading to the format of its numbers. None
    is an empty cell."""

    columns: Mapping[str, str]
    rows: Sequence[Sequence[Any]]

    def texts(self) -> list[list[str]]:
        """Every cell as people read it."""
        return [
            [_text(value, style) for value, style in zip(row, self.columns.values(), strict=True)]
            for row in self.rows
        ]

    def markdown(self) -> str:
        lines = [list(self.columns), ["---"] * len(self.columns), *self.texts()]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()

    def plain(self) -> list[dict[str, Any]]:
        """For JSON: a mapping a row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def _text(value: Any, style: str) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, str) else format(value, style)
