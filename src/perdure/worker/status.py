"""How worker processes are, for those who watch them."""

from __future__ import annotations

from bisect import bisect_left

import msgspec

READY_SECONDS = 5.0
"""The longest silence of a process that counts as ready."""
LIVE_SECONDS = 60.0
"""The longest silence of a process that counts as alive, its start included."""


REPLAY_BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0)
"""Seconds; upper bounds for the times that replays took."""


class WorkerFigures(msgspec.Struct):
    """What a worker has counted since it started. `replays` has one more entry than there are bounds."""

    namespace: str = ""  #: as its server says
    outcomes: dict[str, int] = {}  #: of its tasks: how many it reported with each
    cache_hits: int = 0  #: turns of async workflows whose run was in memory
    cache_misses: int = 0
    replays: list[int] = msgspec.field(default_factory=lambda: [0] * (len(REPLAY_BOUNDS) + 1))
    replay_seconds: float = 0.0  #: all together

    def ended(self, outcome: str) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def replayed(self, seconds: float) -> None:
        """The code of a run has gone through its history again: from there on it computes something new."""
        self.replays[bisect_left(REPLAY_BOUNDS, seconds)] += 1
        self.replay_seconds += seconds


class WorkerStatus(msgspec.Struct, kw_only=True):
    """A worker at one moment. Ages are seconds."""

    pid: int
    identity: str
    slots: int
    free: int  #: slots that no handler takes
    running: int  #: handlers
    stuck: int  #: of them, those that go on though they were told to stop half a minute ago
    connected: bool  #: a server has its session
    draining: bool  #: it takes no new tasks
    poll_age: float | None  #: since a poll was answered; they are asked every 25 seconds while slots are free
    heartbeat_age: float | None  #: since a heartbeat was answered; they are sent while handlers run
    figures: WorkerFigures = msgspec.field(default_factory=WorkerFigures)

    @property
    def ready(self) -> bool:
        """It takes tasks, or would if its slots were not taken."""
        return self.connected and not self.draining


class ProcessHealth(msgspec.Struct):
    """A process and when it was last heard of, in seconds since."""

    pid: int
    silence: float
    status: WorkerStatus | None = None  #: None until it has spoken

    @property
    def ready(self) -> bool:
        return self.status is not None and self.status.ready and self.silence <= READY_SECONDS


class Health(msgspec.Struct):
    """All processes of a supervisor."""

    stopping: bool
    processes: list[ProcessHealth]

    @property
    def live(self) -> bool:
        return all(process.silence <= LIVE_SECONDS for process in self.processes)

    @property
    def ready(self) -> bool:
        return not self.stopping and any(process.ready for process in self.processes)
