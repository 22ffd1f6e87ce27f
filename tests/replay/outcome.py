"""How a run of the server in server.py ended, and what its history looks like."""

from __future__ import annotations

from typing import Any

from perdure.core import turn_commands as c
from perdure.core.model import Failure
from perdure.sdk.converter import from_payloads
from perdure.sdk.workflow_context import WorkflowContext
from tests.replay.server import Server

Ctx = WorkflowContext


def result(server: Server) -> Any:
    assert isinstance(server.closed, c.CompleteWorkflow), server.closed
    server.cold()
    return from_payloads(server.closed.result, "result")


def failure(server: Server) -> Failure:
    assert isinstance(server.closed, c.FailWorkflow), server.closed
    server.cold()
    return server.closed.failure


def kinds(server: Server, after: int = 0) -> list[str]:
    return [type(event.attributes).__name__ for event in server.history.events[after:]]


async def charge(card: str) -> str: ...  # type: ignore[empty-body]
