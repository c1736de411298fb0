"""The verb that begins a file of declared columns."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from dptune.cli import screen
from dptune.cli.parameters import AsJson, flag, option
from dptune.errors import InvalidInput


def columns(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A .csv, .csv.gz or .parquet file, or a folder of .parquet files.",
            show_default=False,
        ),
    ],
    label: Annotated[str | None, option("The column of labels.", metavar="COLUMN")] = None,
    out: Annotated[
        str | None,
        option("A new file to write. Default: print it.", "--out", "-o", metavar="FILE"),
    ] = None,
    values: Annotated[
        bool,
        flag(
            "Write down the values that types of the file list; only where they were "
            "declared and not found in the rows.",
            "--values",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Begin a file that declares the columns of a table: names and types; you fill in the rest.

    Example: dptune columns patients.csv --label ill -o columns.toml
    """
    from dptune.data.columns_section import columns_section

    declared, text = columns_section(file, label, values=values)
    if out is not None:
        _write_new(out, text)
    plain = {"columns": declared.to_plain(), "out": out}
    screen.show(as_json, plain, lambda: _show(text, file, label, out))


def _show(text: str, file: str, label: str | None, out: str | None) -> None:
    if out is None:
        print(text, end="")
        return
    named = f" --label {'COLUMN' if label is None else shlex.quote(label)}"
    print(
        f"Wrote {out}. Fill it in, then: dptune tune --data {shlex.quote(file)}{named} --columns "
        f"{shlex.quote(out)}"
    )


def _write_new(path: str, text: str) -> None:
    """Write a new file; never replace one that the user filled in."""
    try:
        with Path(path).open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InvalidInput(f"{path!r} is there already; give another name.") from None
    except OSError as error:
        raise InvalidInput(f"{path!r} cannot be written: {error.strerror}.") from None
