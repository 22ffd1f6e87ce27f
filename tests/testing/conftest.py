"""Tasks that a test makes are forgotten after it."""

from __future__ import annotations

from tests.sdk.conftest import own_tasks  # noqa: F401  # a fixture
