"""Both databases behind a URL, and the fixtures of the engine's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.database import migrate
from tests.engine.conftest import drive  # noqa: F401  # a fixture
from tests.sdk.conftest import own_tasks  # noqa: F401  # a fixture
from tests.store.conftest import clock, store  # noqa: F401  # fixtures


@pytest.fixture(params=["sqlite", "postgres"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh database, brought up to date."""
    found = f"sqlite:///{tmp_path / 'jobs.db'}"
    if request.param == "postgres":
        found = request.getfixturevalue("postgres_database")
    await migrate(found)
    return found
