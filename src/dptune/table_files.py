"""Tables in files, csv and Parquet, as Arrow has them; and what is said of a file that is torn.

What a message shows of a file is its columns, never its values.
"""

import csv as plain_csv
import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from dptune.errors import DptuneError, InvalidInput
from dptune.printable import printable
from dptune.unpacked import LIMIT, BeyondLimit, is_packed, open_unpacked

# Errors of readers whose words say what is wrong with a file, and show no value of a row.
_SAY_WHY = (
    OSError,
    ValueError,
    TypeError,
    EOFError,
    MemoryError,  # a torn header can ask for any size
    RuntimeError,  # a zip that is encrypted, or compressed in an unknown way
    zipfile.BadZipFile,
    zlib.error,
)
LONGEST_LINE = 1 << 26  # bytes: a whole mailbox may be one value
_LONGEST_HEADER = 1 << 20  # bytes
_PANDAS_INDEX = "__index_level_"
_GZIP = b"\x1f\x8b"  # how such a file begins
_SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": 'signs "|"'}
# Bytes of a csv, of which Arrow has some in hand, and rows of a Parquet file.
_AT_ONCE, _ROWS_AT_ONCE = 1 << 22, 1 << 16


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Refuse a file, or a folder of files, that whatever reads it fails on."""
    try:
        yield
    except DptuneError:
        raise
    except Exception as error:  # bytes of any kind come here, and readers fail in any way
        # Where a column must be text; of others Arrow makes bytes.
        if isinstance(error, pa.ArrowInvalid) and "invalid utf8" in str(error).lower():
            raise not_utf8(path) from None
        advice = "It may be damaged, or of another kind than its name says; write it again."
        if isinstance(error, PermissionError):
            advice = "Ask its owner for the right to read it."
        if isinstance(error, BeyondLimit):
            advice = (
                f"If you trust it, set the environment variable {LIMIT} to a larger number of "
                "gigabytes."
            )
        raise InvalidInput(
            f"{str(path)!r} cannot be read: {_reason(error, path)}. {advice}"
        ) from None


def _reason(error: Exception, path: Path) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, pa.ArrowException):  # which quotes the line it stumbled on
        torn = re.search(r"(Row #\d+: )?Expected \d+ columns, got \d+", str(error))
        if torn is None:
            return "Empty CSV file" if "Empty CSV file" in str(error) else type(error).__name__
        return torn.group() if torn.group(1) else _torn_row(path) or torn.group()
    if isinstance(error, KeyError):
        return f"it lacks {error}"
    said = str(error).split("\n")[0].rstrip(".") if isinstance(error, _SAY_WHY) else ""
    return said or type(error).__name__


def _torn_row(path: Path) -> str | None:
    """Where it is: readers that share the work do not know."""
    try:
        with csv.open_csv(
            _source(path),
            read_options=csv.ReadOptions(use_threads=False),
            parse_options=csv.ParseOptions(newlines_in_values=True),
        ) as batches:
            for _ in batches:
                pass
    except pa.ArrowInvalid as error:
        found = re.search(r"Row #\d+: Expected \d+ columns, got \d+", str(error))
        return found.group() if found else None
    return None


def table_kind(path: Path) -> str | None:
    """By its name: csv or parquet; None of other files."""
    name = path.name.lower()
    if name.endswith((".csv", ".csv.gz")):
        return "csv"
    return "parquet" if name.endswith(".parquet") else None


def must_hold_something(path: Path) -> None:
    """Refuse a file without a byte."""
    if path.stat().st_size == 0:
        raise InvalidInput(f"the file {str(path)!r} is empty; give one that holds rows.")


def read_csv(path: Path, texts: Sequence[str] = ()) -> Any:
    """A table whose first line names its columns; `texts` are kept letter by letter, line breaks
    between quotes included. May be compressed with gzip."""
    with reading(path):
        _must_be_separated_by_commas(path)
        kept: Mapping[str, Any] = {name: pa.string() for name in texts}
        table = csv.read_csv(
            _source(path),
            read_options=csv.ReadOptions(block_size=LONGEST_LINE if texts else None),
            parse_options=csv.ParseOptions(newlines_in_values=bool(texts)),
            convert_options=csv.ConvertOptions(column_types=kept),
        )
        _must_be_names(table.column_names, path)
        if any(pa.types.is_binary(kind) for kind in table.schema.types):
            raise not_utf8(path)
        if texts and _has_line_breaks(table):
            _must_close_quotes(path)
        return table


def _has_line_breaks(table: Any) -> bool:
    written = [column for column in table.columns if pa.types.is_string(column.type)]
    return any(bool(pc.any(pc.match_substring(column, "\n")).as_py()) for column in written)


def _must_close_quotes(path: Path) -> None:
    """Arrow reads on to the next quotation mark, wherever that is, and makes one row of several."""
    with io.TextIOWrapper(open_unpacked(path), encoding="utf-8", newline="") as lines:
        rows = plain_csv.reader(lines, strict=True)
        limit = plain_csv.field_size_limit(LONGEST_LINE)
        try:
            for _ in rows:
                pass
        except plain_csv.Error:
            raise InvalidInput(
                f"{str(path)!r} has a quotation mark that is not closed where its value ends, near "
                f"line {rows.line_num:,}: several lines would be read as one row, and protected as "
                "one. Put marks around whole values only, and write one inside a value twice."
            ) from None
        finally:
            plain_csv.field_size_limit(limit)


def names_in_csv(path: Path) -> list[str]:
    """The names of its columns, of which one may be there twice."""
    with reading(path):
        names: list[str] = _types_in_csv(path).names
        return names


def _types_in_csv(path: Path) -> Any:
    _must_be_separated_by_commas(path)
    with _opened_csv(path, []) as batches:
        schema = batches.schema
    _must_be_names(schema.names, path)
    if any(pa.types.is_binary(kind) for kind in schema.types):
        raise not_utf8(path)
    return schema


def csv_texts(path: Path, names: Sequence[str]) -> Iterator[Any]:
    """Tables of some rows each, all columns letter by letter as texts."""
    with reading(path), _opened_csv(path, names) as batches:
        for batch in batches:
            yield pa.Table.from_batches([batch])


def as_csv_reads(texts: Any) -> Any:
    """A column of texts as numbers or truths, where all of it looks so, as in `read_csv`."""
    file = pa.BufferOutputStream()
    csv.write_csv(pa.table({"texts": texts}), file)
    return csv.read_csv(
        pa.BufferReader(file.getvalue()),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        read_options=csv.ReadOptions(block_size=LONGEST_LINE),
    ).column(0)


def _opened_csv(path: Path, texts: Sequence[str]) -> Any:
    kept: Mapping[str, Any] = {name: pa.string() for name in texts}
    return csv.open_csv(
        _source(path),
        read_options=csv.ReadOptions(block_size=_AT_ONCE),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(column_types=kept),
    )


def _must_be_names(names: Sequence[str], path: Path) -> None:
    """Checked before any message shows them: a first line of data is private."""
    if any(is_number(name) for name in names):
        raise InvalidInput(
            f"the first line of {str(path)!r} must name the columns, and looks like data: it "
            "has numbers. Add a line with names; a name cannot be a number."
        )


def must_be_told_apart(names: Sequence[str], where: str) -> None:
    """Refuse names that no declaration could tell apart."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise InvalidInput(f"{where} has several columns called {listed(twice)}; rename them.")
    without = next((place for place, name in enumerate(names) if not name.strip()), None)
    if without == 0:
        raise InvalidInput(
            f"the first column of {where} has no name (pandas writes its index so: "
            "to_csv(index=False)); name it, or leave it out."
        )
    if without is not None:
        raise InvalidInput(
            f"column {without + 1} of {where} has no name; name it, or leave it out."
        )


def perhaps_meant(name: str, names: Sequence[str], path: Path) -> str:
    """What to add where names are shown as this is none of them: it may nearly be one, and a csv
    without a line of names shows its first row."""
    near = get_close_matches(name, names, 1)
    said = f" Did you mean {near[0]!r}?" if near else ""
    if table_kind(path) == "csv":
        said += " If these are values of a row, the file lacks a line of names."
    return said


def read_parquet(path: Path) -> Any:
    with reading(path), parquet.ParquetFile(path) as file:
        table = file.read()
        table.validate(full=True)  # texts may hold any bytes
        return table


def parquet_files(folder: Path) -> list[Path]:
    """Those of a folder that make one table, in the order of their names."""
    return sorted(path for path in folder.glob("*.parquet") if path.is_file())


def parquet_schema(path: Path) -> Any:
    with reading(path):
        return parquet.read_schema(path)


def without_rows(path: Path) -> Any:
    """A table of the same columns and types without a row; a type that lists its names keeps them.
    Types of a csv are guessed from its first rows, as many as are read at once."""
    with reading(path):
        if table_kind(path) == "csv":
            return _types_in_csv(path).empty_table()
        with parquet.ParquetFile(path) as file:
            schema, groups = file.schema_arrow, file.num_row_groups
            names = set(without_index(schema.names))
            kept = [field for field in schema if field.name in names]
            lists = [field.name for field in kept if pa.types.is_dictionary(field.type)]
            first = file.read_row_group(0, columns=lists) if groups and lists else None
    empty = pa.schema(kept).empty_table()
    for place, field in enumerate(kept):
        if first is not None and field.name in lists:
            empty = empty.set_column(place, field, first.column(field.name).slice(0, 0))
    return empty


def without_index(names: Sequence[str]) -> list[str]:
    """The columns of a frame: its index travels as a column, too, and is no feature."""
    return [name for name in names if not name.startswith(_PANDAS_INDEX)]


def parquet_tables(paths: Sequence[Path]) -> Iterator[Any]:
    """Tables of some rows each."""
    for path in paths:
        with reading(path), parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE):
                yield pa.Table.from_batches([batch])


def listed(names: Sequence[str]) -> str:
    """The first of them, and how many there are."""
    shown = ", ".join(map(printable, names[:20]))
    return shown if len(names) <= 20 else f"{shown}, ... ({len(names)} in all)"


def _source(path: Path) -> Any:
    """What Arrow reads a csv from: it would unpack a compressed one to any size."""
    return open_unpacked(path) if is_packed(path) else path


def _must_be_separated_by_commas(path: Path) -> None:
    """By the first line alone: with decimal commas, the others seem torn and cannot be read."""
    with open_unpacked(path) as file:
        line = file.readline(_LONGEST_HEADER + 1)
    if len(line) > _LONGEST_HEADER:
        raise InvalidInput(
            f"the first line of {str(path)!r} is longer than a megabyte, so it is not read: it "
            "must name the columns, and every row needs a line of its own."
        )
    if line.startswith(_GZIP):
        raise InvalidInput(
            f"{str(path)!r} is compressed with gzip, and its name does not say so; rename it to "
            "end in .csv.gz."
        )
    try:
        head = line.decode()
    except UnicodeDecodeError:
        raise not_utf8(path) from None
    other = next((words for sign, words in _SEPARATORS.items() if sign in head), None)
    if "," not in head and other:
        raise InvalidInput(
            f"the columns of {str(path)!r} must be separated by commas; its first line has none, "
            f"but {other}. Save it again with commas (and a point in numbers)."
        )


def must_not_be_nearly_csv(path: Path) -> None:
    """Refuse a table that its own program can save as a csv, by the end of its name."""
    if path.name.lower().endswith(_SPREADSHEETS):
        raise InvalidInput(
            f"{str(path)!r} is a spreadsheet, which is not read: it may have several sheets, and "
            'formulas instead of values. Save the sheet as "CSV UTF-8" and give that file.'
        )
    if path.name.lower().endswith((".tsv", ".tsv.gz", ".tab")):
        raise InvalidInput(
            f"the columns of {str(path)!r} are separated by tabs, as its name says; save it with "
            "commas, and .csv at the end of its name."
        )


def not_utf8(path: Path) -> InvalidInput:
    return InvalidInput(
        f"the text in {str(path)!r} is not UTF-8, so it cannot be read; save the file as UTF-8."
    )


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
