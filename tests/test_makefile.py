"""What `make` installs and runs, without doing it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """As much of a fresh clone as make looks at."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def plan(target: str, folder: Path) -> str:
    """The commands that make would run."""
    found = shutil.which("make")
    if found is None:
        pytest.skip("make is not installed")
    return subprocess.run(
        [found, "-n", target], cwd=folder, capture_output=True, text=True, check=True
    ).stdout


def test_the_demo_installs_the_product_alone(clone: Path) -> None:
    commands = plan("demo", clone)
    assert "pip install" in commands and "dptune tune --data demo" in commands
    assert "[dev]" not in commands


@pytest.mark.parametrize("target", ["test", "quick"])
def test_tests_install_their_tools_too(target: str, clone: Path) -> None:
    commands = plan(target, clone)
    assert "'.[dev]'" in commands and "mypy" in commands and "pytest" in commands


def test_quick_runs_files_that_are_there(clone: Path) -> None:
    files = re.findall(r"tests/\w+\.py", plan("quick", clone))
    assert len(files) > 20
    assert not [file for file in files if not (ROOT / file).exists()]
