"""Where a ledger lives: a SQLite file or a PostgreSQL database, and what can go wrong with either.

Both give the same three transactions: `creation` fails where a ledger exists, `reading` sees one
consistent moment, `writing` excludes every other writer from before its first read to its commit.
"""

import errno
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

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
)
from dptune.ledger.address import is_file, url_of
from dptune.ledger.queue import turn
from dptune.whole_files import sync_folder

LOCK_TIMEOUT_SECONDS = 60
# Of a ledger's first pages, which say what tables it has.
_MARKS, _LOOKED_AT = (b"CREATE TABLE entries", b"CREATE TABLE head"), 1 << 16
_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL)  # as file systems say it


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
    url = url_of(address)
    if url.get_backend_name() == "sqlite" and url.database:
        return SqliteStore(Path(url.database))
    if url.get_backend_name() == "postgresql":
        from dptune.ledger.postgres import PostgresStore

        return PostgresStore(url)
    raise InvalidInput(
        f"a ledger is a file name or a postgresql:// URL; got one that begins with "
        f"{url.drivername}://."
    )


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
            # Not quick_check, which does not compare the index of the view `payments` with the
            # entries: the rest of opening a ledger takes forty times as long.
            result = connection.exec_driver_sql("PRAGMA integrity_check").scalar()
            empty = not connection.exec_driver_sql("PRAGMA page_count").scalar()
        if result != "ok":
            raise LedgerCorrupt(_damaged(self.shown, f"SQLite reports: {result}"))
        if empty:
            raise LedgerCorrupt(_no_ledger(self.shown, "it is empty"))

    @contextmanager
    def creation(self) -> Iterator[sa.Connection]:
        """Build the ledger in memory and put it in its place when whole: it is never half there,
        never replaces another, and no draft with its key is left by somebody who is killed."""
        if self._is_there():
            raise LedgerExists(exists(self.shown))
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
            raise LedgerExists(exists(self.shown)) from None
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
        try:
            sync_folder(self.path.absolute().parent)
        except OSError as error:  # it is kept: somebody may pay from it already
            raise LedgerUnavailable(unavailable(self.shown, error, writing=True)) from None
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
        with (
            queued,
            self._errors(),
            self._writer.connect() as connection,
            self._errors(writing=True),
            connection.begin(),
        ):
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
            raise LedgerUnavailable(unavailable(self.shown, error, writing=False)) from None

    def _must_exist(self) -> None:
        if not self._is_there():
            raise LedgerNotFound(
                f"there is no ledger at {self.shown}. Check the name, or open a new one with "
                "`dptune ledger open`."
            )

    def _was_a_ledger(self) -> bool:
        """Whether the file holds anything that only ledgers hold."""
        with suppress(OSError), self.path.open("rb") as file:
            begins = file.read(_LOOKED_AT)
            return any(mark in begins for mark in _MARKS)
        return True  # who knows

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
    def _errors(self, *, writing: bool = False) -> Iterator[None]:
        try:
            yield
        except (exc.DBAPIError, sqlite3.Error) as error:
            raise self._explain(getattr(error, "orig", error), writing=writing) from error
        except UnicodeDecodeError as error:  # the driver meets text that is none
            raise LedgerCorrupt(_damaged(self.shown, str(error))) from error

    def _explain(self, error: BaseException | None, *, writing: bool) -> DptuneError:
        code = getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_CORRUPT
        if code == sqlite3.SQLITE_IOERR_SHORT_READ:
            return LedgerCorrupt(_damaged(self.shown, "the file is cut off"))
        match code & 0xFF:
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return LedgerLocked(locked(self.shown))
            case (
                sqlite3.SQLITE_FULL
                | sqlite3.SQLITE_IOERR
                | sqlite3.SQLITE_READONLY
                | sqlite3.SQLITE_CANTOPEN
                | sqlite3.SQLITE_PERM
            ):
                return LedgerUnavailable(unavailable(self.shown, error, writing=writing))
        foreign = code & 0xFF in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
        if foreign and not self._was_a_ledger():
            return LedgerCorrupt(_no_ledger(self.shown, f"SQLite reports: {error}"))
        return LedgerCorrupt(_damaged(self.shown, f"SQLite reports: {error}"))


def _engine(connect: Callable[[], sqlite3.Connection], begin: str) -> sa.Engine:
    engine = sa.create_engine("sqlite+pysqlite://", creator=connect, poolclass=sa.NullPool)
    # The driver would begin late and shared; we begin at once, as told.
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


def _put(path: Path, content: bytes) -> None:
    """A new file, for its owner only; FileExistsError where there is one."""
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
        if error.errno not in _NOT_SUPPORTED:
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


def exists(shown: str) -> str:
    return (
        f"{shown} exists already and is not replaced: that would forget what was spent. See it "
        f"with `dptune budget {shown}`, or choose another name."
    )


def locked(shown: str) -> str:
    return (
        f"another process held the ledger {shown} for more than {LOCK_TIMEOUT_SECONDS} seconds; "
        "nothing was written. Try again when it is done."
    )


def _no_ledger(shown: str, found: str) -> str:
    return (
        f"{shown} is no ledger ({found}). Give the name of a ledger, or open a new one under "
        "another name with `dptune ledger open`."
    )


def _damaged(shown: str, found: str) -> str:
    return (
        f"{shown} is damaged or not a ledger ({found}). Nothing may be paid from it. Restore it "
        "from a backup, and count what was spent since as spent."
    )


def unavailable(shown: str, error: BaseException | None, *, writing: bool) -> str:
    """What to say of a place that does not answer, and, where something was to be written, that it
    may have been."""
    lines = (line.strip().rstrip(".?") for line in str(error).splitlines())
    said = "; ".join(filter(None, lines))
    found = f"the ledger {shown} cannot be used: {said}."
    if not writing:
        return f"{found} Nothing was written."
    # A connection may die after its commit was sent: then nobody here knows.
    return (
        f"{found} Whether the last step was written is not certain: look with `dptune budget` "
        "before you go on."
    )
