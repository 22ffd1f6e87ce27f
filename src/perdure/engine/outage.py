"""Whether the database is reached: noted in one place, told once a minute, and known to whoever must not wait for
ever."""

from __future__ import annotations

import logging
import time

from perdure.store.base import StoreFault

log = logging.getLogger("perdure.engine")

PATIENCE = 20.0  #: seconds of an outage after which callers are told to come back (503)
TELL_AGAIN = 60.0  #: seconds between two lines about one outage
_BRIEF = 1.0  #: seconds of an outage that is over before it is worth a second line


class Outage:
    """The present outage, if there is one."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._told_at = 0.0

    @property
    def seconds(self) -> float:
        """How long the database has not been reached; 0 while it is."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    @property
    def long(self) -> bool:
        """Whether callers have waited long enough."""
        return self.seconds > PATIENCE

    def fault(self, fault: StoreFault) -> None:
        """The database did not do what it was asked for."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
            self._told_at = 0.0
        if now - self._told_at >= TELL_AGAIN or not self._told_at:
            self._told_at = now
            log.warning("the database is away for %.0f s; everything waits and is tried again: %s", self.seconds, fault)

    def reached(self) -> None:
        """The database did what it was asked for."""
        if self._since is not None:
            if self.seconds >= _BRIEF:
                log.warning("the database is back after %.1f s", self.seconds)
            self._since = None
