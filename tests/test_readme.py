"""The tutorials are run from top to bottom: every command, every output, every line of Python.

The short examples of the README are lines of the tutorials, so they run, too.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from dptune.cli import screen
from dptune.engines.language.source import LanguageModel
from dptune.engines.modules.source import Source

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
FIRST = ROOT / "docs" / "tutorials" / "first-study.md"
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def in_a_shell(command: str, last_exit_code: int) -> tuple[int, str]:
    tools = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-c", f"(exit {last_exit_code}); {command}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"},
    )
    return done.returncode, done.stdout + done.stderr


def matches(shown: str, printed: str) -> bool:
    """Whether `printed` is what a page shows; `...` stands for anything, spaces are free."""
    parts = [" ".join(part.split()) for part in shown.split("...")]
    pattern = r".*".join(re.escape(part).replace(r"\ ", r"\s+") for part in parts)
    return re.fullmatch(pattern, " ".join(printed.split()), re.DOTALL) is not None


def blocks(page: Path) -> list[tuple[str, str]]:
    return BLOCK.findall(page.read_text())


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_everything_a_tutorial_shows_is_so(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Callable[..., tuple[int, str, str]],
) -> None:
    """The first command of ours in a shell, the others in this process, which has them imported;
    a network is trained in a tenth of its usual steps, and there are fewer pictures. Every page
    may use the table that the first one makes."""
    for source in (Source, LanguageModel):
        monkeypatch.setattr(source, "steps", 30)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(screen.out, "_width", 100)  # it was made before that was asked for
    exit_code, first = 0, page == FIRST
    # A script, whose functions are found by name; under another name it would be nobody's.
    script = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", script)
    for kind, text in blocks(FIRST)[: not first] + blocks(page):
        if kind == "python":
            if page.stem == "pictures":
                text = text.replace("range(150 if", "range(30 if")
            exec(compile(text, page.name, "exec"), vars(script))
            continue
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            line, _, shown = part.partition("\n")
            words = shlex.split(line)
            if words[0] == "dptune" and not first:
                exit_code, *said = command(*words[1:])
                printed = "".join(said)
            else:
                exit_code, printed = in_a_shell(line, exit_code)
                first = False
            assert matches(shown, printed), f"$ {line}\nshown:\n{shown}\nprinted:\n{printed}"


def test_tutorials_show_commands_and_python() -> None:
    shown = [block for page in TUTORIALS for block in blocks(page)]
    assert {kind for kind, _ in shown} == {"console", "python"}
    assert sum(text.count("$ dptune ") for _, text in shown) > 5
    assert any("range(150 if" in text for _, text in shown)  # which the test makes fewer


def test_every_example_of_the_readme_is_in_a_tutorial() -> None:
    """But for comments, and commands that are broken into lines."""
    tutorials = " ".join(" ".join(page.read_text().split()) for page in TUTORIALS)
    shown = re.findall(r"^```(console|python)\n(.*?)^```", README.read_text(), re.M | re.S)
    assert [kind for kind, _ in shown].count("console") == 4
    for kind, text in shown:
        joined = text.replace("\\\n", " ")
        for line in joined.splitlines():
            code = " ".join(line.partition("  #")[0].split())
            assert code in tutorials, f"{kind}: {code}"


def test_readme_is_short() -> None:
    lines = README.read_text().splitlines()
    assert len(lines) <= 130 and max(map(len, lines)) <= 160


def test_matching_can_fail() -> None:
    assert matches("a ... d\n", "a  b\nc d")
    assert not matches("a ... d", "a b c")


def test_the_engine_s_page_runs() -> None:
    page = ROOT / "docs" / "design" / "engine.md"
    names: dict[str, object] = {}
    for kind, text in blocks(page):
        assert kind == "python"
        exec(compile(text, str(page), "exec"), names)
    models = names["models"]
    assert isinstance(models, list) and len(models) == 3
