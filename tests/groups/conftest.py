"""The fixtures of the engine's tests, and both databases behind a URL."""

from __future__ import annotations

from tests.engine.conftest import drive  # noqa: F401  # a fixture
from tests.field.conftest import app, url  # noqa: F401  # fixtures
from tests.store.conftest import clock, store  # noqa: F401  # fixtures
