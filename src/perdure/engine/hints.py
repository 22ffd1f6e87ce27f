"""What servers tell each other after a commit: lanes where something became ready, and tasks that closed.

Hints are never data: they may be lost, late or doubled, and every listener repeats its look by itself. They go out on a
connection of their own, at most one each 10 ms, and only while another server was heard of in the last five seconds;
each server says that it is there once a second. A transaction of an application that called one of the SQL functions of
migration 0002 says as it commits that an alarm is due, or which task closed; it has no name, for it is no server.

Processes that share a SQLite file have no such channel: each notices that the file changed (`Notice`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable

import msgspec

from perdure.store.base import Store, StoreFault

log = logging.getLogger("perdure.engine")

SPACING = 0.01  #: seconds between two hints
PRESENCE = 1.0  #: seconds between two signs that this server is there
HEARD = 5.0  #: seconds that a server counts as there after its last sign
LOOK = 0.05  #: seconds between looks at a file that other processes may have changed
MAX_IDS = 200  #: closed ids in one hint; beyond that the listeners look at all they watch


class Hint(msgspec.Struct, array_like=True):
    sender: bytes
    lanes: list[str] = []
    closed: list[bytes] = []
    everything: bool = False
    alarm: bool = False
    nudges: list[tuple[int, bytes]] = []


class Hints:
    """Sends and hears hints. `ready` and `closed` are called with what another server did, `due` when an alarm is."""

    name = "hints"

    def __init__(
        self,
        store: Store,
        ready: Callable[[Iterable[str]], None],
        closed: Callable[[Iterable[bytes] | None], None],
        due: Callable[[], None],
        nudged: Callable[[Iterable[tuple[int, bytes]]], None],
    ) -> None:
        self._store = store
        self._ready = ready
        self._closed = closed
        self._due = due
        self._nudged = nudged
        self._sender = os.urandom(8)
        self._others_until = -1.0
        self._lanes: set[str] = set()
        self._ids: set[bytes] = set()
        self._nudges: set[tuple[int, bytes]] = set()
        self._sending: asyncio.Task[None] | None = None
        self._listening = False

    async def run_once(self) -> float:
        """Say that this server is there, and listen."""
        if not self._listening:
            await self._store.listen(self._heard)
            self._listening = True
        await self._store.announce(msgspec.msgpack.encode(Hint(self._sender)))
        return PRESENCE

    @property
    def others(self) -> bool:
        """Whether another server was heard of lately."""
        return asyncio.get_running_loop().time() <= self._others_until

    def tell(self, lanes: Iterable[str], closed: Iterable[bytes], nudges: Iterable[tuple[int, bytes]] = ()) -> None:
        """Something was committed here."""
        if not self.others:
            return
        self._lanes.update(lanes)
        self._ids.update(closed)
        self._nudges.update(nudges)
        if (self._lanes or self._ids or self._nudges) and self._sending is None:
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        await asyncio.sleep(SPACING)
        self._sending = None
        lanes, ids, nudges = sorted(self._lanes), sorted(self._ids), sorted(self._nudges)[:MAX_IDS]
        self._lanes, self._ids, self._nudges = set(), set(), set()
        everything = len(ids) > MAX_IDS or len(lanes) > MAX_IDS
        hint = Hint(self._sender, nudges=nudges)
        if everything:
            hint.everything = True
        else:
            hint.lanes, hint.closed = lanes, ids
        data = msgspec.msgpack.encode(hint)
        if len(data) > 5_000:
            data = msgspec.msgpack.encode(Hint(self._sender, everything=True))
        try:
            await self._store.announce(data)
        except StoreFault as fault:
            log.info("a hint was lost: %s", fault)

    def _heard(self, data: bytes) -> None:
        hint = msgspec.msgpack.decode(data, type=Hint)
        if hint.sender == self._sender:
            return
        if hint.sender:
            self._others_until = asyncio.get_running_loop().time() + HEARD
        if hint.alarm:
            self._due()
        if hint.everything:
            self._closed(None)
        elif hint.closed:
            self._closed(hint.closed)
        if hint.everything or hint.lanes:
            self._ready(hint.lanes)
        self._nudged(hint.nudges)


class Notice:
    """Looks 20 times a second whether another process changed the SQLite file, and so knows whether there is one."""

    name = "notice"

    def __init__(self, store: Store, look: Callable[[], None]) -> None:
        self._store = store
        self._look = look
        self._others_until = -1.0

    @property
    def others(self) -> bool:
        """Whether another process wrote lately."""
        return asyncio.get_running_loop().time() <= self._others_until

    async def run_once(self) -> float:
        if await self._store.changed():
            self._others_until = asyncio.get_running_loop().time() + HEARD
            self._look()
        return LOOK
