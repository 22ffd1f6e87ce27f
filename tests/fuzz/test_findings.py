"""What fuzzing has found, each by itself."""

from __future__ import annotations

import pytest

from tests.api.calls import Rest
from tests.api.conftest import engine, rest, server, store

__all__ = ["engine", "rest", "server", "store"]


@pytest.mark.parametrize("since", ["60.0", "1800000000", "-1"])
async def test_a_number_is_no_moment(rest: Rest, since: str) -> None:
    """The framework took it for seconds since 1970; the document says date-time."""
    answer = await rest("GET", "/v1/tasks", params={"since": since})
    assert (answer.status, answer.body["field"]) == (400, "since")
