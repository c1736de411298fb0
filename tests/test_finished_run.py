"""A finished run is read as the study left it, or refused."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dptune
from dptune.errors import DptuneError, FolderProblem, InvalidInput
from dptune.report import model_card, search_picture
from dptune.study.finished_run import FinishedRun, finish
from dptune.study.run_folder import RunFolder
from dptune.study.study import resume
from support.old_folders import without_digests
from support.row_maps import mean_of
from support.rows import make_data, make_rows
from support.studies import BUDGET, contents, stop_after, study

ROWS, _ = make_rows(20, 3)
PAID = {"preparation": dptune.Preparation(center_share=0.05, whiten_share=0.05)}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    study(out, **PAID)
    return out


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A copy of the folder that a test may damage."""
    for name, content in contents(finished).items():
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).write_bytes(content)
    return tmp_path / "run"


def shown(folder: Path) -> tuple[Any, ...]:
    """What a run tells whoever gets its folder."""
    model = dptune.load(folder)
    return model.decision_function(ROWS).tolist(), model.guarantee, model_card(folder)


def test_the_result_holds_digests_of_all_files_that_may_leave(finished: Path) -> None:
    run = FinishedRun.open(finished)
    assert run.has_digests and not run.unchecked
    assert set(run.files) == set(contents(finished)) - {"result.json"}
    assert "models/mean.safetensors" in run.files and "models/trial-1.safetensors" in run.files


def test_one_flipped_bit_anywhere_is_noticed_or_changes_nothing(run: Path) -> None:
    expected, noticed, tried = shown(run), 0, 0
    for name, content in contents(run).items():
        for place in range(7, len(content), max(1, len(content) // 8)):
            changed = bytearray(content)
            changed[place] ^= 1 << place % 8
            (run / name).write_bytes(changed)
            tried += 1
            try:
                assert shown(run) == expected, (name, place)
            except DptuneError:
                noticed += 1
        (run / name).write_bytes(content)
    assert shown(run) == expected
    assert tried > 80 and noticed > tried / 2  # trials' own weights are not read


def test_no_bit_of_what_a_card_promises_can_be_flipped(run: Path) -> None:
    expected = model_card(run)
    for name in ("guarantee.json", "result.json", "run.toml"):
        whole = (run / name).read_text()
        place = whole.index("epsilon")
        place = whole.index("2.0", place)
        for changed in ("1.0", "3.0", "2.1", "0.0"):
            (run / name).write_text(whole[:place] + changed + whole[place + 3 :])
            with pytest.raises(FolderProblem):
                model_card(run)
        (run / name).write_text(whole)
    assert model_card(run) == expected


def test_a_promise_below_the_budget_is_refused_whatever_the_digests_say(run: Path) -> None:
    """The study's name in run.toml is a digest of the budget."""
    folder = RunFolder.open(run)
    for epsilon in (1.0, 1.999):
        result = folder.read_json("result.json") or {}
        result.pop("files")
        promise = {**result["guarantee"], "epsilon": epsilon}
        (run / "guarantee.json").write_text(json.dumps(promise))
        finish(folder, {**result, "guarantee": promise})
        assert dptune.load(run).guarantee.epsilon == epsilon
        with pytest.raises(
            FolderProblem, match=rf"promises epsilon {epsilon:g} .* spent epsilon 2"
        ):
            model_card(run)


def test_resuming_a_finished_study_tells_only_that_it_is_done(tmp_path: Path) -> None:
    data, out, told = make_data(), tmp_path / "run", list[str]()
    study(out, data)
    resume(out, data, watch=lambda progress: told.append(progress.doing))
    assert told == ["done"]


def test_two_copies_of_the_promise_must_agree_in_old_folders_too(run: Path) -> None:
    without_digests(run)
    whole = (run / "guarantee.json").read_text()
    (run / "guarantee.json").write_text(whole.replace('"epsilon": 2.0', '"epsilon": 1.0'))
    for read in (dptune.load, model_card):
        with pytest.raises(FolderProblem, match=r"promises something else than result\.json"):
            read(run)


@pytest.mark.parametrize("name", ["model.safetensors", "trials.jsonl", "census.json", "run.toml"])
def test_a_file_that_is_missing_or_another_runs_is_refused(
    name: str, run: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    study(other, **PAID)
    whole = (run / name).read_bytes()
    (run / name).write_bytes((other / name).read_bytes())
    with pytest.raises(FolderProblem, match=rf"{name} is damaged \(it does not fit its SHA-256"):
        model_card(run)
    (run / name).unlink()
    with pytest.raises((FolderProblem, InvalidInput), match=r"missing|holds no run"):
        model_card(run)
    (run / name).write_bytes(whole)
    model_card(run)


def test_a_file_that_the_study_did_not_leave_is_refused(finished: Path, tmp_path: Path) -> None:
    study(tmp_path / "run", search=dptune.UnitNoise())
    assert not (tmp_path / "run" / "census.json").exists()
    (tmp_path / "run" / "census.json").write_bytes((finished / "census.json").read_bytes())
    with pytest.raises(FolderProblem, match=r"the study left no such file"):
        model_card(tmp_path / "run")


def test_a_finished_run_of_a_version_without_digests_is_read_and_its_card_says_so(
    run: Path,
) -> None:
    predictions, guarantee, card = shown(run)
    without_digests(run)
    older = shown(run)
    assert older[:2] == (predictions, guarantee)
    (line,) = set(older[2].splitlines()) - set(card.splitlines())
    assert line.startswith("Not checked: ") and "damage to them may go unnoticed" in line


def test_predict_and_export_say_that_an_old_run_is_not_checked(
    run: Path, command: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run.parent)
    np.save("new.npy", ROWS)
    asked = ["predict", "run", "--data", "new.npy", "-o", "a.csv"], ["export", "run", "-o", "a.pkl"]
    for verb in asked:
        code, _, said = command(*verb)
        assert code == 0 and "unnoticed" not in said
        Path(verb[-1]).unlink()
    without_digests(run)
    for verb in asked:
        code, _, said = command(*verb)
        assert code == 0 and "may go unnoticed" in " ".join(said.split())


def test_a_resume_writes_digests_for_a_run_of_an_older_version(tmp_path: Path) -> None:
    data, out = make_data(), tmp_path / "run"
    study(out, data, **PAID)
    before = shown(out)
    without_digests(out)
    resume(out, data)
    assert FinishedRun.open(out).has_digests and shown(out) == before


@pytest.mark.parametrize("name", ["mean", "second_moment", "lengths"])
def test_a_damaged_statistic_stops_an_unfinished_study_and_loses_nothing(
    name: str, tmp_path: Path
) -> None:
    data, out = make_data(), tmp_path / "run"
    stop_after(out, data, "counting", **PAID)
    file = out / "models" / f"{name}.safetensors"
    whole, ledger = file.read_bytes(), (out / "ledger.db").read_bytes()
    changed = bytearray(whole)
    changed[-3] ^= 1
    file.write_bytes(changed)
    with pytest.raises(FolderProblem, match=rf"{name}.safetensors is damaged .*SHA-256"):
        resume(out, data)
    assert (out / "ledger.db").read_bytes() == ledger
    file.write_bytes(whole)
    assert resume(out, data).guarantee.epsilon == BUDGET.epsilon


def test_no_damaged_file_of_an_unfinished_study_becomes_a_result(tmp_path: Path) -> None:
    """Nor one that nothing is computed from any more, such as the weights of a trial."""
    data, out = make_data(), tmp_path / "run"
    stop_after(out, data, "final run: segment 2", **PAID)
    for name, whole in contents(out).items():
        if name == "ledger.db":  # which has digests of its own
            continue
        (out / name).write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
        with pytest.raises(FolderProblem, match=name):
            resume(out, data)
        (out / name).write_bytes(whole)
    assert resume(out, data).guarantee.epsilon == BUDGET.epsilon


def test_an_unfinished_study_of_a_version_without_digests_goes_on(tmp_path: Path) -> None:
    data, out = make_data(), tmp_path / "run"
    stop_after(out, data, "final run: segment 2", **PAID)
    without_digests(out)
    result = resume(out, data)
    assert result.guarantee.epsilon == BUDGET.epsilon
    assert mean_of(result.model.preprocessing) is not None
    assert FinishedRun.open(out).has_digests


@pytest.mark.parametrize("name", ["run.toml", "result.json", "trials.jsonl", "model.safetensors"])
def test_a_pipe_in_the_place_of_a_file_is_refused(name: str, run: Path) -> None:
    (run / name).unlink()
    os.mkfifo(run / name)
    for read in (model_card, search_picture):
        with pytest.raises(FolderProblem, match=r"is not a regular file"):
            read(run)


@pytest.mark.parametrize(
    "result", ["[]", "{}", "3", '{"files": 3}', '{"files": {}, "dptune": 1, "sha256": 2}']
)
def test_a_result_that_makes_no_sense_is_damaged(result: str, run: Path) -> None:
    (run / "result.json").write_text(result)
    for read in (dptune.load, model_card):
        with pytest.raises(FolderProblem):
            read(run)
