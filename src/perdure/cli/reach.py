"""Whether a server is there, asked before the first call: a client waits out an outage of 30 s, and who sits before a
terminal wants to know earlier."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlsplit

from perdure.core.errors import InvalidArgument, Unavailable

PATIENCE_SECONDS = 3.0
"""How long a server may not accept connections, as when it is just starting."""
_PAUSE_SECONDS = 0.1


async def reach(url: str) -> None:
    """Unavailable when nothing accepts connections at the server's address within PATIENCE_SECONDS."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        host = None
    if host is None:
        raise InvalidArgument(f"{url!r} is no URL of a server; write http://127.0.0.1:7400", field="server")
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            async with asyncio.timeout(max(0.0, end - time.monotonic())):
                _, writer = await asyncio.open_connection(host, port)
            writer.close()
            return
        except OSError as fault:  # a time-out is one
            if time.monotonic() + _PAUSE_SECONDS >= end:
                why = fault.strerror or "no answer"
                raise Unavailable(f"is `perdure server` running at {url}? {why}") from fault
        await asyncio.sleep(_PAUSE_SECONDS)
