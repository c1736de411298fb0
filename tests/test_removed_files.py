"""A run folder whose files were removed never states what is not true of its model."""

from pathlib import Path

import pytest

import dptune
from dptune.errors import FolderProblem
from dptune.report import publish
from dptune.study.study import resume
from support.old_folders import without_digests
from support.rows import make_data
from support.studies import contents, stop_after, study

PAID = {"preparation": dptune.Preparation(center_share=0.05, whiten_share=0.05)}
WRITTEN_AGAIN = ("model.safetensors", "guarantee.json", "guarantee.txt", "result.json")


def test_finished_run_without_a_file_that_was_paid_for_is_refused(tmp_path: Path) -> None:
    data, run = make_data(), tmp_path / "run"
    study(run, data, **PAID)
    whole = contents(run)
    for name in set(whole) - {*WRITTEN_AGAIN, "run.toml", "ledger.db"}:
        for content in (None, b""):
            (run / name).unlink() if content is None else (run / name).write_bytes(content)
            with pytest.raises(FolderProblem, match=r"Put it back from a backup"):
                resume(run, data)
            assert (run / "result.json").read_bytes() == whole["result.json"]
            (run / name).write_bytes(whole[name])


def test_resume_writes_the_other_files_of_a_finished_run_again(tmp_path: Path) -> None:
    data, run = make_data(), tmp_path / "run"
    study(run, data, **PAID)
    whole = contents(run)
    for name in WRITTEN_AGAIN:
        for content in (None, b"", whole[name][:-9]):
            (run / name).unlink() if content is None else (run / name).write_bytes(content)
            resume(run, data)
            assert contents(run) == whole


@pytest.mark.parametrize("removed", [["trials.jsonl"], ["census.json"]])
def test_final_run_keeps_the_settings_that_it_was_trained_with(
    removed: list[str], tmp_path: Path
) -> None:
    data, run = make_data(), tmp_path / "run"
    first = study(run, data)
    for name in [*removed, "result.json"]:
        (run / name).unlink()
    again = resume(run, data)
    assert again.final == first.final
    assert [trial.plan for trial in again.trials] == [trial.plan for trial in first.trials]


def test_final_run_of_unknown_settings_is_refused(tmp_path: Path) -> None:
    data, run = make_data(), tmp_path / "run"
    assert stop_after(run, data, "final run: segment 3")
    without_digests(run)
    (run / "trials.jsonl").unlink()
    with pytest.raises(FolderProblem, match=r"trials\.jsonl is missing .* not known without it"):
        resume(run, data)


@pytest.mark.parametrize("name", ["mean", "second_moment"])
def test_statistic_that_trained_models_need_cannot_be_left_out(name: str, tmp_path: Path) -> None:
    data, run = make_data(), tmp_path / "run"
    assert stop_after(run, data, "sweep: comparing", **PAID)
    (run / "models" / f"{name}.safetensors").unlink()
    with pytest.raises(FolderProblem, match=rf"{name}.safetensors is missing, and .* was trained"):
        resume(run, data)


def test_empty_list_of_trials_is_damaged(tmp_path: Path) -> None:
    data, run = make_data(), tmp_path / "run"
    assert stop_after(run, data, "final run: segment 3")
    (run / "trials.jsonl").write_bytes(b"")
    with pytest.raises(FolderProblem, match=r"trials\.jsonl is damaged \(it is empty\)"):
        resume(run, data)


def test_advice_names_resume_only_for_files_that_it_writes_again(tmp_path: Path) -> None:
    data, run = make_data(), tmp_path / "run"
    study(run, data, **PAID)
    for name, content in contents(run).items():
        if name == "result.json":
            continue
        (run / name).write_bytes(content[:-9])
        with pytest.raises(FolderProblem) as refused:
            publish(run, tmp_path / "published")
        again = f"write it again with: dptune resume {run}" in str(refused.value)
        assert again == (name in WRITTEN_AGAIN), name
        (run / name).write_bytes(content)


def test_empty_record_of_what_was_asked_is_damaged(tmp_path: Path) -> None:
    data, run = make_data(), tmp_path / "run"
    study(run, data)
    (run / "run.toml").write_text("")
    with pytest.raises(FolderProblem, match=r"run\.toml cannot be read: it lacks .* is damaged"):
        resume(run, data)
