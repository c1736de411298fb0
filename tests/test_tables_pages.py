"""What the documentation says about tables is so."""

import re
import tomllib

from dptune.columns import Columns
from dptune.columns.kinds import KINDS
from support.table_errors import TABLE_ERRORS
from support.table_errors_page import PAGE, page

TABLES = PAGE.parent / "tables.md"


def test_the_page_of_errors_is_what_the_tests_cause() -> None:
    assert PAGE.read_text() == page(), "PYTHONPATH=tests python -m support.table_errors_page"
    assert len({error.name for error in TABLE_ERRORS}) == len(TABLE_ERRORS)


def test_every_columns_file_on_the_page_can_be_declared() -> None:
    blocks = re.findall(r"^ *```toml\n(.*?)^ *```", TABLES.read_text(), re.MULTILINE | re.DOTALL)
    declared = [Columns.of(tomllib.loads(block)["columns"]) for block in blocks]
    kinds = {type(column) for columns in declared for column in columns.declared.values()}
    assert kinds == set(KINDS.values())
