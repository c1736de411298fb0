"""`dptune publish` copies exactly what may leave of a run."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dptune
from dptune.engines.digests import with_digest
from dptune.errors import DptuneError, FolderProblem, InvalidInput
from dptune.ledger import Ledger
from dptune.report import model_card, publish, search_picture
from dptune.search import UnpaidScore
from dptune.study.finished_run import FinishedRun
from dptune.study.run_folder import RunFolder
from support.old_folders import without_digests
from support.rows import make_data, make_rows
from support.studies import BUDGET, contents, stop_after, study

ROWS, LABELS = make_rows(20, 3)
LEDGER_LINE = re.compile(r"^dptune budget .*$", re.MULTILINE)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("publish") / "run"
    study(out, source={"source": "/secret/place/rows.csv", "label": "ill"})
    search_picture(out)
    for name in ("ledger.db-journal", ".lock", ".result.json.new", "notes.txt"):
        (out / name).write_text("private")
    (out / "models" / "final-1.checkpoint").write_text("private")
    (out / "features").mkdir()
    (out / "features" / "a.safetensors").write_text("private")
    return out


def test_only_what_may_leave_is_copied(run: Path, tmp_path: Path) -> None:
    names = publish(run, tmp_path / "out")
    assert names == sorted(contents(tmp_path / "out"))
    assert names == sorted({*FinishedRun.open(run).files, "result.json", "search.png"})
    everything = b"".join(contents(tmp_path / "out").values())
    for private in (b"/secret/place", str(run.parent).encode(), b"private\n", b"SQLite"):
        assert private not in everything
    same = [name for name in names if name not in ("run.toml", "result.json")]
    assert {name: contents(run)[name] for name in same} == {
        name: contents(tmp_path / "out")[name] for name in same
    }
    assert not (tmp_path / ".out.new").exists()


def test_a_published_folder_loads_predicts_and_prints_its_card(run: Path, tmp_path: Path) -> None:
    publish(run, tmp_path / "out")
    mine, theirs = dptune.load(run), dptune.load(tmp_path / "out")
    assert (mine.decision_function(ROWS) == theirs.decision_function(ROWS)).all()
    assert mine.guarantee == theirs.guarantee and mine.trials == theirs.trials
    cards = [LEDGER_LINE.subn("", model_card(folder)) for folder in (run, tmp_path / "out")]
    assert cards[0] == cards[1] and cards[0][1] == 1
    assert "\ndptune budget LEDGER\n" in model_card(tmp_path / "out")
    search_picture(tmp_path / "out")
    publish(tmp_path / "out", tmp_path / "again")
    assert contents(tmp_path / "again") == contents(tmp_path / "out")


def test_a_published_folder_is_checked_as_its_run_is(run: Path, tmp_path: Path) -> None:
    publish(run, tmp_path / "out")
    file = tmp_path / "out" / "guarantee.json"
    file.write_text(file.read_text().replace('"epsilon": 2.0', '"epsilon": 1.0'))
    with pytest.raises(FolderProblem, match=r"guarantee.json is damaged"):
        dptune.load(tmp_path / "out")
    with pytest.raises(FolderProblem, match=r"guarantee.json is damaged"):
        publish(tmp_path / "out", tmp_path / "again")
    publish(run, tmp_path / "other")
    (tmp_path / "other" / "models" / "trial-1.safetensors").write_bytes(b"not read by load")
    with pytest.raises(FolderProblem, match=r"trial-1.safetensors has changed since the study"):
        publish(tmp_path / "other", tmp_path / "again")
    assert not (tmp_path / "again").exists() and not (tmp_path / ".again.new").exists()


def test_the_address_of_a_ledger_stays_and_prices_are_the_same(tmp_path: Path) -> None:
    data, address = make_data(), str(tmp_path / "secret-place.db")
    Ledger.create(address, BUDGET, dataset="people", fingerprint=data.fingerprint)
    study(tmp_path / "run", data, ledger=address)
    publish(tmp_path / "run", tmp_path / "out")
    assert b"secret-place" not in b"".join(contents(tmp_path / "out").values())
    cards = [LEDGER_LINE.sub("", model_card(tmp_path / name)) for name in ("run", "out")]
    assert cards[0] == cards[1]


def test_published_files_are_readable_for_all(run: Path, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        publish(run, tmp_path / "out")
    finally:
        os.umask(before)
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files if path.name != "search.png"} == {0o644}
    assert (run / "ledger.db").stat().st_mode & 0o777 == 0o600


def test_a_run_that_is_not_finished_or_not_checked_is_not_published(tmp_path: Path) -> None:
    stop_after(tmp_path / "run", make_data(), "final run")
    with pytest.raises(InvalidInput, match=r"is not finished; continue it with: dptune resume"):
        publish(tmp_path / "run", tmp_path / "out")
    study(tmp_path / "old")
    without_digests(tmp_path / "old")
    with pytest.raises(InvalidInput, match=r"kept no SHA-256.*Write them: dptune resume .*old"):
        publish(tmp_path / "old", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_run_whose_guarantee_covers_nothing_is_not_published(tmp_path: Path) -> None:
    study(tmp_path / "run", score=UnpaidScore())
    with pytest.raises(InvalidInput, match=r"covers nothing.*Nothing of it may leave"):
        publish(tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_something_is_left_alone(run: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    publish(run, tmp_path / "out")  # it was empty
    before = contents(tmp_path / "out")
    with pytest.raises(InvalidInput, match="exists already; give a new folder"):
        publish(run, tmp_path / "out")
    assert contents(tmp_path / "out") == before
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InvalidInput, match="exists already"):
        publish(run, tmp_path / "file")


def with_files(folder: Path, files: dict[str, Any]) -> None:
    """The run with other digests, under a digest of their own."""
    result = RunFolder.open(folder).read_json("result.json") or {}
    (folder / "result.json").write_text(json.dumps(with_digest({**result, "files": files})))


def test_a_folder_from_somebody_else_cannot_have_other_files_copied(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("secret")
    study(tmp_path / "run")
    files = dict(FinishedRun.open(tmp_path / "run").files)
    for name in ("../mine", "ledger.db", str(mine)):
        with_files(tmp_path / "run", {**files, name: "0" * 64})
        with pytest.raises(FolderProblem, match="has changed since the study wrote it"):
            publish(tmp_path / "run", tmp_path / "out")
    (tmp_path / "run" / "search.png").symlink_to(mine)
    with_files(tmp_path / "run", files)
    with pytest.raises(FolderProblem, match=r"search.png is a link to another place"):
        publish(tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists() and mine.read_text() == "secret"


def test_the_verb_publishes_and_says_what_it_cannot(
    run: Path, tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    out = str(tmp_path / "out")
    code, said, _ = command("publish", str(run), out)
    assert code == 0 and re.search(r"Copied \d+ files to ", said)
    assert command("card", out)[0] == 0
    np.save(tmp_path / "new.npy", ROWS)
    new = str(tmp_path / "new.npy")
    assert command("predict", out, "--data", new, "-o", str(tmp_path / "a.csv"))[0] == 0
    code, _, said = command("publish", str(run), out)
    assert code == 2 and "exists already" in said
    code, _, said = command("publish", str(run), "/proc/nowhere/x")
    assert code == 2 and "cannot be written" in said
    with pytest.raises(DptuneError):
        publish(tmp_path, tmp_path / "other")
