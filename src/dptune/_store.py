"""Where a ledger lives: a SQLite file or a PostgreSQL database, and what can go wrong with either.

Both give the same three transactions: `creation` fails where a ledger exists, `reading` sees one
consistent moment, `writing` excludes every other writer from before its first read to its commit.
"""

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import exc

from dptune import _validate
from dptune.errors import (
    DptuneError,
    InvalidInput,
    LedgerCorrupt,
    LedgerExists,
    LedgerLocked,
    LedgerNotFound,
    LedgerUnavailable,
    MissingExtra,
)

LOCK_TIMEOUT_SECONDS = 60


class Store(Protocol):
    """A place for one ledger."""

    shown: str

    def check(self) -> None: ...
    def creation(self) -> AbstractContextManager[sa.Connection]: ...
    def reading(self) -> AbstractContextManager[sa.Connection]: ...
    def writing(self, table: sa.Table) -> AbstractContextManager[sa.Connection]: ...


def open_store(address: str) -> Store:
    """The store behind a file name or URL; touches nothing yet."""
    if not isinstance(address, str | os.PathLike) or not str(address).strip():
        raise InvalidInput(f"a ledger is a file name or a postgresql:// URL; got {address!r}.")
    address = str(address)
    _validate.text(ledger=address)
    if "://" not in address:
        return SqliteStore(Path(address))
    try:
        url = sa.make_url(address)
    except (exc.ArgumentError, ValueError):
        raise InvalidInput(
            "the ledger's address looks like a URL but cannot be read as one; the form is "
            "postgresql://user:password@host:port/database."
        ) from None
    if url.get_backend_name() == "sqlite" and url.database:
        return SqliteStore(Path(url.database))
    if url.get_backend_name() == "postgresql":
        return PostgresStore(url)
    raise InvalidInput(
        f"a ledger is a file name or a postgresql:// URL; got {url.render_as_string()!r}."
    )


class SqliteStore:
    """One file. SQLite's own locks and journal make each transaction exclusive and durable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shown = str(path)

    def check(self) -> None:
        """Refuse what is not there, and pages that do not fit together."""
        self._must_exist()
        with self._errors(), self._engine(self.path).connect() as connection:
            result = connection.exec_driver_sql("PRAGMA quick_check").scalar()
        if result != "ok":
            raise LedgerCorrupt(_damaged(self.shown, f"SQLite reports: {result}"))

    @contextmanager
    def creation(self) -> Iterator[sa.Connection]:
        """Build the ledger beside its place and link it in when whole: it is never half there,
        and never replaces another."""
        if self._is_there():
            raise LedgerExists(_exists(self.shown))
        try:
            folder = tempfile.TemporaryDirectory(prefix=".dptune-", dir=self.path.parent or ".")
        except OSError as error:
            raise InvalidInput(
                f"no ledger can be made at {self.shown}: {error.strerror}. Give a file name in a "
                "folder that exists and that you may write to."
            ) from None
        with folder as name, self._errors():
            draft = Path(name, "ledger")
            draft.touch(mode=0o600)
            with self._engine(draft).begin() as connection:
                yield connection
            try:
                os.link(draft, self.path)
            except FileExistsError:
                raise LedgerExists(_exists(self.shown)) from None
            except OSError as error:
                raise LedgerUnavailable(_unavailable(self.shown, error)) from None

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        self._must_exist()
        with self._errors(), self._engine(self.path, begin="BEGIN").begin() as connection:
            yield connection

    @contextmanager
    def writing(self, table: sa.Table) -> Iterator[sa.Connection]:
        self._must_exist()
        with self._errors(), self._engine(self.path).begin() as connection:
            yield connection

    def _is_there(self) -> bool:
        try:
            return self.path.exists()
        except OSError as error:  # a name that is too long, a folder we may not enter
            raise LedgerUnavailable(_unavailable(self.shown, error)) from None

    def _must_exist(self) -> None:
        if not self._is_there():
            raise LedgerNotFound(
                f"there is no ledger at {self.shown}. Check the name, or open a new one with "
                "`dptune ledger open`."
            )

    def _engine(self, path: Path, begin: str = "BEGIN IMMEDIATE") -> sa.Engine:
        def connect() -> sqlite3.Connection:
            # mode=rw: a missing file must not be created empty.
            uri = f"file:{quote(str(path.absolute()))}?mode=rw"
            connection = sqlite3.connect(
                uri, uri=True, timeout=LOCK_TIMEOUT_SECONDS, isolation_level=None
            )
            connection.execute("PRAGMA synchronous = EXTRA")
            return connection

        engine = sa.create_engine("sqlite+pysqlite://", creator=connect, poolclass=sa.NullPool)
        # The driver would begin late and shared; we begin at once, as told.
        sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
        return engine

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (exc.DBAPIError, sqlite3.Error) as error:
            raise self._explain(getattr(error, "orig", error)) from error
        except UnicodeDecodeError as error:  # the driver meets text that is none
            raise LedgerCorrupt(_damaged(self.shown, str(error))) from error

    def _explain(self, error: BaseException | None) -> DptuneError:
        code = getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_CORRUPT
        if code == sqlite3.SQLITE_IOERR_SHORT_READ:
            return LedgerCorrupt(_damaged(self.shown, "the file is cut off"))
        match code & 0xFF:
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return LedgerLocked(_locked(self.shown))
            case (
                sqlite3.SQLITE_FULL
                | sqlite3.SQLITE_IOERR
                | sqlite3.SQLITE_READONLY
                | sqlite3.SQLITE_CANTOPEN
                | sqlite3.SQLITE_PERM
            ):
                return LedgerUnavailable(_unavailable(self.shown, error))
        return LedgerCorrupt(_damaged(self.shown, f"SQLite reports: {error}"))


class PostgresStore:
    """One schema of a PostgreSQL database, shared by everybody who pays from the same budget."""

    def __init__(self, url: sa.URL) -> None:
        try:
            import psycopg as psycopg
        except ImportError:
            raise MissingExtra(
                "a ledger in PostgreSQL needs the driver psycopg: pip install 'dptune[postgres]'."
            ) from None
        query = {name: "***" if "password" in name else value for name, value in url.query.items()}
        self.shown = url.set(query=query).render_as_string(hide_password=True)
        self._engine = sa.create_engine(
            url.set(drivername="postgresql+psycopg"),
            poolclass=sa.NullPool,
            isolation_level="READ COMMITTED",
        )

    def check(self) -> None:
        """The server checks its own pages."""

    @contextmanager
    def creation(self) -> Iterator[sa.Connection]:
        with self._errors(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        with self._errors(), self._engine.connect() as connection:
            # Entries and head are two queries: let both see the same moment.
            connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin():
                self._prepare(connection)
                yield connection

    @contextmanager
    def writing(self, table: sa.Table) -> Iterator[sa.Connection]:
        with self._errors(), self._engine.begin() as connection:
            self._prepare(connection)
            # A payment that was granted must survive a crash of the server, too.
            connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
            connection.exec_driver_sql(f"LOCK TABLE {table.name} IN EXCLUSIVE MODE")
            yield connection

    def _prepare(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")
        # Prices must come back to the last bit, whatever the server's defaults.
        connection.exec_driver_sql("SET LOCAL extra_float_digits = 1")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except exc.DBAPIError as error:
            raise self._explain(error.orig) from error

    def _explain(self, error: BaseException | None) -> DptuneError:
        match getattr(error, "sqlstate", None):
            case "55P03" | "40P01":  # lock not available, deadlock detected
                return LedgerLocked(_locked(self.shown))
            case "42P01":  # undefined table
                return LedgerNotFound(
                    f"there is no ledger in {self.shown}, or none that you may see. Check the URL "
                    "and your rights, or open a new one with `dptune ledger open`."
                )
            case "42P07" | "23505":  # duplicate table, here or from a creation at the same time
                return LedgerExists(_exists(self.shown))
        return LedgerUnavailable(_unavailable(self.shown, error))


def _exists(shown: str) -> str:
    return (
        f"{shown} exists already and is not replaced: that would forget what was spent. See it "
        f"with `dptune budget {shown}`, or choose another name."
    )


def _locked(shown: str) -> str:
    return (
        f"another process held the ledger {shown} for more than {LOCK_TIMEOUT_SECONDS} seconds; "
        "nothing was written. Try again when it is done."
    )


def _damaged(shown: str, found: str) -> str:
    return (
        f"{shown} is damaged or not a ledger ({found}). Nothing may be paid from it. Restore it "
        "from a backup, and count what was spent since as spent."
    )


def _unavailable(shown: str, error: BaseException | None) -> str:
    # A connection may die after its commit was sent: then nobody here knows.
    return (
        f"the ledger {shown} cannot be used: {str(error).strip()}. Whether the last step was "
        "written is not certain: look with `dptune budget` before you go on."
    )
