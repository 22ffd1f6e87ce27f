"""Engines over each store, on a clock that only the test moves."""

from __future__ import annotations

from tests.engine.conftest import drive  # noqa: F401
from tests.store.conftest import clock, shared, store  # noqa: F401  # the fixtures of the store tests
