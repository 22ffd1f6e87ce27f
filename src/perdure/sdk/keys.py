"""Idempotency keys for enqueues whose caller gives none.

A key is the time in milliseconds and 80 random bits. The time comes first so that keys of one hour lie together in the
database's index. The bits come from the operating system in blocks: a call to it for each key costs more than the rest
of the key. Threads take from the same block, which needs no lock because `list.pop` is one step; a forked process
forgets the block that it inherited.
"""

from __future__ import annotations

import os
import time

_BLOCK = 500
_HALVES: list[str] = []  #: random halves of keys that nobody has yet
os.register_at_fork(after_in_child=_HALVES.clear)


def mint_key() -> str:
    """A new key."""
    while True:
        try:
            return _now() + _HALVES.pop()
        except IndexError:
            _HALVES.extend(_halves(_BLOCK))


def mint_keys(count: int) -> list[str]:
    """New keys, for a request of its own."""
    now = _now()
    return [now + half for half in _halves(count)]


def _now() -> str:
    return f"{time.time_ns() // 1_000_000:012x}"


def _halves(count: int) -> list[str]:
    bits = os.urandom(10 * count).hex()
    return [bits[at : at + 20] for at in range(0, 20 * count, 20)]
