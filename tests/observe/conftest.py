"""A real server over a real SQLite file, as the tests of the API have it."""

from tests.api.conftest import engine, rest, server, store  # noqa: F401
