"""Tasks that a test makes are forgotten after it."""

from tests.sdk.conftest import own_tasks  # noqa: F401  # a fixture
