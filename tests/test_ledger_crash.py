"""Processes die at any instruction; what was granted stays granted, and the ledger opens again."""

import errno
import os
import random
import select
import signal
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

from dptune import Budget, Ledger
from dptune.errors import LedgerUnavailable
from dptune.ledger import balance, chain, ledger, queue, store
from dptune.privacy import FullBatchRun, Receipt
from support.ledgers import ROWS, new_ledger

RANDOM_KILLS = 60
TINY = FullBatchRun(steps=1, noise_multiplier=1000.0)
TINIER = FullBatchRun(steps=1, noise_multiplier=2000.0)


def fork(child: Callable[[], None]) -> int:
    """Run `child` in a forked process that never returns into pytest."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            child()
        finally:
            os._exit(0)
    return pid


def pay_and_report(address: str, report: int) -> None:
    """Reserve, tell the parent which payment was granted, commit; again and again."""
    ledger = Ledger.open(address)
    while True:
        receipt = ledger.reserve(TINY, purpose="trial", fingerprint=ROWS)
        os.write(report, f"{receipt.payment} {receipt.entry}\n".encode())
        ledger.commit(receipt)


def read_all(pipe: int) -> list[tuple[int, str]]:
    """What the child had reported before it died."""
    text = b""
    while chunk := os.read(pipe, 65536):
        text += chunk
    lines = [line for line in text.decode().split("\n")[:-1] if line]
    return [(int(number), entry) for number, entry in map(str.split, lines)]


def test_nothing_granted_is_lost_in_kills_at_random_moments(tmp_path: Path) -> None:
    address = str(tmp_path / "ledger.db")
    new_ledger(address, Budget(8.0, 1e-5))
    rng = random.Random(20240101)
    granted: dict[int, str] = {}
    places, kills = Counter[str](), 0
    while kills < RANDOM_KILLS or (len(places) < 3 and kills < 10 * RANDOM_KILLS):
        reading, writing = os.pipe()
        pid = fork(lambda: pay_and_report(address, writing))  # noqa: B023
        os.close(writing)
        if kills % 10 == 0:  # some kills come after a grant, however slow the machine
            select.select([reading], [], [], 60)
        time.sleep(rng.uniform(0.001, 0.06))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        kills += 1
        in_transaction = Path(f"{address}-journal").exists()
        reported = read_all(reading)
        os.close(reading)
        granted.update(reported)
        if in_transaction:
            places["while something was written"] += 1
        else:
            places["after a grant" if reported else "before any grant"] += 1
    state = Ledger.open(address).state()  # opens, and the chain verifies
    on_disk = {payment.number: payment.entry for payment in state.payments}
    assert granted.items() <= on_disk.items()
    assert len(places) == 3, places  # all kinds of places were hit
    # A grant may be on disk though the child died before it could say so; never the reverse.
    assert len(on_disk) <= len(granted) + kills
    assert {payment.state for payment in state.payments} <= {"reserved", "committed"}
    assert state.spent.mu_squared == pytest.approx(len(on_disk) * 1e-6)
    Ledger.open(address).reserve(TINY, purpose="life goes on", fingerprint=ROWS)


def run_segments(address: str, touched: Path) -> None:
    """Take every payment that nobody started: start it, touch the rows, commit."""
    ledger = Ledger.open(address)
    for payment in ledger.state().payments:
        if payment.state == "reserved":
            receipt = ledger.receipt(payment.number)
            ledger.start(receipt)
            with touched.open("a") as file:
                file.write(f"{payment.number}\n")
            ledger.commit(receipt)


def test_resume_never_reads_rows_twice_for_one_payment(tmp_path: Path) -> None:
    """All segments are paid up front; processes die in them, the next goes on from the ledger."""
    address, touched = str(tmp_path / "ledger.db"), tmp_path / "touched"
    ledger = new_ledger(address, Budget(8.0, 1e-5))
    segments = [
        ledger.reserve(TINY, purpose="segment", fingerprint=ROWS).payment for _ in range(20)
    ]
    rng, kills = random.Random(20240101), 0
    while any(payment.state == "reserved" for payment in ledger.state().payments):
        pid = fork(lambda: run_segments(address, touched))
        time.sleep(rng.uniform(0.03, 0.15) + kills / 1000)  # a slow machine gets there, too
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        kills += 1
    states = {payment.number: payment.state for payment in Ledger.open(address).state().payments}
    numbers = [int(line) for line in touched.read_text().split()]
    assert len(set(numbers)) == len(numbers)
    committed = {number for number, state in states.items() if state == "committed"}
    assert committed <= set(numbers) <= set(segments)
    assert set(states.values()) <= {"started", "committed"}
    assert len(segments) - len(committed) <= kills  # a death costs one segment


def at_each_line(do: Callable[[int], object]) -> None:
    """From here on, this process calls `do` with a number before each line of ledger code."""
    files = {module.__file__ for module in (ledger, chain, store, balance, queue)}
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> object:
        nonlocal lines
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            lines += 1
            do(lines)
        return trace

    sys.settrace(trace)  # type: ignore[arg-type]


def die_at_line(number: int) -> None:
    """Kill this process at the `number`-th line of ledger code that it is about to run."""
    at_each_line(lambda line: line == number and os.kill(os.getpid(), signal.SIGKILL))


def line_by_line(prepared: Callable[[], Callable[[], object]]) -> Iterator[int]:
    """Run what `prepared` returns in a forked process that waits at each line of ledger code.

    Yields the numbers of the lines while the process waits; that this process reads its files
    leaves it its locks.
    """
    (at_line, report), (go_on, allow) = os.pipe(), os.pipe()

    def wait(line: int) -> None:
        os.write(report, b".")
        os.read(go_on, 1)

    def child() -> None:
        os.close(at_line)
        work = prepared()
        at_each_line(wait)
        work()

    pid, line = fork(child), 0
    os.close(report)
    while os.read(at_line, 1):
        line += 1
        yield line
        os.write(allow, b".")
    os.waitpid(pid, 0)
    for end in (at_line, go_on, allow):
        os.close(end)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def put(files: dict[str, bytes], folder: Path) -> Path:
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


ACTIONS: dict[str, Callable[[Ledger, Receipt], object]] = {
    "reserve": lambda ledger, _: ledger.reserve(TINY, purpose="new", fingerprint=ROWS),
    "start": lambda ledger, receipt: ledger.start(receipt),
    "commit": lambda ledger, receipt: ledger.commit(receipt),
    "exchange": lambda ledger, receipt: ledger.exchange(receipt, TINY),
    "reserve_all": lambda ledger, _: ledger.reserve_all([("a", TINY)] * 3, fingerprint=ROWS),
    "begin_all": lambda ledger, _: ledger.begin_all(
        [(ledger.receipt(1), TINY), (ledger.receipt(2), TINIER)]
    ),
    "settle_all": lambda ledger, _: ledger.settle_all([ledger.receipt(1), ledger.receipt(2)]),
    "void": lambda ledger, receipt: ledger.void(receipt, reason="typo"),
    "declare": lambda ledger, _: ledger.declare("other rows", reason="new rows"),
    "change_budget": lambda ledger, _: ledger.change_budget(Budget(9.0, 1e-5), reason="more"),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_death_at_any_line_leaves_all_or_nothing(action: str, tmp_path: Path) -> None:
    """A death leaves the files as they are. So every line is looked at for what is on disk there,
    everything that is ever there is opened, and a process is killed at each line where it is new,
    and at every twentieth."""
    written = {"exchange": 2, "reserve_all": 3, "begin_all": 4, "settle_all": 2}.get(action, 1)
    folder = tmp_path / "ledger"
    folder.mkdir()
    new = new_ledger(str(folder / "ledger.db"), Budget(8.0, 1e-5))
    receipt, _ = new.reserve_all([("before", TINY), ("other", TINY)], fingerprint=ROWS)
    before, original = new.state(), contents(folder)

    def prepared(folder: Path) -> Callable[[], object]:
        return partial(ACTIONS[action], Ledger.open(str(folder / "ledger.db")), receipt)

    def check(folder: Path) -> int:
        after = Ledger.open(str(folder / "ledger.db")).state()
        new = after.entries - before.entries
        assert new in (0, written)
        assert new or after == before
        same = action not in ("reserve", "reserve_all", "begin_all", "void")
        assert after.spent == before.spent or (new and not same)
        return new

    on_disk, lines = [], 0
    for lines in line_by_line(lambda: prepared(folder)):
        files = contents(folder)
        if not any(files == other for _, other in on_disk):
            on_disk.append((lines, files))
    assert check(folder) == written
    assert lines > 100
    assert len(on_disk) > 3 and any("ledger.db-journal" in files for _, files in on_disk)
    assert {check(put(files, tmp_path / f"at-{line}")) for line, files in on_disk} == {0, written}
    for line in {line for line, _ in on_disk} | {*range(1, lines, 20)}:
        copy = put(original, tmp_path / f"killed-{line}")

        def child() -> None:
            work = prepared(copy)  # noqa: B023
            die_at_line(line)  # noqa: B023
            work()

        _, status = os.waitpid(fork(child), 0)
        assert os.WIFSIGNALED(status)
        check(copy)


@pytest.mark.parametrize("nameless_files", [True, False])
def test_a_creation_that_dies_leaves_a_whole_ledger_or_none_and_no_draft(
    nameless_files: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not nameless_files:  # as on other systems
        monkeypatch.delattr(os, "O_TMPFILE")

    def create(folder: Path) -> None:
        Ledger.create(str(folder / "ledger.db"), Budget(1.0, 1e-5), dataset="patients")

    def check(folder: Path) -> bool:
        assert {file.name for file in folder.iterdir()} <= {"ledger.db"}
        address = folder / "ledger.db"
        if address.exists() and (nameless_files or address.stat().st_size):
            assert Ledger.open(str(address)).state().entries == 1
            return True
        return False

    walked, lines = put({}, tmp_path / "walked"), 0
    on_disk: list[tuple[int, dict[str, bytes]]] = []
    for lines in line_by_line(lambda: lambda: create(walked)):
        files = contents(walked)
        if not on_disk or files != on_disk[-1][1]:
            on_disk.append((lines, files))
    assert check(walked) and lines > 40
    assert not check(put(on_disk[0][1], tmp_path / "first"))
    assert check(put(on_disk[-1][1], tmp_path / "last"))
    for line in {line for line, _ in on_disk} | {*range(1, lines, 5)}:
        folder = put({}, tmp_path / f"killed-{line}")

        def child() -> None:
            die_at_line(line)  # noqa: B023
            create(folder)  # noqa: B023

        _, status = os.waitpid(fork(child), 0)
        assert os.WIFSIGNALED(status)
        check(folder)


@pytest.mark.parametrize("nameless_files", [True, False])
def test_new_ledger_is_on_disk_with_its_name_when_creation_returns(
    nameless_files: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not nameless_files:  # as on other systems
        monkeypatch.delattr(os, "O_TMPFILE")
    flushed, address = [], tmp_path / "ledger.db"
    flush = os.fsync

    def record(file: int) -> None:
        flush(file)
        flushed.append((os.path.sameopenfile(file, folder), address.exists()))

    folder = os.open(tmp_path, os.O_RDONLY)
    monkeypatch.setattr(os, "fsync", record)
    Ledger.create(str(address), Budget(1.0, 1e-5), dataset="patients")
    os.close(folder)
    assert flushed[-1] == (True, True) and flushed[0][0] is False


def test_ledger_whose_name_may_not_be_on_disk_is_kept_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may pay from it already."""

    def flush(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EIO, "Input/output error")

    address = str(tmp_path / "ledger.db")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", flush)
        with pytest.raises(LedgerUnavailable, match="may or may not have been written: check"):
            Ledger.create(address, Budget(1.0, 1e-5), dataset="patients")
    assert Ledger.open(address).state().entries == 1


def test_drafts_of_ledgers_that_earlier_versions_left_are_removed(tmp_path: Path) -> None:
    for name in (".dptune-abc12_x9", ".dptune-mine", ".dptune-xyzxyzxy"):
        (tmp_path / name).mkdir()
    (tmp_path / ".dptune-abc12_x9" / "ledger").write_text("a key")
    (tmp_path / ".dptune-xyzxyzxy" / "letter").write_text("not a draft")
    new_ledger(str(tmp_path / "ledger.db"), Budget(8.0, 1e-5))
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"ledger.db", ".dptune-mine", ".dptune-xyzxyzxy"}


def test_a_process_that_stops_inside_a_transaction_does_not_block_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dptune.errors import LedgerLocked

    address = str(tmp_path / "ledger.db")
    ledger = new_ledger(address, Budget(8.0, 1e-5))
    reading, writing = os.pipe()

    def hold() -> None:
        with ledger._writing():
            os.write(writing, b"held")
            time.sleep(60)

    pid = fork(hold)
    assert select.select([reading], [], [], 20)[0]
    monkeypatch.setattr(store, "LOCK_TIMEOUT_SECONDS", 0.2)
    try:
        with pytest.raises(LedgerLocked, match="nothing was written"):
            ledger.reserve(TINY, purpose="trial", fingerprint=ROWS)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reading)
        os.close(writing)
    ledger.reserve(TINY, purpose="trial", fingerprint=ROWS)
