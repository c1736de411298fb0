"""What comes from files reaches terminal, card and messages as text: no markup, no escape codes."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tomli_w
from pyarrow import parquet
from rich.panel import Panel
from rich.text import Text

from dptune import Data
from dptune.cli import screen
from dptune.cli.screen import Screen
from dptune.data.columns_section import columns_section
from dptune.errors import InvalidInput
from dptune.plain_data import read_toml
from dptune.printable import markdown, printable, printable_lines
from dptune.report import model_card
from dptune.study.config import digest
from dptune.table_files import listed
from support.old_folders import without_digests
from support.rows import make_rows
from support.studies import study

Run = Callable[..., tuple[int, str, str]]
SOURCES = Path(__file__).parent.parent / "src" / "dptune"
# Clear the screen, set its title, turn the direction of reading, hide, fake a line of ours.
HOSTILE = "a\x1b[2J\x1b]0;t\x07\x9b1m\u202eb\u200b\x7f\nNote: [/][link=https://a.b]x[/link]:bomb:"
SHOWN = r"a\x1b[2J\x1b]0;t\x07\x9b1m\u202eb\u200b\x7f\nNote: [/][link=https://a.b]x[/link]:bomb:"


def test_text_that_cannot_be_printed_appears_as_escapes() -> None:
    assert printable(HOSTILE) == SHOWN and printable(SHOWN) == SHOWN
    assert printable("naïve Ωμέγα 東京 👍") == "naïve Ωμέγα 東京 👍"
    assert printable("\ud800\U000e0041") == r"\ud800\U000e0041"
    assert printable_lines("a\x1b\nb\r") == "a\\x1b\nb\\r"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a_b*c* `d` #1 ~e~ |f|", r"a\_b\*c\* \`d\` \#1 \~e\~ \|f\|"),
        ("![x](http://a.b)", r"!\[x\](http\://a.b)"),
        ("<img src=x>&lt;&#x202e;", r"\<img src=x\>\&lt;\&\#x202e;"),
        ("www.a.b, $x$ @me", r"www\.a.b, \$x\$ \@me"),
        ("a\n# b\x1b", r"a\n\# b\x1b".replace(r"\n", r"\\n").replace(r"\x", r"\\x")),
    ],
)
def test_markdown_shows_text_as_it_is(text: str, written: str) -> None:
    assert markdown(text) == written


def test_error_messages_are_printable_and_of_bounded_length() -> None:
    assert str(InvalidInput(f"first {HOSTILE}")) == f"first {printable_lines(HOSTILE)}"
    long = str(InvalidInput("x" * 100_000 + " Do this."))
    assert len(long) < 7_000 and long.endswith(" Do this.") and "characters left out" in long
    assert listed([HOSTILE, "b"]) == f"{SHOWN}, b"


@pytest.mark.parametrize("terminal", [True, False])
def test_screen_shows_markup_and_escape_codes_as_text(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", str(int(terminal)))
    made, printed = Screen(), io.StringIO()
    made.file, made.width = printed, 200
    assert made.is_terminal is terminal
    table = screen.facts_table(HOSTILE)
    table.add_row(HOSTILE, Text(HOSTILE, "bold"), printable(HOSTILE))
    for shown in (HOSTILE, Text(HOSTILE), table, Panel(Text("x"), title=Text(HOSTILE))):
        made.print(shown)
    colours = re.sub("\x1b\\[[0-9;]*m", "", printed.getvalue())  # which the screen itself sets
    assert all(line.isprintable() for line in colours.split("\n"))
    assert SHOWN in colours and colours.count("[/][link=https://a.b]x[/link]:bomb:") == 7


def test_everything_is_printed_by_the_one_kind_of_screen() -> None:
    for path in SOURCES.rglob("*.py"):
        text = path.read_text()
        assert not re.search(r"\bConsole\(|from_markup", text), path
        assert text.count("TextColumn(") == text.count(", markup=False)"), path


def test_markup_in_the_name_of_data_does_not_end_a_study(
    command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    features, labels = make_rows(200)
    np.savez("own.npz", X_train=features, y_train=labels)
    name = "[/] [link=https://a.b]x[/link] $"
    Path("own.toml").write_text(f"[data]\nsource = 'own.npz'\nname = '{name}'\n")
    code, out, err = command("tune", "--config", "own.toml", "--out", "run")
    assert code == 0, err
    assert f"{name}: linear-scaling" in out


def test_error_about_hostile_file_is_printed_as_text(
    command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.toml").write_text(f"[run]\n{json.dumps(HOSTILE)} = 1\n")
    code, _, err = command("tune", "--config", "own.toml")
    assert code == 2 and err.isascii()
    (line,) = err.splitlines()
    assert line.startswith(f"error: [run] in own.toml has no setting {SHOWN}; it knows: ")


def test_card_shows_hostile_names_and_records_as_text(tmp_path: Path) -> None:
    features, labels = make_rows(400)
    data = Data.from_columns(
        {"age": features[:, 0], "town": np.where(features[:, 1] > 0, HOSTILE, "b")},
        np.where(labels == 0, HOSTILE, "well"),
        {"age": "number", "town": {"kind": "category", "values": [HOSTILE, "b"]}},
    )
    study(tmp_path / "run", data)
    without_digests(tmp_path / "run")
    for file, *names in (
        ("environment.json", "packages", "dptune"),
        ("result.json", "data", "name"),
        ("result.json", "notes", 0),
        ("guarantee.json", "caveats", 0),
        ("result.json", "guarantee", "caveats", 0),
    ):
        _plant(tmp_path / "run" / file, *names)
    asked = read_toml((tmp_path / "run" / "run.toml").read_text(), "it")
    asked["run"]["seed"] = HOSTILE
    asked["study"] = f"{asked['study'].split('-')[0]}-{digest(asked)}"
    (tmp_path / "run" / "run.toml").write_text(tomli_w.dumps(asked))
    card = model_card(tmp_path / "run")
    assert all(line.isprintable() for line in card.split("\n"))
    written = markdown(HOSTILE)
    assert written in card.splitlines()[0] and f"by dptune {written}." in card
    assert f"Classes: {written}, well." in card and f"| {written}, b |" in card
    assert card.count(written) == 7
    assert not re.search(r"(?<!\\)\[/\]|(?<!\\)\[link=", card) and "https:/" not in card


def _plant(file: Path, *names: Any) -> None:
    """Put a hostile text in the place of a value of a record."""
    record = json.loads(file.read_text())
    *above, last = names
    inside = record
    for name in above:
        inside = inside[name]
    if last == 0:
        inside[:] = [HOSTILE]
    else:
        inside[last] = HOSTILE
    file.write_text(json.dumps(record))


def test_file_of_columns_is_toml_whatever_the_table_calls_things(tmp_path: Path) -> None:
    names = pa.array([HOSTILE, "b\U000e0041"]).dictionary_encode()
    inside = pa.array([{"x\nage = 'number'": 1}, None])
    parquet.write_table(pa.table({"town": names, "nested": inside}), tmp_path / "a.parquet")
    columns, text = columns_section(tmp_path / "a.parquet", values=True)
    assert all(line.isprintable() for line in text.split("\n"))
    assert read_toml(text, "it") == {"columns": columns.to_plain()}


def test_column_that_no_file_can_declare_is_refused_by_name(tmp_path: Path) -> None:
    parquet.write_table(pa.table({HOSTILE: [1]}), tmp_path / "a.parquet")
    with pytest.raises(InvalidInput, match="names are not one line of printable text") as refused:
        columns_section(tmp_path / "a.parquet")
    assert f"({SHOWN})" in str(refused.value)
