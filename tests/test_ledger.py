"""The ledger's rules, which hold in SQLite and in PostgreSQL alike."""

import json
import math
import sqlite3
import stat
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dptune import Budget, Ledger, accounting, gdp
from dptune.cli import ledger_screen
from dptune.errors import (
    BudgetExceeded,
    InvalidInput,
    LedgerExists,
    LedgerNotFound,
    LedgerUnavailable,
    MissingExtra,
    UnpricedEvent,
    WrongDataset,
)
from dptune.ledger.store import SqliteStore, open_store
from dptune.privacy import FullBatchRun, RandomStopping, SampledRun
from support.ledgers import ROWS, new_ledger

SMALL = FullBatchRun(steps=100, noise_multiplier=200.0)
SAME_PRICE = FullBatchRun(steps=25, noise_multiplier=100.0)


def pay(ledger: Ledger, event: FullBatchRun | SampledRun = SMALL, purpose: str = "trial"):
    return ledger.reserve(event, purpose=purpose, fingerprint=ROWS)


class TestEveryStore:
    """Contract: whatever holds the entries, a ledger behaves like this."""

    def test_reservation_counts_as_spent_after_reopening(self, address: str) -> None:
        ledger = new_ledger(address, Budget(1.0, 1e-5))
        assert ledger.spent().mu_squared == 0
        receipts = [pay(ledger, purpose=f"trial {i}") for i in range(3)]
        ledger.commit(receipts[0])
        state = Ledger.open(address).state()
        assert [p.state for p in state.payments] == ["committed", "reserved", "reserved"]
        assert [p.purpose for p in state.payments] == ["trial 0", "trial 1", "trial 2"]
        assert state.spent.mu_squared == math.fsum([accounting.price(SMALL).mu_squared] * 3)
        assert state.payments[0].event == SMALL

    def test_the_first_version_is_declared_with_the_ledger(self, address: str) -> None:
        Ledger.create(address, Budget(1.0, 1e-5), dataset="patients", fingerprint=ROWS)
        ledger = Ledger.open(address)
        assert ledger.state().entries == 2
        assert ledger.declare(ROWS, reason="again") is False
        pay(ledger)

    def test_overdrawing_is_refused_and_writes_nothing(self, address: str) -> None:
        ledger = new_ledger(address, Budget(1.0, 1e-5))
        pay(ledger)
        before = ledger.state()
        with pytest.raises(BudgetExceeded, match="nothing was spent"):
            pay(ledger, FullBatchRun(steps=100, noise_multiplier=37.4), "too much")
        assert ledger.state() == before

    def test_exactly_the_rest_can_be_spent_and_not_one_unit_more(self, address: str) -> None:
        ledger = new_ledger(address, Budget(1.0, 1e-5))
        for _ in range(3):
            pay(ledger)
        rest = accounting.calibrate_full_batch(mu=ledger.remaining().mu, steps=77)
        pay(ledger, rest, "final run")
        state = ledger.state()
        assert state.spent.mu_squared <= state.budget.mu_squared()
        assert state.spent_epsilon == pytest.approx(1.0, rel=1e-9)
        with pytest.raises(BudgetExceeded):
            pay(ledger, FullBatchRun(steps=1, noise_multiplier=1e6))

    def test_a_voided_payment_is_given_back_once(self, address: str) -> None:
        ledger = new_ledger(address, Budget(1.0, 1e-5))
        receipt = pay(ledger)
        ledger.void(receipt, reason="never started")
        assert ledger.spent().mu_squared == 0
        assert ledger.state().payments[0].state == "voided"
        for settle in (ledger.commit, lambda r: ledger.void(r, reason="again")):
            with pytest.raises(InvalidInput, match="already voided"):
                settle(receipt)

    def test_a_committed_payment_cannot_be_voided(self, address: str) -> None:
        ledger = new_ledger(address, Budget(1.0, 1e-5))
        receipt = pay(ledger)
        ledger.commit(receipt)
        with pytest.raises(InvalidInput, match="already committed"):
            ledger.void(receipt, reason="regret")

    def test_a_payment_is_reserved_then_started_then_committed(self, address: str) -> None:
        ledger = new_ledger(address, Budget(1.0, 1e-5))
        receipt = pay(ledger)
        ledger.start(receipt)
        state = Ledger.open(address).state()
        assert [(p.state, p.settled) for p in state.payments] == [("started", "")]
        assert state.spent == accounting.price(SMALL)
        assert state.to_dict()["payments"][0]["state"] == "started"
        ledger.commit(receipt)
        state = Ledger.open(address).state()
        assert state.payments[0].state == "committed" and state.payments[0].settled
        assert state.spent == accounting.price(SMALL)

    def test_a_payment_is_started_once(self, address: str) -> None:
        ledger = new_ledger(address, Budget(1.0, 1e-5))
        started, committed, voided = pay(ledger), pay(ledger), pay(ledger)
        ledger.start(started)
        ledger.commit(committed)
        ledger.void(voided, reason="typo")
        before = ledger.state()
        with pytest.raises(InvalidInput, match="1 is already started: it may have read rows"):
            ledger.start(started)
        with pytest.raises(InvalidInput, match="2 is already committed; only a payment"):
            ledger.start(committed)
        with pytest.raises(InvalidInput, match="3 is already voided"):
            ledger.start(voided)
        assert ledger.state() == before

    def test_started_payment_always_counts(self, address: str) -> None:
        ledger = new_ledger(address, Budget(1.0, 1e-5))
        receipt = pay(ledger)
        ledger.start(receipt)
        before = ledger.state()
        with pytest.raises(InvalidInput, match="may have read rows, so it counts and cannot be v"):
            ledger.void(receipt, reason="the process died")
        with pytest.raises(InvalidInput, match="cannot be exchanged"):
            ledger.exchange(receipt, SAME_PRICE)
        assert ledger.state() == before

    def test_an_exchange_takes_the_place_of_a_reservation(self, address: str) -> None:
        ledger = new_ledger(address, Budget(1.0, 1e-5))
        ledger.declare("other rows", reason="one patient joined")
        first = ledger.reserve(SMALL, purpose="trial 1", fingerprint="other rows")
        spent = ledger.spent()
        second = ledger.exchange(first, SAME_PRICE)
        assert Ledger.open(address).receipt(2) == second
        cheaper = FullBatchRun(steps=10, noise_multiplier=100.0)
        third = ledger.exchange(second, cheaper, purpose="shorter")
        state = Ledger.open(address).state()
        assert [p.state for p in state.payments] == ["exchanged", "exchanged", "reserved"]
        assert [p.purpose for p in state.payments] == ["trial 1", "trial 1", "shorter"]
        assert state.payments[0].reason == "exchanged for payment 2, which costs no more"
        assert second.price == spent
        assert state.spent == third.price == accounting.price(cheaper)
        assert state.events == [cheaper]
        query = sa.text("SELECT fingerprint FROM entries WHERE kind = 'reserve'")
        with open_store(address).reading() as connection:
            assert len(set(connection.execute(query).scalars())) == 1  # for the same rows
        ledger.start(third)
        ledger.commit(third)

    def test_an_exchange_that_costs_more_changes_nothing(self, address: str) -> None:
        ledger = new_ledger(address, Budget(8.0, 1e-5))
        receipt = pay(ledger)
        before = ledger.state()
        noise = math.nextafter(200.0, 0)  # by no more than a rounding
        with pytest.raises(InvalidInput, match="Nothing was changed"):
            ledger.exchange(receipt, FullBatchRun(steps=100, noise_multiplier=noise))
        sampled = SampledRun(steps=10, noise_multiplier=40.0, sampling_rate=0.01)
        with pytest.raises(InvalidInput, match="paid without one"):
            ledger.exchange(receipt, sampled)
        with pytest.raises(InvalidInput, match="purpose must"):
            ledger.exchange(receipt, SAME_PRICE, purpose=" ")
        assert ledger.state() == before

    def test_only_a_reservation_can_be_exchanged(self, address: str) -> None:
        ledger = new_ledger(address, Budget(1.0, 1e-5))
        committed, voided, exchanged = pay(ledger), pay(ledger), pay(ledger)
        ledger.commit(committed)
        ledger.void(voided, reason="typo")
        ledger.exchange(exchanged, SAME_PRICE)
        before = ledger.state()
        for receipt, state in ((committed, "committed"), (voided, "voided")):
            with pytest.raises(InvalidInput, match=f"already {state}"):
                ledger.exchange(receipt, SAME_PRICE)
        for move in (ledger.start, ledger.commit, lambda r: ledger.void(r, reason="x")):
            with pytest.raises(InvalidInput, match="3 is already exchanged"):
                move(exchanged)
        with pytest.raises(InvalidInput, match="3 is already exchanged"):
            ledger.exchange(exchanged, SAME_PRICE)
        assert ledger.state() == before

    def test_a_full_ledger_can_exchange(self, address: str) -> None:
        ledger = new_ledger(address, Budget(1.0, 1e-5))
        pay(ledger)
        rest = accounting.calibrate_full_batch(mu=ledger.remaining().mu, steps=64)
        receipt = pay(ledger, rest, "final run")
        segments = FullBatchRun(steps=16, noise_multiplier=rest.noise_multiplier / 2)
        ledger.exchange(receipt, segments)
        assert ledger.state().spent_epsilon == pytest.approx(1.0, rel=1e-9)

    def test_changing_the_budget_is_an_entry_with_a_reason(self, address: str) -> None:
        ledger = new_ledger(address, Budget(0.1, 1e-5))
        pay(ledger, FullBatchRun(steps=100, noise_multiplier=400.0))
        big = FullBatchRun(steps=100, noise_multiplier=60.0)
        with pytest.raises(BudgetExceeded):
            pay(ledger, big)
        with pytest.raises(InvalidInput, match="reason must"):
            ledger.change_budget(Budget(1.0, 1e-5), reason=" ")
        ledger.change_budget(Budget(1.0, 1e-5), reason="approved by the board")
        pay(ledger, big)
        state = ledger.state()
        assert [c.budget.epsilon for c in state.changes] == [0.1, 1.0]
        assert state.changes[-1].reason == "approved by the board"
        with pytest.raises(BudgetExceeded, match="cannot be undone"):
            ledger.change_budget(Budget(0.1, 1e-5), reason="too late")

    def test_other_rows_are_refused_until_declared(self, address: str) -> None:
        ledger = new_ledger(address, Budget(1.0, 1e-5))
        pay(ledger)
        with pytest.raises(WrongDataset, match="first version"):
            ledger.reserve(SMALL, purpose="trial", fingerprint="a row added")
        ledger.declare("a row added", reason="one patient joined")
        ledger.declare("a row added", reason="said twice")
        ledger.reserve(SMALL, purpose="trial", fingerprint="a row added")
        state = ledger.state()
        assert [v.reason for v in state.versions] == ["first version", "one patient joined"]
        assert state.spent.mu_squared == 2 * accounting.price(SMALL).mu_squared

    def test_a_second_creation_is_refused_and_harmless(self, address: str) -> None:
        ledger = new_ledger(address, Budget(1.0, 1e-5))
        pay(ledger)
        with pytest.raises(LedgerExists, match="lose what was spent"):
            Ledger.create(address, Budget(9.0, 1e-5), dataset="other")
        assert ledger.state().budget == Budget(1.0, 1e-5)
        assert len(ledger.state().payments) == 1

    def test_there_is_no_ledger_before_creation(self, address: str) -> None:
        with pytest.raises(LedgerNotFound, match="there is no ledger"):
            Ledger.open(address)

    def test_sql_shows_one_row_per_payment_with_its_state(self, address: str) -> None:
        ledger = new_ledger(address, Budget(1.0, 1e-5))
        first, second, _ = pay(ledger, purpose="a"), pay(ledger, purpose="b"), pay(ledger)
        running, done, old = (pay(ledger, purpose=purpose) for purpose in "cde")
        ledger.start(running)
        ledger.start(done)
        ledger.commit(first)
        ledger.commit(done)
        ledger.void(second, reason="typo")
        ledger.exchange(old, SMALL, purpose="f")
        with open_store(address).reading() as connection:
            query = sa.text("SELECT purpose, mu_squared, state FROM payments ORDER BY payment")
            rows = [tuple(row) for row in connection.execute(query)]
        price = accounting.price(SMALL).mu_squared
        assert rows == [
            ("a", price, "committed"),
            ("b", price, "voided"),
            ("trial", price, "reserved"),
            ("c", price, "started"),
            ("d", price, "committed"),
            ("e", price, "exchanged"),
            ("f", price, "reserved"),
        ]

    def test_prices_survive_storage_to_the_last_bit(self, address: str) -> None:
        ledger = new_ledger(address, Budget(1.0, 1e-5))
        event = FullBatchRun(steps=7, noise_multiplier=1000 / 3)
        receipt = ledger.reserve(event, purpose="Grüße ✓ 'quoted\"", fingerprint=ROWS)
        again = Ledger.open(address).receipt(receipt.payment)
        assert again == receipt


def test_sampled_runs_are_paid_with_slack(tmp_path: Path) -> None:
    ledger = new_ledger(str(tmp_path / "l.db"), Budget(8.0, 1e-5))
    run = SampledRun(steps=500, noise_multiplier=4.0, sampling_rate=0.02)
    receipt = ledger.reserve(run, purpose="trial", fingerprint=ROWS)
    assert receipt.price.slack == 1e-3 * 1e-5
    assert receipt.price == accounting.price(run, slack=1e-8)
    sealed = RandomStopping(trial=SMALL, expected_trials=3)
    ledger.reserve(sealed, purpose="sealed search", fingerprint=ROWS, slack=1e-7)
    state = ledger.state()
    assert state.spent.slack == pytest.approx(1.1e-7)
    assert state.charged.slack == pytest.approx(2e-7)  # all that was set aside
    assert state.spent_epsilon == pytest.approx(accounting.epsilon(state.charged, 1e-5))


@pytest.mark.parametrize("slack", [1e-5, 1e-3, 0.5, 0.9])
@pytest.mark.parametrize("noise", [1.0, 40.0])
def test_slack_that_uses_up_delta_is_refused(slack: float, noise: float, ledger: Ledger) -> None:
    """Also where so much failure leaves nothing to pay for in mu."""
    run = SampledRun(steps=1, noise_multiplier=noise, sampling_rate=1e-4)
    with pytest.raises(BudgetExceeded):
        ledger.reserve(run, purpose="trial", fingerprint=ROWS, slack=slack)
    assert ledger.state().payments == ()


def test_delta_cannot_be_lowered_to_the_slack_that_is_set_aside(ledger: Ledger) -> None:
    with pytest.raises(InvalidInput, match=r"sets aside 2\.00e-7 of delta for failures"):
        ledger.change_budget(Budget(1.0, 3e-7), reason="stricter")
    assert ledger.state().to_dict()["budget"]["delta"] == 1e-5


def test_ledger_refuses_run_with_too_little_noise(ledger: Ledger) -> None:
    with pytest.raises(BudgetExceeded, match="mu 1"):
        pay(ledger, FullBatchRun(steps=1, noise_multiplier=1e-20))
    with pytest.raises(BudgetExceeded):
        pay(ledger, FullBatchRun(steps=1, noise_multiplier=1e-200))
    with pytest.raises(UnpricedEvent, match="more noise"):
        pay(ledger, SampledRun(steps=1, noise_multiplier=0.03, sampling_rate=0.01))


SEALED = RandomStopping(  # fits in epsilon 1 only while it is alone
    trial=FullBatchRun(steps=100, noise_multiplier=62.5), expected_trials=10
)


def test_a_sealed_search_alone_is_reported_by_its_own_profile(ledger: Ledger) -> None:
    sealed = SEALED
    ledger.reserve(sealed, purpose="sealed search", fingerprint=ROWS)
    profile = accounting.sealed_bound(sealed, 1e-5).epsilon
    assert ledger.state().guarantee().epsilon == ledger.state().spent_epsilon == profile
    with pytest.raises(BudgetExceeded):  # in company its price is loose, and uses everything
        pay(ledger)
    again = RandomStopping(trial=FullBatchRun(steps=100, noise_multiplier=40.0), expected_trials=3)
    with pytest.raises(BudgetExceeded):
        ledger.reserve(again, purpose="second search", fingerprint=ROWS)


def test_ledger_statement_names_its_assumptions(ledger: Ledger) -> None:
    notes = " ".join(ledger.state().guarantee().caveats)
    assert "depended on outputs" not in notes and "changed" not in notes
    ledger.void(pay(ledger), reason="typo")
    pay(ledger)
    ledger.change_budget(Budget(8.0, 1e-3), reason="the board")
    notes = " ".join(ledger.state().guarantee().caveats)
    assert "promise the budget instead: (8, 0.001)" in notes
    assert "changed from (1, 1e-05) to (8, 0.001): the board" in notes
    assert "voided by users or programs as never started: 1" in notes
    assert ledger.state().payments[0].reason == "typo"


def test_an_exchange_is_not_counted_as_given_back(ledger: Ledger) -> None:
    ledger.exchange(pay(ledger), SAME_PRICE)
    notes = " ".join(ledger.state().guarantee().caveats)
    assert "voided" not in notes
    assert "exchanged for others that cost no more; their programs stated" in notes
    assert "originals were never started: 1" in notes


def test_the_screen_shows_every_state(ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    started, committed, voided, exchanged, _ = (pay(ledger) for _ in range(5))
    ledger.start(started)
    ledger.commit(committed)
    ledger.void(voided, reason="typo")
    ledger.exchange(exchanged, SAME_PRICE)
    ledger_screen.show_budget(ledger.address, ledger.state())
    shown = capsys.readouterr().out
    for state in ("reserved", "started", "committed", "voided", "exchanged"):
        assert state in shown
    assert "payment 3 voided" in shown and "1 more was exchanged" in shown


def test_started_payment_of_finished_study_counts_as_interrupted(
    ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = [(f"segment {number}", SMALL) for number in (1, 2, 3)]
    lost, next_one, last = ledger.reserve_all(planned, fingerprint=ROWS, study="a-study")
    by_hand = pay(ledger)
    for receipt in (lost, next_one, by_hand):
        ledger.start(receipt)
    ledger.commit(next_one)
    assert not ledger.state().cut_off, "the study goes on"
    ledger.commit(last)
    assert ledger.state().cut_off == {lost.payment}
    ledger_screen.show_budget(ledger.address, ledger.state())
    shown = capsys.readouterr().out
    assert shown.count("interrupted") == 1 and shown.count(" started") == 1


def test_a_sampled_run_is_exchanged_within_its_slack(tmp_path: Path) -> None:
    ledger = new_ledger(str(tmp_path / "l.db"), Budget(8.0, 1e-5))
    run = SampledRun(steps=500, noise_multiplier=4.0, sampling_rate=0.02)
    receipt = ledger.reserve(run, purpose="trial", fingerprint=ROWS, slack=3e-8)
    shorter = SampledRun(steps=400, noise_multiplier=4.0, sampling_rate=0.02)
    new = ledger.exchange(receipt, shorter)
    assert new.price == accounting.price(shorter, slack=3e-8)
    assert ledger.spent().slack == 3e-8
    whole = ledger.exchange(new, FullBatchRun(steps=1, noise_multiplier=100.0))
    assert ledger.spent() == whole.price
    with pytest.raises(InvalidInput, match="paid without one"):
        ledger.exchange(whole, shorter)


def test_a_sealed_search_that_fits_by_its_profile_is_not_exchanged_for_its_price(
    ledger: Ledger,
) -> None:
    """Alone it may cost less than its price, which a run of that price does not."""
    receipt = ledger.reserve(SEALED, purpose="sealed search", fingerprint=ROWS)
    run = accounting.calibrate_full_batch(mu=receipt.price.mu, steps=10)
    assert accounting.price(run).mu_squared <= receipt.price.mu_squared
    before = ledger.state()
    with pytest.raises(BudgetExceeded, match="nothing was spent"):
        ledger.exchange(receipt, run)
    assert ledger.state() == before


def test_a_sealed_search_above_the_budget_is_refused(ledger: Ledger) -> None:
    run = FullBatchRun(steps=100, noise_multiplier=40.0)
    sealed = RandomStopping(trial=run, expected_trials=3)
    assert accounting.rdp_epsilon([sealed], 1e-5) > 1
    with pytest.raises(BudgetExceeded):
        ledger.reserve(sealed, purpose="sealed search", fingerprint=ROWS)


def test_a_receipt_of_another_ledger_is_refused(tmp_path: Path, budget: Budget) -> None:
    ours, theirs = (new_ledger(str(tmp_path / name), budget) for name in ("a.db", "b.db"))
    receipt = pay(ours)
    pay(theirs)
    with pytest.raises(InvalidInput, match="another ledger"):
        theirs.commit(receipt)
    with pytest.raises(InvalidInput, match="no payment 99; its payments are: 1"):
        ours.receipt(99)


def test_fingerprints_never_leave_the_ledger(ledger: Ledger) -> None:
    digest = "0123456789abcdef" * 4
    ledger.declare(digest, reason="second version")
    ledger.reserve(SMALL, purpose="trial", fingerprint=digest)
    with open_store(ledger.address).reading() as connection:
        stored = connection.execute(sa.text("SELECT fingerprint FROM entries")).scalars().all()
    keyed = [value for value in stored if value]
    assert keyed and digest not in keyed  # inside, too, only under the ledger's own key
    assert keyed[1] == keyed[2]  # and still telling data sets apart
    state = ledger.state()
    published = json.dumps(state.to_dict()) + repr(state) + state.guarantee().in_words()
    for secret in (digest, *keyed):
        assert secret not in published


def test_two_ledgers_key_the_same_rows_differently(tmp_path: Path, budget: Budget) -> None:
    stored = set()
    for name in ("a.db", "b.db"):
        new_ledger(str(tmp_path / name), budget)
        with open_store(str(tmp_path / name)).reading() as connection:
            query = sa.text("SELECT fingerprint FROM entries WHERE kind = 'declare'")
            stored.add(connection.execute(query).scalar_one())
    assert len(stored) == 2


def test_only_the_owner_can_read_the_file(ledger: Ledger) -> None:
    assert stat.S_IMODE(Path(ledger.address).stat().st_mode) == 0o600


def test_creating_ledger_leaves_no_other_files(ledger: Ledger) -> None:
    assert [path.name for path in Path(ledger.address).parent.iterdir()] == ["ledger.db"]


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path, budget: Budget) -> None:
    with pytest.raises(InvalidInput, match="folder that exists"):
        Ledger.create(str(tmp_path / "no" / "ledger.db"), budget, dataset="patients")


def test_a_payment_that_is_not_there_is_named_in_few_words(ledger: Ledger) -> None:
    with pytest.raises(InvalidInput, match="its payments are: none yet"):
        ledger.receipt(1)
    ledger.reserve_all([(f"trial {i}", SMALL) for i in range(3)], fingerprint=ROWS)
    with pytest.raises(InvalidInput, match=r"has no payment 4; its payments are: 1 to 3\.$"):
        ledger.receipt(4)


def test_several_payments_are_made_together_or_not_at_all(ledger: Ledger) -> None:
    large = FullBatchRun(steps=100, noise_multiplier=40.0)  # two of them are too much
    before = ledger.state()
    with pytest.raises(BudgetExceeded, match=r"for 'third' would bring .* nothing was spent"):
        ledger.reserve_all(
            [("first", SMALL), ("second", large), ("third", large)], fingerprint=ROWS
        )
    with pytest.raises(WrongDataset):
        ledger.reserve_all([("first", SMALL)], fingerprint="other rows")
    assert ledger.state() == before
    receipts = ledger.reserve_all([("first", SMALL), ("second", large)], fingerprint=ROWS)
    assert [(r.payment, r.event) for r in receipts] == [(1, SMALL), (2, large)]
    ledger.start(receipts[1])
    with pytest.raises(InvalidInput, match="payment 2 is already started"):
        ledger.void_all(receipts, reason="never mind")
    assert [payment.state for payment in ledger.state().payments] == ["reserved", "started"]


def test_a_link_to_nothing_is_no_ledger(tmp_path: Path, budget: Budget) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "nowhere.db")
    nothing = pytest.raises(
        InvalidInput, match=r"link\.db is a link to .*nowhere\.db, which does not exist"
    )
    with nothing:
        Ledger.open(str(link))
    with nothing:
        Ledger.create(str(link), budget, dataset="patients")


@pytest.mark.parametrize("address", ["", "mysql://host/db", "http://x", "sqlite://", 3])
def test_invalid_ledger_address_is_refused(address: str) -> None:
    with pytest.raises((InvalidInput, LedgerNotFound)):
        Ledger.open(address)


def test_a_server_that_is_not_there_is_an_error_without_the_password() -> None:
    url = "postgresql://me:hunter2@127.0.0.1:1/none?connect_timeout=2"
    with pytest.raises(LedgerUnavailable, match="cannot be used") as error:
        Ledger.open(url)
    assert "hunter2" not in str(error.value)


def test_a_sealed_search_with_all_of_delta_as_slack_is_refused(ledger: Ledger) -> None:
    sealed = RandomStopping(trial=SMALL, expected_trials=3)
    with pytest.raises(BudgetExceeded):
        ledger.reserve(sealed, purpose="sealed search", fingerprint=ROWS, slack=0.5)


def test_a_commit_of_unknown_fate_is_not_called_unwritten() -> None:
    store, broken = SqliteStore(Path("ledger.db")), sqlite3.OperationalError("disk I/O error")
    broken.sqlite_errorcode = sqlite3.SQLITE_IOERR
    with (
        pytest.raises(LedgerUnavailable, match="may or may not have been written: check"),
        store._errors(writing=True),
    ):
        raise broken


def test_what_is_only_read_or_not_reached_is_not_called_perhaps_written(tmp_path: Path) -> None:
    for address in ("postgresql://me@127.0.0.1:1/none?connect_timeout=2", str(tmp_path)):
        with pytest.raises(LedgerUnavailable, match=r"Nothing was written\.$") as error:
            Ledger.open(address)
        assert "\t" not in str(error.value) and "may or may not" not in str(error.value)


def test_purpose_is_short_and_longer_ones_of_old_ledgers_still_open(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match="200 characters at most; got 201"):
        ledger.reserve(SMALL, purpose="a" * 201, fingerprint=ROWS)
    assert not ledger.state().payments
    monkeypatch.setattr("dptune.ledger.ledger._LONGEST_PURPOSE", 10**6)
    ledger.reserve(SMALL, purpose="a" * 100_000, fingerprint=ROWS)
    monkeypatch.undo()
    assert len(Ledger.open(ledger.address).state().payments[0].purpose) == 100_000


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"dptune\[postgres\]"):
        Ledger.open("postgresql://localhost/x")


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    actions=st.lists(
        st.tuples(
            st.sampled_from(["reserve", "start", "commit", "void", "exchange", "raise"]),
            st.floats(30, 400),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_no_sequence_of_actions_overspends(
    actions: list[tuple[str, float]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A model keeps the same books with plain arithmetic; ledger and model must agree."""
    ledger = new_ledger(str(tmp_path_factory.mktemp("model") / "l.db"), Budget(0.5, 1e-5))
    live: dict[int, float] = {}
    started: set[int] = set()
    settled: set[int] = set()
    budget = ledger.state().budget
    for action, noise in actions:
        event = FullBatchRun(steps=50, noise_multiplier=noise)
        number = next((number for number in live if number not in settled), 0)
        try:
            if action == "reserve":
                receipt = pay(ledger, event)
                live[receipt.payment] = 50 / noise**2
            elif action == "raise":
                budget = Budget(budget.epsilon + 0.05, 1e-5)
                ledger.change_budget(budget, reason="more")
            elif number and action == "start":
                ledger.start(ledger.receipt(number))
                started.add(number)
            elif number and action == "commit":
                ledger.commit(ledger.receipt(number))
                settled.add(number)
            elif number and action == "void":
                ledger.void(ledger.receipt(number), reason="x")
                del live[number]
            elif number and action == "exchange":
                receipt = ledger.exchange(ledger.receipt(number), event)
                assert 50 / noise**2 <= live[number] * (1 + 1e-9)
                del live[number]
                live[receipt.payment] = 50 / noise**2
            assert number not in started or action not in ("void", "exchange")
        except BudgetExceeded:
            assert action == "reserve"
            assert sum(live.values()) + 50 / noise**2 > budget.mu**2 * (1 - 1e-9)
        except InvalidInput:
            assert action in ("start", "void", "exchange")
            assert number in started or 50 / noise**2 > live[number] * (1 - 1e-9)
        assert ledger.spent().mu_squared == pytest.approx(sum(live.values()), rel=1e-9)
        assert ledger.spent().mu_squared <= budget.mu_squared()


def test_what_one_sampled_run_takes_follows_what_was_set_aside(ledger: Ledger) -> None:
    """Not from a delta that was raised later, of which nothing more was set aside."""
    ledger.change_budget(Budget(1.0, 1e-3), reason="more")
    run = SampledRun(steps=100, noise_multiplier=8.0, sampling_rate=0.01)
    assert pay(ledger, run).price.slack == pytest.approx(1e-8)


def test_what_is_left_is_enough_for_a_run_of_that_epsilon(ledger: Ledger) -> None:
    left = ledger.state().remaining_epsilon
    mu = gdp.mu_from_epsilon(left * (1 - 1e-9), 1e-5)
    pay(ledger, accounting.calibrate_full_batch(mu=mu, steps=100))
    assert ledger.state().remaining_epsilon < 1e-3


def test_a_schema_that_is_missing_is_said_with_how_to_create_it(postgres_server: str) -> None:
    address = f"{postgres_server}&options=-csearch_path%3Dnowhere"
    with pytest.raises(LedgerNotFound, match=r'Create the schema first: CREATE SCHEMA "nowhere"'):
        Ledger.create(address, Budget(1.0, 1e-5), dataset="d")


def test_a_missing_right_on_a_schema_is_said_with_how_to_grant_it(postgres_address: str) -> None:
    owner = postgres_address.replace("postgresql:", "postgresql+psycopg:")
    schema = postgres_address.partition("search_path%3D")[2]
    engine = sa.create_engine(owner, poolclass=sa.NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE ROLE r{schema} LOGIN")
        connection.exec_driver_sql(f"GRANT USAGE ON SCHEMA {schema} TO r{schema}")
    address = postgres_address.replace("dptune@", f"r{schema}@")
    with pytest.raises(LedgerUnavailable, match=f'GRANT USAGE, CREATE ON SCHEMA "{schema}" TO'):
        Ledger.create(address, Budget(1.0, 1e-5), dataset="d")
