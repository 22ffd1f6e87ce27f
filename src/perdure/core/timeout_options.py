"""Time-outs as callers write them."""

from __future__ import annotations

from perdure.core.body import Body
from perdure.core.durations import Duration


class TimeoutOptions(Body):
    """model.Timeouts as callers write it: every field a duration."""

    schedule_to_start: Duration | None = None
    start_to_close: Duration | None = None
    schedule_to_close: Duration | None = None
    heartbeat: Duration | None = None
    lease: Duration | None = None
