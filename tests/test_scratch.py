"""Temporary folders and queues: gone with their process, or removed by the next one."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from dptune import Ledger
from dptune.ledger import queue
from dptune.lock import is_ours
from dptune.scratch import scratch_folder

SOURCES = Path(__file__).parent.parent / "src" / "dptune"
# A process that is killed in the block, after it has written something.
KILLED = """
import os, signal
from pathlib import Path
from dptune.{module} import {name}
with {name}({given}) as folder:
    if folder is not None:
        (folder / "run").mkdir()
        (folder / "run" / "ledger.db").touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """For temporary files, of this process and of those that it starts."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def kill_within(module: str, name: str, given: str = "") -> None:
    code = KILLED.format(module=module, name=name, given=given)
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL


def test_scratch_folder_is_removed_at_the_end(place: Path) -> None:
    with scratch_folder() as folder:
        assert folder.parent == place and folder.stat().st_mode & 0o777 == 0o700
        (folder / "file").touch()
        with scratch_folder() as other:  # which leaves the first alone
            assert other != folder
        assert (folder / "file").exists()
    assert not list(place.iterdir())


def test_scratch_folder_of_killed_process_is_removed_by_the_next(place: Path) -> None:
    kill_within("scratch", "scratch_folder")
    assert len(list(place.rglob("ledger.db"))) == 1
    with scratch_folder():
        assert not list(place.rglob("ledger.db"))
    assert not list(place.iterdir())


def test_only_own_temporary_files_are_removed(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    (kept / "file").mkdir(parents=True)
    (place / "dptune-link").symlink_to(kept)
    (place / "dptune-link.lock").touch()
    (place / "dptune-linked.lock").symlink_to(kept / "file")
    (place / "dptune-without-lock").mkdir()
    with scratch_folder():
        pass
    assert (kept / "file").exists() and (place / "dptune-without-lock").exists()
    (place / "dptune-theirs").mkdir()
    (place / "dptune-theirs.lock").touch()
    mine = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: mine + 1)
    assert not is_ours(place / "dptune-theirs.lock")
    with scratch_folder():
        pass
    assert (place / "dptune-theirs").exists()


def test_queue_of_killed_process_is_removed_by_one_that_joins_another(
    place: Path, ledger: Ledger, tmp_path: Path
) -> None:
    other = tmp_path / "other.db"
    other.touch()
    kill_within("ledger.queue", "turn", f"Path({str(other)!r}), 60.0")
    assert queue.queue_of(other).exists()
    queue._remove_abandoned.cache_clear()  # as in a new process
    ledger.declare("other rows", reason="joins the queue of this ledger")
    assert not list(place.iterdir())


def test_temporary_folders_are_made_in_one_place() -> None:
    users = {path for path in SOURCES.rglob("*.py") if "tempfile" in path.read_text()}
    assert users == {SOURCES / "scratch.py", SOURCES / "ledger" / "queue.py"}
