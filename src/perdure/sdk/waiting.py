"""What the code of a workflow waits with: a durable call under way, and a plain wait that anything may finish."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from perdure.core.events import Event
from perdure.core.group_events import CallResult
from perdure.core.model import Failure, Payloads
from perdure.core.turn_commands import TurnCommand


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How what a command began has ended. `status` is "completed", "failed", "timed_out", "canceled" or "terminated".
    `event` is the one that says so, where the history had it."""

    status: str
    result: Payloads = ()
    failure: Failure | None = None
    event: Event | None = None


DONE = Outcome(status="completed")
"""Of commands that end with their event."""


class Pending:
    """A durable call under way: the command, the id of its event, and once it has ended the outcome."""

    __slots__ = ("_ended", "_started", "abandoned", "command", "event_id", "outcome", "recorded", "started")

    def __init__(self, command: Any, event_id: int, recorded: Event | None) -> None:
        self.command: Any = command
        self.event_id = event_id
        self.recorded = recorded  #: the event of the history that the command matched; None when it is new
        self.started: Event | None = None  #: of a child workflow: ChildWorkflowExecutionStarted
        self.outcome: Outcome | None = None
        self.abandoned = False  #: nobody waits for it any more; a step is not tried again then
        self._ended: list[Callable[[Pending], object]] = []
        self._started: list[Callable[[Pending], object]] = []

    def when_ended(self, ended: Callable[[Pending], object]) -> None:
        """Call `ended` when there is an outcome; at once if there is."""
        if self.outcome is not None:
            ended(self)
        else:
            self._ended.append(ended)

    def when_started(self, started: Callable[[Pending], object]) -> None:
        """Of a child workflow: call `started` when it has started or has ended without."""
        if self.started is not None or self.outcome is not None:
            started(self)
        else:
            self._started.append(started)

    def start(self, event: Event) -> None:
        """For the machine."""
        self.started = event
        waiting, self._started = self._started, []
        for started in waiting:
            started(self)

    def end(self, outcome: Outcome) -> None:
        """For the machine: once."""
        self.outcome = outcome
        waiting, self._started, self._ended = self._started + self._ended, [], []
        for ended in waiting:
            ended(self)


class Wait:
    """Something that the code waits for; it is done once and for all. `finish` may be given to `when_ended`."""

    __slots__ = ("_wake", "done", "value")

    def __init__(self) -> None:
        self.done = False
        self.value: Any = None  #: what it was finished with
        self._wake: Callable[[], object] | None = None

    def finish(self, value: object = None) -> None:
        """Wake the code with its next turn to run. Later calls change nothing."""
        if not self.done:
            self.done = True
            self.value = value
            if self._wake is not None:
                self._wake()

    def when_done(self, wake: Callable[[], object]) -> None:
        """For the driver of the code: call `wake` when it is done; at once if it is."""
        if self.done:
            wake()
        else:
            self._wake = wake


class Commands(Protocol):
    """What `ctx` needs of the machine (worker/machine.py)."""

    read_only: str  #: what is running that may not issue anything; empty: nothing of the kind
    results: dict[int, list[CallResult]]  #: of groups that have completed, by the event that began each

    @property
    def now(self) -> int: ...
    @property
    def activation(self) -> int: ...
    @property
    def replaying(self) -> bool: ...
    def issue(self, command: TurnCommand) -> Pending: ...
    def version(self, name: str, newest: int, deprecated: bool = False) -> int | None: ...
    def recorded_next(self) -> Any: ...
