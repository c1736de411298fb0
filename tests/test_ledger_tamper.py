"""A torn or edited ledger is refused with a clear error."""

import random
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from dptune import Budget, Ledger
from dptune.cli.app import main
from dptune.errors import LedgerCorrupt, LedgerUnavailable
from dptune.ledger import chain
from dptune.ledger.chain import State
from dptune.privacy import FullBatchRun, total
from support.ledgers import ROWS

EVENT = FullBatchRun(steps=100, noise_multiplier=400.0)


@pytest.fixture
def written(ledger: Ledger) -> Path:
    """A ledger with a life: five payments, one committed, one voided, a changed budget."""
    receipts = [ledger.reserve(EVENT, purpose=f"trial {i}", fingerprint=ROWS) for i in range(4)]
    receipts += ledger.reserve_all([("trial 4", EVENT)], fingerprint=ROWS, study="s")
    ledger.commit(receipts[0])
    ledger.void(receipts[1], reason="never started")
    ledger.change_budget(Budget(2.0, 1e-5), reason="approved")
    return Path(ledger.address)


EDITS = {
    "a payment made cheaper": "UPDATE entries SET mu_squared = mu_squared / 2 WHERE number = 5",
    "a payment made cheaper by one bit": (
        "UPDATE entries SET mu_squared = mu_squared * (1 - 2e-16) WHERE number = 5"
    ),
    "a study exchanged": "UPDATE entries SET study = 'other' WHERE study IS NOT NULL",
    "a label exchanged": "UPDATE entries SET label = 'other' WHERE label IS NOT NULL",
    "a study forgotten": ("UPDATE entries SET study = NULL, label = NULL WHERE study IS NOT NULL"),
    "a study claimed": "UPDATE entries SET study = 's', label = 'trial' WHERE number = 5",
    "a purpose reworded": "UPDATE entries SET text = 'other' WHERE number = 4",
    "a time moved": "UPDATE entries SET time = '2020-01-01T00:00:00+00:00' WHERE number = 4",
    "a reservation turned into a void": "UPDATE entries SET kind = 'void' WHERE number = 8",
    "a commit turned into a void": "UPDATE entries SET kind = 'void' WHERE kind = 'commit'",
    "a void pointed elsewhere": "UPDATE entries SET payment = 3 WHERE kind = 'void'",
    "the budget raised": "UPDATE entries SET epsilon = 8 WHERE number = 1",
    "the budget raised later": "UPDATE entries SET epsilon = 8 WHERE kind = 'budget'",
    "a fingerprint exchanged": "UPDATE entries SET fingerprint = 'ab' WHERE kind = 'declare'",
    "an event reworded": "UPDATE entries SET event = replace(event, '400', '900')",
    "a payment removed": "DELETE FROM entries WHERE number = 5",
    "the last entry removed": "DELETE FROM entries WHERE number = 10",
    "the first entry removed": "DELETE FROM entries WHERE number = 1",
    "everything removed": "DELETE FROM entries",
    "two entries swapped": (
        "UPDATE entries SET number = CASE number WHEN 4 THEN 1005 WHEN 5 THEN 1004 ELSE number END;"
        "UPDATE entries SET number = number - 1000 WHERE number > 1000"
    ),
    "an entry repeated": (
        "INSERT INTO entries SELECT 11, time, kind, 3, event, mu_squared, slack, fingerprint, "
        "epsilon, delta, text, study, label, hash, hash FROM entries WHERE kind = 'void'"
    ),
    "an entry before the first": (
        "INSERT INTO entries SELECT -1, time, kind, 6, event, mu_squared, slack, fingerprint, "
        "epsilon, delta, text, study, label, previous, hash FROM entries WHERE number = 4"
    ),
    "the end forgotten": "DELETE FROM head",
    "the end moved": "UPDATE head SET number = 9",
    "two ends": "INSERT INTO head SELECT * FROM head",
    "an event that is no JSON": "UPDATE entries SET event = '{' WHERE number = 4",
    "a number that is a text": "UPDATE entries SET mu_squared = 'cheap' WHERE number = 4",
    "a column gone": "DROP VIEW payments; ALTER TABLE entries DROP COLUMN slack",
    "the table gone": "DROP VIEW payments; DROP TABLE entries",
    "the view gone": "DROP VIEW payments",
    "the view turned into a table": (
        "CREATE TABLE copy AS SELECT * FROM payments; DROP VIEW payments;"
        "ALTER TABLE copy RENAME TO payments"
    ),
    "a view that hides what comes later": (
        "DROP VIEW payments; CREATE VIEW payments AS "
        "SELECT * FROM (SELECT payment, time, text AS purpose, study, label, event, mu_squared, "
        "slack, fingerprint, 'committed' AS state, previous, hash "
        "FROM entries WHERE kind = 'reserve') "
        "WHERE payment < 1000"
    ),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_an_edited_ledger_is_refused(edit: str, written: Path) -> None:
    connection = sqlite3.connect(written)
    connection.executescript(edit)
    connection.close()
    with pytest.raises(LedgerCorrupt, match=r"damaged .* Restore it from a backup"):
        Ledger.open(str(written))


def edit(path: Path, statements: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(statements)
    connection.close()


def test_an_edit_of_the_last_entry_under_an_open_ledger_is_refused_at_the_next_step(
    written: Path,
) -> None:
    ledger = Ledger.open(str(written))
    edit(written, "UPDATE entries SET epsilon = 8 WHERE number = 10")
    with pytest.raises(LedgerCorrupt, match=r"entry 10 is not the one that was verified here"):
        ledger.reserve(EVENT, purpose="trial", fingerprint=ROWS)
    for step in (ledger.spent, lambda: ledger.reserve(EVENT, purpose="x", fingerprint=ROWS)):
        with pytest.raises(LedgerCorrupt, match=r"entry 10 was changed after it was written"):
            step()


def test_an_edit_of_what_was_verified_long_ago_moves_no_sum_and_is_found_by_a_full_verification(
    written: Path,
) -> None:
    ledger = Ledger.open(str(written))
    spent = ledger.spent()
    edit(written, EDITS["a payment made cheaper"])
    price = ledger.reserve(EVENT, purpose="trial", fingerprint=ROWS).price
    assert ledger.spent() == total([spent, price])  # as it was verified, not as it was edited
    found = r"entry 5 was changed after it was written"
    for look in (ledger.verify, ledger.spent, lambda: Ledger.open(str(written))):
        with pytest.raises(LedgerCorrupt, match=found):
            look()


@pytest.mark.parametrize("verb", [["budget"], ["budget", "--json"]])
def test_the_budget_on_the_command_line_verifies_everything(
    verb: list[str],
    written: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    edit(written, EDITS["a payment made cheaper"])
    monkeypatch.setattr(sys, "argv", ["dptune", *verb, str(written)])
    with pytest.raises(SystemExit) as exit:
        main()
    assert exit.value.code == 1
    assert "entry 5 was changed after it was written" in " ".join(capsys.readouterr().err.split())


# Entries that are hashed and chained as they should be, but say what no ledger would have said.
# Payment 1 is committed, 2 voided, 3 reserved, 4 started.
EXCHANGE = {"kind": "exchange", "payment": 3, "text": "exchanged"}
NOT_THAT: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "a start without a reservation": ("never reserved", [{"kind": "start", "payment": 6}]),
    "a start of nothing": ("never reserved", [{"kind": "start"}]),
    "a start after a commit": ("already committed", [{"kind": "start", "payment": 1}]),
    "a start after a void": ("already voided", [{"kind": "start", "payment": 2}]),
    "a second start": ("already started", [{"kind": "start", "payment": 4}]),
    "a void after a start": ("already started", [{"kind": "void", "payment": 4}]),
    "an exchange after a start": ("already started", [EXCHANGE | {"payment": 4}]),
    "a second commit": ("already committed", [{"kind": "commit", "payment": 1}]),
    "an exchange for nothing": ("without a successor", [EXCHANGE]),
    "an exchange for a start": (
        "successor of payment 3",
        [EXCHANGE, {"kind": "start", "payment": 5}],
    ),
    "an exchange for two": ("already exchanged", [EXCHANGE, {"kind": "reserve"}, EXCHANGE]),
    "an exchange that grows": ("costs more", [EXCHANGE, {"kind": "reserve", "mu_squared": 7e-4}]),
    "an exchange for slack": ("costs more", [EXCHANGE, {"kind": "reserve", "slack": 1e-20}]),
    "an exchange for other rows": ("not for", [EXCHANGE, {"kind": "reserve", "fingerprint": "x"}]),
    "a new kind": ("unknown kind 'refund'", [{"kind": "refund", "payment": 3}]),
}


@pytest.mark.parametrize(("problem", "forged"), NOT_THAT.values(), ids=NOT_THAT.keys())
def test_a_chain_that_tells_no_possible_story_is_refused(
    problem: str, forged: list[dict[str, Any]], written: Path
) -> None:
    ledger = Ledger.open(str(written))
    ledger.start(ledger.receipt(4))
    with ledger._store.writing(chain.entries) as connection:
        past = chain.Replay()
        chain.follow(connection, past, ledger.address, None)
        last = past.last
        paid = sa.select(chain.entries).where(chain.entries.c.payment == 3)
        (old,) = (row._asdict() for row in connection.execute(paid))
        columns = ("event", "mu_squared", "slack", "fingerprint")
        for entry in forged:
            values: dict[str, Any] = {"text": "forged", **entry}
            if entry["kind"] == "reserve":
                same = {name: old[name] for name in columns}
                values = {"payment": past.next_payment, **same, **values}
            last = chain.next_entry(last, **values)
            connection.execute(sa.insert(chain.entries), last)
        connection.execute(sa.update(chain.head), chain.end(last))
    with pytest.raises(LedgerCorrupt, match=problem):
        Ledger.open(str(written))


def test_the_same_forgery_with_an_honest_exchange_would_be_read(written: Path) -> None:
    ledger = Ledger.open(str(written))
    ledger.exchange(ledger.receipt(3), EVENT)
    states = [payment.state for payment in Ledger.open(str(written)).state().payments]
    assert states == ["committed", "voided", "exchanged", "reserved", "reserved", "reserved"]


LIES = {
    "another state": "CREATE VIEW payments AS SELECT {columns}, 'voided' AS state FROM truth",
    "another price": (
        "CREATE VIEW payments AS SELECT payment, time, purpose, study, label, event, "
        "mu_squared / 2 AS "
        "mu_squared, slack, fingerprint, previous, hash, state FROM truth"
    ),
    "a payment less": "CREATE VIEW payments AS SELECT * FROM truth WHERE payment > 1",
    "a column less": "CREATE VIEW payments AS SELECT payment, state FROM truth",
    "a table": "CREATE TABLE payments AS SELECT * FROM truth",
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_server_s_view_that_does_not_tell_what_the_entries_say_is_refused(
    lie: str, postgres_address: str
) -> None:
    ledger = Ledger.create(postgres_address, Budget(1.0, 1e-5), dataset="d", fingerprint=ROWS)
    for purpose in ("first", "second"):
        ledger.reserve(EVENT, purpose=purpose, fingerprint=ROWS)
    columns = "payment, time, purpose, study, label, event, mu_squared, slack, fingerprint"
    columns = f"{columns}, previous, hash"
    Ledger.open(postgres_address)
    with ledger._store.writing(chain.entries) as connection:
        connection.execute(sa.text("ALTER VIEW payments RENAME TO truth"))
        connection.execute(sa.text(lie.format(columns=columns)))
    with pytest.raises(LedgerCorrupt, match="its view payments was changed"):
        Ledger.open(postgres_address)


def open_damaged(path: Path) -> State | None:
    """The state, or None where the ledger is refused as it should be."""
    try:
        return Ledger.open(str(path)).state()
    except (LedgerCorrupt, LedgerUnavailable) as error:
        assert str(error)
        return None


def damaged_copies(
    written: Path, damage: Callable[[bytearray, random.Random], None], repeats: int
) -> list[State | None]:
    """Open `repeats` copies, each damaged anew."""
    rng, whole = random.Random(20240101), written.read_bytes()
    copy = written.with_name("copy.db")
    states = []
    for _ in range(repeats):
        content = bytearray(whole)
        damage(content, rng)
        copy.write_bytes(content)
        states.append(open_damaged(copy))
        for litter in written.parent.glob("copy.db*"):
            litter.unlink()
    return states


def test_a_truncated_file_is_refused(written: Path) -> None:
    def cut(content: bytearray, rng: random.Random) -> None:
        del content[rng.randrange(len(content)) :]

    assert damaged_copies(written, cut, 150) == [None] * 150


@pytest.mark.parametrize("kept", [0, 1, 4096, 8192])
def test_a_file_cut_at_a_page_is_refused(kept: int, written: Path) -> None:
    written.write_bytes(written.read_bytes()[:kept])
    with pytest.raises(LedgerCorrupt):
        Ledger.open(str(written))


def test_flipped_bytes_are_refused_or_harmless(written: Path) -> None:
    truth = Ledger.open(str(written)).state()

    def flip(content: bytearray, rng: random.Random) -> None:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)

    states = damaged_copies(written, flip, 400)
    # Some bytes are unused or repeated; then nothing may read differently.
    assert all(state is None or state == truth for state in states)
    assert None in states


def test_damaged_index_is_refused_or_harmless(written: Path) -> None:
    """The view that people look at finds states of payments by the index."""

    def look() -> list[Any]:
        connection = sqlite3.connect(written)
        try:
            return connection.execute("SELECT * FROM payments").fetchall()
        finally:
            connection.close()

    connection = sqlite3.connect(written)
    name = "SELECT rootpage FROM sqlite_master WHERE name = 'entries_by_payment'"
    (page,), (size,) = (connection.execute(q).fetchone() for q in (name, "PRAGMA page_size"))
    connection.close()
    whole, truth, refused = written.read_bytes(), look(), 0
    index = range((page - 1) * size, page * size)
    used = [place for place in index if whole[place]]
    for place in used:
        damaged = bytearray(whole)
        damaged[place] ^= 1
        written.write_bytes(damaged)
        if open_damaged(written) is None:
            refused += 1
        else:
            assert look() == truth
    assert refused


def test_overwritten_stretches_are_refused_or_harmless(written: Path) -> None:
    truth = Ledger.open(str(written)).state()

    def overwrite(content: bytearray, rng: random.Random) -> None:
        start = rng.randrange(len(content) - 64)
        content[start : start + 64] = rng.randbytes(64)

    states = damaged_copies(written, overwrite, 150)
    assert all(state is None or state == truth for state in states)
    assert None in states


@pytest.mark.parametrize("content", [b"", b"not a database", b"x" * 5000])
def test_a_file_that_is_no_ledger_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    path.write_bytes(content)
    with pytest.raises(LedgerCorrupt, match=r"is not a ledger \(.*\)\. Give") as refused:
        Ledger.open(str(path))
    assert "spent" not in str(refused.value)
    assert path.read_bytes() == content


def test_another_program_s_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE entries (number INTEGER)")
    connection.close()
    with pytest.raises(LedgerCorrupt):
        Ledger.open(str(path))


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises((LedgerCorrupt, LedgerUnavailable)):
        Ledger.open(str(tmp_path))


def test_recorded_head_reveals_older_copy(ledger: Ledger, tmp_path: Path) -> None:
    """A whole ledger put back from a backup verifies; the head noted down elsewhere tells."""
    backup = tmp_path / "backup.db"
    ledger.reserve(EVENT, purpose="first", fingerprint=ROWS)
    shutil.copy(ledger.address, backup)
    receipt = ledger.reserve(EVENT, purpose="second", fingerprint=ROWS)
    noted = ledger.state().head
    assert noted == receipt.entry
    assert Ledger.open(str(backup)).state().head != noted
