"""A database with Perdure's schema and a table of the application's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from perdure import Perdure
from tests.transactions.drivers import DRIVERS, Driver


@pytest.fixture
def url(migrated_database: str) -> str:
    """The URL of a database that is ready."""
    with psycopg.connect(migrated_database) as connection:
        connection.execute("create table orders (id integer primary key)")
    return migrated_database


@pytest.fixture
def query(url: str) -> Iterator[Callable[..., list[tuple[Any, ...]]]]:
    """Runs SQL beside the transactions of the test and answers the rows."""
    with psycopg.connect(url, autocommit=True) as connection:

        def run(sql: str, *values: Any) -> list[tuple[Any, ...]]:
            cursor = connection.execute(sql, values or None)
            return cursor.fetchall() if cursor.description else []

        yield run


@pytest.fixture
def app(url: str) -> Iterator[Perdure]:
    with Perdure(url) as made:
        yield made


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest, url: str) -> Iterator[Driver]:
    made = DRIVERS[request.param](url)
    try:
        yield made
    finally:
        made.close()
