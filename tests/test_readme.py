"""The README is run from top to bottom: every command, every output, every line of Python."""

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

README = Path(__file__).parent.parent / "README.md"
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
    """Whether `printed` is what the README shows; `...` stands for anything, spaces are free."""
    parts = [" ".join(part.split()) for part in shown.split("...")]
    pattern = r".*".join(re.escape(part).replace(r"\ ", r"\s+") for part in parts)
    return re.fullmatch(pattern, " ".join(printed.split()), re.DOTALL) is not None


def sections() -> dict[str, list[tuple[str, str]]]:
    """The blocks of the README, by the headings that have any."""
    parts = re.split(r"^## (.*)$", README.read_text(), flags=re.MULTILINE)
    assert not BLOCK.findall(parts[0])
    blocks = {
        title: BLOCK.findall(text) for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    return {title: found for title, found in blocks.items() if found}


SECTIONS = sections()
FIRST = next(iter(SECTIONS))


@pytest.mark.parametrize("title", SECTIONS)
def test_everything_the_readme_shows_is_so(
    title: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Callable[..., tuple[int, str, str]],
) -> None:
    """The first command of ours in a shell, the others in this process, which has them imported;
    a network is trained in a tenth of its usual steps, and there are fewer pictures. Every section
    may use the table that the first one makes."""
    for source in (Source, LanguageModel):
        monkeypatch.setattr(source, "steps", 30)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(screen.out, "_width", 100)  # it was made before that was asked for
    exit_code, first = 0, title == FIRST
    # A script, whose functions are found by name; under another name it would be nobody's.
    readme = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", readme)
    for kind, text in SECTIONS[FIRST][: not first] + SECTIONS[title]:
        if kind == "python":
            if "pictures" in title:
                text = text.replace("range(150 if", "range(30 if")
            exec(compile(text, "README.md", "exec"), vars(readme))
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


def test_readme_shows_commands_and_python() -> None:
    blocks = [block for found in SECTIONS.values() for block in found]
    assert {kind for kind, _ in blocks} == {"console", "python"}
    assert sum(text.count("$ dptune ") for _, text in blocks) > 5
    assert any("range(150 if" in text for _, text in blocks)  # which the test makes fewer


def test_matching_can_fail() -> None:
    assert matches("a ... d\n", "a  b\nc d")
    assert not matches("a ... d", "a b c")


def test_the_engine_s_page_runs() -> None:
    page = README.parent / "docs" / "engine.md"
    names: dict[str, object] = {}
    for kind, text in BLOCK.findall(page.read_text()):
        assert kind == "python"
        exec(compile(text, str(page), "exec"), names)
    models = names["models"]
    assert isinstance(models, list) and len(models) == 3
