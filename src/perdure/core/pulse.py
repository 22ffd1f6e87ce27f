"""The pulse of the database, and who may be declared dead after an outage.

While servers cannot reach the database no heartbeat is recorded, so on its return every lease looks expired although
the workers live. A gap in the pulse (or a clock that jumped) therefore holds all lease expiry back for a heartbeat
interval and a half: whoever lives has been heard by then. Liveness, never age, decides (field cases B008, B052).

Connections break in an outage as well, and a worker cannot come back before the database does. So a process that only
fell silent is held just as long; one that said goodbye, or whose supervisor saw it die, is gone at once.
"""

from __future__ import annotations

from perdure.core.model import HEARTBEAT_SECONDS, SECOND, Pulse

GAP = 5 * SECOND  #: a pulse older than this means that nobody reached the database
HOLD = HEARTBEAT_SECONDS * SECOND * 3 // 2  #: an interval, and half of one for the beat to arrive
INTERVAL = 2 * SECOND  #: how often a server writes the pulse


def take(pulse: Pulse, now: int) -> Pulse:
    """The pulse after a server reached the database at `now`."""
    hold = pulse.hold_until
    if pulse.alive_at and abs(now - pulse.alive_at) > GAP:  # 0: a new database, where nobody can be dead
        hold = now + HOLD
    return Pulse(alive_at=now, hold_until=hold)


def silent(pulse: Pulse, now: int) -> int:
    """When the work of a process ends whose connection was found broken at `now`."""
    return max(now, take(pulse, now).hold_until)


def may_end(pulse: Pulse, ends_at: int, now: int) -> bool:
    """Whether work that was to end at `ends_at` may end: what was noted before an outage waits for the end of its hold,
    because its process could not come back meanwhile."""
    hold = take(pulse, now).hold_until
    return ends_at <= now and (now >= hold or ends_at >= hold - HOLD)
