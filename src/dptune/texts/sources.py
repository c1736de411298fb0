"""Sources of texts: files, folders of Hugging Face datasets, the hub, mappings of columns.

A split of a data set follows a colon: FOLDER:validation, hub:OWNER/NAME:validation. On the hub, a
configuration follows the name and a revision an @: hub:OWNER/NAME/CONFIG@REVISION.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dptune.errors import InvalidInput
from dptune.hub import load_from_disk, load_from_hub
from dptune.plain_data import read_json
from dptune.table_files import (
    LONGEST_LINE,
    listed,
    must_hold_something,
    must_not_be_nearly_csv,
    not_utf8,
    read_csv,
    read_parquet,
    reading,
)
from dptune.unpacked import open_unpacked

HUB = "hub:"
_ENDINGS = (".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".parquet")


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Columns by name, read on demand; `classes` gives the names of a column's numbered labels."""

    names: Sequence[str]
    values: Callable[[str], Sequence[Any]]
    classes: Callable[[str], tuple[str, ...]] = lambda name: ()


@dataclass(frozen=True, eq=False, repr=False)
class Splits:
    """The tables of a source; one without splits is a table to train on."""

    where: str
    tables: Mapping[str, Callable[[], Table]]

    def first_of(self, names: Sequence[str]) -> Table:
        for split in names:
            if split in self.tables:
                return self.tables[split]()
        raise InvalidInput(
            f"{self.where!r} has no split {' or '.join(names)}; found {listed(list(self.tables))}."
        )


def place_and_split(source: str | Path) -> tuple[str, str]:
    """The place of a data set, and the split after its colon, or ""."""
    place, colon, split = str(source).rpartition(":")
    if colon and place and (Path(place).is_dir() or place.startswith(HUB)):
        return place, split
    return str(source), ""


def open_splits(source: Any, texts: Sequence[str]) -> Splits:
    """Open a source; the columns `texts` are read as text, unchanged."""
    if isinstance(source, Mapping):
        columns = {str(name): _as_list(values, name) for name, values in source.items()}
        return Splits("the texts", {"train": lambda: Table(list(columns), columns.__getitem__)})
    if not isinstance(source, str | Path):
        raise InvalidInput(
            "texts must be a path, 'hub:NAME' or a mapping of columns to lists; got "
            f"{type(source).__name__}."
        )
    place, split = place_and_split(source)
    if place.startswith(HUB):
        splits = _from_hub(place.removeprefix(HUB))
    elif Path(place).is_dir():
        splits = load_from_disk(Path(place))
    else:
        return Splits(place, {"train": partial(_from_file, Path(place), tuple(texts))})
    tables = {name: partial(_from_split, stored, place) for name, stored in splits.items()}
    if split and split not in tables:
        raise InvalidInput(f"{place!r} has no split {split!r}; found {listed(list(tables))}.")
    return Splits(place, {"train": tables[split], "test": tables[split]} if split else tables)


def _as_list(values: Any, name: object) -> list[Any]:
    plain = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(plain, list | tuple):
        raise InvalidInput(f"the column {name!r} must be a list; got {type(values).__name__}.")
    return list(plain)


def _from_file(path: Path, texts: Sequence[str]) -> Table:
    if not path.exists():
        raise InvalidInput(
            f"there is no file or folder {str(path)!r}; give the path of a file of texts "
            f"({', '.join(_ENDINGS)}), a folder written by save_to_disk, or 'hub:NAME'."
        )
    must_not_be_nearly_csv(path)
    name = path.name.lower()
    if not name.endswith(_ENDINGS):
        raise InvalidInput(
            f"{str(path)!r} does not end in one of {', '.join(_ENDINGS)}; convert it to one of "
            "these, or rename it if it is one."
        )
    must_hold_something(path)
    if name.endswith((".jsonl", ".jsonl.gz")):
        return _from_json_lines(path)
    return _of_arrow(read_parquet(path) if name.endswith(".parquet") else read_csv(path, texts))


def _from_json_lines(path: Path) -> Table:
    rows: list[dict[str, Any]] = []
    with reading(path):
        try:
            with open_unpacked(path) as file:
                lines = iter(lambda: file.readline(LONGEST_LINE + 1), b"")
                for number, line in enumerate(lines, start=1):
                    if line.strip():
                        rows.append(_read_json_line(line, number, path))
        except UnicodeDecodeError:  # its own message shows a byte
            raise not_utf8(path) from None
    names = list(dict.fromkeys(name for row in rows for name in row))
    return Table(names, lambda name: [row.get(name) for row in rows])


def _read_json_line(line: bytes, number: int, path: Path) -> dict[str, Any]:
    if len(line) > LONGEST_LINE:
        raise InvalidInput(
            f"line {number} of {str(path)!r} is longer than {LONGEST_LINE >> 20} MiB, so it is not "
            "read; every line must be one JSON object, of one row."
        )
    try:
        row = read_json(line.decode(), "it")
    except InvalidInput:
        row = None
    if not isinstance(row, dict):
        raise InvalidInput(
            f"line {number} of {str(path)!r} is not a JSON object; every line must be one, such as "
            '{"body": "...", "label": "..."}.'
        )
    return row


def _of_arrow(table: Any) -> Table:
    return Table(table.column_names, lambda name: table.column(name).to_pylist())


def _from_split(split: Any, where: str) -> Table:
    with reading(Path(where)):
        table = split.with_format("arrow")[:]
    kinds = split.features
    return Table(
        table.column_names,
        lambda name: table.column(name).to_pylist(),
        lambda name: tuple(getattr(kinds.get(name), "names", None) or ()),
    )


def _from_hub(rest: str) -> dict[str, Any]:
    name, _, revision = rest.partition("@")
    parts = name.split("/")
    config = parts.pop() if len(parts) == 3 else None
    return load_from_hub("/".join(parts), config, revision or None)
