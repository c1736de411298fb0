"""The run folder: whole files or none, and words about what is wrong with one."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch

import dptune
from dptune.errors import FolderProblem, InvalidInput
from dptune.plan import TrainPlan
from dptune.search.trial import Trial
from dptune.study.run_folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder.create(tmp_path / "run")
    folder.write("run.toml", "")
    return folder


def test_a_file_is_replaced_as_a_whole_or_not_at_all(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("result.json", "old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FolderProblem, match=r"No space left on device.*stays paid.*dptune resume"):
        folder.write("result.json", "new, and much longer")
    assert folder.read("result.json") == "old"
    assert sorted(file.name for file in folder.path.iterdir()) == [
        "models",
        "result.json",
        "run.toml",
    ]


def test_weights_and_words_come_back(folder: RunFolder) -> None:
    weights = torch.randn(3, 4)
    folder.write_tensors("models/a.safetensors", {"weights": weights.T}, legs="[1, 2]")
    stored = folder.read_tensors("models/a.safetensors")
    assert stored is not None
    assert torch.equal(stored[0]["weights"], weights.T) and stored[1] == {"legs": "[1, 2]"}
    assert folder.read_tensors("models/b.safetensors") is None


def test_trials_come_back_to_the_last_bit(folder: RunFolder) -> None:
    plan = TrainPlan(rows=7, steps=3, learning_rate=1 / 3, noise_multiplier=0.1 + 0.2)
    trial = Trial(number=1, stage="sweep", plan=plan, mu=1e-17, score=-1 / 7, score_noise=0.3)
    lost = Trial(number=2, stage="sweep", plan=plan, mu=0.1, lost=True, notes=("gone", "für immer"))
    folder.write_trials([trial, lost])
    before = (folder.path / "trials.jsonl").read_bytes()
    assert folder.read_trials() == [trial, lost]
    folder.write_trials(folder.read_trials())
    assert (folder.path / "trials.jsonl").read_bytes() == before


DAMAGE: list[tuple[str, bytes, Any]] = [
    ("trials.jsonl", b'{"number": 1', RunFolder.read_trials),
    ("trials.jsonl", b"3\n", RunFolder.read_trials),
    ("trials.jsonl", b'{"number": 1}\n', RunFolder.read_trials),
    ("trials.jsonl", b"\xff\xfe", RunFolder.read_trials),
    ("census.json", b"[1, 2", lambda folder: folder.read_json("census.json")),
    ("census.json", b"[1, 2]", lambda folder: folder.read_json("census.json")),
    ("guarantee.json", b"{}", RunFolder.read_guarantee),
    ("guarantee.json", b'{"epsilon": 1, "releases": 3}', RunFolder.read_guarantee),
    ("models/a.safetensors", b"", lambda folder: folder.read_tensors("models/a.safetensors")),
    (
        "models/a.safetensors",
        b"\x80" * 99,
        lambda folder: folder.read_tensors("models/a.safetensors"),
    ),
]


@pytest.mark.parametrize(("name", "content", "read"), DAMAGE)
def test_damage_is_named_with_what_to_do(
    name: str, content: bytes, read: Any, folder: RunFolder
) -> None:
    (folder.path / name).write_bytes(content)
    with pytest.raises(FolderProblem, match=r"is damaged \(.+\)\. Put it back .* or remove it"):
        read(folder)


def test_a_folder_in_the_place_of_a_file_is_named(folder: RunFolder) -> None:
    (folder.path / "census.json").mkdir()
    with pytest.raises(FolderProblem, match=r"census\.json is damaged"):
        folder.read_json("census.json")
    with pytest.raises(FolderProblem, match="could not be written"):
        folder.write("census.json", "{}")


def test_one_process_at_a_time(folder: RunFolder) -> None:
    busy = pytest.raises(InvalidInput, match="at work in another process")
    with folder.locked(), busy, folder.locked():
        pytest.fail("two are at work")
    with folder.locked():
        pass


def test_what_did_not_begin_leaves_nothing_but_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "ledger.db").write_text("keep")
    folder = RunFolder.create(tmp_path / "run")
    folder.write("run.toml", "")
    folder.discard("run.toml", "environment.json")
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["ledger.db"]
    fresh = RunFolder.create(tmp_path / "deep" / "run")
    fresh.discard()
    assert not (tmp_path / "deep" / "run").exists()


def test_what_a_kill_left_does_not_stand_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "run" / ".dptune-draft").mkdir(parents=True)
    (tmp_path / "run" / ".run.toml.new").write_text("study")
    assert not RunFolder.create(tmp_path / "run").holds_a_run()


def test_a_folder_with_other_files_is_no_run_folder(tmp_path: Path) -> None:
    (tmp_path / "private.csv").write_text("1")
    with pytest.raises(InvalidInput, match=r"holds other files \(private.csv\)"):
        RunFolder.create(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["private.csv"]


def test_a_link_to_nothing_is_no_run_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match=r"link is a link to .*nowhere, which is not there"):
        RunFolder.create(tmp_path / "link")


def test_a_disk_that_is_full_before_the_beginning_is_not_called_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder = RunFolder.create(tmp_path / "run")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FolderProblem, match=r"Nothing was paid for yet; make room, then begin"):
        folder.write("run.toml", "study")


def test_a_folder_that_cannot_be_locked_is_named(folder: RunFolder) -> None:
    (folder.path / ".lock").mkdir()
    named = pytest.raises(FolderProblem, match=r"\.lock, which keeps others .* cannot be made")
    with named, folder.locked():
        pytest.fail("it is not locked")


def test_all_files_get_the_date_of_the_beginning_but_the_ledger(folder: RunFolder) -> None:
    folder.write("models/a.safetensors", "weights")
    (folder.path / "ledger.db").write_text("")
    os.utime(folder.path / "run.toml", (1, 1))
    folder.give_one_date()
    dates = {path.name: path.stat().st_mtime for path in folder.path.rglob("*")}
    assert dates.pop("ledger.db") > 1
    assert set(dates.values()) == {1} == {folder.path.stat().st_mtime}


def test_locks_come_from_a_package_that_knows_every_system() -> None:
    for file in Path(dptune.__file__).parent.rglob("*.py"):
        assert "import fcntl" not in file.read_text(), file


def test_the_environment_names_versions(folder: RunFolder) -> None:
    folder.write_environment("cpu")
    plain = folder.read_json("environment.json")
    assert plain is not None and plain["device"] == "cpu"
    assert plain["packages"]["torch"].split("+")[0] == torch.__version__.split("+")[0]


def test_an_unfinished_run_has_no_guarantee(folder: RunFolder) -> None:
    with pytest.raises(InvalidInput, match="not finished"):
        folder.read_guarantee()
