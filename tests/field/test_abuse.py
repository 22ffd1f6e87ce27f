"""Field cases on callers who mean no good, or are very slow (B162): others hear nothing of them."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from perdure.api.server import Server
from tests.api.calls import Rest
from tests.api.conftest import engine, rest, server, store  # noqa: F401  # fixtures

HEAD = "POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


async def test_b162_idle_connections_and_slow_bodies_hold_up_nobody(
    server: Server,  # noqa: F811
    rest: Rest,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A thousand connections that say nothing, and a hundred bodies that come byte by byte and end in the middle. That
    is no error in the log."""
    port = int(server.url.rpartition(":")[2])
    idle = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(1000)))
    slow = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(100)))
    for _, writer in slow:
        writer.write(HEAD.encode())
    for byte in b'{"type"':
        for _, writer in slow:
            writer.write(b"1\r\n%c\r\n" % byte)
        begin = time.monotonic()
        assert (await rest("POST", "/v1/tasks", {"type": "t"})).status == 202
        assert (await rest("GET", "/v1/tasks")).status == 200
        assert time.monotonic() - begin < 1
    for _, writer in (*idle, *slow):
        writer.transport.abort()
    assert (await rest("GET", "/healthz")).status == 200
    assert len((await rest("GET", "/v1/tasks")).body["tasks"]) == 7
    await server.stop()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
