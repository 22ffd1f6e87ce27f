"""A real server on the loopback interface, and every way to call it."""

from __future__ import annotations

from tests.api.conftest import engine, rest, server, service, store  # noqa: F401  # the fixtures of the API tests
