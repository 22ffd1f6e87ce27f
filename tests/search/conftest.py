"""The fixtures of the store tests: each test on every store, on a clock that only the test moves."""

from __future__ import annotations

from tests.engine.conftest import drive  # noqa: F401  # fixtures
from tests.store.conftest import clock, every_store, store  # noqa: F401  # fixtures
