"""docs/reference/table-errors.md, made from the cases that the tests cause:

PYTHONPATH=tests python -m support.table_errors_page
"""

from pathlib import Path

from support.table_errors import TABLE_ERRORS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "table-errors.md"
INTRODUCTION = """\
# Every error of a table

What a file, or what is declared of its columns, can cause, and what is said. Nothing is paid
before these checks, and no message shows a value of a row. Problems of columns are named all at
once, a line each. What columns can be: [tables.md](../guide/tables.md).

This page is made from the tests, which cause every one of them (`PYTHONPATH=tests python -m
support.table_errors_page`): a file `patients.csv` with the columns age, job, seen, smoker and the
label ill, something of which is wrong.

| what is wrong | what is said |
| --- | --- |
"""


def page() -> str:
    lines = [f"| {error.name} | {_cell(error.message)} |\n" for error in TABLE_ERRORS]
    return INTRODUCTION + "".join(lines)


def _cell(message: str) -> str:
    """Code, line by line, so that quotes and stars stay as they are."""
    return "<br>".join(f"`{line.strip()}`" for line in message.replace("|", "\\|").split("\n"))


if __name__ == "__main__":
    PAGE.write_text(page())
