"""Pages of a history: consecutive events that were appended together, packed for the database and the wire.

From 1 KiB on they are compressed. MessagePack of a list never begins with the byte that begins a frame of zstd, so the
data themselves say which they are.
"""

from __future__ import annotations

import zstandard

from perdure.core.events import Event, pack_events, unpack_events
from perdure.core.run import Page

COMPRESS_BYTES = 1024
"""Size from which on a page is compressed."""

_FRAME = zstandard.FRAME_HEADER
_LEVEL = 3


def pack(run_id: bytes, events: list[Event]) -> Page:
    """The page of a run that holds these events, of which there is at least one."""
    data = pack_events(events)
    if len(data) >= COMPRESS_BYTES:
        data = zstandard.compress(data, _LEVEL)
    return Page(run_id, events[0].id, len(events), data)


def unpack(data: bytes) -> list[Event]:
    """The events of a page's data."""
    if data.startswith(_FRAME):
        data = zstandard.decompress(data)
    return unpack_events(data)
