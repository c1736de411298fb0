"""Two who want one run folder, the first paused before every single step on disk: one wins, the
other says so, and nothing of the winner's is deleted."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dptune.errors import DptuneError, LedgerLocked
from dptune.ledger import Ledger
from dptune.search.unit_noise import UnitNoise
from dptune.study import study as study_module
from dptune.study.planning import read_config
from dptune.study.run_folder import RunFolder
from dptune.study.study import resume
from support.rows import make_data
from support.studies import study

DATA = make_data(40)
LOST = re.compile("holds a run already|at work in another process")
_on_step: Callable[[str], None] | None = None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _on_step is None or not event.startswith(("open", "os.", "fcntl.", "sqlite3.connect")):
        return
    place = str(arguments[0]) if arguments else ""
    if event == "fcntl.flock" or "/contested" in place:
        _on_step(f"{event} {place}")


sys.addaudithook(_audit)  # for good, since none can be removed


@contextmanager
def paused_before(step: int, rival: Callable[[], None]) -> Iterator[list[str]]:
    """Let `rival` do all it wants before the `step`-th operation on files; the steps so far."""
    global _on_step
    steps: list[str] = []

    def on_step(what: str) -> None:
        global _on_step
        steps.append(what)
        if len(steps) == step:
            _on_step = None
            rival()
            _on_step = on_step

    _on_step = on_step
    try:
        yield steps
    finally:
        _on_step = None


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after the beginning is the same for all; it is marked and left out."""

    def run(data: Any, planned: Any, folder: RunFolder, *more: Any, **ways: Any) -> str:
        folder.write("result.json", planned.config.study)
        return str(planned.config.study)

    monkeypatch.setattr(study_module, "_run", run)
    monkeypatch.setattr(study_module, "rehearse", lambda *_: None)


def attempt(work: Callable[[], Any]) -> tuple[str, str]:
    """The study that won, or why it did not."""
    try:
        return str(work()), ""
    except DptuneError as error:
        return "", str(error)


def begin(out: Path) -> tuple[str, str]:
    return attempt(lambda: study(out, DATA, search=UnitNoise()))


def assert_whole(out: Path, winner: str) -> None:
    assert read_config(RunFolder.open(out)).study == winner
    assert (out / "result.json").read_text() == winner
    payments = Ledger.open(str(out / "ledger.db")).state().payments
    assert payments and all(p.purpose.endswith(f"(study {winner})") for p in payments)
    assert not (out / ".lock").exists()


def steps_of(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    for step in range(1, 500):
        yield step, tmp_path / str(step) / "contested"
    pytest.fail("it never ends")


def test_of_two_studies_that_begin_in_one_folder_one_wins(tmp_path: Path) -> None:
    rivals: list[tuple[str, str]] = []
    for step, out in steps_of(tmp_path):
        with paused_before(step, lambda: rivals.append(begin(out))) as steps:  # noqa: B023
            ours = begin(out)
        if len(steps) < step:
            break
        (winner, _), (none, why) = sorted([ours, rivals[-1]], reverse=True)
        assert winner and not none, f"before {steps[step - 1]}: {ours}, {rivals[-1]}"
        assert LOST.search(why)
        assert_whole(out, winner)
    won = {bool(study) for study, _ in rivals}
    assert won == {True, False} and step > 15  # before the lock and after


def test_a_study_that_cannot_begin_deletes_nothing_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve_all = Ledger.reserve_all
    rivals: list[tuple[str, str]] = []

    def busy(self: Ledger, *args: Any, **more: Any) -> Any:
        raise LedgerLocked("busy")

    def rival(out: Path) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Ledger, "reserve_all", reserve_all)
            rivals.append(begin(out))

    monkeypatch.setattr(Ledger, "reserve_all", busy)
    for step, out in steps_of(tmp_path):
        with paused_before(step, lambda: rival(out)) as steps:  # noqa: B023
            ours = begin(out)
        if len(steps) < step:
            break
        won, why = rivals[-1]
        if won:
            assert_whole(out, won)
        else:
            assert LOST.search(why) and ours[1] == "busy"
            assert not out.exists()
    assert {bool(study) for study, _ in rivals} == {True, False}


def test_a_resume_beside_a_beginning_is_refused_and_deletes_nothing(tmp_path: Path) -> None:
    rivals: list[tuple[str, str]] = []
    for step, out in steps_of(tmp_path):
        rival = lambda: rivals.append(attempt(lambda: resume(out, DATA)))  # noqa: B023, E731
        with paused_before(step, rival) as steps:
            winner, _ = begin(out)
        if len(steps) < step:
            break
        assert winner
        if rivals[-1] != (winner, ""):  # it came when the study was done
            assert "holds no run" in rivals[-1][1] or "at work in another" in rivals[-1][1]
        assert_whole(out, winner)
    assert any("at work in another" in why for _, why in rivals)


def test_a_resume_before_which_the_run_vanishes_says_that_there_is_none(tmp_path: Path) -> None:
    out = tmp_path / "contested"
    begin(out)
    with paused_before(1, (out / "run.toml").unlink):
        assert "holds no run" in attempt(lambda: resume(out, DATA))[1]
    assert not (out / ".lock").exists()
