"""The stores, engines and clocks of other folders' tests."""

from __future__ import annotations

from tests.engine.conftest import drive  # noqa: F401  # a fixture
from tests.store.conftest import clock, every_store, store  # noqa: F401  # fixtures
