"""Tables in csv and Parquet files, read by Arrow, and the errors for damaged files.

Messages show a file's columns, never its values.
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

# Errors of readers whose messages explain the problem and show no value of a row.
_SAFE_MESSAGES = (
    OSError,
    ValueError,
    TypeError,
    EOFError,
    MemoryError,  # a damaged header can request any size
    RuntimeError,  # an encrypted zip file, or one with unknown compression
    zipfile.BadZipFile,
    zlib.error,
    plain_csv.Error,
)
LONGEST_LINE = 1 << 26  # bytes: a whole mailbox may be one value
_LONGEST_HEADER = 1 << 20  # bytes
_PANDAS_INDEX = "__index_level_"
_GZIP = b"\x1f\x8b"  # the first bytes of a gzip file
_SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": 'signs "|"'}
# Bytes of one block of a csv (Arrow reads some ahead), and rows of one batch of a Parquet file.
_AT_ONCE, _ROWS_AT_ONCE = 1 << 22, 1 << 16


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Refuse a file, or a folder of files, whose reader fails in the block."""
    try:
        yield
    except DptuneError:
        raise
    except Exception as error:  # readers of arbitrary bytes can raise any error
        # In columns that must be text. Other columns become bytes.
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
    if isinstance(error, pa.ArrowException):  # it quotes the line with the problem
        mismatch = re.search(r"(Row #\d+: )?Expected \d+ columns, got \d+", str(error))
        if mismatch is None:
            return "Empty CSV file" if "Empty CSV file" in str(error) else type(error).__name__
        return mismatch.group() if mismatch.group(1) else _bad_row(path) or mismatch.group()
    if isinstance(error, KeyError):
        return f"it lacks {error}"
    message = str(error).split("\n")[0].rstrip(".") if isinstance(error, _SAFE_MESSAGES) else ""
    return message or type(error).__name__


def _bad_row(path: Path) -> str | None:
    """The row with a wrong number of columns; readers with threads do not report it."""
    try:
        with csv.open_csv(
            _source(path),
            read_options=csv.ReadOptions(use_threads=False),
            parse_options=csv.ParseOptions(newlines_in_values=True),
        ) as batches:
            for _ in batches:
                pass
    except pa.ArrowInvalid as error:
        mismatch = re.search(r"Row #\d+: Expected \d+ columns, got \d+", str(error))
        return mismatch.group() if mismatch else None
    return None


def table_kind(path: Path) -> str | None:
    """The kind of a file by its name: csv, parquet, or None."""
    name = path.name.lower()
    if name.endswith((".csv", ".csv.gz")):
        return "csv"
    return "parquet" if name.endswith(".parquet") else None


def must_hold_something(path: Path) -> None:
    """Refuse an empty file."""
    if path.stat().st_size == 0:
        raise InvalidInput(f"the file {str(path)!r} is empty; give one with rows.")


def read_csv(path: Path, texts: Sequence[str] = ()) -> Any:
    """Read a csv, possibly compressed with gzip, whose first line names its columns. Columns in
    `texts` are kept literally, including line breaks between quotes."""
    with reading(path):
        _must_be_separated_by_commas(path)
        as_text: Mapping[str, Any] = {name: pa.string() for name in texts}
        table = csv.read_csv(
            _source(path),
            read_options=csv.ReadOptions(block_size=LONGEST_LINE if texts else None),
            parse_options=csv.ParseOptions(newlines_in_values=bool(texts)),
            convert_options=csv.ConvertOptions(column_types=as_text),
        )
        _must_be_names(table.column_names, path)
        if any(pa.types.is_binary(kind) for kind in table.schema.types):
            raise not_utf8(path)
        if texts and _has_line_breaks(table):
            _must_close_quotes(path)
        return table


def _has_line_breaks(table: Any) -> bool:
    texts = [column for column in table.columns if pa.types.is_string(column.type)]
    return any(bool(pc.any(pc.match_substring(column, "\n")).as_py()) for column in texts)


def _must_close_quotes(path: Path) -> None:
    """Refuse unclosed quotes. Arrow reads to the next quotation mark and merges several rows."""
    with io.TextIOWrapper(open_unpacked(path), encoding="utf-8", newline="") as lines:
        rows = plain_csv.reader(lines, strict=True)
        limit = plain_csv.field_size_limit(LONGEST_LINE)
        try:
            for _ in rows:
                pass
        except plain_csv.Error:
            raise InvalidInput(
                f"{str(path)!r} has a quotation mark that is not closed at the end of its value, "
                f"near line {rows.line_num:,}: several lines would be read, and protected, as one "
                "row. Put marks around whole values only, and double a mark inside a value."
            ) from None
        finally:
            plain_csv.field_size_limit(limit)


def names_in_csv(path: Path) -> list[str]:
    """The names of the columns of a csv, which may have duplicates."""
    with reading(path):
        names: list[str] = _types_in_csv(path).names
        return names


def _types_in_csv(path: Path) -> Any:
    _must_be_separated_by_commas(path)
    with _open_csv(path, []) as batches:
        schema = batches.schema
    _must_be_names(schema.names, path)
    if any(pa.types.is_binary(kind) for kind in schema.types):
        raise not_utf8(path)
    return schema


def csv_texts(path: Path, names: Sequence[str]) -> Iterator[Any]:
    """Tables of some rows each, with all columns as literal texts."""
    with reading(path), _open_csv(path, names) as batches:
        for batch in batches:
            yield pa.Table.from_batches([batch])


def as_csv_reads(texts: Any) -> Any:
    """A column of texts, converted to numbers or booleans if all of it can be, as in `read_csv`."""
    file = pa.BufferOutputStream()
    csv.write_csv(pa.table({"texts": texts}), file)
    return csv.read_csv(
        pa.BufferReader(file.getvalue()),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        read_options=csv.ReadOptions(block_size=LONGEST_LINE),
    ).column(0)


def _open_csv(path: Path, texts: Sequence[str]) -> Any:
    as_text: Mapping[str, Any] = {name: pa.string() for name in texts}
    return csv.open_csv(
        _source(path),
        read_options=csv.ReadOptions(block_size=_AT_ONCE),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(column_types=as_text),
    )


def _must_be_names(names: Sequence[str], path: Path) -> None:
    """Refuse a first line that looks like data, before any message shows it: data is private."""
    if any(is_number(name) for name in names):
        raise InvalidInput(
            f"the first line of {str(path)!r} must name the columns, and looks like data: it "
            "has numbers. Add a line with names; a name cannot be a number."
        )


def must_be_told_apart(names: Sequence[str], where: str) -> None:
    """Refuse duplicate and empty names, which no declaration could distinguish."""
    duplicates = sorted(name for name, count in Counter(names).items() if count > 1)
    if duplicates:
        raise InvalidInput(f"{where} has several columns called {listed(duplicates)}; rename them.")
    unnamed = next((place for place, name in enumerate(names) if not name.strip()), None)
    if unnamed == 0:
        raise InvalidInput(
            f"the first column of {where} has no name. Name it, or leave it out; if it is the "
            "index of a pandas frame, use to_csv(index=False)."
        )
    if unnamed is not None:
        raise InvalidInput(
            f"column {unnamed + 1} of {where} has no name; name it, or leave it out."
        )


def perhaps_meant(name: str, names: Sequence[str], path: Path) -> str:
    """Hints for a name that is not among a file's columns: a similar name, and that a csv may lack
    its line of names."""
    near = get_close_matches(name, names, 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    if table_kind(path) == "csv":
        hint += " If these are values of a row, the file lacks a line of names."
    return hint


def read_parquet(path: Path) -> Any:
    with reading(path), parquet.ParquetFile(path) as file:
        table = file.read()
        table.validate(full=True)  # texts may contain invalid bytes
        return table


def parquet_files(folder: Path) -> list[Path]:
    """The files of a folder that form one table, in the order of their names."""
    return sorted(path for path in folder.glob("*.parquet") if path.is_file())


def parquet_schema(path: Path) -> Any:
    with reading(path):
        return parquet.read_schema(path)


def without_rows(path: Path) -> Any:
    """An empty table with the same columns and types; dictionary types keep their names. The types
    of a csv are guessed from its first block of rows."""
    with reading(path):
        if table_kind(path) == "csv":
            return _types_in_csv(path).empty_table()
        with parquet.ParquetFile(path) as file:
            schema, groups = file.schema_arrow, file.num_row_groups
            names = set(without_index(schema.names))
            kept = [field for field in schema if field.name in names]
            coded = [field.name for field in kept if pa.types.is_dictionary(field.type)]
            first = file.read_row_group(0, columns=coded) if groups and coded else None
    empty = pa.schema(kept).empty_table()
    for place, field in enumerate(kept):
        if first is not None and field.name in coded:
            empty = empty.set_column(place, field, first.column(field.name).slice(0, 0))
    return empty


def without_index(names: Sequence[str]) -> list[str]:
    """The columns without the stored index of a pandas frame, which is no feature."""
    return [name for name in names if not name.startswith(_PANDAS_INDEX)]


def parquet_tables(paths: Sequence[Path]) -> Iterator[Any]:
    """Tables of some rows each."""
    for path in paths:
        with reading(path), parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE):
                yield pa.Table.from_batches([batch])


def listed(names: Sequence[str]) -> str:
    """Up to 20 of the names as text and, if there are more, their number."""
    shown = ", ".join(map(printable, names[:20]))
    return shown if len(names) <= 20 else f"{shown}, ... ({len(names)} in all)"


def _source(path: Path) -> Any:
    """The source of a csv for Arrow, which itself would unpack a file to any size."""
    return open_unpacked(path) if is_packed(path) else path


def _must_be_separated_by_commas(path: Path) -> None:
    """Check only the first line: with decimal commas, other lines seem to have more columns."""
    with open_unpacked(path) as file:
        line = file.readline(_LONGEST_HEADER + 1)
    if len(line) > _LONGEST_HEADER:
        raise InvalidInput(
            f"the first line of {str(path)!r} is longer than a megabyte, so it is not read. It "
            "must name the columns; put every row on a line of its own."
        )
    if line.startswith(_GZIP):
        raise InvalidInput(
            f"{str(path)!r} is compressed with gzip, but its name does not say so; rename it to "
            "end in .csv.gz."
        )
    try:
        head = line.decode()
    except UnicodeDecodeError:
        raise not_utf8(path) from None
    other = next((name for sign, name in _SEPARATORS.items() if sign in head), None)
    if "," not in head and other:
        raise InvalidInput(
            f"the columns of {str(path)!r} must be separated by commas; its first line has none, "
            f"but {other}. Save it again with commas (and a point in numbers)."
        )


def must_not_be_nearly_csv(path: Path) -> None:
    """Refuse spreadsheets and tab-separated tables, by the end of their names."""
    if path.name.lower().endswith(_SPREADSHEETS):
        raise InvalidInput(
            f"{str(path)!r} is a spreadsheet, which dptune does not read: it may have several "
            'sheets, and formulas instead of values. Save the sheet as "CSV UTF-8" and give that '
            "file."
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
