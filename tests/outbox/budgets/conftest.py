"""The counting stores of the engine's budgets."""

from __future__ import annotations

from tests.engine.test_budgets import counter, drive  # noqa: F401  # fixtures
from tests.store.conftest import clock  # noqa: F401
