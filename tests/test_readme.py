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
from dptune.engines.modules.torch_module import TorchModule

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


def test_everything_the_readme_shows_is_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., tuple[int, str, str]]
) -> None:
    """The first command of ours in a shell, the others in this process, which has them imported;
    and a network is trained in a tenth of its usual steps."""
    usual = {"learning_rate": (1e-5, 1000.0), "steps": (30, 30)}
    monkeypatch.setattr(TorchModule, "usual_space", usual)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(screen.out, "_width", 100)  # it was made before that was asked for
    exit_code, commands, ours = 0, 0, 0
    # A script, whose functions are found by name; under another name it would be nobody's.
    readme = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", readme)
    for kind, text in BLOCK.findall(README.read_text()):
        if kind == "python":
            exec(compile(text, "README.md", "exec"), vars(readme))
            continue
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            line, _, shown = part.partition("\n")
            words = shlex.split(line)
            commands, ours = commands + 1, ours + (words[0] == "dptune")
            if words[0] == "dptune" and ours > 1:
                exit_code, *said = command(*words[1:])
                printed = "".join(said)
            else:
                exit_code, printed = in_a_shell(line, exit_code)
            assert matches(shown, printed), f"$ {line}\nshown:\n{shown}\nprinted:\n{printed}"
    assert commands > ours > 5


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
