"""The pulse of the database, as a batch takes it. The rule is in core/pulse.py."""

from __future__ import annotations

from perdure.core import pulse
from perdure.core.model import Pulse
from perdure.store.base import Batch as Rows


async def take(rows: Rows) -> Pulse | None:
    """Written every few seconds, or at once after a gap; None while another server takes it."""
    found = await rows.lock_pulse()
    if found is None:
        return None
    taken = pulse.take(found, rows.now)
    if taken.hold_until != found.hold_until or taken.alive_at - found.alive_at >= pulse.INTERVAL:
        await rows.put_pulse(taken)
    return taken
