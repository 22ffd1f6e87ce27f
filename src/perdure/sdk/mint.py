"""Ids of tasks, minted where they are enqueued: a request that is repeated names the same tasks again (IDEM-05).

An id is a UUIDv7 (RFC 9562): milliseconds, a counter of 12 bits, 62 random bits. Those of one process rise strictly, so
they sort in order of the calls (field case B054). The random bits come from the operating system in blocks: a call to
it for each id costs more than the rest of the id. A forked process forgets the block that it inherited.
"""

from __future__ import annotations

import os
import time
from struct import pack, unpack
from threading import Lock

_BLOCK = 500
_RANDOM: list[int] = []  #: random halves of ids that nobody has yet
_VERSION, _VARIANT, _BITS = 0x7000, 0x8000_0000_0000_0000, 0x3FFF_FFFF_FFFF_FFFF
os.register_at_fork(after_in_child=_RANDOM.clear)


class _Sequence:
    """Numbers of 48 bits of milliseconds and 12 of a counter, which runs over into the next millisecond."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._last = 0

    def take(self, count: int) -> int:
        """The first of `count` numbers that are now the caller's."""
        with self._lock:
            first = max(self._last + 1, time.time_ns() // 1_000_000 << 12)
            self._last = first + count - 1
            return first


_sequence = _Sequence()


def mint_id() -> bytes:
    """A new id, 16 bytes."""
    while True:
        try:
            return _id(_sequence.take(1), _RANDOM.pop())
        except IndexError:
            _RANDOM.extend(_random(_BLOCK))


def mint_ids(count: int) -> list[bytes]:
    """New ids, for a request of its own."""
    return [_id(number, bits) for number, bits in enumerate(_random(count), _sequence.take(count))]


def _id(number: int, bits: int) -> bytes:
    return pack(">QQ", (number >> 12) << 16 | _VERSION | number & 0xFFF, _VARIANT | bits & _BITS)


def _random(count: int) -> tuple[int, ...]:
    return unpack(f">{count}Q", os.urandom(8 * count))
