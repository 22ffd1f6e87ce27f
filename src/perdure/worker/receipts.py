"""Which tasks a worker process had begun when it died.

The server hears of a delivery's receipt a moment later, and only if it still runs then. A handler that ends its process
at once would never be heard of, and its task be delivered again as one that nobody has begun. So a process notes what
it begins in a file that it shares with its supervisor, in memory: that reads it when the process has died. A note costs
less than a microsecond.
"""

from __future__ import annotations

import mmap
import struct
import tempfile
import time
from typing import BinaryIO

RECENT_SECONDS = 5.0
"""Before its death: what was begun earlier has been acknowledged, if it could be."""
_NOTE = struct.Struct("<d28s")
_NOTES = 500  #: the latest


class Receipts:
    """The notes in an open file."""

    def __init__(self, descriptor: int) -> None:
        self._notes = mmap.mmap(descriptor, _NOTES * _NOTE.size)
        self._next = 0

    @staticmethod
    def file() -> BinaryIO:
        """A new one, without a name."""
        file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        file.truncate(_NOTES * _NOTE.size)
        return file

    def note(self, lease: bytes) -> None:
        """Its handler is about to begin."""
        _NOTE.pack_into(self._notes, self._next * _NOTE.size, time.monotonic(), lease)
        self._next = (self._next + 1) % _NOTES

    def recent(self) -> list[bytes]:
        """The leases that were begun in the last seconds."""
        since = time.monotonic() - RECENT_SECONDS
        return [lease for at, lease in _NOTE.iter_unpack(self._notes) if at >= since]

    def close(self) -> None:
        self._notes.close()
