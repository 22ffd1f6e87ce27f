"""An engine over each store, on a clock that only the test moves."""

from __future__ import annotations

from tests.engine.conftest import drive  # noqa: F401  # the fixtures of the engine and store tests
from tests.store.conftest import clock, store  # noqa: F401
