"""The run folder: whole files or none, and words about what is wrong with one."""

import errno
import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import dptune
from dptune import whole_files
from dptune.engines.checkpoint import Checkpoint
from dptune.engines.digests import with_digest, without_digest
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
    do = "write it again" if name.startswith("guarantee") else "remove it"
    with pytest.raises(FolderProblem, match=rf"is damaged \(.+\)\. Put it back .* or {do}"):
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


# -- digests


def flips(content: bytes, every: int = 1) -> Iterator[bytes]:
    """The content with one bit changed, at one place after another."""
    for place in range(0, len(content), every):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        yield bytes(changed)


def test_one_flipped_bit_of_a_record_is_noticed_or_changes_nothing(folder: RunFolder) -> None:
    record = {"classes": [1.5, 1e-07], "noise": 3.0, "row_norm": 1.0}
    folder.write_json("census.json", record)
    assert folder.read_json("census.json") == record
    noticed = 0
    for changed in flips((folder.path / "census.json").read_bytes()):
        (folder.path / "census.json").write_bytes(changed)
        try:
            assert folder.read_json("census.json") == record  # 1e-07 became 1E-07
        except FolderProblem:
            noticed += 1
    assert noticed >= len(changed) - 1


def test_one_flipped_bit_of_a_tensor_file_is_noticed(folder: RunFolder) -> None:
    folder.write_tensors("models/mean.safetensors", {"mean": torch.randn(3).double()}, legs="[1]")
    file = folder.path / "models" / "mean.safetensors"
    for changed in flips(file.read_bytes()):
        file.write_bytes(changed)
        with pytest.raises(FolderProblem, match="is damaged"):
            folder.read_tensors("models/mean.safetensors")


def test_one_flipped_bit_of_a_trial_is_noticed_or_changes_nothing(folder: RunFolder) -> None:
    plan = TrainPlan(rows=7, steps=3, learning_rate=0.5, noise_multiplier=2.0)
    trial = Trial(number=1, stage="sweep", plan=plan, mu=0.1, score=0.25, score_noise=0.5)
    folder.write_trials([trial])
    for changed in flips((folder.path / "trials.jsonl").read_bytes()):
        (folder.path / "trials.jsonl").write_bytes(changed)
        with suppress(FolderProblem):
            assert folder.read_trials() == [trial]


def test_records_and_tensors_of_versions_without_digests_are_read(folder: RunFolder) -> None:
    (folder.path / "census.json").write_text('{"noise": 3.0}')
    assert folder.read_json("census.json") == {"noise": 3.0}
    save_file({"mean": torch.ones(2)}, folder.path / "models" / "mean.safetensors")
    stored = folder.read_tensors("models/mean.safetensors")
    assert stored is not None and stored[1] == {}


def test_a_digest_does_not_depend_on_how_numbers_and_names_are_held() -> None:
    held = with_digest({"by row": {10: (1, 2.5), 2: None}})
    assert without_digest(json.loads(json.dumps(held))) == {"by row": {"10": [1, 2.5], "2": None}}
    for damaged in ([], "text", 3, None, {"sha256": None}, {**held, "dptune": 1}):
        with pytest.raises((TypeError, ValueError)):
            without_digest(damaged)  # type: ignore[arg-type]


# -- what lies in a file's place


def test_a_link_in_the_place_of_a_draft_is_not_written_through(tmp_path: Path) -> None:
    target, mine = tmp_path / "a.json", tmp_path / "mine"
    mine.write_text("mine")
    for other in (mine, tmp_path / "nothing"):
        whole_files.draft_of(target).symlink_to(other)
        whole_files.write_whole(target, "new")
        assert target.read_text() == "new" and not target.is_symlink()
    assert mine.read_text() == "mine" and not (tmp_path / "nothing").exists()


def test_a_link_in_the_place_of_a_folder_s_draft_is_not_written_through(
    folder: RunFolder, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (folder.path / ".new").symlink_to(mine)

    def fill(draft: Path) -> None:
        draft.mkdir(exist_ok=True)
        (draft / "a").touch()

    folder.write_folder("new", fill)
    assert (folder.path / "new" / "a").exists() and not (folder.path / "new").is_symlink()
    assert not list(mine.iterdir())


@pytest.mark.parametrize("kind", ["pipe", "device", "socket"])
@pytest.mark.parametrize("name", ["census.json", "models/a.safetensors"])
def test_what_is_not_a_regular_file_is_refused_and_not_waited_for(
    kind: str, name: str, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder.path / name
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "device":
        place.symlink_to("/dev/zero")
    else:
        monkeypatch.chdir(place.parent)  # a socket's name must be short
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(place.name)
    read = folder.read_json if name.endswith("json") else folder.read_tensors
    with pytest.raises(FolderProblem, match=r"is damaged"):
        read(name)


def test_files_that_may_leave_are_readable_and_checkpoints_are_their_owners(
    folder: RunFolder,
) -> None:
    folder.write("census.json", "{}")
    Checkpoint(folder.path / "run.checkpoint", "a run").save({}, 0)
    before = os.umask(0)
    os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.path.glob("*.*")}
    assert modes["census.json"] == 0o644 & ~before
    assert modes["run.checkpoint"] == 0o600 & ~before


def test_a_replaced_file_and_its_name_are_flushed_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def flushed(file: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "file")
        fsync(file)

    def renamed(self: Path, target: Path) -> Path:
        done.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(Path, "replace", renamed)
    whole_files.write_whole(tmp_path / "a", "new")
    assert done == ["file", "rename", "folder"]
