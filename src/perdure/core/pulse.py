"""The pulse of the database, and who may be declared dead after an outage.

While servers cannot reach the database no heartbeat is recorded, so on its return every lease looks expired although
the workers live. A gap in the pulse (or a clock that jumped) therefore holds all lease expiry back for a heartbeat
interval and a half: whoever lives has been heard by then. Liveness, never age, decides (field cases B008, B052).
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
