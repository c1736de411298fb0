"""The storage of a ledger, a SQLite file or a PostgreSQL database, and its errors.

Both have the same three transactions: `creation` fails if a ledger exists, `reading` sees one
consistent snapshot, and `writing` excludes all other writers from its first read to its commit.
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
# Parts of a ledger's first pages, which define its tables, and the bytes to search for them.
_MARKS, _SEARCHED_BYTES = (b"CREATE TABLE entries", b"CREATE TABLE head"), 1 << 16
_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL)  # errors of file systems without O_TMPFILE


class Store(Protocol):
    """The storage of one ledger."""

    shown: str

    def check(self) -> None: ...
    def creation(self) -> AbstractContextManager[sa.Connection]: ...
    def reading(self) -> AbstractContextManager[sa.Connection]: ...
    def writing(self, table: sa.Table) -> AbstractContextManager[sa.Connection]: ...


def open_store(address: str) -> Store:
    """The store of a file name or URL; this does not connect yet. Errors never repeat a URL, since
    a malformed one may have its password anywhere."""
    if not isinstance(address, str | os.PathLike) or not str(address).strip():
        raise InvalidInput(
            f"a ledger is a file name or a postgresql:// URL; got {type(address).__name__}, or "
            "nothing."
        )
    address = str(address)
    if not address.isprintable():
        raise InvalidInput(
            "the ledger's address must be one line of printable text, and this one is not; remove "
            "its other characters."
        )
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
        # Kept for their caches of compiled statements; no connection stays open.
        self._reader, self._writer = self._engine("BEGIN"), self._engine("BEGIN IMMEDIATE")

    def check(self) -> None:
        """Refuse a missing or damaged file."""
        self._must_exist()
        with self._errors(), self._writer.connect() as connection:
            # quick_check does not compare the index of the view `payments` with the entries. The
            # rest of opening a ledger takes forty times as long as this check.
            result = connection.exec_driver_sql("PRAGMA integrity_check").scalar()
            empty = not connection.exec_driver_sql("PRAGMA page_count").scalar()
        if result != "ok":
            raise LedgerCorrupt(_damaged(self.shown, f"SQLite reports: {result}"))
        if empty:
            raise LedgerCorrupt(_no_ledger(self.shown, "it is empty"))

    @contextmanager
    def creation(self) -> Iterator[sa.Connection]:
        """Build the ledger in memory and write it when it is complete. So it never exists in part,
        never replaces another, and a killed process leaves no draft with its key."""
        if self._is_there():
            raise LedgerExists(exists_message(self.shown))
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
            raise LedgerExists(exists_message(self.shown)) from None
        except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
            raise InvalidInput(
                f"no ledger can be made at {self.shown}: {error.strerror}. Give a file name in a "
                "folder that exists and that you may write to."
            ) from None
        except OSError as error:
            raise LedgerUnavailable(
                f"the ledger {self.shown} could not be written: {error.strerror}. No partial "
                "file is left; make room, then try again."
            ) from None
        try:
            sync_folder(self.path.absolute().parent)
        except OSError as error:  # the ledger stays: another process may already pay from it
            raise LedgerUnavailable(unavailable_message(self.shown, error, writing=True)) from None
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
                    f"{self.shown} is a link to {os.readlink(self.path)}, which does not exist. "
                    "Correct the link, or name the ledger itself."
                )
            return there
        except OSError as error:  # a name that is too long, or a folder without permission
            raise LedgerUnavailable(unavailable_message(self.shown, error, writing=False)) from None

    def _must_exist(self) -> None:
        if not self._is_there():
            raise LedgerNotFound(
                f"there is no ledger at {self.shown}. Check the name, or open a new one with "
                "`dptune ledger open`."
            )

    def _was_a_ledger(self) -> bool:
        """Whether the file has a mark of a ledger, or cannot be read."""
        with suppress(OSError), self.path.open("rb") as file:
            start = file.read(_SEARCHED_BYTES)
            return any(mark in start for mark in _MARKS)
        return True

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
        except UnicodeDecodeError as error:  # the driver reads invalid text
            raise LedgerCorrupt(_damaged(self.shown, str(error))) from error

    def _explain(self, error: BaseException | None, *, writing: bool) -> DptuneError:
        code = getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_CORRUPT
        if code == sqlite3.SQLITE_IOERR_SHORT_READ:
            return LedgerCorrupt(_damaged(self.shown, "the file is truncated"))
        match code & 0xFF:
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                return LedgerLocked(lock_message(self.shown))
            case (
                sqlite3.SQLITE_FULL
                | sqlite3.SQLITE_IOERR
                | sqlite3.SQLITE_READONLY
                | sqlite3.SQLITE_CANTOPEN
                | sqlite3.SQLITE_PERM
            ):
                return LedgerUnavailable(unavailable_message(self.shown, error, writing=writing))
        foreign = code & 0xFF in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
        if foreign and not self._was_a_ledger():
            return LedgerCorrupt(_no_ledger(self.shown, f"SQLite reports: {error}"))
        return LedgerCorrupt(_damaged(self.shown, f"SQLite reports: {error}"))


def _engine(connect: Callable[[], sqlite3.Connection], begin: str) -> sa.Engine:
    engine = sa.create_engine("sqlite+pysqlite://", creator=connect, poolclass=sa.NullPool)
    # The driver would begin a shared transaction later; `begin` decides kind and time.
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


def _put(path: Path, content: bytes) -> None:
    """Write a new file that only its owner may read; FileExistsError if it exists."""
    with _nameless(path.absolute().parent) as file:
        if file is not None:
            _write(file, content)
            if _name(file, path):
                return
    # On other systems, write the file under its own name, which people recognise as a ledger.
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
    """A file without a name, which vanishes with its process unless it is linked; None where the
    operating system or file system does not support that."""
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
        # src_dir_fd only makes Python follow the link in /proc.
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
    """Remove the hidden folders with ledgers and keys that killed earlier versions left."""
    for draft in folder.glob(".dptune-????????"):
        with suppress(OSError):
            if set(os.listdir(draft)) <= {"ledger", "ledger-journal"}:
                shutil.rmtree(draft)


def exists_message(shown: str) -> str:
    return (
        f"{shown} already exists and is not replaced, which would lose what was spent. See it with "
        f"`dptune budget {shown}`, or choose another name."
    )


def lock_message(shown: str) -> str:
    return (
        f"another process held the ledger {shown} for more than {LOCK_TIMEOUT_SECONDS} seconds; "
        "nothing was written. Try again when it is done."
    )


def _no_ledger(shown: str, problem: str) -> str:
    return (
        f"{shown} is not a ledger ({problem}). Give the name of a ledger, or open a new one under "
        "another name with `dptune ledger open`."
    )


def _damaged(shown: str, problem: str) -> str:
    return (
        f"{shown} is damaged or not a ledger ({problem}). Nothing may be paid from it. Restore it "
        "from a backup, and count what was spent since as spent."
    )


def unavailable_message(shown: str, error: BaseException | None, *, writing: bool) -> str:
    """The message for a store that fails. A failed write may have been completed."""
    lines = (line.strip().rstrip(".?") for line in str(error).splitlines())
    message = f"the ledger {shown} cannot be used: {'; '.join(filter(None, lines))}."
    if not writing:
        return f"{message} Nothing was written."
    # A connection may fail after its commit was sent.
    return (
        f"{message} The last step may or may not have been written: check with `dptune budget` "
        "before you continue."
    )
