"""Those who write to one SQLite file are served in the order in which they came."""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path

import pytest

from dptune import Ledger
from dptune.ledger import store
from dptune.ledger.queue import queue_of, turn
from dptune.privacy import FullBatchRun
from support.ledgers import ROWS

EVENT = FullBatchRun(steps=1, noise_multiplier=1000.0)
WRITERS, EACH = 12, 4
LONG = 120.0  # seconds; nothing here waits for so long unless it is broken


def pay(address: str, name: str, times: int) -> None:
    ledger = Ledger.open(address)
    for _ in range(times):
        ledger.reserve(EVENT, purpose=name, fingerprint=ROWS)


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG
    while not what():
        assert time.monotonic() < end
        time.sleep(0.005)


def waiting(ledger: Ledger) -> int:
    queue = queue_of(Path(ledger.address))
    return len(os.listdir(queue)) if queue.exists() else 0


@pytest.fixture
def queued(ledger: Ledger) -> Iterator[list[str]]:
    """Writers that came one after the other while the ledger was held; it is let go at the end of
    the test, and all of them must be served."""
    context, names = get_context("fork"), [f"writer {number}" for number in range(WRITERS)]
    writers = [context.Process(target=pay, args=(ledger.address, name, EACH)) for name in names]
    with turn(Path(ledger.address), LONG):
        for number, writer in enumerate(writers, start=1):
            writer.start()
            until(lambda: waiting(ledger) == 1 + number)  # noqa: B023
    yield names
    for writer in writers:
        writer.join(LONG)
        assert writer.exitcode == 0


def test_many_writers_are_served_in_the_order_in_which_they_came(
    ledger: Ledger, queued: list[str]
) -> None:
    until(lambda: len(ledger.state().payments) == WRITERS * EACH)
    served = [payment.purpose for payment in ledger.state().payments]
    assert served[:WRITERS] == queued  # nobody a second time before everybody had a first
    assert sorted(served) == sorted(queued * EACH)


def test_nothing_is_left_of_the_queue(ledger: Ledger) -> None:
    pay(ledger.address, "trial", 1)
    assert not queue_of(Path(ledger.address)).exists()
    assert [path.name for path in Path(ledger.address).parent.iterdir()] == ["ledger.db"]


def test_dead_process_does_not_block_queue(ledger: Ledger) -> None:
    path = Path(ledger.address)

    def die() -> None:
        with turn(path, LONG):
            os._exit(1)

    for _ in range(3):
        victim = get_context("fork").Process(target=die)
        victim.start()
        victim.join()
        assert victim.exitcode == 1 and waiting(ledger) == 1  # each removes the one before
    pay(ledger.address, "trial", 1)
    assert waiting(ledger) == 0


def test_process_that_hangs_in_the_queue_is_waited_for_once_by_all_writers_together(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with turn(Path(ledger.address), LONG):  # holds a place, not the ledger
        with monkeypatch.context() as patch:
            patch.setattr(store, "LOCK_TIMEOUT_SECONDS", 0.05)
            pay(ledger.address, "trial", 1)
        assert waiting(ledger) == 0  # so that the next writer waits for nobody
        pay(ledger.address, "trial", 1)
    pay(ledger.address, "trial", 1)
    assert len(ledger.state().payments) == 3
    assert not queue_of(Path(ledger.address)).exists()


@pytest.mark.parametrize("problem", ["a file in its place", "another's folder", "no room"])
def test_without_a_queue_the_ledger_is_written_all_the_same(
    problem: str, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "temporary"
    monkeypatch.setattr("tempfile.tempdir", str(place))
    if problem != "no room":
        place.mkdir()
    if problem == "a file in its place":
        queue_of(Path(ledger.address)).touch()
    if problem == "another's folder":
        monkeypatch.setattr("dptune.ledger.queue.is_ours", lambda path: False)
        queue_of(Path(ledger.address)).mkdir()
    pay(ledger.address, "trial", 1)
    assert len(ledger.state().payments) == 1


def test_all_names_of_a_file_have_one_queue(ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(ledger.address)
    os.link(ledger.address, tmp_path / "hard.db")
    queues = {queue_of(tmp_path / name) for name in ("ledger.db", "link.db", "hard.db")}
    assert len(queues) == 1


def test_a_writer_that_does_not_queue_is_kept_apart_by_sqlite(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LOCK_TIMEOUT_SECONDS", 0.05)
    other = sqlite3.connect(ledger.address, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(store.LedgerLocked, match="nothing was written"):
        pay(ledger.address, "trial", 1)
    other.close()
    pay(ledger.address, "trial", 1)
