"""Connections to PostgreSQL: how they are set up, how their failures are told apart, and a bounded set of them.

Every connection is made when it is needed. One that failed in any way but a refused value is dropped: a new one finds
the server that was promoted meanwhile, and costs little beside a failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from perdure.core.errors import Conflict
from perdure.store.base import DataFault, KeysHeld, Refusal, StoreFault, Switch
from perdure.store.statements import statements

OLDEST_SERVER = 16
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
"""Longest wait for an answer: a network that swallows packets must not hold a batch for ever."""

BASE_SETTINGS = {
    "search_path": "perdure",
    "application_name": "perdure",
    # What follows may have been set for the role or the database. Rows are read after their locks were granted, as of
    # then; a time-out of seconds ends migrations, and one of idleness those who listen.
    "default_transaction_isolation": "read committed",
    "statement_timeout": "0",
    "idle_session_timeout": "0",
}

READ_SETTINGS = BASE_SETTINGS | {
    # Reads go along indexes, a bounded number of rows at a time, also where a table has grown since it was analyzed.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}

BATCH_SETTINGS = READ_SETTINGS | {
    # Statements of batches name few rows and have their index. A plan is made once a connection, perhaps while a table
    # is empty and reading all of it looks cheap; so made, a burst one second later still goes by the index.
    "plan_cache_mode": "force_generic_plan",
    "lock_timeout": "10s",
    # A process that was stopped inside a batch must not keep its rows from the others.
    "idle_in_transaction_session_timeout": "30s",
}


class Backend(NamedTuple):
    """A server process; times in microseconds."""

    pid: int
    started_at: int
    server_started_at: int


def refused(fault: StoreFault) -> bool:
    """True when the server itself answered with an error: the statement had no effect."""
    return getattr(fault.__cause__, "severity_en", None) == "ERROR"


_POOLED = "a connection pooler such as PgBouncer is between"
_DIRECT = "give the URL of PostgreSQL itself (a server has at most 8 connections)"


def survives(error: Exception) -> bool:
    """True for an error after which the connection is as good as before."""
    return isinstance(error, (DataFault, KeysHeld)) or not isinstance(error, StoreFault)


@contextmanager
def faults(doing: str) -> Iterator[None]:
    """Failures of the driver and the server as StoreFault or DataFault, with the cause attached."""
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError) as error:
        sqlstate = getattr(error, "sqlstate", None) or ""
        raise _kind(sqlstate)(f"{doing}: {type(error).__name__}: {error}") from error
    except (OverflowError, UnicodeEncodeError) as error:
        raise DataFault(f"{doing}: {error}") from error


@contextmanager
def _not_pooled() -> Iterator[None]:
    """Conflict for the refusal of settings, which PostgreSQL itself takes: batches need theirs, and those who listen
    keep their connection."""
    try:
        yield
    except asyncpg.ProtocolViolationError as error:
        if "startup parameter" not in str(error):
            raise
        raise Conflict(f"{_POOLED}: {error}; {_DIRECT}", field="store") from error


def _kind(sqlstate: str) -> type[StoreFault]:
    """Data errors; passing states of the server (connections, transactions that lost, resources, an operator at work,
    the system); the rest is a refusal of what was asked."""
    if sqlstate[:2] in ("22", "23"):
        return DataFault
    passing = not sqlstate or sqlstate[:2] in ("08", "25", "40", "53", "55", "57", "58", "XX")
    return StoreFault if passing else Refusal


class Session:
    """One connection, used by one task at a time; `switch` is awaited before every statement."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self.connection = connection
        self.backend = Backend(0, 0, 0)
        self.switch: Switch | None = None
        self._sql = statements("postgres")

    async def fetch(self, name: str, *args: Any) -> list[asyncpg.Record]:
        """The rows that a named statement answers."""
        return await self.fetch_sql(name, self._sql[name], *args)

    async def fetch_sql(self, doing: str, sql: str, *args: Any) -> list[asyncpg.Record]:
        if self.switch is not None:
            await self.switch()
        with faults(doing):
            return await self.connection.fetch(sql, *args)

    async def write(self, name: str, *args: Any) -> int:
        """How many rows a named statement wrote."""
        if self.switch is not None:
            await self.switch()
        with faults(name):
            status = await self.connection.execute(self._sql[name], *args)
        return int(status.rpartition(" ")[2])

    async def copy(self, table: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
        """Insert rows into a table by COPY."""
        if self.switch is not None:
            await self.switch()
        with faults(f"copy {table}"):
            await self.connection.copy_records_to_table(table, columns=columns, records=rows)

    async def run(self, command: str) -> str:
        """The tag that answers begin, commit or rollback."""
        if self.switch is not None:
            await self.switch()
        with faults(command):
            return await self.connection.execute(command)

    async def script(self, doing: str, sql: str) -> None:
        """Send several statements at once."""
        with faults(doing):
            await self.connection.execute(sql)


async def connect(
    url: str,
    settings: dict[str, str],
    *,
    seconds: float | None,
    switch: Switch | None = None,
    warm_up: Mapping[str, tuple[Any, ...]] = MappingProxyType({}),
) -> Session:
    """A connection to a server that takes writes, whose answers may each take `seconds` (None: any time). It has run
    the statements of `warm_up`, each with its arguments."""
    with faults("connect"), _not_pooled():
        connection = await asyncpg.connect(
            url,
            timeout=CONNECT_SECONDS,
            command_timeout=seconds,
            max_cached_statement_lifetime=0,
            server_settings=settings,
            target_session_attrs=SessionAttribute.read_write,
        )
    try:
        version = connection.get_server_version().major
        if version < OLDEST_SERVER:
            raise Conflict(f"PostgreSQL {OLDEST_SERVER} or newer is needed; this server is version {version}")
        with faults("connect"):
            # Ids are 16 bytes to us; the driver's own codec would make an object of each.
            await connection.set_type_codec("uuid", schema="pg_catalog", encoder=bytes, decoder=bytes, format="binary")
        session = Session(connection)
        if dropped := await session.fetch("settings_not_made", list(settings), list(settings.values())):
            raise Conflict(f"{_POOLED}: {dropped[0][0]} is not set on this connection; {_DIRECT}", field="store")
        session.backend = Backend(*(await session.fetch("backend"))[0])
        for name, args in warm_up.items():
            await session.fetch(name, *args)
        session.switch = switch
    except BaseException:
        connection.terminate()
        raise
    return session


class Sessions:
    """At most `size` connections; whoever comes when all are in use waits."""

    def __init__(self, size: int, connect: Callable[[], Awaitable[Session]]) -> None:
        self._connect = connect
        self._places = asyncio.Semaphore(size)
        self._idle: list[Session] = []
        self._closed = False

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Session]:
        """A connection to use alone. StoreFault when none can be made; one that failed does not come back."""
        async with self._places:
            session = await self._take()
            keep = False
            try:
                yield session
                keep = True
            except Exception as error:
                keep = survives(error)
                raise
            finally:
                if keep and not self._closed and not session.connection.is_closed():
                    self._idle.append(session)
                else:
                    session.connection.terminate()

    async def _take(self) -> Session:
        while self._idle:
            session = self._idle.pop()
            if not session.connection.is_closed():
                return session
        return await self._connect()

    async def close(self) -> None:
        """Those in use are closed by whoever has them."""
        self._closed = True
        while self._idle:
            await close(self._idle.pop())


async def close(session: Session) -> None:
    """Say goodbye; cut the connection when the server does not answer."""
    try:
        with faults("close"):
            await session.connection.close(timeout=CONNECT_SECONDS)
    except StoreFault:
        session.connection.terminate()
