"""Sixteen processes pay from one budget at once, in each kind of store."""

import math
import os
import time
from multiprocessing import get_context
from pathlib import Path
from urllib.parse import quote

import pytest

from dptune import Budget, Ledger, accounting, gdp
from dptune.errors import (
    BudgetExceeded,
    InvalidInput,
    LedgerExists,
    LedgerLocked,
    LedgerUnavailable,
)
from dptune.ledger import chain, store
from dptune.privacy import FullBatchRun
from support.ledgers import ROWS, new_ledger

PROCESSES = 16
SEGMENTS = 8
FITS = 100  # how many payments the budget holds
EVENT = FullBatchRun(steps=1, noise_multiplier=100.0)


def pay_until_refused(address: str, start: float, results: "object") -> None:
    ledger = Ledger.open(address)
    time.sleep(max(0.0, start - time.time()))
    granted = []
    while True:
        try:
            receipt = ledger.reserve(EVENT, purpose=f"by {os.getpid()}", fingerprint=ROWS)
        except BudgetExceeded:
            break
        granted.append((receipt.payment, receipt.entry))
    results.put(granted)  # type: ignore[attr-defined]


def create(address: str, start: float, results: "object") -> None:
    time.sleep(max(0.0, start - time.time()))
    try:
        Ledger.create(address, Budget(1.0, 1e-5), dataset=f"by {os.getpid()}")
        outcome = "created"
    except LedgerExists:
        outcome = "refused"
    results.put(outcome)  # type: ignore[attr-defined]


def start_all(address: str, start: float, results: "object") -> None:
    """Try to start every segment; say which ones are ours."""
    ledger = Ledger.open(address)
    receipts = [ledger.receipt(1 + segment) for segment in range(SEGMENTS)]
    time.sleep(max(0.0, start - time.time()))
    started = []
    for receipt in receipts:
        try:
            ledger.start(receipt)
        except InvalidInput as error:
            assert "already started" in str(error)
        else:
            started.append(receipt.payment)
    results.put(started)  # type: ignore[attr-defined]


def exchange_and_grab(address: str, start: float, results: "object") -> None:
    """Try to exchange every segment, and to get something for nothing in between."""
    ledger = Ledger.open(address)
    receipts = [ledger.receipt(1 + segment) for segment in range(SEGMENTS)]
    time.sleep(max(0.0, start - time.time()))
    exchanged, grabbed = 0, 0
    for receipt in receipts:
        try:
            ledger.exchange(receipt, EVENT)
            exchanged += 1
        except InvalidInput as error:
            assert "already exchanged" in str(error)
        try:
            ledger.reserve(EVENT, purpose="grabbed", fingerprint=ROWS)
            grabbed += 1
        except BudgetExceeded:
            pass
    results.put((exchanged, grabbed))  # type: ignore[attr-defined]


def run_together(work: "object", address: str) -> list[object]:
    context = get_context("fork")
    results = context.Queue()
    start = time.time() + 0.5
    processes = [
        context.Process(target=work, args=(address, start, results))  # type: ignore[arg-type]
        for _ in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    outcomes = [results.get(timeout=240) for _ in processes]
    for process in processes:
        process.join(timeout=60)
        assert process.exitcode == 0
    return outcomes


def test_never_a_unit_more_than_the_budget_is_granted(address: str) -> None:
    price = accounting.price(EVENT).mu_squared
    epsilon = gdp.epsilon_from_mu(math.sqrt(price * (FITS + 0.5)), 1e-5)
    ledger = new_ledger(address, Budget(epsilon, 1e-5))
    outcomes = run_together(pay_until_refused, address)
    granted = [receipt for outcome in outcomes for receipt in outcome]  # type: ignore[attr-defined]
    state = ledger.state()
    assert len(granted) == FITS
    assert sorted(granted) == [(p.number, p.entry) for p in state.payments]  # no payment is lost
    assert state.spent.mu_squared <= state.budget.mu_squared()
    assert state.spent.mu_squared + price > state.budget.mu_squared()


def test_of_many_creations_at_once_one_succeeds(address: str) -> None:
    outcomes = run_together(create, address)
    assert sorted(outcomes) == ["created"] + ["refused"] * (PROCESSES - 1)  # type: ignore[type-var]
    assert Ledger.open(address).state().entries == 1


def test_nobody_creates_beside_another(
    postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that make the same tables at once would find half of each other's."""
    monkeypatch.setattr(store, "LOCK_TIMEOUT_SECONDS", 0.2)
    with store.open_store(postgres_address).creation(), pytest.raises(LedgerLocked):
        Ledger.create(postgres_address, Budget(1.0, 1e-5), dataset="the second")
    new_ledger(postgres_address, Budget(1.0, 1e-5))  # the first left nothing, the way is free


def test_a_payment_is_started_by_one_process_only(address: str) -> None:
    ledger = new_ledger(address, Budget(1.0, 1e-5))
    payments = [
        ledger.reserve(EVENT, purpose="segment", fingerprint=ROWS).payment for _ in range(SEGMENTS)
    ]
    outcomes = run_together(start_all, address)
    started = [payment for outcome in outcomes for payment in outcome]  # type: ignore[attr-defined]
    assert sorted(started) == payments
    assert {payment.state for payment in ledger.state().payments} == {"started"}


def test_exchange_frees_no_budget_for_other_processes(address: str) -> None:
    """The budget is full, so there would be something only between a payment and the next."""
    price = accounting.price(EVENT).mu_squared
    epsilon = gdp.epsilon_from_mu(math.sqrt(price * (SEGMENTS + 0.5)), 1e-5)
    ledger = new_ledger(address, Budget(epsilon, 1e-5))
    for _ in range(SEGMENTS):
        ledger.reserve(EVENT, purpose="segment", fingerprint=ROWS)
    outcomes = run_together(exchange_and_grab, address)
    exchanged, grabbed = (sum(numbers) for numbers in zip(*outcomes, strict=True))  # type: ignore[call-overload]
    assert (exchanged, grabbed) == (SEGMENTS, 0)
    state = ledger.state()
    assert [p.state for p in state.payments] == ["exchanged"] * SEGMENTS + ["reserved"] * SEGMENTS
    assert state.spent.mu_squared == math.fsum([price] * SEGMENTS)


def test_two_names_of_one_file_are_one_ledger(tmp_path: Path) -> None:
    new_ledger(str(tmp_path / "a.db"), Budget(1.0, 1e-5))
    (tmp_path / "b.db").symlink_to(tmp_path / "a.db")
    Ledger.open(str(tmp_path / "b.db")).reserve(EVENT, purpose="x", fingerprint=ROWS)
    assert Ledger.open(f"sqlite:///{tmp_path}/a.db").spent() == accounting.price(EVENT)


@pytest.mark.parametrize("kind", ["deadlock"])
def test_readers_and_writers_do_not_block_each_other_for_good(kind: str, ledger: Ledger) -> None:
    context = get_context("fork")
    stop = context.Event()

    def read() -> None:
        while not stop.is_set():
            ledger.state()

    readers = [context.Process(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(20):
        ledger.commit(ledger.reserve(EVENT, purpose="trial", fingerprint=ROWS))
    stop.set()
    for reader in readers:
        reader.join(timeout=30)
        assert reader.exitcode == 0
    assert len(ledger.state().payments) == 20


def test_postgres_client_that_hangs_with_the_lock_loses_it_and_writes_nothing(
    postgres_address: str,
) -> None:
    ledger = new_ledger(postgres_address, Budget(1.0, 1e-5))
    impatient = f"{postgres_address}%20-cidle_in_transaction_session_timeout%3D100ms"
    with (
        pytest.raises(LedgerUnavailable, match="so the server ended its transaction; nothing"),
        store.open_store(impatient).writing(chain.entries) as connection,
    ):
        connection.exec_driver_sql("DELETE FROM entries")
        ledger.reserve(EVENT, purpose="the next in line", fingerprint=ROWS)
    (payment,) = Ledger.open(postgres_address).state().payments
    assert payment.purpose == "the next in line"


IDLE_LIMIT = "idle_in_transaction_session_timeout"


@pytest.mark.parametrize(
    ("setting", "limit"),
    [
        ("", "30s"),
        (f"-c {IDLE_LIMIT}=5min", "5min"),
        (f"--{IDLE_LIMIT.replace('_', '-').upper()}=0", "0"),
    ],
)
def test_postgres_transaction_may_idle_for_half_a_minute_unless_the_url_says_otherwise(
    setting: str, limit: str, postgres_address: str
) -> None:
    place = store.open_store(f"{postgres_address}%20{quote(setting)}")
    for transaction in (place.creation(), place.reading()):
        with transaction as connection:
            assert connection.exec_driver_sql(f"SHOW {IDLE_LIMIT}").scalar() == limit


def test_postgres_connection_notices_a_dead_server_unless_the_url_says_otherwise(
    postgres_address: str,
) -> None:
    def limits(address: str) -> list[str | None]:
        with store.open_store(address).reading() as connection:
            driver = connection.connection.driver_connection
            assert driver is not None
            options = driver.info.get_parameters()
        names = ("connect_timeout", "tcp_user_timeout", "keepalives_idle", "keepalives_count")
        return [options.get(name) for name in names]

    assert limits(postgres_address) == ["30", "60000", "30", "3"]
    own = "&connect_timeout=7&tcp_user_timeout=5000&keepalives_idle=11"
    assert limits(postgres_address + own) == ["7", "5000", "11", "3"]
