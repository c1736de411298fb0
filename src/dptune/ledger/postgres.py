"""A ledger in a schema of a PostgreSQL database."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from dptune.errors import (
    DptuneError,
    LedgerExists,
    LedgerLocked,
    LedgerNotFound,
    LedgerUnavailable,
    MissingExtra,
)
from dptune.ledger import store
from dptune.ledger.address import open_part

_CREATING = int.from_bytes(b"dptune")  # an advisory lock that other programs do not use
# A client that hangs loses the lock after this time, which is shorter than others wait for it.
_IDLE_LIMIT, _IDLE_SECONDS = "idle_in_transaction_session_timeout", 30
# A client gives up on a server that does not answer. The URL may say otherwise.
_CONNECTION_LIMITS = {
    "connect_timeout": "30",  # seconds
    "keepalives": "1",
    "keepalives_idle": "30",  # seconds
    "keepalives_interval": "10",  # seconds
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",  # milliseconds
}


class PostgresStore:
    """One schema of a PostgreSQL database, shared by all who pay from the same budget."""

    def __init__(self, url: sa.URL) -> None:
        try:
            import psycopg as psycopg
        except ImportError:
            raise MissingExtra(
                "a ledger in PostgreSQL needs the driver psycopg: pip install 'dptune[postgres]'."
            ) from None
        shown = open_part(url)
        if url.password is not None:
            shown = shown.set(password="***")
        self.shown = shown.render_as_string(hide_password=True)
        self._engine = sa.create_engine(
            url.set(drivername="postgresql+psycopg", query={**_CONNECTION_LIMITS, **url.query}),
            poolclass=sa.NullPool,
            isolation_level="READ COMMITTED",
        )
        options = " ".join(url.normalized_query.get("options", ()))
        path = re.search(r"search_path=([^\s,]+)", options)
        self._schema = path and path[1].strip('"')
        self._limits_idling = _IDLE_LIMIT not in options.lower().replace("-", "_")

    def check(self) -> None:
        """The server checks its own pages."""

    @contextmanager
    def creation(self) -> Iterator[sa.Connection]:
        with self._transaction() as connection:
            # Only one process creates at a time, or two would see half of each other's tables.
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_CREATING})")
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        with self._errors(), self._engine.connect() as connection:
            # Entries and head are two queries, which must see the same snapshot.
            connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                self._prepare(connection)
                yield connection

    @contextmanager
    def writing(self, table: sa.Table) -> Iterator[sa.Connection]:
        with self._transaction() as connection:
            # An accepted payment must survive a crash of the server.
            connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
            connection.exec_driver_sql(f"LOCK TABLE {table.name} IN EXCLUSIVE MODE")
            yield connection

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        # A failed connection has certainly written nothing.
        with (
            self._errors(),
            self._engine.connect() as connection,
            self._errors(writing=True),
            connection.begin(),
        ):
            self._prepare(connection)
            yield connection

    def _prepare(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{store.LOCK_TIMEOUT_SECONDS}s'")
        if self._limits_idling:
            connection.exec_driver_sql(f"SET LOCAL {_IDLE_LIMIT} = '{_IDLE_SECONDS}s'")
        # Prices must come back to the last bit, also against the server's defaults.
        connection.exec_driver_sql("SET LOCAL extra_float_digits = 1")

    @contextmanager
    def _errors(self, *, writing: bool = False) -> Iterator[None]:
        try:
            yield
        except exc.DBAPIError as error:
            raise self._explain(error.orig, writing=writing) from error

    def _explain(self, error: BaseException | None, *, writing: bool) -> DptuneError:
        match getattr(error, "sqlstate", None):
            case "55P03" | "40P01":  # lock not available, deadlock detected
                return LedgerLocked(store.lock_message(self.shown))
            case "25P03":  # the transaction idled for too long; a commit would have ended it
                return LedgerUnavailable(
                    f"this process held the ledger {self.shown} idle for longer than the server "
                    f"allows ({_IDLE_LIMIT}), so the server ended its transaction; nothing was "
                    "written. Try again."
                )
            case "42P01":  # undefined table
                return LedgerNotFound(
                    f"there is no ledger in {self.shown}, or you may not see it. Check the URL and "
                    "your rights, or open a new one with `dptune ledger open`."
                )
            case "3F000" | "42501":  # invalid schema name, insufficient privilege
                return self._about_schema(error)
            case "42P07":  # duplicate table
                return LedgerExists(store.exists_message(self.shown))
        return LedgerUnavailable(store.unavailable_message(self.shown, error, writing=writing))

    def _about_schema(self, error: Any) -> DptuneError:
        """The error for a schema that is missing or may not be used."""
        if error.sqlstate == "3F000":
            return LedgerNotFound(
                f"the schema of the ledger {self.shown} does not exist; nothing was written. "
                f'Create the schema first: CREATE SCHEMA "{self._schema or "NAME"}"'
            )
        return LedgerUnavailable(
            f"the ledger {self.shown} cannot be used, because its user lacks a right "
            f"({str(error).splitlines()[0]}); nothing was written. Let the owner grant it: "
            f'GRANT USAGE, CREATE ON SCHEMA "{self._schema or "public"}" TO ...'
        )
