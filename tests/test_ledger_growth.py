"""A ledger verifies what is new to it and no more, and is none the less right for it."""

import math
import os
import pickle
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from dptune import Budget, Ledger, accounting, tune
from dptune.data import Data
from dptune.data.preprocess import Preprocessing
from dptune.errors import BudgetExceeded, InvalidInput, LedgerCorrupt, LedgerLocked, WrongDataset
from dptune.ledger import chain
from dptune.ledger.balance import Sum
from dptune.ledger.store import SqliteStore, open_store
from dptune.privacy import Event, FullBatchRun, Price, Receipt, SampledRun, total
from dptune.search import RandomSearch, Space
from dptune.study.payments import Payments
from support.ledgers import ROWS, new_ledger
from support.old_ledgers import old_hashes, write_old_ledger

RUN = FullBatchRun(steps=100, noise_multiplier=400.0)
CHEAPER = FullBatchRun(steps=50, noise_multiplier=400.0)
DEARER = FullBatchRun(steps=101, noise_multiplier=400.0)
TOO_MUCH = FullBatchRun(steps=100, noise_multiplier=1.0)
REPLACED = "is not the one that was verified here before; the ledger was replaced by an older"


def pay(ledger: Ledger, event: Event = RUN) -> Any:
    return ledger.reserve(event, purpose="trial", fingerprint=ROWS)


def replayed(address: str) -> chain.Replay:
    """By reading everything."""
    past = chain.Replay()
    with open_store(address).reading() as connection:
        chain.follow(connection, past, address, None)
    return past


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of all entries that were taken from now on, in order."""
    numbers, count = [], chain.Replay._apply

    def counting(self: chain.Replay, entry: Any) -> None:
        numbers.append(entry["number"])
        count(self, entry)

    monkeypatch.setattr(chain.Replay, "_apply", counting)
    return numbers


# What it costs


def test_operation_verifies_only_new_entries(address: str, taken: list[int]) -> None:
    ledger = new_ledger(address, Budget(8.0, 1e-5))
    receipts = ledger.reserve_all([("run", RUN)] * 50, fingerprint=ROWS)
    assert taken == [1, 2, *range(3, 53)]  # the first operation reads what creation wrote
    other = Ledger.open(address)
    del taken[:]
    ledger.start(receipts[0])
    assert taken == [53]
    ledger.exchange(receipts[1], CHEAPER)
    ledger.void(receipts[2], reason="never mind")
    with pytest.raises(BudgetExceeded):
        pay(ledger, TOO_MUCH)
    with pytest.raises(BudgetExceeded, match="'second'"):
        ledger.reserve_all([("first", RUN), ("second", TOO_MUCH)], fingerprint=ROWS)
    ledger.state(), ledger.spent(), ledger.receipt(3), ledger.must_know(ROWS)
    assert taken == [53, 54, 55, 56]
    other.spent()
    assert taken == [53, 54, 55, 56] * 2
    other.verify()
    assert taken[8:] == list(range(1, 57))


@pytest.mark.parametrize("portion", [1, 2, 3, 7])
def test_a_ledger_is_read_in_portions(
    portion: int, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.reserve_all([("run", RUN)] * 4, fingerprint=ROWS)
    whole = ledger.state()
    behind = Ledger.open(ledger.address)
    ledger.reserve_all([("run", RUN)] * 6, fingerprint=ROWS)
    monkeypatch.setattr(chain, "_PORTION", portion)
    assert behind.state() == ledger.verify() == Ledger.open(ledger.address).state()
    assert len(behind.state().payments) == len(whole.payments) + 6


def test_a_study_begins_and_settles_a_sweep_in_one_step_each(
    tmp_path: Path, taken: list[int]
) -> None:
    draws = np.random.default_rng(0)
    data = Data(draws.normal(size=(40, 3)), np.arange(40) % 2, name="people")
    opened, look = 0, Ledger.verify

    def verify(self: Ledger) -> Any:
        nonlocal opened
        opened += 1
        return look(self)

    steps, writing = 0, SqliteStore.writing

    def write(self: SqliteStore, table: sa.Table) -> Any:
        nonlocal steps
        steps += 1
        return writing(self, table)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "verify", verify)
        patch.setattr(SqliteStore, "writing", write)
        tune(
            data,
            budget=Budget(4.0, 1e-5),
            search=RandomSearch(trials=25),
            space=Space(learning_rate=(0.1, 1.0), steps=(2, 5)),
            out=tmp_path / "run",
        )
    entries = Ledger.open(str(tmp_path / "run" / "ledger.db")).state().entries
    assert entries > 75  # three a trial
    assert steps < 20
    assert len(taken) <= entries * (opened + 2)


# What it says


def test_sums_are_exact_and_leave_nothing_behind() -> None:
    tiny, large = Price(5e-324, 1e-300), Price(1.7e308, 0.3)
    found = Sum().plus(large).plus(tiny).minus(large)
    assert found.price == tiny
    assert Sum().plus(large).plus(large).price.mu_squared == math.inf
    assert found.minus(tiny) == Sum()


PRICES = st.builds(
    Price, st.floats(0, 1e300, allow_subnormal=True), st.floats(0, 0.9, allow_subnormal=True)
)


@settings(max_examples=300)
@given(st.lists(PRICES), st.lists(PRICES))
def test_sums_say_what_the_total_says(kept: list[Price], gone: list[Price]) -> None:
    found = Sum()
    for price in [*gone, *kept]:
        found = found.plus(price)
    for price in reversed(gone):
        found = found.minus(price)
    assert found.price == total(kept)


SAMPLED = SampledRun(steps=10, noise_multiplier=20.0, sampling_rate=0.01)
MOVES: dict[str, Callable[[Ledger, list[Any], Event], object]] = {
    "reserve": lambda ledger, _, event: pay(ledger, event),
    "reserve_all": lambda ledger, _, event: ledger.reserve_all(
        [("a", event), ("b", RUN)], fingerprint=ROWS, study="s"
    ),
    "reserve too many": lambda ledger, _, event: ledger.reserve_all(
        [("a", event), ("b", TOO_MUCH)], fingerprint=ROWS
    ),
    "fixed": lambda ledger, _, __: ledger.reserve_all(
        [("a", RUN), ("b", CHEAPER)], fingerprint=ROWS, fixed=True
    ),
    "start": lambda ledger, some, _: ledger.start(some[0]),
    "begin_all": lambda ledger, some, event: ledger.begin_all([(one, event) for one in some]),
    "settle_all": lambda ledger, some, _: ledger.settle_all(some),
    "void_all": lambda ledger, some, _: ledger.void_all(some, reason="never mind"),
    "exchange": lambda ledger, some, event: ledger.exchange(some[0], event),
    "declare": lambda ledger, some, _: ledger.declare(f"rows {len(some)}", reason="more"),
    "budget": lambda ledger, some, _: ledger.change_budget(
        Budget(0.3 + 0.1 * len(some), 1e-5), reason="so be it"
    ),
}


@settings(max_examples=30)
@given(
    actions=st.lists(
        st.tuples(
            st.integers(0, 1),
            st.sampled_from(sorted(MOVES)),
            st.sampled_from([RUN, CHEAPER, SAMPLED]),
            st.lists(st.integers(1, 12), min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=10,
    )
)
def test_incremental_replay_equals_full_replay(
    actions: list[tuple[int, str, Event, list[int]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Two who follow one file, each hearing of the other's steps late, and one who reads it all."""
    address = str(tmp_path_factory.mktemp("growth") / "l.db")
    ledgers = (new_ledger(address, Budget(0.5, 1e-5)), Ledger.open(address))
    for who, action, event, numbers in actions:
        ledger = ledgers[who]
        made = len(replayed(address).payments)
        some = [ledger.receipt(number) for number in numbers if number <= made]
        if not some and action not in ("reserve", "reserve_all", "reserve too many", "fixed"):
            continue
        with suppress(BudgetExceeded, InvalidInput):
            MOVES[action](ledger, some, event)
        truth = replayed(address)
        assert ledger._past in (truth, None)  # with nothing that is not in the store
        state = ledger.state()
        assert state == truth.state() and ledger._past == truth
        assert state.spent == total(payment.price for payment in state.counted)
        assert state.balance.payments == len(state.counted)
        alone = list(state.balance.some_events)
        assert alone == state.events[:2]
        if not state.fixed:
            assert state.fits(state.budget)


# What fails


class Dies(Exception):
    pass


@contextmanager
def dying(
    monkeypatch: pytest.MonkeyPatch, *, after_commit: bool, error: BaseException
) -> Iterator[None]:
    """Whoever writes fails, when everything is inserted or when everything is on disk."""
    write, writing = chain.write, SqliteStore.writing

    def inserts(*args: Any) -> None:
        write(*args)
        raise error

    @contextmanager
    def writes(self: SqliteStore, table: sa.Table) -> Iterator[sa.Connection]:
        with writing(self, table) as connection:
            yield connection
        raise error

    with monkeypatch.context() as patch:
        if after_commit:
            patch.setattr(SqliteStore, "writing", writes)
        else:
            patch.setattr(chain, "write", inserts)
        yield


@pytest.mark.parametrize("error", [Dies(), KeyboardInterrupt(), LedgerLocked("busy")])
@pytest.mark.parametrize("after_commit", [False, True])
def test_what_was_rolled_back_is_forgotten_and_what_was_written_is_found(
    after_commit: bool, error: BaseException, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    receipts = [pay(ledger) for _ in range(3)]
    steps: Sequence[tuple[int, Callable[[], object]]] = (
        (1, lambda: pay(ledger)),
        (3, lambda: ledger.begin_all([(receipts[0], RUN), (receipts[1], CHEAPER)])),
        (1, lambda: ledger.settle_all([receipts[2]])),
    )
    for written, step in steps:
        before = ledger.state()
        with (
            dying(monkeypatch, after_commit=after_commit, error=error),
            pytest.raises(type(error)),
        ):
            step()
        assert ledger._past is None
        after = ledger.state()
        assert after == Ledger.open(ledger.address).state()
        if after_commit:
            assert after.entries > before.entries
        else:
            assert after == before
            step()
            assert ledger.state().entries >= before.entries + written
    assert ledger._past == replayed(ledger.address)


def test_several_are_begun_and_settled_together_or_not_at_all(address: str) -> None:
    ledger = new_ledger(address, Budget(1.0, 1e-5))
    first, second, third = ledger.reserve_all([("run", RUN)] * 3, fingerprint=ROWS)
    before = ledger.state()
    with pytest.raises(InvalidInput, match="can only be exchanged for"):
        ledger.begin_all([(first, RUN), (second, CHEAPER), (third, DEARER)])
    with pytest.raises(InvalidInput, match="payment 1 is already started"):
        ledger.begin_all([(first, RUN), (first, RUN)])
    with pytest.raises(InvalidInput, match="payment 2 is already committed"):
        ledger.settle_all([first, second, second])
    assert ledger.state() == before == Ledger.open(address).state()
    begun = ledger.begin_all([(first, RUN), (second, CHEAPER)])
    assert [(one.payment, one.event) for one in begun] == [(1, RUN), (4, CHEAPER)]
    states = ["started", "exchanged", "reserved", "started"]
    assert [payment.state for payment in ledger.state().payments] == states
    with pytest.raises(InvalidInput, match="payment 2 is already exchanged"):
        ledger.begin_all([(third, RUN), (second, RUN)])
    with pytest.raises(InvalidInput, match="payment 2 is already exchanged"):
        ledger.settle_all([*begun, second])
    assert [payment.state for payment in ledger.state().payments] == states
    ledger.settle_all(begun)
    assert ledger.begin_all([]) == [] and ledger.settle_all([]) is None
    state = Ledger.open(address).state()
    assert [payment.state for payment in state.payments] == [
        *("committed", "exchanged", "reserved", "committed")
    ]
    assert state == ledger.state()


def test_study_begins_payments_that_no_copy_began(ledger: Ledger) -> None:
    payments, copy = (Payments(Ledger.open(ledger.address), "s", ROWS) for _ in range(2))
    payments.reserve([(label, RUN) for label in "abcd"], 0.0, fixed=False)
    assert copy.begin("b", RUN) is not None
    begun = payments.begin_all({"a": RUN, "b": RUN, "c": CHEAPER})
    assert {label: one.event for label, one in begun.items()} == {"a": RUN, "c": CHEAPER}
    assert copy.begin_all({"a": RUN, "b": RUN, "c": RUN}) == {}
    with pytest.raises(InvalidInput, match="can only be exchanged for"):
        payments.begin_all({"d": DEARER})
    copy.settle("a")
    payments.settle_all(["a", "c", "c", "d"])  # what nobody began stays as it is
    held = {p.label: p.state for p in ledger.state().counted}
    assert held == {"a": "committed", "b": "started", "c": "committed", "d": "reserved"}


def test_a_list_that_a_copy_began_meanwhile_is_looked_at_again(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    payments = Payments(ledger, "s", ROWS)
    payments.reserve([(label, RUN) for label in "abc"], 0.0, fixed=False)
    begin_all, settle_all = Ledger.begin_all, Ledger.settle_all

    def too_late(self: Ledger, wanted: Any) -> Any:
        monkeypatch.undo()
        begin_all(self, wanted[1:2])
        return begin_all(self, wanted)

    monkeypatch.setattr(Ledger, "begin_all", too_late)
    assert set(payments.begin_all(dict.fromkeys("abc", RUN))) == {"a", "c"}

    def settled_already(self: Ledger, receipts: Any) -> None:
        monkeypatch.undo()
        settle_all(self, receipts[:1])
        settle_all(self, receipts)

    monkeypatch.setattr(Ledger, "settle_all", settled_already)
    payments.settle_all("abc")
    assert {payment.state for payment in ledger.state().payments} == {"committed"}


def test_threads_share_a_ledger(address: str) -> None:
    ledger = new_ledger(address, Budget(8.0, 1e-5))
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(4):
                receipt = pay(ledger)
                ledger.start(receipt)
                ledger.must_be_in_force(receipt, ROWS)
                ledger.commit(receipt)
                assert ledger.state().entries >= 5
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    state = ledger.state()
    assert [payment.state for payment in state.payments] == ["committed"] * 24
    assert state == Ledger.open(address).state()


# What is put in its place


def test_an_older_copy_put_back_is_noticed_again_and_again(ledger: Ledger) -> None:
    path = Path(ledger.address)
    pay(ledger)
    shutil.copy(path, path.with_name("older.db"))
    pay(ledger)
    shutil.copy(path, path.with_name("newest.db"))
    shutil.copy(path.with_name("older.db"), path)
    steps: list[Callable[[], object]] = [
        *(ledger.state, ledger.verify, lambda: pay(ledger), lambda: ledger.must_know(ROWS)),
        ledger.spent,
    ]
    for step in steps:  # not only by the first, which forgets what it had verified
        with pytest.raises(LedgerCorrupt, match=f"entry 4 {REPLACED}"):
            step()
    Ledger.open(ledger.address).reserve(CHEAPER, purpose="other", fingerprint=ROWS)
    for step in steps:  # as long as it was, but not what it was
        with pytest.raises(LedgerCorrupt, match=f"entry 4 {REPLACED}"):
            step()
    shutil.copy(path.with_name("newest.db"), path)
    pay(ledger)
    assert len(Ledger.open(ledger.address).state().payments) == 3


def test_older_copy_is_detected_after_failed_operation(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(ledger.address)
    shutil.copy(path, path.with_name("older.db"))
    receipt = pay(ledger)
    with dying(monkeypatch, after_commit=False, error=Dies()), pytest.raises(Dies):
        ledger.start(receipt)
    shutil.copy(path.with_name("older.db"), path)
    with pytest.raises(LedgerCorrupt, match=f"entry 3 {REPLACED}"):
        pay(ledger)


def test_an_older_copy_of_a_ledger_just_made_is_noticed(tmp_path: Path) -> None:
    """By whoever made it, though it has verified nothing yet."""
    paths = [tmp_path / "a.db", tmp_path / "b.db"]
    made = [
        Ledger.create(str(path), Budget(1.0, 1e-5), dataset="d", fingerprint=ROWS) for path in paths
    ]
    os.replace(paths[0], paths[1])
    with pytest.raises(LedgerCorrupt, match=f"entry 2 {REPLACED}"):
        pay(made[1])


def test_another_ledger_in_its_place_is_noticed(address: str, tmp_path: Path) -> None:
    ledger = new_ledger(address, Budget(1.0, 1e-5))
    pay(ledger)
    other = new_ledger(str(tmp_path / "other.db"), Budget(8.0, 1e-5))
    for _ in range(4):
        pay(other)
    with open_store(other.address).reading() as connection:
        rows = [row._asdict() for row in connection.execute(sa.select(chain.entries))]
    with open_store(address).writing(chain.entries) as connection:
        connection.execute(sa.delete(chain.entries))
        connection.execute(sa.insert(chain.entries), rows)
        connection.execute(sa.update(chain.head), chain.end(rows[-1]))
    for _ in range(2):
        with pytest.raises(LedgerCorrupt, match=f"entry 3 {REPLACED}"):
            pay(ledger)
    pay(Ledger.open(address))  # who has not seen the other cannot know


def test_entries_cut_off_the_end_are_noticed(address: str) -> None:
    ledger = new_ledger(address, Budget(1.0, 1e-5))
    pay(ledger)
    head = chain.end(replayed(address).last or {})
    pay(ledger)
    with open_store(address).writing(chain.entries) as connection:
        connection.execute(sa.delete(chain.entries).where(chain.entries.c.number == 4))
        connection.execute(sa.update(chain.head), head)
    with pytest.raises(LedgerCorrupt, match=f"entry 4 {REPLACED}"):
        ledger.spent()


def test_what_others_added_is_verified_as_ever(address: str) -> None:
    ledger, other = new_ledger(address, Budget(1.0, 1e-5)), Ledger.open(address)
    pay(other)
    pay(other)
    with open_store(address).writing(chain.entries) as connection:
        cheaper = sa.update(chain.entries).where(chain.entries.c.number == 3)
        connection.execute(cheaper.values(mu_squared=1e-9))
    with pytest.raises(LedgerCorrupt, match="entry 3 was changed after it was written"):
        pay(ledger)


@pytest.mark.parametrize(
    ("problem", "values"),
    [
        ("has an invalid price", {"mu_squared": -1.0}),
        ("has an invalid price", {"slack": -1e-9}),
        ("has an invalid price", {"slack": 1.0}),
        ("has only one of study and label", {"study": "s"}),
        ("has only one of study and label", {"label": "trial"}),
        ("names a study, but reserves", {"kind": "start", "study": "s", "label": "trial"}),
    ],
)
def test_entries_that_no_ledger_would_have_written_are_refused(
    problem: str, values: dict[str, Any], ledger: Ledger
) -> None:
    pay(ledger)
    last, paid = replayed(ledger.address).last, {"payment": 2, "text": "forged"}
    assert last is not None
    same = {name: last[name] for name in ("kind", "event", "mu_squared", "slack", "fingerprint")}
    forged = chain.next_entry(last, **same | paid | values)
    with open_store(ledger.address).writing(chain.entries) as connection:
        connection.execute(sa.insert(chain.entries), forged)
        connection.execute(sa.update(chain.head), chain.end(forged))
    for look in (ledger.spent, lambda: Ledger.open(ledger.address)):
        with pytest.raises(LedgerCorrupt, match=problem):
            look()


# Studies, and formats that had no columns for them


def test_a_purpose_that_sounds_like_a_study_s_is_none(ledger: Ledger) -> None:
    ledger.reserve(RUN, purpose="mean (study s)", fingerprint=ROWS)
    assert ledger.payments_of("s") == []
    (receipt,) = ledger.reserve_all([("mean", RUN)], fingerprint=ROWS, study="s")
    (payment,) = ledger.payments_of("s")
    assert payment.number == receipt.payment and (payment.study, payment.label) == ("s", "mean")
    assert payment.purpose == "mean (study s)"
    with pytest.raises(InvalidInput, match="study must"):
        ledger.reserve_all([("mean", RUN)], fingerprint=ROWS, study=" ")


def test_an_exchange_stays_with_its_study(address: str) -> None:
    ledger = new_ledger(address, Budget(1.0, 1e-5))
    (receipt,) = ledger.reserve_all([("mean", RUN)], fingerprint=ROWS, study="s")
    ledger.exchange(receipt, CHEAPER)
    both = Ledger.open(address).payments_of("s")
    assert [(payment.label, payment.state) for payment in both] == [
        ("mean", "exchanged"),
        ("mean", "reserved"),
    ]
    with open_store(address).reading() as connection:
        shown = sa.text("SELECT study, label, state FROM payments ORDER BY payment")
        rows = [tuple(row) for row in connection.execute(shown)]
    assert rows == [("s", "mean", "exchanged"), ("s", "mean", "reserved")]
    plain = ledger.state().to_dict()["payments"]
    assert [(p["study"], p["label"]) for p in plain] == [("s", "mean")] * 2


@pytest.mark.parametrize("format", [1, 2])
def test_an_old_ledger_verifies_and_goes_on_as_it_is(format: int, address: str) -> None:
    paid = accounting.price(RUN)
    purposes = ("by hand", "trial 1 (study s)", "trial 2 (study s)", "trial 1 (study other)")
    write_old_ledger(
        address,
        format=format,
        budget=Budget(1.0, 1e-5),
        fingerprint=ROWS,
        payments=[(purpose, RUN, paid) for purpose in purposes],
        moves=[("start", 2), ("commit", 2), ("void", 4)],
    )
    ledger = Ledger.open(address)
    state = ledger.verify()
    assert [p.state for p in state.payments] == ["reserved", "committed", "reserved", "voided"]
    assert state.spent == total([paid] * 3)
    payments = Payments(ledger, "s", ROWS)
    payments.must_be_begun(["trial 1"])
    payments.reserve([(f"trial {i}", RUN) for i in (1, 2, 3)], 0.0, fixed=False)
    begun = payments.begin_all({"trial 1": RUN, "trial 2": CHEAPER, "trial 3": RUN})
    assert set(begun) == {"trial 2", "trial 3"} and payments.others() == 1
    payments.settle_all(begun)
    ledger.void(ledger.receipt(1), reason="never began")
    ledger.reserve(RUN, purpose="by hand again", fingerprint=ROWS)
    again = Ledger.open(address)
    assert again.state() == ledger.state() and ledger._past == replayed(address)
    assert [p.purpose for p in again.state().counted] == [
        "trial 1 (study s)",
        "trial 3 (study s)",
        "trial 2 (study s)",
        "by hand again",
    ]
    assert {p.label for p in again.payments_of("s")} == {"trial 1", "trial 2", "trial 3"}
    assert old_hashes(address)  # the version that made it reads it still
    with open_store(address).reading() as connection:
        shown = connection.execute(sa.text("SELECT * FROM payments ORDER BY payment")).all()
    assert [row.state for row in shown] == [p.state for p in again.state().payments]
    assert "study" not in shown[0]._fields


def test_a_schedule_of_an_old_ledger_is_still_fixed(tmp_path: Path) -> None:
    address = str(tmp_path / "old.db")
    write_old_ledger(
        address,
        format=2,
        budget=Budget(1.0, 1e-5),
        fingerprint=ROWS,
        payments=[(purpose, RUN, accounting.price(RUN)) for purpose in ("a", "b")],
        moves=[("start", 1)],
        scheduled=True,
    )
    ledger = Ledger.open(address)
    assert ledger.balance().fixed
    with pytest.raises(InvalidInput, match="has begun"):
        ledger.void(ledger.receipt(2), reason="never mind")


def test_an_old_ledger_whose_view_was_exchanged_is_refused(address: str) -> None:
    price = accounting.price(RUN)
    write_old_ledger(
        address,
        format=2,
        budget=Budget(1.0, 1e-5),
        fingerprint=ROWS,
        payments=[("a", RUN, price), ("b", RUN, price)],
    )
    Ledger.open(address)
    with open_store(address).writing(chain.entries) as connection:
        connection.execute(sa.text("DROP VIEW payments"))
        connection.execute(
            sa.text(
                "CREATE VIEW payments AS SELECT payment, time, text AS purpose, event, mu_squared, "
                "slack, fingerprint, 'voided' AS state, previous, hash FROM entries "
                "WHERE kind = 'reserve'"
            )
        )
    with pytest.raises(LedgerCorrupt, match="its view payments"):
        Ledger.open(address)


def test_a_format_of_the_future_is_named(ledger: Ledger) -> None:
    with open_store(ledger.address).writing(chain.entries) as connection:
        first = sa.select(chain.entries).where(chain.entries.c.number == 1)
        entry = connection.execute(first).one()._asdict()
        for name in ("previous", "hash"):
            del entry[name]
        entry["event"] = entry["event"].replace('"format": 3', '"format": 4')
        forged = chain.next_entry(None, **entry)
        connection.execute(sa.delete(chain.entries))
        connection.execute(sa.insert(chain.entries), forged)
        connection.execute(sa.update(chain.head), chain.end(forged))
    with pytest.raises(LedgerCorrupt, match="is of format 4; this dptune reads 3"):
        Ledger.open(ledger.address)


# Receipts


def test_only_a_payment_that_was_started_is_in_force(address: str) -> None:
    ledger = new_ledger(address, Budget(1.0, 1e-5))
    receipts = [pay(ledger) for _ in range(4)]
    started, committed, voided, exchanged = receipts
    for receipt in receipts:
        with pytest.raises(InvalidInput, match=r"is reserved: start it first"):
            ledger.must_be_in_force(receipt, ROWS)
    ledger.begin_all([(started, RUN), (committed, RUN)])
    ledger.commit(committed)
    ledger.void(voided, reason="never mind")
    new = ledger.exchange(exchanged, CHEAPER)
    for receipt in (started, committed):
        ledger.must_be_in_force(receipt, ROWS)
    for receipt, why in ((voided, "no longer counts"), (exchanged, "took its place")):
        with pytest.raises(InvalidInput, match=why):
            ledger.must_be_in_force(receipt, ROWS)
    with pytest.raises(InvalidInput, match="is reserved"):
        ledger.must_be_in_force(new, ROWS)


def test_a_receipt_that_was_changed_is_not_in_force(ledger: Ledger) -> None:
    receipt = pay(ledger)
    ledger.start(receipt)
    forged = (
        replace(receipt, payment=2),
        replace(receipt, event=DEARER),
        replace(receipt, price=Price(0.0)),
        replace(receipt, entry="ab"),
        replace(receipt, dataset="other"),
    )
    for one in forged:
        with pytest.raises(InvalidInput, match="another ledger, or the receipt was changed"):
            ledger.must_be_in_force(one, ROWS)
        with pytest.raises(InvalidInput, match="another ledger, or the receipt was changed"):
            ledger.commit(one)
    with pytest.raises(WrongDataset, match="not those of payment 1 of"):
        ledger.must_be_in_force(receipt, "other rows")


def test_private_rows_open_for_what_was_started_for_them_and_for_nothing_else(
    tmp_path: Path,
) -> None:
    draws = np.random.default_rng(0)
    data, other = (
        Data(draws.normal(size=(8, 3)), np.arange(8) % 2, name=name) for name in ("a", "b")
    )
    path = str(tmp_path / "l.db")
    ledger = Ledger.create(path, Budget(1.0, 1e-5), dataset="a", fingerprint=data.fingerprint)
    receipt = ledger.reserve(RUN, purpose="run", fingerprint=data.fingerprint)
    with pytest.raises(InvalidInput, match="is reserved: start it first"):
        data.open(receipt, Preprocessing())
    ledger.start(receipt)
    parts = (data, *data.held_out(4))  # the parts of a data set are paid for with it
    assert [part.open(receipt, Preprocessing()).count for part in parts] == [8, 6, 2]
    assert [len(next(part.tables_for(receipt))) for part in parts] == [8, 6, 2]
    by_hand = Receipt(*(receipt.payment, "a", receipt.event, receipt.price, receipt.entry))
    assert by_hand == receipt and repr(by_hand) == repr(receipt)
    for sent in (by_hand, pickle.loads(pickle.dumps(receipt))):
        for rows in (data.tables_for, lambda r: data.open(r, Preprocessing())):
            with pytest.raises(InvalidInput, match=r"made by hand, .* Ledger\.receipt\(1\)"):
                rows(sent)
    for rows in (other.tables_for, lambda r: other.open(r, Preprocessing())):
        with pytest.raises(WrongDataset, match="no rows were read"):
            rows(receipt)
    again = Ledger.open(path).receipt(1)
    ledger.commit(receipt)
    assert data.open(again, Preprocessing()).count == 8
    assert data.unprotected_rows(Preprocessing()).count == 8
