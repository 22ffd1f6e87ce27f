"""What fuzzing has found, each by itself."""

from __future__ import annotations

import pytest

from tests.api.calls import Rest
from tests.api.conftest import engine, rest, server, store

__all__ = ["engine", "rest", "server", "store"]


async def test_no_parameter_is_null(rest: Rest) -> None:
    """The document said that a header may be null, and none can be sent so: the word was taken for the value."""
    document = (await rest("GET", "/openapi.json")).body
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    schemas = [parameter["schema"] for operation in operations for parameter in operation.get("parameters", ())]
    assert schemas
    assert not [schema for schema in schemas if "null" in str(schema)]


@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/workflows", "/v1/workflows/w/signal", "/v1/workflows/w/reset"])
async def test_an_empty_key_is_no_key(rest: Rest, path: str) -> None:
    """It was taken for none by workflows, so that a repeat would have begun another run."""
    body = {"type": "t"} if path == "/v1/tasks" else {"workflow_type": "t", "workflow_id": "w"}
    body = {"name": "s"} if path.endswith("signal") else {"event_id": 3} if path.endswith("reset") else body
    answer = await rest("POST", path, json=body, headers={"Idempotency-Key": ""})
    assert (answer.status, answer.body["field"]) == (400, "idempotency_key")


@pytest.mark.parametrize("since", ["60.0", "1800000000", "-1"])
async def test_a_number_is_no_moment(rest: Rest, since: str) -> None:
    """The framework took it for seconds since 1970; the document says date-time."""
    answer = await rest("GET", "/v1/tasks", params={"since": since})
    assert (answer.status, answer.body["field"]) == (400, "since")
