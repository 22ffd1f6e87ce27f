"""Which worker connections of this server broke, and whose leases end early because of it.

A worker process keeps one connection. If it breaks without goodbye, the process has most likely died, and waiting for
its leases to run out would cost half a minute: they end after GRACE seconds, unless the process connects again. But if
many connections break at once, it is the network or a proxy that broke and the workers live: then nobody's lease ends
early. No I/O, no clock: `now` is an argument, in seconds.
"""

from __future__ import annotations

GRACE = 1.0
"""Seconds that a worker has to connect again."""
WINDOW = 1.0
"""Seconds in which breaks count as one event."""
FEW = 3
"""So many breaks in a window are believed whatever the number of sessions."""

Connection = tuple[int, int]
"""(incarnation, epoch)."""


class Sessions:
    """The sessions whose connections end at this server."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}  # incarnation -> epoch
        self._broken: dict[Connection, float] = {}  # waiting for their grace to end, oldest first
        self._breaks: list[float] = []  # of the last two windows, for the share

    def opened(self, incarnation: int, epoch: int) -> None:
        """A connection of this worker process is up; what broke before is resumed."""
        self._open[incarnation] = max(epoch, self._open.get(incarnation, epoch))
        for broken in [b for b in self._broken if b[0] == incarnation and b[1] <= epoch]:
            del self._broken[broken]

    def closed(self, incarnation: int) -> None:
        """Goodbye: there is nothing left to end."""
        self._open.pop(incarnation, None)
        for broken in [b for b in self._broken if b[0] == incarnation]:
            del self._broken[broken]

    def broke(self, incarnation: int, epoch: int, now: float) -> bool:
        """A connection ended without goodbye. True when `due` has to be asked after the grace; False when a newer
        connection is here or it said goodbye."""
        if self._open.get(incarnation) != epoch:
            return False
        del self._open[incarnation]
        self._breaks = [at for at in self._breaks if at > now - GRACE - WINDOW]
        self._breaks.append(now)
        self._broken[incarnation, epoch] = now
        return True

    def due(self, now: float) -> list[Connection]:
        """The connections whose grace is over and whose leases are to be ended now, each once. Those of a mass break
        are left to their leases."""
        over = [(connection, at) for connection, at in self._broken.items() if at <= now - GRACE]
        for connection, _ in over:
            del self._broken[connection]
        return [connection for connection, at in over if not self._is_mass(at)]

    def _is_mass(self, at: float) -> bool:
        """Whether over half of the sessions, and more than a few, broke in a window around `at`."""
        around = [other for other in self._breaks if abs(other - at) <= WINDOW]
        before = len(self._open) + len(around)
        return len(around) > FEW and 2 * len(around) > before
