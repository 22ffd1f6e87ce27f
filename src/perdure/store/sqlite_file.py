"""Connections to an SQLite file: how they are opened, and which fault their errors are."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perdure.core.errors import Conflict
from perdure.store.base import DataFault, StoreFault
from perdure.store.rows import Row

MEMORY = ":memory:"
OLDEST = (3, 37, 0)
"""The first SQLite with strict tables."""

LOG_BYTES = 5 * 1024 * 1024
"""About the size at which the write-ahead log starts over: SQLite's 1,000 pages, and what the last batch adds."""

_BUSY_SECONDS = 0.005
"""SQLite's own wait for a lock. It stops the event loop, so it is short; the rest is waited for by `patiently`."""
_WAITS = (0.001, 0.002, 0.004, 0.008, *[0.016] * 94)
"""Seconds between the tries for a lock that another process holds: about 2 s, with SQLite's own waits."""

CACHE_KIBIBYTES = 16 * 1024
"""Of the file's pages that a connection keeps: what a batch writes, and the ends of the indexes. Four times as much was
no faster (200,000 waiting jobs), and a server that takes in a million jobs fills it."""

_SETTINGS = ("pragma synchronous = full", f"pragma cache_size = -{CACHE_KIBIBYTES}", "pragma foreign_keys = off")
_VALUE_ERRORS = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    UnicodeError,
)
_NETWORK = ("nfs", "cifs", "smb", "fuse.sshfs", "afs", "ceph", "glusterfs", "lustre")


class Busy(StoreFault):
    """Another process holds the lock."""


class Connection:
    """One connection without implicit transactions, whose errors are those of base.py."""

    def __init__(self, path: str) -> None:
        self._path = Path(path).absolute()  # wherever a handler goes
        self._place: tuple[int, int] | None = None
        try:
            self._raw = sqlite3.connect(
                path,
                timeout=_BUSY_SECONDS,
                isolation_level=None,
                cached_statements=512,
            )
        except sqlite3.Error as error:
            raise _fault(error) from error

    @classmethod
    async def opened(cls, path: str, *, query_only: bool = False) -> Connection:
        """A connection with our settings. Another process may hold the lock that they need, while it makes the file."""
        connection = cls(path)
        try:
            for setting in (*_SETTINGS, *(["pragma query_only = on"] if query_only else [])):
                await connection.patiently(setting)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def in_transaction(self) -> bool:
        return self._raw.in_transaction

    def rows(self, sql: str, values: Any = ()) -> list[Row]:
        """The rows that a statement returns, all of them: a cursor left open would hold an old snapshot."""
        try:
            return self._raw.execute(sql, values).fetchall()
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            raise _fault(error) from error

    def write(self, sql: str, values: Any = ()) -> int:
        """How many rows a statement wrote."""
        try:
            return self._raw.execute(sql, values).rowcount
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            raise _fault(error) from error

    async def patiently(self, sql: str, values: Any = ()) -> list[Row]:
        """As `rows`, outside a transaction: a lock that another process holds is waited for, about 2 s."""
        for wait in _WAITS:
            try:
                return self.rows(sql, values)
            except Busy:
                await asyncio.sleep(wait)
        return self.rows(sql, values)

    def note_place(self) -> None:
        """Remember which file this is, once SQLite has made it."""
        self._place = _place(self._path)

    def check_place(self) -> None:
        """StoreFault when the file was moved or removed while it was open: SQLite would go on writing into it, and
        all that is nowhere when it is closed."""
        if self._place is not None and _place(self._path) != self._place:
            raise StoreFault(
                f"{self._path} was moved, removed or replaced while it was in use; put it back, or restart"
            )

    def close(self) -> None:
        self._raw.close()


def _fault(error: Exception) -> StoreFault:
    if isinstance(error, _VALUE_ERRORS):
        return DataFault(str(error))
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Busy("busy: another process holds the database's lock")
    return StoreFault(str(error))


def _place(path: Path) -> tuple[int, int] | None:
    """Tells files apart; None where there is none of this name."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def check_file(path: str) -> None:
    """Conflict when SQLite is too old for us, or the file lies where its locks cannot be relied upon."""
    if sqlite3.sqlite_version_info < OLDEST:
        raise Conflict(f"SQLite {sqlite3.sqlite_version} is too old; 3.37 or newer is needed")
    kind = None if path == MEMORY else file_system(Path(path).resolve())
    if kind is not None and kind.startswith(_NETWORK):
        raise Conflict(f"{path} is on a network file system ({kind}), whose locks SQLite cannot rely upon")


def exists(path: str) -> bool:
    return path == MEMORY or Path(path).exists()


def log_size(path: str) -> int:
    """Bytes of a database's write-ahead log."""
    log = Path(f"{path}-wal")
    return log.stat().st_size if log.exists() else 0


def file_system(path: Path, mounts: Path = Path("/proc/mounts")) -> str | None:
    """The type of the file system that holds `path`; None where the system does not tell."""
    if not mounts.exists():
        return None
    types: dict[Path, str] = {}
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        _device, point, kind, *_ = line.split(" ")
        types[Path(point.replace("\\040", " "))] = kind
    return next((types[folder] for folder in (path, *path.parents) if folder in types), None)


def split(script: str) -> Iterator[str]:
    """The statements of a script, each of which ends with a semicolon; those in comments and literals end none."""
    statement = ""
    for part in script.split(";")[:-1]:
        statement += part + ";"
        if sqlite3.complete_statement(statement):
            yield statement.strip()
            statement = ""
