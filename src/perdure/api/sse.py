"""Server-sent events: pages of something that grows, as one answer that goes on.

Nothing is kept for a reader but its cursor. A page is read when the one before it has been sent, so a reader that is
slow, or gone to sleep, is behind and holds up nobody.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Generic, TypeVar

import msgspec
from litestar.response import Stream

from perdure.api.request import AnyRequest
from perdure.core.errors import PerdureError, Unavailable

MEDIA_TYPE = "text/event-stream"
BEAT_SECONDS = 15.0
"""Longest silence: proxies take a longer one for an end."""
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}

T = TypeVar("T")


def is_wanted(request: AnyRequest) -> bool:
    """Whether the reader asks for server-sent events, and not for one page."""
    return MEDIA_TYPE in request.headers.get("accept", "")


def last_event_id(request: AnyRequest) -> str:
    """Where a reader was when its connection broke; browsers say so by themselves."""
    return str(request.headers.get("last-event-id", ""))


def frame(id: str, event: str, data: object) -> bytes:
    """One event. JSON has no line breaks, so its data is one line."""
    return f"id: {id}\nevent: {event}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"


def beat(id: str) -> bytes:
    """A sign of life, which also tells how far the reader is."""
    return f": {id}\nid: {id}\n\n".encode()


class Pages(Generic[T]):
    """How something is read page by page: `read(cursor, seconds)` gives the next page, held back until there is
    something in it, `frames` what of it is sent, with the cursor behind it, and whether it was the last."""

    def __init__(
        self,
        read: Callable[[str, float], Awaitable[T]],
        frames: Callable[[T], tuple[list[bytes], str, bool]],
    ) -> None:
        self._read = read
        self._frames = frames

    async def answer(self, cursor: str) -> Stream:
        """The answer. What refuses the first page is an ordinary error; later ones come as an event "problem", and end
        it."""
        first = await self._read(cursor, 0.0)
        return Stream(self._send(first), media_type=MEDIA_TYPE, headers=_HEADERS)

    async def _send(self, page: T) -> AsyncIterator[bytes]:
        while True:
            frames, cursor, over = self._frames(page)
            yield b"".join(frames) if frames else beat(cursor)
            if over:
                return
            try:
                page = await self._read(cursor, BEAT_SECONDS)
            except Unavailable:
                return  # the server stops, or its database is away: the reader comes back with its cursor
            except PerdureError as error:
                problem: Any = error.problem()
                yield b"event: problem\ndata: " + msgspec.json.encode(problem) + b"\n\n"
                return
