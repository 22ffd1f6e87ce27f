"""Pages of a history: consecutive events that were appended together, packed for the database and the wire.

From 1 KiB on they are compressed. MessagePack of a list never begins with the byte that begins a frame of zstd, so the
data themselves say which they are.
"""

from __future__ import annotations

import zstandard

from perdure.core.events import Event, pack_events, unpack_events
from perdure.core.group_events import CallResult
from perdure.core.model import unpack as unpack_as
from perdure.core.run import Page

COMPRESS_BYTES = 1024
"""Size from which on a page is compressed."""

_FRAME = zstandard.FRAME_HEADER
_LEVEL = 3
_results = list[CallResult]


def pack(run_id: bytes, events: list[Event]) -> Page:
    """The page of a run that holds these events, of which there is at least one."""
    return Page(run_id, events[0].id, len(events), compressed(pack_events(events)))


def unpack(data: bytes) -> list[Event]:
    """The events of a page's data."""
    return unpack_events(plain(data))


def unpack_results(data: bytes) -> list[CallResult]:
    """The results of calls in the data of a page of a group."""
    found: list[CallResult] = unpack_as(plain(data), _results)
    return found


def compressed(data: bytes) -> bytes:
    """MessagePack of a list, as pages keep it."""
    return zstandard.compress(data, _LEVEL) if len(data) >= COMPRESS_BYTES else data


def plain(data: bytes) -> bytes:
    """What `compressed` was given."""
    return zstandard.decompress(data) if data.startswith(_FRAME) else data
