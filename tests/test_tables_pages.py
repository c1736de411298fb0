"""What the documentation says about tables is so."""

import re
import shlex
import shutil
import textwrap
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

import dptune
from dptune.columns import Columns
from dptune.columns.kinds import KINDS
from support.table_errors import TABLE_ERRORS
from support.table_errors_page import PAGE, page

TABLES = PAGE.parents[1] / "guide" / "tables.md"


def test_the_page_of_errors_is_what_the_tests_cause() -> None:
    assert PAGE.read_text() == page(), "PYTHONPATH=tests python -m support.table_errors_page"
    assert len({error.name for error in TABLE_ERRORS}) == len(TABLE_ERRORS)


def test_the_page_s_first_example_runs_on_the_table_of_the_tutorial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., tuple[int, str, str]]
) -> None:
    monkeypatch.chdir(tmp_path)
    tutorial = (TABLES.parents[1] / "tutorials" / "table.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", tutorial, re.DOTALL)
    made = next(block for block in blocks if '("stays.csv"' in block)
    exec(made.replace("20_000", "1_000").replace("2_000", "100"), {})
    shutil.copy("stays-test.csv", "new.csv")
    monkeypatch.setattr(dptune, "tune", lambda data, budget: None)  # the verb has tuned
    section = TABLES.read_text().partition("## The columns")[0]
    verbs = 0
    for kind, block in re.findall(r"^ *```(\w*)\n(.*?)^ *```", section, re.MULTILINE | re.DOTALL):
        text = textwrap.dedent(block)
        if kind == "toml":
            Path("stays.toml").write_text(text)
        elif kind == "python":
            exec(text, {})
        else:
            for line in text.splitlines():
                code, _, said = command(*shlex.split(line)[1:])
                assert code == 0, f"{line}: {said}"
                verbs += 1
    assert verbs == 4 and Path("predictions.csv").exists()


def test_every_columns_file_on_the_page_can_be_declared() -> None:
    blocks = re.findall(r"^ *```toml\n(.*?)^ *```", TABLES.read_text(), re.MULTILINE | re.DOTALL)
    declared = [Columns.of(tomllib.loads(block)["columns"]) for block in blocks]
    kinds = {type(column) for columns in declared for column in columns.declared.values()}
    assert kinds == set(KINDS.values())
