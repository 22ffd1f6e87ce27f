"""Whether a server is there, asked before the first call: a client waits out an outage of 30 s, and who sits before a
terminal wants to know earlier."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import SplitResult, urlsplit

from perdure.core.errors import InvalidArgument, Unavailable

PATIENCE_SECONDS = 3.0
"""How long a server may not accept connections, as when it is just starting."""
_PAUSE_SECONDS = 0.1
_MOST_BYTES = 65_536


async def reach(url: str) -> None:
    """Unavailable when no Perdure server answers at the URL within PATIENCE_SECONDS, or when it has been without its
    database for long; InvalidArgument when that is no URL."""
    try:
        parts = urlsplit(url)
        there = parts.hostname is not None and (parts.port is None or parts.port > 0)
    except ValueError:
        there = False
    if not there:
        raise InvalidArgument(f"{url!r} is no URL of a server; write http://127.0.0.1:7400", field="server")
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            async with asyncio.timeout(max(0.0, end - time.monotonic())):
                answer = await _health(parts)
            break
        except OSError as fault:  # a time-out is one
            if time.monotonic() + _PAUSE_SECONDS >= end:
                why = fault.strerror or "no answer"
                raise Unavailable(f"is `perdure server` running at {url}? {why}", field="server") from fault
        await asyncio.sleep(_PAUSE_SECONDS)
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.partition(b"\r\n")[0].split(b" ")[1:2]
    if status == [b"503"] and b"problem+json" in head:
        raise Unavailable(f"{url} answers, but its database does not", field="database", retry_after=5.0)
    if status != [b"200"] or b'"status":"ok"' not in body:
        raise Unavailable(f"what answers at {url} is no Perdure server", field="server")


async def _health(parts: SplitResult) -> bytes:
    """The whole answer to a health check."""
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=secure or None)
    try:
        host = parts.netloc.rpartition("@")[2]
        path = parts.path.rstrip("/")
        writer.write(f"GET {path}/healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while len(answer) < _MOST_BYTES and (part := await reader.read(_MOST_BYTES)):
            answer += part
        return answer
    finally:
        writer.close()
