"""Deployments on both databases, and the figures of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.deployment import Deployment
from tests.faults.postgres import TcpPostgres, faketime_library, tcp_postgres

Figures = Callable[..., None]


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Callable[[str], Deployment]]:
    """A deployment on a store, brought up to date, with a server."""
    made: list[Deployment] = []

    def start(store: str) -> Deployment:
        deployed = Deployment(store, tmp_path)
        made.append(deployed)
        if not store.startswith("sqlite"):  # such a file is brought up to date by whoever opens it
            deployed.migrate()
        deployed.start_server()
        return deployed

    try:
        yield start
    finally:
        for deployed in made:
            deployed.stop()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'tasks.db'}"
    found: str = request.getfixturevalue("postgres_database")
    return found


@pytest.fixture
def deployment(deploy: Callable[[str], Deployment], store: str) -> Deployment:
    return deploy(store)


@pytest.fixture
def postgres() -> Iterator[TcpPostgres]:
    """A PostgreSQL on TCP that belongs to the test."""
    with tcp_postgres() as server:
        yield server


@pytest.fixture
def stepped_postgres() -> Iterator[TcpPostgres]:
    """The same, with a clock that the test may set."""
    with tcp_postgres(faketime_library()) as server:
        yield server


@pytest.fixture
def figures(record_property: Callable[[str, object], None]) -> Figures:
    """Numbers that are shown at the end of `make faults`."""

    def note(**numbers: object) -> None:
        for name, number in numbers.items():
            record_property(name, number)

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.stats.get("passed", []):
        if report.user_properties:
            numbers = ", ".join(f"{name} {number}" for name, number in report.user_properties)
            terminalreporter.write_line(f"{report.nodeid.rpartition('/')[2]}: {numbers}")
