"""Ledgers as earlier versions wrote them, by the tables, the view and the hash of their time.

Format 1 had no slack of its own, formats 1 and 2 no columns for study and label.
"""

import hashlib
import hmac
import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from dptune import Budget
from dptune.ledger.store import open_store
from dptune.privacy import Event, Price, event_to_dict

KEY = "ab" * 32
COLUMNS = (
    *("number", "time", "kind", "payment", "event", "mu_squared", "slack", "fingerprint"),
    *("epsilon", "delta", "text", "previous", "hash"),
)
TABLES = (
    "CREATE TABLE entries (number INTEGER NOT NULL PRIMARY KEY, time TEXT NOT NULL, "
    "kind TEXT NOT NULL, payment INTEGER, event TEXT, mu_squared DOUBLE PRECISION, "
    "slack DOUBLE PRECISION, fingerprint TEXT, epsilon DOUBLE PRECISION, delta DOUBLE PRECISION, "
    "text TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE head (number INTEGER NOT NULL, hash TEXT NOT NULL)",
)
VIEW = """
CREATE VIEW payments AS
SELECT r.payment, r.time, r.text AS purpose, r.event, r.mu_squared, r.slack,
       r.fingerprint,
       (SELECT CASE e.kind WHEN 'start' THEN 'started' WHEN 'commit' THEN 'committed' \
WHEN 'void' THEN 'voided' WHEN 'exchange' THEN 'exchanged' ELSE 'reserved' END
        FROM entries e WHERE e.payment = r.payment ORDER BY e.number DESC LIMIT 1) AS state,
       r.previous, r.hash
FROM entries r WHERE r.kind = 'reserve'
"""


def write_old_ledger(
    address: str,
    *,
    format: int,
    budget: Budget,
    fingerprint: str,
    payments: Sequence[tuple[str, Event, Price]],
    moves: Sequence[tuple[str, int]] = (),
    scheduled: bool = False,
) -> None:
    """A ledger of one version of its rows, in which `payments` were reserved, and then moved."""
    keyed = _keyed(fingerprint)
    opened: dict[str, Any] = {"kind": "ledger-opened", "format": format, "key": KEY}
    if format > 1:
        opened["slack"] = 2e-2 * budget.delta
    limits = {"epsilon": budget.epsilon, "delta": budget.delta}
    wanted: list[dict[str, Any]] = [
        {"kind": "open", "event": json.dumps(opened), "text": "patients", **limits},
        {"kind": "declare", "fingerprint": keyed, "text": "first version"},
    ]
    if scheduled:
        schedule = json.dumps({"kind": "schedule", "payments": len(payments)})
        wanted.append({"kind": "schedule", "event": schedule, "text": "fixed"})
    wanted += [
        {
            "kind": "reserve",
            "payment": number,
            "event": json.dumps(event_to_dict(event)),
            "mu_squared": price.mu_squared,
            "slack": price.slack,
            "fingerprint": keyed,
            "text": purpose,
        }
        for number, (purpose, event, price) in enumerate(payments, start=1)
    ]
    wanted += [{"kind": kind, "payment": payment, "text": "moved"} for kind, payment in moves]
    names = ", ".join(f":{name}" for name in COLUMNS)
    with open_store(address).creation() as connection:
        for statement in (*TABLES, VIEW):
            connection.execute(sa.text(statement))
        previous = ""
        for number, values in enumerate(wanted, start=1):
            entry = dict.fromkeys(COLUMNS) | values
            entry |= {"number": number, "time": "2024-01-01T00:00:00+00:00", "previous": previous}
            entry["hash"] = previous = _hash(entry)
            connection.execute(sa.text(f"INSERT INTO entries VALUES ({names})"), entry)
        last = {"number": number, "hash": previous}
        connection.execute(sa.text("INSERT INTO head VALUES (:number, :hash)"), last)


def old_hashes(address: str) -> bool:
    """Whether every entry of the ledger hashes as it did then, new ones included."""
    with open_store(address).reading() as connection:
        rows = connection.execute(sa.text("SELECT * FROM entries ORDER BY number")).all()
    return all(row.hash == _hash(row._asdict()) for row in rows)


def _hash(entry: dict[str, Any]) -> str:
    assert tuple(entry) == COLUMNS
    values = [value for name, value in entry.items() if name != "hash"]
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def _keyed(fingerprint: str) -> str:
    return hmac.new(bytes.fromhex(KEY), fingerprint.encode(), "sha256").hexdigest()
