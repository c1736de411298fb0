"""Studies die at any moment, are copied, meet full disks and each other; nothing is paid or run
twice, and what was on disk stays."""

import errno
import json
import math
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from dptune.accounting import Budget
from dptune.engines.digests import without_digest
from dptune.errors import BudgetExceeded, FolderProblem, InvalidInput, LedgerUnavailable
from dptune.ledger import Ledger
from dptune.privacy import FullBatchRun
from dptune.search.paper_line import PaperLine
from dptune.study.payments import Payments
from dptune.study.run_folder import RunFolder
from dptune.study.runner import Progress
from dptune.study.study import resume
from dptune.study.trained_model import load
from support.rows import make_data
from support.studies import BUDGET, contents, stop_after, study

KILLS = 25
LEGS_AND_TRIALS = 8

# A process that has everything imported, and forks a study for every line it reads: the folder of
# the run, the journal, the ledger, and how many studies must have begun a run before any goes on.
# It serves all tests here, since importing takes longer than studies do.
# Each study notes every run of the engine before it happens, and the first numbers of every noise
# stream.
SERVER = """
import glob, hashlib, os, sys, time, traceback
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
from dptune.data import Data
from dptune.engines.linear import LinearEngine
from dptune.engines.randomness import Stream
from dptune.study.study import resume
from support.rows import make_data
from support.studies import study

data = make_data()

def work(folder, journal, ledger, together):
    notes = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    note = lambda *words: os.write(notes, (" ".join(map(str, words)) + "\\n").encode())
    fit_many, open_rows, normal = LinearEngine.fit_many, Data.open, Stream.normal_
    paid, rehearsing = [], [False]

    def opened(self, receipt, *args, **more):
        paid.append(receipt.payment)
        return open_rows(self, receipt, *args, **more)

    def fit(self, plans, rows, randomness, start=None):
        if rows.count > 3:  # not the rehearsal
            for streams in randomness:
                note("run", f"trial-{streams.trial}" if streams.trial else f"payment-{paid[-1]}")
            open(f"{journal}.{os.getpid()}", "w").close()
            patience = time.monotonic() + 60
            while len(glob.glob(f"{journal}.*")) < int(together) and time.monotonic() < patience:
                time.sleep(0.01)
            time.sleep(0.01)
        rehearsing[0] = rows.count <= 3  # on rows that are nobody's, with noise that repeats
        models = fit_many(self, plans, rows, randomness, start)
        rehearsing[0] = False
        time.sleep(0.01)
        return models

    def drawn(self, out):
        out = normal(self, out)
        if not rehearsing[0] and not hasattr(self, "noted"):
            self.noted = True
            note("noise", hashlib.sha256(out.numpy().tobytes()).hexdigest())
        return out

    LinearEngine.fit_many, Data.open, Stream.normal_ = fit, opened, drawn
    if os.path.exists(f"{folder}/run.toml"):
        resume(folder, data)
    else:
        study(folder, data, ledger=ledger)

study(None, data)  # what is loaded or worked out on first use is there in every fork
print("ready", flush=True)
while line := sys.stdin.readline():
    order, *given = line.rstrip("\\n").split("\\t")
    if order == "end":  # until then a dead study stays a zombie, and its number is nobody else's
        print(os.waitpid(int(given[0]), 0)[1], flush=True)
        continue
    pid = os.fork()
    if pid == 0:
        try:
            work(*given)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(pid, flush=True)
"""


class Server:
    """Runs studies in processes that may be killed."""

    def __init__(self) -> None:
        tests = str(Path(__file__).parent)
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER, tests],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, out: Path, journal: Path, kill_after: float | None = None) -> int:
        """Begin or resume the study in `out`; its exit status, negative where it was killed."""
        pid = self.begin(out, journal)
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(pid, signal.SIGKILL)
        return self.end(pid)

    def begin(self, out: Path, journal: Path, ledger: str = "", together: int = 1) -> int:
        self._tell(f"study\t{out}\t{journal}\t{ledger}\t{together}")
        return int(self._line())

    def end(self, pid: int) -> int:
        self._tell(f"end\t{pid}")
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

    def __enter__(self) -> "Server":
        assert self._line() == "ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


class Watched:
    """One study that is killed again and again, and what must be true of it in the end."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.out, self.journal = folder / "run", folder / "journal"
        self.models: dict[str, bytes] = {}
        self.records: dict[int, dict[str, Any]] = {}

    def note_what_is_there(self) -> str:
        """After a kill; says where it hit."""
        if not (self.out / "run.toml").exists():
            return "beginning"
        self.models |= {
            name: content
            for name, content in contents(self.out).items()
            if name.startswith("models/trial-") or name in ("census.json", "check.json")
        }
        if (self.out / "trials.jsonl").exists():
            for line in (self.out / "trials.jsonl").read_text().splitlines():
                record = json.loads(line)
                self.records[record["number"]] = record
        states = Counter(payment.state for payment in self.payments())
        if states.total() < LEGS_AND_TRIALS + 3:
            return "reservation"
        if states["reserved"] == 0:
            return "end"
        return "run" if states["started"] else "between"

    def lost_everything(self) -> bool:
        """Whether every run was begun and none left a result."""
        runs = [p.state for p in self.payments() if p.purpose.startswith(("trial", "final"))]
        return set(runs) == {"started"} and not any((self.out / "models").iterdir())

    def _trials(self) -> list[str]:
        return (self.out / "trials.jsonl").read_text().splitlines()

    def payments(self) -> Any:
        return Ledger.open(str(self.out / "ledger.db")).state().counted

    def check(self) -> list[str]:
        """Everything that must be true in the end; the hashes of all noise that was drawn."""
        address = str(self.out / "ledger.db")
        state = Ledger.open(address).state()
        assert state.spent.mu_squared <= BUDGET.mu_squared()
        labels = Counter(payment.purpose for payment in state.counted)
        # Scores are given back where the trials that they would compare were lost.
        needed = sum(not record["lost"] for record in map(json.loads, self._trials())) > 1
        assert len(labels) == LEGS_AND_TRIALS + 2 + needed and set(labels.values()) == {1}
        assert_nothing_moved_twice(address)
        # What was there stays, to the byte; only scores are added, and only once.
        now = contents(self.out)
        assert {name: now[name] for name in self.models} == self.models
        found = [json.loads(line) for line in now["trials.jsonl"].decode().splitlines()]
        for number, before in self.records.items():
            (after,) = (record for record in found if record["number"] == number)
            before, after = without_digest(before), without_digest(after)
            if before["score"] is None:
                after = {**after, "score": None, "score_noise": None}
            assert after == before
        notes = [line.split() for line in self.journal.read_text().splitlines()]
        runs = Counter(what for kind, what in notes if kind == "run")
        assert set(runs.values()) == {1}  # no payment was run twice
        begun = [p for p in state.counted if p.state != "reserved"]
        assert len(runs) <= len(begun)
        trained = load(self.out)
        assert torch.isfinite(trained.model.weights).all()
        assert trained.guarantee.epsilon == BUDGET.epsilon
        assert state.spent.mu_squared <= trained.guarantee.mu**2
        lost = {record["number"] for record in found if record["lost"]}
        assert lost.isdisjoint(int(name.split("-")[1][0]) for name in self.models if "-" in name)
        return [what for kind, what in notes if kind == "noise"]


def assert_nothing_moved_twice(address: str) -> None:
    """By the raw entries, not by the replay that would refuse them."""
    with sqlite3.connect(address) as connection:
        moves = connection.execute(
            "SELECT kind, payment FROM entries WHERE kind IN ('start', 'commit', 'exchange')"
        ).fetchall()
    connection.close()
    assert moves and max(Counter(moves).values()) == 1


def test_a_study_killed_at_any_moment_is_resumed_without_paying_or_running_twice(
    tmp_path: Path, server: Server
) -> None:
    rng = random.Random(20240229)
    whole = Watched(tmp_path / "whole")
    began = time.monotonic()
    assert server.run(whole.out, whole.journal) == 0
    duration = time.monotonic() - began
    noise, kills, places = whole.check(), 0, Counter[str]()
    number = 0

    def enough() -> bool:  # kills, and at places of different kinds
        return kills >= KILLS and (len(places) >= 3 or kills >= 10 * KILLS)

    while not enough():
        # By turns: one kill somewhere in a study, and kill after kill until one comes too late.
        watched, number = Watched(tmp_path / f"study-{number}"), number + 1
        again = number % 2 == 0
        while not enough():
            moment = rng.uniform(0, duration if not again else 0.4 * duration)
            if server.run(watched.out, watched.journal, moment) != -signal.SIGKILL:
                break
            kills += 1
            places[watched.note_what_is_there()] += 1
            if not again:
                break
        status = server.run(watched.out, watched.journal)
        if status and watched.lost_everything():  # kill after kill: then there is no model
            continue
        assert status == 0, f"the last resume of {watched.out} failed after kills at {places}"
        noise += watched.check()
    assert len(places) >= 3, places
    assert len(set(noise)) == len(noise) > LEGS_AND_TRIALS  # no stream of noise was used twice


def journal_of(path: Path) -> Counter[str]:
    lines = [line.split() for line in path.read_text().splitlines()]
    return Counter(what for kind, what in lines if kind == "run")


def make_ledger(tmp_path: Path, budget: Budget = BUDGET) -> str:
    address = str(tmp_path / "ledger.db")
    Ledger.create(address, budget, dataset="people", fingerprint=make_data().fingerprint)
    return address


def test_a_copy_of_a_run_folder_runs_nothing_that_the_ledger_says_was_begun(
    tmp_path: Path, server: Server
) -> None:
    address, data = make_ledger(tmp_path), make_data()
    out, copy = tmp_path / "run", tmp_path / "copy"

    def watch(progress: Progress) -> None:
        if progress.doing.startswith("final run: segment 2"):
            shutil.copytree(out, copy)
        if progress.doing.startswith("final run: segment 3"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study(out, data, ledger=address, watch=watch)
    journal = tmp_path / "journal"
    assert server.run(out, journal) == 0
    assert server.run(copy, journal) == 0
    runs = journal_of(journal)
    assert set(runs.values()) == {1} and len(runs) == 2  # segments 4 and 5, by the first to resume
    assert_nothing_moved_twice(address)
    # The copy has segment 1, says what it lacks, and promises for everything that was paid.
    copied, kept = load(copy), load(out)
    assert "interrupted after payment: 4 of 5" in " ".join(copied.guarantee.caveats)
    assert copied.guarantee.epsilon == kept.guarantee.epsilon <= BUDGET.epsilon


def test_a_run_folder_and_its_copy_resumed_at_the_same_time_share_the_payments(
    tmp_path: Path, server: Server
) -> None:
    address, data = make_ledger(tmp_path), make_data()
    out, copy = tmp_path / "run", tmp_path / "copy"
    stop_after(out, data, "counting rows", ledger=address)
    shutil.copytree(out, copy)
    journal = tmp_path / "journal"
    # Together, else the faster one might leave nothing to the other.
    begun = [server.begin(folder, journal, together=2) for folder in (out, copy)]
    assert [server.end(pid) for pid in begun] == [0, 0]
    runs = journal_of(journal)
    assert set(runs.values()) == {1} and len(runs) == LEGS_AND_TRIALS
    assert_nothing_moved_twice(address)
    assert Ledger.open(address).spent().mu_squared <= BUDGET.mu_squared()
    for folder in (out, copy):
        assert load(folder).guarantee.epsilon <= BUDGET.epsilon


def test_a_study_at_work_is_not_resumed_beside_itself(tmp_path: Path) -> None:
    out, data = tmp_path / "run", make_data()
    refused: list[str] = []

    def watch(progress: Progress) -> None:
        if progress.doing.startswith("sweep: training"):
            with pytest.raises(InvalidInput, match="at work in another process") as error:
                resume(out, data)
            refused.append(str(error.value))

    result = study(out, data, watch=watch)
    assert len(refused) == 1
    assert not any(trial.lost for trial in result.trials)


def test_a_second_study_is_refused_what_the_first_holds(tmp_path: Path) -> None:
    """The first has reserved everything, the second comes while it trains."""
    address, data = make_ledger(tmp_path, Budget(2.5, 1e-5)), make_data()
    begun, go_on = threading.Event(), threading.Event()
    results: list[Any] = []

    def watch(_: Progress) -> None:
        begun.set()
        assert go_on.wait(60)

    def first() -> None:
        results.append(study(tmp_path / "first", data, ledger=address, watch=watch))

    thread = threading.Thread(target=first)
    thread.start()
    try:
        assert begun.wait(60)
        held = Ledger.open(address).spent()
        with pytest.raises(BudgetExceeded, match="nothing was spent"):
            study(tmp_path / "second", data, ledger=address)
        assert Ledger.open(address).spent() == held
    finally:
        go_on.set()
        thread.join()
    assert not (tmp_path / "second").exists()
    assert results[0].guarantee.epsilon <= BUDGET.epsilon
    state = Ledger.open(address).state()
    assert {payment.state for payment in state.counted} == {"committed"}
    assert state.spent.mu_squared <= held.mu_squared


def test_studies_that_begin_at_the_same_moment_never_overspend_together(
    tmp_path: Path, server: Server
) -> None:
    address, journal = make_ledger(tmp_path, Budget(2.5, 1e-5)), tmp_path / "journal"
    folders = [tmp_path / name for name in ("one", "other")]
    begun = [server.begin(folder, journal, address) for folder in folders]
    ended = [server.end(pid) for pid in begun]
    state = Ledger.open(address).state()
    assert accounted(state) <= Budget(2.5, 1e-5).mu_squared()
    assert ended.count(0) <= 1  # both do not fit, so one at most came through
    for folder, status in zip(folders, ended, strict=True):
        assert folder.exists() == (status == 0)
    assert len(state.counted) == (LEGS_AND_TRIALS + 3) * ended.count(0)


def accounted(state: Any) -> float:
    return sum(payment.price.mu_squared for payment in state.counted)


def test_a_full_disk_at_any_write_costs_what_was_begun_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, written, fails_at = make_data(), 0, -1
    fsync = os.fsync

    def full(file: int) -> None:
        nonlocal written
        written += 1
        if written == fails_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(file)

    monkeypatch.setattr(os, "fsync", full)
    study(tmp_path / "whole", data)
    writes = written
    assert writes > 12
    resumed = 0
    for fails_at in range(1, writes + 1):
        written, out = 0, tmp_path / f"full-{fails_at}"
        with pytest.raises(
            (FolderProblem, LedgerUnavailable),
            match=r"could not be written: No space left .* make room|used: .* No space left",
        ):
            study(out, data)
        if not (out / "run.toml").exists():  # it had not begun
            assert not out.exists() or study(out, data).trials
            continue
        assert not list(out.rglob("*.new"))
        spent = Ledger.open(str(out / "ledger.db")).spent()
        result = resume(out, data)
        resumed += 1
        assert result.guarantee.epsilon <= BUDGET.epsilon
        assert torch.isfinite(result.model.model.weights).all()
        after = Ledger.open(str(out / "ledger.db")).spent()
        assert after.mu_squared <= spent.mu_squared <= BUDGET.mu_squared()
        assert_nothing_moved_twice(str(out / "ledger.db"))
    # Before the beginning: the ledger, environment.json and run.toml, each and its folder.
    assert resumed >= writes - 6


def test_a_reservation_that_was_cut_off_holds_nothing_and_is_made_by_a_resume_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, data = make_ledger(tmp_path, Budget(2.5, 1e-5)), make_data()
    reserve, calls = Ledger._reserve, 0

    def dies(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 4:
            raise KeyboardInterrupt
        return reserve(*args, **more)

    monkeypatch.setattr(Ledger, "_reserve", dies)
    for name in ("first", "second"):
        calls = 0
        with pytest.raises(KeyboardInterrupt):
            study(tmp_path / name, data, ledger=address)
    monkeypatch.undo()
    assert not Ledger.open(address).state().payments
    assert resume(tmp_path / "first", data).guarantee.epsilon <= BUDGET.epsilon
    held = Ledger.open(address).spent()
    with pytest.raises(BudgetExceeded):
        resume(tmp_path / "second", data)
    assert Ledger.open(address).spent() == held
    search = PaperLine()  # another study of the same rows, in what the ledger has left
    with pytest.raises(BudgetExceeded):
        study(tmp_path / "third", data, ledger=address, search=search)


def test_a_reservation_of_which_nobody_knows_whether_it_was_written_stays_resumable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, data, out = make_ledger(tmp_path), make_data(), tmp_path / "run"
    reserve_all = Ledger.reserve_all

    def answer_is_lost(self: Ledger, *args: Any, **more: Any) -> Any:
        reserve_all(self, *args, **more)
        raise LedgerUnavailable("the server went away.")

    monkeypatch.setattr(Ledger, "reserve_all", answer_is_lost)
    with pytest.raises(
        LedgerUnavailable, match=rf"went away\. Then go on with: dptune resume {out}"
    ):
        study(out, data, ledger=address)
    monkeypatch.undo()
    held = Ledger.open(address).state().counted
    assert len(held) == LEGS_AND_TRIALS + 3
    resume(out, data)
    assert len(Ledger.open(address).state().counted) == len(held)


@pytest.mark.parametrize("file", ["guarantee.json", "result.json", "nothing"])
def test_a_study_killed_when_it_is_almost_done_is_finished_though_all_that_is_left_was_taken(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, data, out = make_ledger(tmp_path), make_data(), tmp_path / "run"
    stop_after(out, data, "sweep: training", ledger=address)  # so that there is nothing to score
    write = RunFolder.write

    def killed(self: Any, name: str = "nothing", *content: Any) -> None:
        if name == file:
            raise KeyboardInterrupt
        write(self, name, *content)

    monkeypatch.setattr(RunFolder, "write", killed)
    if file == "nothing":
        monkeypatch.setattr(Payments, "give_back", killed)
    with pytest.raises(KeyboardInterrupt):
        resume(out, data)
    monkeypatch.undo()
    ledger = Ledger.open(address)
    left = math.sqrt(0.999 * ledger.remaining().mu_squared)
    if left:
        rest = FullBatchRun(steps=1, noise_multiplier=1 / left)
        ledger.reserve(rest, purpose="another's", fingerprint=data.fingerprint)
    result = resume(out, data)
    assert result.guarantee.epsilon == BUDGET.epsilon
    states = {payment.purpose: payment.state for payment in ledger.state().payments}
    assert [state for purpose, state in states.items() if "scores" in purpose] == ["voided"]


def test_a_copy_that_settles_what_the_other_is_about_to_settle_does_not_stop_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, data = make_ledger(tmp_path), make_data()
    commit = Ledger.commit

    def by_both(self: Ledger, receipt: Any) -> None:
        commit(self, receipt)
        commit(self, receipt)

    monkeypatch.setattr(Ledger, "commit", by_both)
    study(tmp_path / "run", data, ledger=address)
    assert {payment.state for payment in Ledger.open(address).state().counted} == {"committed"}
