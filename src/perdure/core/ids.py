"""Task ids, slots, and the source of everything random.

An id is a UUIDv7 (RFC 9562): 48 bits of milliseconds, 12 bits of a counter, then 14 bits of slot and 48 random bits.
Ids of one process rise strictly, so they sort in order of arrival (field case B054). The slot makes an id route to
where its row lives without a look-up; it is the low 14 bits of BLAKE2b-64 over length-prefixed UTF-8 parts (SHARD-12,
X-14).
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Callable
from contextlib import suppress

from perdure.core.errors import InvalidArgument
from perdure.core.model import Lease

_SYSTEM = random.SystemRandom()
SLOTS = 1 << 14
_NO_JOB = 1 << 31  #: in the number of a lease token


def slot_of(*parts: str) -> int:
    """The slot of a tuple of names; stable for ever over processes and versions."""
    return _slot(_begin(parts))


def slots_under(*parts: str) -> Callable[[str], int]:
    """The slot of `parts` and one more name, as a function of that name: what its tuples share is hashed once."""
    begun = _begin(parts)

    def slot_of_last(last: str) -> int:
        digest = begun.copy()
        digest.update(_prefixed(last))
        return _slot(digest)

    return slot_of_last


def _begin(parts: tuple[str, ...]) -> hashlib.blake2b:
    return hashlib.blake2b(b"".join(map(_prefixed, parts)), digest_size=8)


def _slot(digest: hashlib.blake2b) -> int:
    return int.from_bytes(digest.digest(), "big") & (SLOTS - 1)


def _prefixed(part: str) -> bytes:
    data = part.encode()
    return len(data).to_bytes(4, "big") + data


def slot(task_id: bytes) -> int:
    """The slot that an id carries."""
    return (int.from_bytes(task_id[8:10], "big")) & (SLOTS - 1)


def made_at(task_id: bytes) -> int:
    """When an id was made, in microseconds; a number without meaning if it was not made by a Mint."""
    return int.from_bytes(task_id[:6], "big") * 1000


def text(task_id: bytes) -> str:
    """The id as UUID text."""
    h = task_id.hex()
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"


def parse(value: str, field: str = "task_id") -> bytes:
    """The 16 bytes of UUID text; InvalidArgument when it is none."""
    if len(value) == 36 and value[8] == value[13] == value[18] == value[23] == "-":
        with suppress(ValueError):
            found = bytes.fromhex(value.replace("-", ""))
            if len(found) == 16:  # white space is passed over
                return found
    raise InvalidArgument(f"{field} is not a task id: {value[:50]!r}", field=field, limit="a UUID", kind="str")


def lease_token(lease: Lease) -> bytes:
    """The lease as workers carry it: 28 bytes."""
    number = lease.number if lease.job else lease.number | _NO_JOB
    return lease.task_id + number.to_bytes(4, "big") + lease.bits.to_bytes(8, "big", signed=True)


def parse_lease(token: bytes) -> Lease:
    """The lease of a token; InvalidArgument when the token was not made here."""
    if len(token) != 28:
        raise InvalidArgument("lease is not a lease token", field="lease", limit="28 bytes", kind="bytes")
    number = int.from_bytes(token[16:20], "big")
    bits = int.from_bytes(token[20:], "big", signed=True)
    return Lease(token[:16], number & ~_NO_JOB, bits, not number & _NO_JOB)


class Mint:
    """Makes ids, lease bits and jitter. With a seeded `source` all are drawn from it; else lease bits, which nobody may
    guess, come from the operating system in blocks, because a call to it for each costs more than all else here."""

    def __init__(self, source: random.Random | None = None) -> None:
        self._random = source or random.Random()
        self._seeded = source is not None
        self._secrets: list[int] = []
        self._ms = 0
        self._counter = 0

    def task_id(self, now: int, slot: int | None = None) -> bytes:
        """A new id; `slot` None takes a random one."""
        ms = now // 1000
        if ms > self._ms:
            self._ms, self._counter = ms, 0
        else:
            self._counter += 1
            if self._counter > 0xFFF:
                self._ms, self._counter = self._ms + 1, 0
        tail = self._random.getrandbits(62)
        if slot is not None:
            tail = (slot << 48) | (tail & 0xFFFF_FFFF_FFFF)
        value = (self._ms << 80) | (0x7000 | self._counter) << 64 | (0x8000 << 48) | tail
        return value.to_bytes(16, "big")

    def lease_bits(self) -> int:
        """64 random bits, as a signed number."""
        if self._seeded:
            return self._random.getrandbits(64) - (1 << 63)
        if not self._secrets:
            self._secrets = list(struct.unpack("512q", _SYSTEM.randbytes(4096)))
        return self._secrets.pop()

    def fraction(self) -> float:
        """A number between 0 and 1, for jitter."""
        return self._random.random()
