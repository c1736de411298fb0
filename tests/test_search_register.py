"""A method of one's own: registered, named in a configuration, killed and resumed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from dptune import search
from dptune.errors import InvalidInput
from dptune.ledger import Ledger
from dptune.search.methods import METHODS, method_named, register_method
from dptune.study.config import search_from
from dptune.study.study import resume
from support.studies import study

EXAMPLES = Path(__file__).parent.parent / "examples"
MAIN = "from dptune.cli.app import main; main()"
KILL = """
import contextlib, os
from dptune.cli import progress_view

def stop(progress):
    if progress.doing.startswith("nearby: training"):
        os._exit(9)

progress_view.live_view = lambda search, verbose: contextlib.nullcontext(stop)
"""


@pytest.fixture(autouse=True)
def same_methods_afterwards() -> Iterator[None]:
    before = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(before)


def make(name: str) -> Any:
    @dataclass(frozen=True)
    class Mine(search.UnitNoise):
        pass

    Mine.name = name
    return Mine


def test_a_registered_method_is_built_by_its_name() -> None:
    mine = make("mine")
    assert register_method(mine) is mine
    assert method_named("mine") is mine
    assert search_from({"method": "mine", "noise": 2.0}) == mine(noise=2.0)


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(
        InvalidInput, match=r"'unit-noise' is already the name of dptune\.search\.unit_no"
    ):
        register_method(make("unit-noise"))
    assert METHODS["unit-noise"] is search.UnitNoise


def test_a_cell_that_is_run_again_may_register_its_method_again() -> None:
    register_method(make("mine"))
    again = make("mine")
    register_method(again)
    assert METHODS["mine"] is again


class NoDataclass(search.SearchMethod):
    name: ClassVar[str] = "no-dataclass"


@dataclass(frozen=True)
class Nameless(search.SearchMethod):
    pass


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (NoDataclass, "Put register_method above dataclass"),
        (search.UnitNoise(), "a search method must be a dataclass that derives from"),
        (Nameless, "Nameless has no name to register"),
        (make(""), "Mine has no name to register"),
    ],
)
def test_register_method_refuses_invalid_classes(given: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        register_method(given)


@pytest.mark.parametrize("name", ["narowing", ["unit-noise"], None])
def test_an_unknown_method_says_what_is_known_and_how_to_register_one(name: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        search_from({"method": name})
    message = str(refused.value)
    assert all(known in message for known in METHODS)
    assert repr(name) in message and "dptune.search.register_method" in message


@pytest.mark.parametrize("suggested", [[search.Setting(1.0, 5)], [(1.0, 5)] * 3])
def test_method_that_suggests_other_than_one_setting_a_trial_is_refused(
    suggested: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search.LinearScaling, "suggest", lambda *_: suggested)
    with pytest.raises(InvalidInput, match="must suggest a list of 3 settings"):
        study(None)


def test_own_method_needs_only_the_public_interface() -> None:
    imports = [
        line
        for line in (EXAMPLES / "narrowing.py").read_text().splitlines()
        if line.startswith(("import dptune", "from dptune"))
    ]
    assert imports == ["import dptune", "from dptune.search import ("]


def test_the_page_names_all_that_a_method_may_say_of_itself() -> None:
    page = (EXAMPLES.parent / "docs" / "guide" / "search-methods.md").read_text()
    for said in vars(search.SearchMethod):
        assert said.startswith("__") or f"`{said}" in page, said


def run(program: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A program of its own with these arguments of the command line, beside the example."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(EXAMPLES)])},
        capture_output=True,
        text=True,
    )


def test_killed_study_of_own_method_resumes_after_registration(tmp_path: Path) -> None:
    features = np.random.default_rng(0).normal(size=(200, 4))
    np.savez(tmp_path / "rows.npz", X_train=features, y_train=(features[:, 0] > 0).astype(int))
    asked = '[search]\nmethod = "narrowing"\ntrials = 2\n[space]\nsteps = [5, 10]\n'
    (tmp_path / "mine.toml").write_text(asked)
    tune = ("tune", "--data", "rows.npz", "--config", "mine.toml", "--out", "run")

    killed = run(f"import narrowing\n{KILL}\n{MAIN}", *tune, folder=tmp_path)
    assert killed.returncode == 9, killed.stderr

    METHODS.pop("narrowing", None)  # whoever registered it here
    with pytest.raises(InvalidInput, match=r"got 'narrowing'.*register_method"):
        resume(tmp_path / "run")

    done = run(f"import narrowing\n{MAIN}", "resume", "run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "narrowing" in done.stdout
    state = Ledger.open(str(tmp_path / "run" / "ledger.db")).state()
    assert state.spent_epsilon <= 1.0 and (tmp_path / "run" / "search.png").exists()
