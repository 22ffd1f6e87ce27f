"""Both databases behind a URL, an application on it, and the fixtures of the engine's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure import AsyncPerdure
from perdure.database import migrate
from tests.engine.conftest import drive  # noqa: F401  # a fixture
from tests.store.conftest import clock, store  # noqa: F401  # fixtures


@pytest.fixture(params=["sqlite", "postgres"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh database, brought up to date."""
    if request.param == "postgres":
        migrated: str = request.getfixturevalue("migrated_database")
        return migrated
    found = f"sqlite:///{tmp_path / 'jobs.db'}"
    await migrate(found)
    return found


@pytest.fixture
async def app(url: str) -> AsyncIterator[AsyncPerdure]:
    """With the server in this process; it has no worker yet."""
    async with AsyncPerdure(url) as app:
        yield app
