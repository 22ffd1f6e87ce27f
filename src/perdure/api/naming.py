"""Requests have ids: in the header X-Request-Id of the answer, and in the log records that are made meanwhile."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from perdure.api.wire import Receive, Scope, Send
from perdure.observe.logs import HEADER, REQUEST_ID, answered, request_id


async def named(
    app: Callable[[Scope, Receive, Send], Awaitable[None]], scope: Scope, receive: Receive, send: Send
) -> None:
    """Let `app` answer a request over HTTP, of which it is the only one in this asyncio task."""
    name = request_id(scope["headers"])
    REQUEST_ID.set(name)
    begun = time.monotonic()

    async def told(message: Any) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            location = next((value.decode("latin-1") for key, value in headers if key == b"location"), "")
            answered(scope["method"], scope["path"], message["status"], time.monotonic() - begun, location)
            message = {**message, "headers": [*headers, (HEADER, name.encode("ascii"))]}
        await send(message)

    await app(scope, receive, told)
