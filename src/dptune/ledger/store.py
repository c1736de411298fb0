"""Where a ledger lives: a SQLite file or a PostgreSQL database, and what can go wrong with either.

Both give the same three transactions: `creation` fails where a ledger exists, `reading` sees one
consistent moment, `writing` excludes every other writer from before its first read to its commit.
"""

import errno
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qsl, quote, unquote

import sqlalchemy as sa
from sqlalchemy import exc

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
from dptune.ledger.queue import turn

LOCK_TIMEOUT_SECONDS = 60
_CREATING = int.from_bytes(b"dptune")  # any number that other programs do not lock, too

_FORM = "postgresql://user:password@host:port/database"
# Of PostgreSQL's connection options, those that may be shown and written down; and the rest.
_OPEN_OPTIONS = frozenset(
    re.findall(
        r"\w+",
        """application_name channel_binding client_encoding connect_timeout dbname
        fallback_application_name gssdelegation gssencmode gsslib host hostaddr keepalives
        keepalives_count keepalives_idle keepalives_interval krbsrvname load_balance_hosts
        max_protocol_version min_protocol_version options passfile port require_auth requirepeer
        service ssl_max_protocol_version ssl_min_protocol_version sslcert sslcertmode
        sslcompression sslcrl sslcrldir sslkey sslmode sslnegotiation sslrootcert sslsni
        target_session_attrs tcp_user_timeout user""",
    )
)
_SECRET_OPTIONS = frozenset(
    ("oauth_client_secret", "password", "scram_client_key", "scram_server_key", "sslpassword")
)
# What somebody meant for a server, though it is no URL: a file name would be shown in errors.
_MEANT_FOR_A_SERVER = re.compile(r"^\s*postgres\w*[:/+]|\bpassword\s*=|://", re.I)
# As SQLAlchemy takes user and password; what follows is shown, so no part of them may be in it.
_AFTER_PASSWORD = re.compile(r"[\w+]+://(?:[^:/]*(?::[^@]*)?@)?(?P<rest>.*)", re.DOTALL)
_SECRET_SETTING = re.compile(r"pass|pwd|secret|token|key|credential", re.I)


class Store(Protocol):
    """A place for one ledger."""

    shown: str

    def check(self) -> None: ...
    def creation(self) -> AbstractContextManager[sa.Connection]: ...
    def reading(self) -> AbstractContextManager[sa.Connection]: ...
    def writing(self, table: sa.Table) -> AbstractContextManager[sa.Connection]: ...


def open_store(address: str) -> Store:
    """The store behind a file name or URL; touches nothing yet. Errors never repeat a URL: one that
    is malformed may hold its password anywhere."""
    if not isinstance(address, str | os.PathLike) or not str(address).strip():
        raise InvalidInput(
            f"a ledger is a file name or a postgresql:// URL; got {type(address).__name__}, or "
            "nothing."
        )
    address = str(address)
    if not address.isprintable():
        raise InvalidInput("the ledger's address must be one line of printable text.")
    if is_file(address):
        return SqliteStore(Path(address))
    url = _url(address)
    if url.get_backend_name() == "sqlite" and url.database:
        return SqliteStore(Path(url.database))
    if url.get_backend_name() == "postgresql":
        return PostgresStore(url)
    raise InvalidInput(
        f"a ledger is a file name or a postgresql:// URL; got one that begins with "
        f"{url.drivername}://."
    )


def is_file(address: str) -> bool:
    """Whether it is meant as a file name, which may be shown."""
    return not _MEANT_FOR_A_SERVER.search(address)


def without_secrets(address: str) -> str:
    """The address as it may be written down. Whoever connects again finds the password where
    PostgreSQL's own tools do."""
    if is_file(address):
        return address
    harmless = _open_part(_url(address)).render_as_string()
    return address if unquote(address) == unquote(harmless) else harmless


def are_one(address: str, other: str) -> bool:
    """Whether two addresses, each with or without its password, name one place."""
    if is_file(address) or is_file(other):
        return address == other
    return _open_part(_url(address)) == _open_part(_url(other))


def _url(address: str) -> sa.URL:
    """Taken apart as SQLAlchemy does it."""
    try:
        url = sa.make_url(address)
    except (exc.ArgumentError, ValueError):
        raise InvalidInput(
            "the ledger's address looks like that of a server but cannot be read as a URL; the "
            f"form is {_FORM}."
        ) from None
    match = _AFTER_PASSWORD.fullmatch(address)
    if match is None or "@" in match["rest"]:
        raise InvalidInput(
            "the ledger's address has an @ after the one before the host, so it is not sure where "
            f"its password ends; the form is {_FORM}, with %40 for an @ in any part."
        )
    options = parse_qsl(match["rest"].partition("?")[2], keep_blank_values=True)
    known = _OPEN_OPTIONS | _SECRET_OPTIONS
    if url.get_backend_name() == "postgresql" and not {name for name, _ in options} <= known:
        raise InvalidInput(
            "the ledger's address has an option that PostgreSQL does not know; the form is "
            f"{_FORM}?option=value, with %26 for an & and %3F for a ? in any part."
        )
    return url


def _open_part(url: sa.URL) -> sa.URL:
    """Without anything that is or may be a secret."""
    query = {
        name: tuple(map(_open_settings, values)) if name == "options" else values
        for name, values in url.normalized_query.items()
        if name in _OPEN_OPTIONS
    }
    return sa.URL.create(
        url.drivername,
        username=url.username,
        host=url.host,
        port=url.port,
        database=url.database,
        query=query,
    )


def _open_settings(options: str) -> str:
    """The server's settings, -c NAME=VALUE one after the other, but those that sound secret."""
    words = re.findall(r"(?:\\.|[^\s\\])+", re.sub(r"(^|\s)-c\s+", r"\1-c", options))
    return " ".join(word for word in words if not _SECRET_SETTING.search(word.partition("=")[0]))


class SqliteStore:
    """One file. SQLite's own locks and journal make each transaction exclusive and durable."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.shown = str(path)
        # Kept, for what they learn of our statements; no connection stays open.
        self._reader, self._writer = self._engine("BEGIN"), self._engine("BEGIN IMMEDIATE")

    def check(self) -> None:
        """Refuse what is not there, and pages that do not fit together."""
        self._must_exist()
        with self._errors(), self._writer.connect() as connection:
            result = connection.exec_driver_sql("PRAGMA quick_check").scalar()
            empty = not connection.exec_driver_sql("PRAGMA page_count").scalar()
        if result != "ok":
            raise LedgerCorrupt(_damaged(self.shown, f"SQLite reports: {result}"))
        if empty:
            found = "it is empty: if it was just being made, remove it and make it again"
            raise LedgerCorrupt(_damaged(self.shown, found))

    @contextmanager
    def creation(self) -> Iterator[sa.Connection]:
        """Build the ledger in memory and put it in its place when whole: it is never half there,
        never replaces another, and no draft with its key is left by somebody who is killed."""
        if self._is_there():
            raise LedgerExists(_exists(self.shown))
        memory = _engine(lambda: sqlite3.connect(":memory:", isolation_level=None), "BEGIN")
        with self._errors(), memory.connect() as connection:
            with connection.begin():
                yield connection
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            whole = driver.serialize()
        try:
            _put(self.path, whole)
        except FileExistsError:
            raise LedgerExists(_exists(self.shown)) from None
        except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
            raise InvalidInput(
                f"no ledger can be made at {self.shown}: {error.strerror}. Give a file name in a "
                "folder that exists and that you may write to."
            ) from None
        except OSError as error:
            raise LedgerUnavailable(
                f"the ledger {self.shown} could not be written: {error.strerror}. Nothing is left "
                "of it; make room, then try again."
            ) from None
        _remove_old_drafts(self.path.absolute().parent)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        self._must_exist()
        with self._errors(), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def writing(self, table: sa.Table) -> Iterator[sa.Connection]:
        self._must_exist()
        queued = turn(self.path, LOCK_TIMEOUT_SECONDS)
        with queued, self._errors(), self._writer.begin() as connection:
            yield connection

    def _is_there(self) -> bool:
        try:
            there = self.path.exists()
            if not there and self.path.is_symlink():
                raise InvalidInput(
                    f"{self.shown} is a link to {os.readlink(self.path)}, which is not there. "
                    "Mend the link, or name the ledger itself."
                )
            return there
        except OSError as error:  # a name that is too long, a folder we may not enter
            raise LedgerUnavailable(_unavailable(self.shown, error)) from None

    def _must_exist(self) -> None:
        if not self._is_there():
            raise LedgerNotFound(
                f"there is no ledger at {self.shown}. Check the name, or open a new one with "
                "`dptune ledger open`."
            )

    def _engine(self, begin: str) -> sa.Engine:
        def connect() -> sqlite3.Connection:
            # mode=rw: a missing file must not be created empty.
            uri = f"file:{quote(str(self.path.absolute()))}?mode=rw"
            connection = sqlite3.connect(
                uri, uri=True, timeout=LOCK_TIMEOUT_SECONDS, isolation_level=None
            )
            connection.execute("PRAGMA synchronous = EXTRA")
            return connection

        return _engine(connect, begin)

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
        shown = _open_part(url)
        if url.password is not None:
            shown = shown.set(password="***")
        self.shown = shown.render_as_string(hide_password=True)
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
            self._prepare(connection)
            # Two that create at once would find half of each other's tables: one after the other.
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_CREATING})")
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
            case "42P07":  # duplicate table
                return LedgerExists(_exists(self.shown))
        return LedgerUnavailable(_unavailable(self.shown, error))


def _engine(connect: Callable[[], sqlite3.Connection], begin: str) -> sa.Engine:
    engine = sa.create_engine("sqlite+pysqlite://", creator=connect, poolclass=sa.NullPool)
    # The driver would begin late and shared; we begin at once, as told.
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


def _put(path: Path, content: bytes) -> None:
    """A new file, for its owner only; FileExistsError where there is one. Its name is on disk for
    good with the first payment, whose transaction flushes the folder, too."""
    with _nameless(path.absolute().parent) as file:
        if file is not None:
            _write(file, content)
            if _name(file, path):
                return
    # Elsewhere at least under its own name, which nobody takes for a thing to publish.
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    try:
        _write(file, content)
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(file)


@contextmanager
def _nameless(folder: Path) -> Iterator[int | None]:
    """A file that is gone with whoever opened it unless it is given a name; None where the system,
    or the file system, has no such thing."""
    try:
        file = os.open(folder, os.O_WRONLY | os.O_TMPFILE, 0o600)
    except (AttributeError, IsADirectoryError):
        file = None
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        file = None
    try:
        yield file
    finally:
        if file is not None:
            os.close(file)


def _name(file: int, path: Path) -> bool:
    try:
        # With a folder, though the name needs none, or Python would link the link in /proc.
        os.link(f"/proc/self/fd/{file}", path, src_dir_fd=file, follow_symlinks=True)
    except FileExistsError:
        raise
    except OSError:  # there is no /proc
        return False
    return True


def _write(file: int, content: bytes) -> None:
    while content:
        content = content[os.write(file, content) :]
    os.fsync(file)


def _remove_old_drafts(folder: Path) -> None:
    """Earlier versions of dptune, when killed, left ledgers with their keys in hidden folders."""
    for draft in folder.glob(".dptune-????????"):
        with suppress(OSError):
            if set(os.listdir(draft)) <= {"ledger", "ledger-journal"}:
                shutil.rmtree(draft)


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
