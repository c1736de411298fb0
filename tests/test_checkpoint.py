"""Long runs are kept on disk while they go on: killed at any moment they go on from there, paid
once, with noise that never repeats."""

import errno
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file, save_file

from dptune.data.rows import MemoryRows
from dptune.engines import (
    ProcessExecutor,
    Randomness,
    SerialExecutor,
    Traits,
    checkpoint,
    register_engine,
)
from dptune.engines.checkpoint import Checkpoint, steps_kept
from dptune.engines.randomness import Stream
from dptune.engines.tensor_files import tensors_as_bytes
from dptune.errors import FolderProblem, InvalidInput
from dptune.ledger import Ledger
from dptune.lock import FileLock
from dptune.plan import TrainPlan
from dptune.search.private_selection import PrivateSelection
from dptune.search.score import HeldOutScore
from dptune.search.space import Space
from dptune.study.payments import Payments
from dptune.study.runner import Progress
from dptune.study.study import resume
from dptune.study.trained_model import load
from dptune.whole_files import draft_of
from support.kept_engine import KeptNetwork
from support.rows import make_data, make_rows
from support.studies import BUDGET, study

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {
    "engine": KeptNetwork(hidden=3),
    "space": Space(learning_rate=(0.1, 5.0), steps=(5, 10)),
}
WHOLE: dict[str, Any] = {**SMALL, "recipe": {"schedule": "cosine"}}  # the final run in one segment
FINAL, TRIAL = "models/final-1.checkpoint", "models/trial-3.checkpoint"


class Stop(Exception):
    pass


@pytest.fixture
def keep(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "run.checkpoint", "a run", seconds=0.0)


@pytest.fixture
def every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are kept, and tell how far they are, after every step."""
    monkeypatch.setattr(Checkpoint, "due", lambda self: True)
    monkeypatch.setattr(checkpoint, "_SECONDS_BETWEEN_WORDS", 0.0)


# -- the file


def test_what_is_saved_is_loaded_with_its_steps(keep: Checkpoint) -> None:
    assert keep.load() is None and keep.steps() is None
    keep.save({}, 0)  # the mark of a run that is about to begin
    assert keep.load() is None and keep.steps() == 0
    for steps in (3, 7):
        keep.save({"weights": torch.full((2,), float(steps))}, steps)
        loaded = keep.load()
        assert loaded is not None and loaded[1] == keep.steps() == steps_kept(keep.path) == steps
        assert loaded[0]["weights"].tolist() == [steps, steps]
    keep.remove()
    keep.remove()
    assert keep.steps() is None and steps_kept(keep.path) is None


def test_a_checkpoint_of_another_run_is_never_continued(keep: Checkpoint) -> None:
    keep.save({"weights": torch.ones(2)}, 3)
    other = replace(keep, tag="another run")
    for asked in (other.load, other.steps):
        with pytest.raises(FolderProblem, match="kept of a run; what is to go on here is another"):
            asked()
    assert keep.steps() == 3


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no tensors",
        tensors_as_bytes({"weights": torch.ones(9)}, {"tag": "a run", "steps": "3"})[:-4],
        tensors_as_bytes({}, {"tag": "a run"}),
        tensors_as_bytes({}, {"steps": "3"}),
        tensors_as_bytes({}, {"tag": "a run", "steps": "-3"}),
        tensors_as_bytes({}, {"tag": "a run", "steps": "many"}),
        tensors_as_bytes({}),
    ],
    ids=("empty", "text", "cut", "no steps", "no tag", "less than none", "words", "no words"),
)
def test_a_damaged_checkpoint_says_so(keep: Checkpoint, content: bytes) -> None:
    keep.path.write_bytes(content)
    for asked in (keep.load, keep.steps, lambda: steps_kept(keep.path)):
        with pytest.raises(FolderProblem, match=r"run\.checkpoint is damaged .* remove it"):
            asked()
    assert keep.path.read_bytes() == content


def test_one_flipped_bit_of_a_checkpoint_is_noticed(keep: Checkpoint) -> None:
    """Steps that are read too low would be taken again, though they are not paid for again."""
    keep.save({"weights": torch.ones(2)}, 9)
    whole = keep.path.read_bytes()
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        keep.path.write_bytes(changed)
        with pytest.raises(FolderProblem, match=r"is damaged"):
            keep.load()
    assert b'steps\\": \\"9' in whole
    keep.path.write_bytes(whole.replace(b'steps\\": \\"9', b'steps\\": \\"1'))
    for asked in (keep.load, keep.steps, lambda: steps_kept(keep.path)):
        with pytest.raises(FolderProblem, match=r"is damaged \(it does not fit its SHA-256\)"):
            asked()


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_overwritten_bytes_of_any_tensor_of_a_checkpoint_are_noticed(
    kind: torch.dtype, keep: Checkpoint
) -> None:
    tensors = {"a": torch.ones(3, 2).to(kind), "b": torch.zeros(5).to(kind), "c": torch.tensor(1)}
    keep.save(tensors, 9)
    whole = keep.path.read_bytes()
    begins = 8 + int.from_bytes(whole[:8], "little")
    size = tensors["a"].element_size()
    assert len(whole) - begins == 11 * size + 8
    for place in range(begins, len(whole), size):
        changed = bytearray(whole)
        changed[place : place + size] = bytes(byte ^ 1 for byte in whole[place : place + size])
        keep.path.write_bytes(changed)
        with pytest.raises(FolderProblem, match=r"its tensors do not fit their SHA-256"):
            keep.load()
    keep.path.write_bytes(whole)
    assert keep.load() is not None


def test_a_checkpoint_of_a_version_without_digests_is_refused(keep: Checkpoint) -> None:
    save_file({"weights": torch.ones(2)}, keep.path, {"tag": "a run", "steps": "3"})
    for asked in (keep.load, keep.steps, lambda: steps_kept(keep.path)):
        with pytest.raises(FolderProblem, match=r"kept no SHA-256.* Go on with that version"):
            asked()


def test_what_a_kill_left_half_written_is_not_kept_beside_steps_taken_anew(
    keep: Checkpoint,
) -> None:
    for end in (keep.load, keep.remove):
        draft_of(keep.path).write_bytes(b"of steps that are lost")
        end()
        assert not draft_of(keep.path).exists()


def test_a_full_disk_leaves_what_was_kept_before(
    keep: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep.save({"weights": torch.ones(2)}, 3)

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(FolderProblem, match="No space left on device"):
            keep.save({"weights": torch.zeros(2)}, 4)
    assert keep.steps() == 3 and not draft_of(keep.path).exists()


def test_it_is_saved_as_often_as_asked_and_rarer_where_saving_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(checkpoint, "monotonic", lambda: now[0])
    keep = Checkpoint(tmp_path / "run.checkpoint", "a run", seconds=60.0)
    keep.load()
    assert not keep.due()
    now[0] += 60
    assert keep.due()
    keep.save({}, 1)
    assert not keep.due()
    write = checkpoint.whole_files.write_whole

    def slow(*args: Any) -> None:
        now[0] += 10
        write(*args)

    monkeypatch.setattr(checkpoint.whole_files, "write_whole", slow)
    keep.save({}, 2)
    now[0] += 199
    assert not keep.due()
    now[0] += 1
    assert keep.due()


def test_how_far_a_run_is_is_told_once_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, told = [5.0], list[int]()
    monkeypatch.setattr(checkpoint, "monotonic", lambda: now[0])
    keep = Checkpoint(tmp_path / "run.checkpoint", "a run", told=told.append)
    keep.load()
    for step in range(1, 31):
        now[0] += 0.25
        keep.tell(step)
    assert told == [4, 8, 12, 16, 20, 24, 28]
    replace(keep, told=None).tell(31)


def test_a_run_that_another_process_is_at_is_left_to_it(keep: Checkpoint) -> None:
    """One whose parent was killed, and with it the lock of the folder."""
    plan, rows = make_plan(), small_rows()
    keep.save({}, 0)
    lock = FileLock.take(keep.path.with_name(f".{keep.path.name}.lock"))
    assert lock is not None
    with pytest.raises(InvalidInput, match="another process is at the run"):
        SerialExecutor().fit(made(), [plan], rows, [Randomness()], None, [keep])
    assert keep.steps() == 0
    lock.release()
    SerialExecutor().fit(made(), [plan], rows, [Randomness()], None, [keep])
    assert keep.steps() == plan.steps
    assert [file.name for file in keep.path.parent.iterdir()] == ["run.checkpoint"]


# -- runs


def make_plan(**changes: Any) -> TrainPlan:
    fields = {"rows": 60, "steps": 6, "learning_rate": 1.0, "noise_multiplier": 1.0}
    return TrainPlan(**fields | changes)


def small_rows() -> MemoryRows:
    features, labels = make_rows(60)
    return MemoryRows(features.astype("float32"), labels)


def made() -> KeptNetwork:
    return KeptNetwork(hidden=3, inputs=4, outputs=2)


def stop_at(step: int) -> Any:
    def told(done: int) -> None:
        if done == step:
            raise Stop

    return told


def test_a_step_has_noise_and_a_sample_of_its_own() -> None:
    seeded = Randomness(trial=2, noise_seed=7)

    def first(streams: Randomness, kind: str, step: int | None) -> float:
        stream: Stream = getattr(streams, kind)(CPU, step)
        return float(stream.normal_(torch.empty(1, dtype=torch.float64)))

    asked = [(kind, step) for kind in ("noise", "sampling") for step in (None, 0, 1, 2, 10)]
    drawn = [first(seeded, *one) for one in asked]
    assert len(set(drawn)) == len(drawn)
    assert drawn == [first(seeded, *one) for one in asked]
    fresh = [first(Randomness(), *one) for one in asked * 3]
    assert len(set(fresh)) == len(fresh)


@pytest.mark.usefixtures("every_step")
@pytest.mark.parametrize("changes", [{}, {"sampling_rate": 0.3, "schedule": "cosine"}])
@pytest.mark.parametrize("segment", [False, True])
def test_a_run_cut_off_anywhere_ends_like_one_that_was_not(
    keep: Checkpoint, changes: dict[str, Any], segment: bool
) -> None:
    plan, rows, streams = make_plan(**changes), small_rows(), [Randomness(noise_seed=3)]
    start = made().fit_many([make_plan()], rows, [Randomness(noise_seed=4)])[:segment] or [None]
    (whole,) = made().fit_many([plan], rows, streams, start)
    before = 6 * segment
    for cut in range(1, plan.steps + 1):
        with pytest.raises(Stop):
            stopping = [replace(keep, told=stop_at(cut))]
            SerialExecutor().fit(made(), [plan], rows, streams, start, stopping)
        assert (keep.steps() or 0) == cut - 1  # the last is lost
        for _ in range(2):  # to the end, and once more from there
            (on,) = SerialExecutor().fit(made(), [plan], rows, streams, start, [keep])
            assert torch.equal(on.weights, whole.weights)
            assert torch.equal(on.velocity, whole.velocity)
            assert int(on.steps) == plan.steps + before
        keep.remove()


@dataclass(eq=False)
class Eager(Checkpoint):
    """Saves and tells after every step, in whatever process."""

    def due(self) -> bool:
        return True

    def tell(self, steps: int) -> None:
        if self.told:
            self.told(steps)


@dataclass(frozen=True, kw_only=True)
class DiesInStepFour(KeptNetwork):
    """Of the step nothing is kept."""

    name: ClassVar[str] = "dies-in-step-four"

    def fit(self, *args: Any, keep: Any = None, **more: Any) -> Any:
        assert keep.told is None  # who is told lives in another process
        keep.told = die_at_four
        return super().fit(*args, keep=keep, **more)


def die_at_four(done: int) -> None:
    if done == 4:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("warm_processes")
def test_processes_keep_their_runs_and_one_that_died_goes_on(tmp_path: Path) -> None:
    engine, rows = DiesInStepFour(hidden=3, inputs=4, outputs=2), small_rows()
    streams = [Randomness(trial=trial, noise_seed=1) for trial in range(2)]
    plans = [make_plan(steps=3), make_plan()]
    keeps = [Eager(tmp_path / f"{n}.checkpoint", f"run {n}", told=print) for n in range(2)]
    models = ProcessExecutor(workers=2).fit(engine, plans, rows, streams, None, keeps)
    assert [model is None for model in models] == [False, True]
    assert [keep.steps() for keep in keeps] == [3, 3]
    models = SerialExecutor().fit(made(), plans, rows, streams, None, keeps)
    for plan, stream, model in zip(plans, streams, models, strict=True):
        (whole,) = made().fit_many([plan], rows, [stream])
        assert model is not None and int(model.steps) == plan.steps
        assert torch.allclose(model.weights, whole.weights, atol=1e-6)


def test_engines_without_checkpoints_are_given_none(keep: Checkpoint) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Plain(KeptNetwork):
        name: ClassVar[str] = "plain"
        traits = Traits()

        def fit(self, plan: Any, randomness: Any, start: Any, *, rows: Any) -> Any:  # type: ignore[override]
            return super().fit(plan, randomness, start, rows=rows)

    engine = Plain(hidden=3, inputs=4, outputs=2)
    (model,) = engine.fit_many([make_plan()], small_rows(), [Randomness()])
    assert int(model.steps) == 6
    with pytest.raises(InvalidInput, match="as many streams, starts and checkpoints"):
        made().fit_many([make_plan()], small_rows(), [Randomness()], None, [keep, keep])


# -- before anything is paid


@register_engine
@dataclass(frozen=True, kw_only=True)
class ForgetsTheEnd(KeptNetwork):
    name: ClassVar[str] = "forgets-the-end"

    def fit(self, plan: Any, *args: Any, keep: Any = None, **more: Any) -> Any:
        model = super().fit(plan, *args, keep=keep, **more)
        if keep is not None:
            keep.remove()
        return model


@register_engine
@dataclass(frozen=True, kw_only=True)
class GoesOnOtherwise(KeptNetwork):
    name: ClassVar[str] = "goes-on-otherwise"

    def fit(self, *args: Any, keep: Any = None, **more: Any) -> Any:
        if keep is not None and (kept := keep.load()):
            tensors = kept[0]
            keep.save({**tensors, "velocity": 9 + tensors["velocity"]}, kept[1])
        return super().fit(*args, keep=keep, **more)


@dataclass(frozen=True)
class KnowsNothingOfKeeping:
    def fit(self, engine: Any, plans: Any, rows: Any, randomness: Any, start: Any) -> list[Any]:
        return list(engine.fit_many(plans, rows, randomness, start))


def test_an_engine_that_does_not_go_on_where_it_was_is_refused_for_free(tmp_path: Path) -> None:
    for engine in (ForgetsTheEnd(), GoesOnOtherwise()):
        with pytest.raises(InvalidInput, match="ends otherwise than one that is not"):
            study(tmp_path / "run", **SMALL | {"engine": engine})
    with pytest.raises(InvalidInput, match="failed on a made-up row, so nothing was paid"):
        study(tmp_path / "run", **SMALL, executor=KnowsNothingOfKeeping())
    assert not (tmp_path / "run").exists()


# -- studies


def step_stopper(doing: str, steps: str, then: Any = None) -> Any:
    def watch(progress: Progress) -> None:
        if progress.doing.startswith(doing) and progress.steps == steps:
            if then:
                then()
            raise Stop

    return watch


def cut_off(out: Path, doing: str, steps: str, then: Any = None, **asked: Any) -> None:
    """Begin a study and break it off when it has told these steps: the last one is lost."""
    with pytest.raises(Stop):
        study(out, watch=step_stopper(doing, steps, then), **asked)


def states_of(out: Path, address: str = "") -> dict[str, str]:
    state = Ledger.open(address or str(out / "ledger.db")).state()
    return {payment.label or "": payment.state for payment in state.counted}


def assert_whole(out: Path, *, lost: Sequence[int] = (), final: bool = True) -> None:
    """Every run has all its steps, nothing is kept any more, and nothing was paid twice."""
    trained, result = load(out), json.loads((out / "result.json").read_text())
    assert [trial.number for trial in trained.trials if trial.lost] == list(lost)
    for trial in trained.trials:
        if not trial.lost:
            stored = load_file(out / "models" / f"trial-{trial.number}.safetensors")
            assert int(stored["steps"]) == trial.plan.steps
    assert int(trained.model.steps) == result["final"]["plan"]["steps"]
    assert final == (not any("lost as a whole" in note for note in result["notes"]))
    assert not list(out.glob("models/*.checkpoint")) + list(out.glob("models/.*"))
    assert trained.guarantee.epsilon <= BUDGET.epsilon
    with sqlite3.connect(out / "ledger.db") as connection:
        moves = connection.execute(
            "SELECT kind, payment FROM entries WHERE kind IN ('start', 'commit', 'exchange')"
        ).fetchall()
    connection.close()
    assert moves and max(Counter(moves).values()) == 1


@pytest.mark.usefixtures("every_step")
def test_a_kill_in_one_trial_loses_nothing_of_those_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, data = tmp_path / "run", make_data()
    cut_off(out, "sweep", "trial 3, step 4 of 10", data=data, **SMALL)
    assert [steps_kept(out / "models" / f"trial-{n}.checkpoint") for n in (1, 2, 3)] == [5, 6, 3]
    assert {states_of(out)[f"trial {n}"] for n in (1, 2, 3)} == {"started"}
    taken: list[str] = []
    result = resume(out, data, watch=lambda progress: taken.append(progress.steps))
    assert [steps for steps in taken if steps.startswith("trial")] == [
        f"trial 3, step {step} of 10" for step in range(4, 11)
    ]
    assert_whole(out)
    assert set(states_of(out).values()) == {"committed"}
    assert resume(out, data).final == result.final


@pytest.mark.usefixtures("every_step")
@pytest.mark.parametrize("asked", [SMALL, WHOLE], ids=["segments", "whole"])
def test_the_final_run_goes_on_and_tells_how_far_it_is(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    out, data, seen = tmp_path / "run", make_data(), list[str]()
    steps = "step 2 of 2" if asked is SMALL else "step 7 of 10"
    cut_off(out, "final run", steps, data=data, **asked)
    result = resume(out, data, watch=lambda p: seen.append(f"{p.doing}, {p.steps}"))
    assert next(line for line in seen if "step" in line) == (
        "final run: segment 1 of 5, step 2 of 2"
        if asked is SMALL
        else "final run: segment 1 of 1, step 7 of 10"
    )
    assert result.final.plan.steps == 10
    assert_whole(out)


class Dies:
    """An executor whose processes die in the fourth step of every run that is not kept yet."""

    def fit(
        self, engine: Any, plans: Any, rows: Any, streams: Any, start: Any, keep: Any = None
    ) -> list[Any]:
        models: list[Any] = []
        for number, (plan, stream) in enumerate(zip(plans, streams, strict=True)):
            kept = [] if keep is None else [[keep[number]]]
            if keep and rows.count > 3 and not keep[number].steps():  # not the rehearsal
                kept = [[replace(keep[number], told=stop_at(4))]]
            try:
                begun = None if start is None else [start[number]]
                models += SerialExecutor().fit(engine, [plan], rows, [stream], begun, *kept)
            except Stop:
                models.append(None)
        return models


@pytest.mark.usefixtures("every_step")
def test_a_process_that_dies_is_said_and_its_run_goes_on(tmp_path: Path) -> None:
    out, data = tmp_path / "run", make_data()
    for work, run in (
        (lambda: study(out, data, executor=Dies(), **WHOLE), "trial 1"),
        (lambda: resume(out, data, executor=Dies()), "segment 1 of the final run"),
    ):
        words = rf"at {run} of study .* died; 3 of \d+ steps are kept\. Go on with: dptune resume"
        with pytest.raises(FolderProblem, match=words):
            work()
    resume(out, data, executor=Dies())
    assert_whole(out)


@pytest.mark.usefixtures("every_step")
def test_held_out_scores_are_taken_once_though_training_was_cut_off(tmp_path: Path) -> None:
    """One payment trains and scores: what was cut off before anything was scored is scored."""
    data, asked = make_data(), {**SMALL, "score": HeldOutScore()}
    for name, steps in (("middle", "trial 2, step 3 of 6"), ("end", "trial 3, step 10 of 10")):
        out = tmp_path / name
        cut_off(out, "sweep", steps, data=data, **asked)
        assert states_of(out)["sweep"] == "started"
        result = resume(out, data)
        assert all(trial.score is not None for trial in result.trials)
        assert_whole(out)
    out = tmp_path / "scores"

    def stop(progress: Progress) -> None:
        if progress.doing.startswith("sweep: comparing"):
            raise Stop

    with pytest.raises(Stop):
        study(out, data, watch=stop, **asked)
    (out / "trials.jsonl").unlink()  # though nothing says any more that scoring was begun
    result = resume(out, data)
    assert [trial.score for trial in result.trials] == [None] * 3
    assert_whole(out)


@pytest.mark.usefixtures("every_step")
def test_sealed_searches_keep_nothing_and_tell_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*args: Any) -> None:
        raise AssertionError("something of a sealed search was kept")

    monkeypatch.setattr(Checkpoint, "save", never)
    seen: list[str] = []
    study(
        tmp_path / "run", search=PrivateSelection(), watch=lambda p: seen.append(p.steps), **SMALL
    )
    assert set(seen) == {""}


@pytest.mark.usefixtures("every_step")
@pytest.mark.parametrize("place", ["sweep", "final run"])
def test_a_checkpoint_that_is_damaged_or_of_another_run_stops_the_study_and_loses_nothing(
    tmp_path: Path, place: str
) -> None:
    out, data = tmp_path / "run", make_data()
    file, steps = (TRIAL, "trial 3, step 4 of 10") if place == "sweep" else (FINAL, "step 4 of 10")
    cut_off(out, place, steps, data=data, **WHOLE)
    whole = (out / file).read_bytes()
    ledger = (out / "ledger.db").read_bytes()
    other = tmp_path / "other"
    cut_off(other, place, steps, data=data, **WHOLE)
    for content, words in (
        (whole[:-1], "is damaged"),
        (b"", "is damaged"),
        ((other / file).read_bytes(), "what is to go on here"),
        (whole.replace(b"plan ", b"plan 0", 1)[:], "damaged|what is to go on here"),
    ):
        (out / file).write_bytes(content)
        with pytest.raises(FolderProblem, match=words):
            resume(out, data)
        assert (out / file).read_bytes() == content
    assert (out / "ledger.db").read_bytes() == ledger
    (out / file).write_bytes(whole)
    resume(out, data)
    assert_whole(out)


@pytest.mark.usefixtures("every_step")
def test_a_checkpoint_that_somebody_removed_is_lost_though_paid_for(tmp_path: Path) -> None:
    out, data = tmp_path / "run", make_data()
    cut_off(out, "sweep", "trial 3, step 4 of 10", data=data, **WHOLE)
    (out / TRIAL).unlink()
    with pytest.raises(Stop):
        resume(out, data, watch=step_stopper("final run", "step 4 of 10"))
    (out / FINAL).unlink()
    result = resume(out, data)
    assert [trial.lost for trial in result.trials] == [False, False, True]
    assert any(note.startswith("the final run was lost") for note in result.notes)
    states = states_of(out)
    assert states["trial 3"] == states["final run, leg 1"] == "started"
    assert_whole(out, lost=[3], final=False)


@pytest.mark.usefixtures("every_step")
def test_steps_that_nobody_has_paid_for_are_refused_and_a_mark_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older ledger that was put back, and a kill between the mark and the payment."""
    out, data = tmp_path / "run", make_data()
    begin_all = Payments.begin_all

    def killed(self: Payments, wanted: Mapping[str, Any]) -> Any:
        if "final run, leg 1" in wanted:
            raise Stop
        return begin_all(self, wanted)

    monkeypatch.setattr(Payments, "begin_all", killed)
    with pytest.raises(Stop):
        study(out, data, **WHOLE)
    monkeypatch.setattr(Payments, "begin_all", begin_all)
    assert steps_kept(out / FINAL) == 0 and states_of(out)["final run, leg 1"] == "reserved"
    older = (out / "ledger.db").read_bytes()
    with pytest.raises(Stop):
        resume(out, data, watch=step_stopper("final run", "step 4 of 10"))
    newer = (out / "ledger.db").read_bytes()
    (out / "ledger.db").write_bytes(older)
    with pytest.raises(FolderProblem, match=r"result of 'final run, leg 1', but .* never began"):
        resume(out, data)
    (out / "ledger.db").write_bytes(newer)
    resume(out, data)
    assert_whole(out)


@pytest.mark.usefixtures("every_step")
def test_what_is_settled_is_never_run_again_whatever_is_kept_of_it(tmp_path: Path) -> None:
    out, data = tmp_path / "run", make_data()
    kept: list[bytes] = []
    cut_off(out, "final run", "step 4 of 10", lambda: kept.append((out / FINAL).read_bytes()),
            data=data, **WHOLE)  # fmt: skip

    def stop(progress: Progress) -> None:
        if progress.doing == "checking the final model":
            raise Stop

    with pytest.raises(Stop):
        resume(out, data, watch=stop)
    assert states_of(out)["final run, leg 1"] == "committed"
    (out / FINAL).write_bytes(kept[0])  # as a kill before it was removed would leave it
    copy = shutil.copytree(out, tmp_path / "copy")
    resume(out, data)
    assert_whole(out)
    (copy / "models" / "final.safetensors").unlink()
    seen: list[str] = []
    result = resume(copy, data, watch=lambda progress: seen.append(progress.steps))
    assert any(note.startswith("the final run was lost") for note in result.notes)
    assert set(seen) == {""}


@pytest.mark.usefixtures("every_step")
def test_a_run_that_a_copy_of_the_folder_has_just_begun_is_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, data, address = tmp_path / "run", make_data(), str(tmp_path / "ledger.db")
    Ledger.create(address, BUDGET, dataset="people", fingerprint=data.fingerprint)
    begin_all = Payments.begin_all

    def by_both(self: Payments, wanted: Mapping[str, Any]) -> Any:
        if "trial 1" in wanted:
            begin_all(self, {label: wanted[label] for label in ("trial 1", "trial 2")})
        return begin_all(self, wanted)

    monkeypatch.setattr(Payments, "begin_all", by_both)
    result = study(out, data, ledger=address, **WHOLE)
    assert [trial.lost for trial in result.trials] == [True, True, False]
    assert not list(out.glob("models/*.checkpoint"))
    assert states_of(out, address)["trial 1"] == "started"


# -- killed at any moment

KILLS, CUT_SHORT = 20, 6

# A process that has everything imported, and forks a study for every line it reads: the folder of
# the run, the journal and the kind of study. A study notes what it loads, the steps it took, and
# the first numbers of every stream of noise before they are used.
SERVER = """
import hashlib, os, random, sys, time, traceback
sys.path[:0] = sys.argv[1:]
import torch
torch.set_num_threads(1)
from dptune.engines.checkpoint import Checkpoint
from dptune.engines.randomness import Randomness, Stream
from dptune.search.score import HeldOutScore
from dptune.search.space import Space
from dptune.study.study import resume
from support.kept_engine import KeptNetwork
from support.rows import make_data
from support.studies import study

data, entropy = make_data(), random.SystemRandom()
SMALL = {
    "engine": KeptNetwork(hidden=3),
    "space": Space(learning_rate=(0.1, 5.0), steps=(5, 10)),
}
KINDS = {
    "segments": {},
    "whole": {"recipe": {"schedule": "cosine"}},
    "held-out": {"score": HeldOutScore(), "recipe": {"schedule": "cosine"}},
}

def work(folder, journal, kind):
    notes = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    note = lambda *words: os.write(notes, (" ".join(map(str, words)) + "\\n").encode())
    normal, is_ours = Stream.normal_, lambda keep: "rehearsal" not in keep.tag
    load = Checkpoint.load

    def loaded(self):
        found = load(self)
        if is_ours(self):
            note("load", self.path.name, found[1] if found else 0)
        return found

    def told(self, steps):
        if is_ours(self):
            note("step", self.path.name, steps)
            time.sleep(0.004)

    def drawn(self, out):
        out = normal(self, out)
        if not hasattr(self, "noted") and out.numel() > 2:
            self.noted = True
            note("noise", hashlib.sha256(out.numpy().tobytes()).hexdigest())
        return out

    secret = Randomness._secret

    def streams(self, *args):
        stream = secret(self, *args)
        if self.noise_seed is not None:  # the rehearsal's, which repeats: its rows are nobody's
            stream.noted = True
        return stream

    Checkpoint.load, Checkpoint.tell, Stream.normal_ = loaded, told, drawn
    Checkpoint.due = lambda self: "rehearsal" in self.tag or entropy.random() < 0.4
    initial = Randomness.initial

    def public(self):
        stream = initial(self)
        stream.noted = True
        return stream

    Randomness._secret, Randomness.initial = streams, public
    if os.path.exists(f"{folder}/run.toml"):
        resume(folder, data)
    else:
        study(folder, data, **SMALL, **KINDS[kind])

for kind in KINDS.values():
    study(None, data, **SMALL, **kind)  # what is worked out on first use is there in every fork
print("ready", flush=True)
while line := sys.stdin.readline():
    pid = os.fork()
    if pid == 0:
        try:
            work(*line.rstrip("\\n").split("\\t"))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(pid, flush=True)
    sys.stdin.readline()  # until then a dead study stays a zombie, and its number is nobody else's
    print(os.waitpid(pid, 0)[1], flush=True)
"""


class Server:
    """Runs studies in processes that may be killed."""

    def __enter__(self) -> "Server":
        tests = Path(__file__).parent
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(tests), str(tests.parent / "examples")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._line() == "ready\n"
        return self

    def run(self, out: Path, journal: Path, kind: str, kill_after: float | None = None) -> int:
        """Begin or resume the study in `out`; its exit status, negative where it was killed."""
        self._tell(f"{out}\t{journal}\t{kind}")
        pid = int(self._line())
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(pid, signal.SIGKILL)
        self._tell("end")
        return os.waitstatus_to_exitcode(int(self._line()))

    def _tell(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout and self._process.stderr
        line = self._process.stdout.readline()
        if not line:
            pytest.fail(self._process.stderr.read())
        return line

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def kept_in(out: Path) -> dict[str, int]:
    """The steps that are on disk of runs that go on."""
    found = {file.name: steps_kept(file) for file in out.glob("models/*.checkpoint")}
    return {name: steps for name, steps in found.items() if steps}


def assert_goes_on(lines: Sequence[str], kept: Mapping[str, int]) -> None:
    """What one process did: every run loads what was kept of it, and takes the steps after that."""
    last: dict[str, int] = {}
    for kind, name, *number in map(str.split, lines):
        if kind == "load":
            assert name not in last
            last[name] = int(number[0])
            assert last[name] == kept.get(name, 0)
        elif kind == "step":
            last[name] += 1
            assert int(number[0]) == last[name]


def test_studies_killed_at_any_moment_go_on_without_paying_twice_or_repeating_noise(
    tmp_path: Path,
) -> None:
    rng, kills, noise = random.Random(20240301), 0, list[str]()
    short = Counter[str]()  # kills of runs of which something was kept
    kinds = ("whole", "segments", "held-out")

    def hit_all() -> bool:  # trials and final runs, and studies of every kind
        return short.total() >= CUT_SHORT and {"trial", "final", *kinds} <= short.keys()

    def enough() -> bool:
        return kills >= KILLS and ((hit_all() and len(noise) > KILLS) or kills >= 10 * KILLS)

    with Server() as server:
        began = time.monotonic()
        assert server.run(tmp_path / "first", tmp_path / "journal", "whole") == 0
        duration, number = time.monotonic() - began, 0
        while not enough():
            number += 1
            folder, kind = tmp_path / str(number), kinds[number % len(kinds)]
            folder.mkdir()
            out, journal = folder / "run", folder / "journal"
            read, status = 0, -signal.SIGKILL
            while status == -signal.SIGKILL:
                kept = kept_in(out)
                moment = None if enough() else rng.uniform(0, 0.6 * duration)
                status = server.run(out, journal, kind, moment)
                lines = journal.read_text().splitlines() if journal.exists() else []
                assert_goes_on(lines[read:], kept)
                read = len(lines)
                kills += status == -signal.SIGKILL
                if status == -signal.SIGKILL and (now := kept_in(out)):
                    short.update({kind, *(name.partition("-")[0] for name in now)})
            assert status == 0, f"study {number} ({kind}) failed after a kill"
            noise += [line.split()[1] for line in lines if line.startswith("noise")]
            assert_whole(out)
            runs = {label: state for label, state in states_of(out).items() if "run" in label}
            assert runs and set(runs.values()) == {"committed"}
    assert hit_all(), short
    assert len(set(noise)) == len(noise) > KILLS
