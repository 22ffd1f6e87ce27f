"""Matches what the code of a workflow asks for with the history of its run.

The machine knows events and commands, and nothing of how the code is written: loop.py drives async functions with it,
plain.py plain ones. Both pull: they let the code run until it waits, then `advance()`, and again. While there is
history, each command that the code issues is compared with the next command event (RPLY-03); from the end of the
history on the run is live, and what is issued is collected for the next append.

    the code runs at              with
    a WorkflowTaskStarted         all that came in since the last one, in order; then the updates that this turn saw
    a StepCompleted, StepFailed   this one result (not where another attempt follows)

Where a WorkflowTaskFailed follows, nothing of what the code did then was kept: that is no activation, and its events
count for the next turn. So the end of a step is not lost when what the code made of it is: because messages had come
that it had not seen when it closed the run, or because the run was reset to there.

Some command events are the machine's own and are not compared by position: those of further attempts of a step, and
"version" markers, which count for the activation that they stand in, so that one whose question is not in the code any
more is passed over (RPLY-21).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from perdure.core import events as e
from perdure.core import turn_commands as c
from perdure.core.events import Event
from perdure.core.group_events import CallResult
from perdure.core.model import Failure, Payloads
from perdure.core.run import UpdateRequest
from perdure.core.turn_commands import CLOSING, TurnCommand
from perdure.sdk.converter import to_payloads
from perdure.sdk.mint import mint_id
from perdure.sdk.steps import StepCall
from perdure.sdk.waiting import DONE, Outcome, Pending
from perdure.sdk.workflow_errors import Dropped, ForbiddenError, NonDeterminismError
from perdure.worker.groups import lacking
from perdure.worker.matching import COMMAND_EVENTS, matches, missing, unexpected
from perdure.worker.outcomes import OUTCOMES
from perdure.worker.recorded import request_of, version_of

log = logging.getLogger("perdure.workflow")

__all__ = ["Code", "Instance", "Machine", "Outcome", "Pending"]

STEP_TIMER = "step:"
"""How the ids of timers between the attempts of a step begin; those of the code do not."""
LONG = 10_000
"""Events of a history from which on there is a warning (RPLY-26)."""

_LASTING = (
    c.ScheduleActivity,
    c.StartGroup,
    c.StartTimer,
    c.StartStep,
    c.StartChildWorkflow,
    c.SignalExternalWorkflow,
    c.CancelExternalWorkflow,
)
"""Commands that end with a later event; the others end with their own."""


class Code(Protocol):
    """What the machine tells the driver of the code; called within `advance`, in the order of the history."""

    def start(self, event: Event) -> None:
        """WorkflowExecutionStarted, once."""

    def signal(self, event: Event) -> None: ...

    def cancel(self, event: Event) -> None: ...

    def update(self, request: UpdateRequest, accepted: Event | None) -> None:
        """A new one: validate it, then issue AcceptUpdate or RejectUpdate. Or one that the history has accepted: issue
        AcceptUpdate."""


class Instance(Protocol):
    """A run in memory, whatever its code is like. Methods run the code in the calling thread, or as if they did."""

    machine: Machine

    @property
    def closed(self) -> bool:
        """The code has ended: the last command closes the run, or the history is that of a closed run."""
        ...

    def run(self) -> None:
        """Let the code run through what was fed to the machine and, once it is live, through the steps that have
        ended, until it waits. Raises NonDeterminismError, ForbiddenError and whatever else is to fail the turn; the
        instance is of no use after that."""

    def step(self, step_id: int) -> StepCall:
        """What to run for a StartStep command."""
        ...

    def query(self, name: str, input: Payloads) -> Payloads:
        """The answer of a query handler. NotFound when there is none of this name; else what the handler raises."""
        ...

    def drop(self) -> None:
        """Forget it: unwind the code without effect."""


class _Step:
    """A step that has not ended."""

    __slots__ = ("attempt", "claimed", "failed", "pending")

    def __init__(self, pending: Pending, attempt: int, claimed: bool) -> None:
        self.pending = pending
        self.attempt = attempt
        self.failed = False  #: the last attempt, and another one follows
        self.claimed = claimed  #: by a worker that the history tells of; whether it ran to its end is unknown


class Machine:
    """One run in memory. Not thread-safe: one thread at a time works on it. Feed it all there is of a history before
    the first `advance`."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._events: list[Event] = []  #: of the history, not applied yet from `_next` on
        self._next = 0
        self._incoming: list[Event] = []  #: came in since the last activation
        self._updates: Sequence[UpdateRequest] = ()
        self._live = False
        self._closed = False
        self._open: dict[int, Pending] = {}  #: what has not ended, by the id of the event that began it
        self._steps: dict[int, _Step] = {}
        self._step_timers: dict[int, int] = {}  #: event id of the timer before the next attempt -> step id
        self._versions: dict[str, int] = {}  #: markers of the activation that is replayed
        self._ended: deque[tuple[int, Payloads | None, Failure | None, float | None]] = deque()
        self._commands: list[TurnCommand] = []
        self._command_id = 0  #: of the event of the next new command
        self._sent_up_to = 0
        self._name = ""
        self._warned_at = 0
        self.results: dict[int, list[CallResult]] = {}  #: of groups that the code will ask for, by their first event
        self.wants: dict[int, bytes] = {}  #: groups whose results have to be put into `results` before it can go on
        self.read_only = ""  #: what is running that may not issue anything: "a query", ...
        self.error: BaseException | None = None  #: what ended it; nothing is issued after it
        self.now = 0  #: microseconds: the time of the last WorkflowTaskStarted applied
        self.activation = 0  #: id of the event at which the code runs, or ran last
        self.last_event_id = 0  #: of the history as this machine knows it, what was accepted included

    # ------------------------------------------------------------------------------------------------ history
    def feed(self, events: Sequence[Event], updates: Sequence[UpdateRequest] = ()) -> None:
        """The next events of the history, consecutive; `updates` are those that the last of them, the
        WorkflowTaskStarted of the turn in hand, brought along. ValueError when events are missing before."""
        if not events:
            return
        if events[0].id != self.last_event_id + 1:
            raise ValueError(f"event {self.last_event_id + 1} is next, got {events[0].id}")
        self._events = [*self._events[self._next :], *events]
        self._next = 0
        self._updates = updates
        self._live = False
        self.last_event_id = events[-1].id

    def advance(self) -> bool:
        """Apply the events up to the next activation boundary; then the code is to run until it waits. False when
        nothing is left (the run is live, and waits), and when it `wants` something first. Raises NonDeterminismError
        when the history has a command event that the code did not issue."""
        if self.error is not None:
            raise self.error
        if self._live:
            return self._next_ended()
        self._versions = {}
        if (event := self._expected()) is not None:
            raise self._diverged(missing(event))
        while self._next < len(self._events):
            event = self._events[self._next]
            self._next += 1
            kind = type(event.attributes)
            if kind is e.WorkflowTaskStarted:
                if self._is_boundary():
                    self.wants = lacking(self._incoming, self._open, self.results)
                    if self.wants:
                        self._next -= 1
                        return False
                    self._activate(event)
                    return True
            elif kind is e.StepCompleted or kind is e.StepFailed:
                if self._is_undone(self._next) or event.attributes.held:  # type: ignore[union-attr]
                    self._incoming.append(event)
                elif self._apply_step(event):
                    self.activation = event.id
                    self._look_ahead(0)
                    return True
            elif kind not in _FRAMES:
                if kind in COMMAND_EVENTS and not _is_from_outside(event):
                    self._next -= 1
                    if (event_ := self._expected()) is not None:
                        raise self._diverged(missing(event_))
                else:
                    self._incoming.append(event)
        return False

    @property
    def replaying(self) -> bool:
        return not self._live

    def _is_boundary(self) -> bool:
        """Whether the turn that has just started came to something, or is the one in hand."""
        if self._next == len(self._events):
            return True
        completed = type(self._events[self._next].attributes) is e.WorkflowTaskCompleted
        return completed and not self._is_undone(self._next + 1)

    def _is_undone(self, index: int) -> bool:
        """Whether what the code did at the activation that ends there was not kept."""
        return index < len(self._events) and type(self._events[index].attributes) is e.WorkflowTaskFailed

    def _activate(self, started: Event) -> None:
        self._live = self._next == len(self._events)
        self.now = started.time
        self.activation = started.id
        accepted: list[Event] = []
        if self._live:
            if started.id >= LONG > self._warned_at:
                log.warning("%s: its history has %d events: it should continue as new", self._name, started.id)
                self._warned_at = started.id
            self._command_id = started.id + 2
            self._sent_up_to = started.id
            self._events, self._next = [], 0
        else:
            self._next += 1  # WorkflowTaskCompleted
            accepted = self._look_ahead(started.id)
        incoming, self._incoming = self._incoming, []
        for event in incoming:
            self._apply(event)
        for event in accepted:
            self._code.update(request_of(event), event)
        if self._live:
            updates, self._updates = self._updates, ()
            for request in updates:
                self._code.update(request, None)

    def _look_ahead(self, started_id: int) -> list[Event]:
        """The updates that a turn has accepted; and the version markers of this activation are noted."""
        accepted = []
        for index in range(self._next, len(self._events)):
            event = self._events[index]
            attributes = event.attributes
            kind = type(attributes)
            if kind not in COMMAND_EVENTS:
                if kind is e.StepFailed and attributes.retry_in is not None:  # type: ignore[union-attr]
                    continue
                break
            if kind is e.WorkflowExecutionUpdateAccepted:
                if attributes.sequencing_event_id == started_id:  # type: ignore[union-attr]
                    accepted.append(event)
            elif kind is e.MarkerRecorded and attributes.marker_name == c.VERSION_MARKER:  # type: ignore[union-attr]
                name, number = version_of(attributes)
                self._versions[name] = number
        return accepted

    def _apply(self, event: Event) -> None:
        attributes: Any = event.attributes
        kind = type(attributes)
        if kind is e.WorkflowExecutionSignaled:
            self._code.signal(event)
        elif kind in OUTCOMES:
            field, outcome_of = OUTCOMES[kind]
            began: int = getattr(attributes, field)
            if began in self._step_timers:
                self._attempt_due(self._step_timers.pop(began))
            elif (pending := self._open.pop(began, None)) is not None:
                pending.end(outcome_of(event))
        elif kind is e.ChildWorkflowExecutionStarted:
            if (child := self._open.get(attributes.initiated_event_id)) is not None:
                child.start(event)
        elif kind is e.WorkflowExecutionStarted:
            self._name = f"workflow {attributes.workflow_type} {attributes.workflow_id}"
            self._code.start(event)
        elif kind is e.StepCompleted or kind is e.StepFailed:
            self._apply_step(event)
        elif kind is e.WorkflowExecutionCancelRequested:
            self._code.cancel(event)

    # ------------------------------------------------------------------------------------------------ steps
    def _apply_step(self, event: Event) -> bool:
        """Whether the code has to run: not when another attempt follows."""
        attributes: Any = event.attributes
        completed = isinstance(attributes, e.StepCompleted)
        if not completed and attributes.retry_in is not None:
            step = self._steps[attributes.step_id]
            step.claimed, step.failed = False, True
            return False
        outcome = (
            Outcome(status="completed", result=attributes.result, event=event)
            if completed
            else Outcome(status="failed", failure=attributes.failure, event=event)
        )
        self._steps.pop(attributes.step_id).pending.end(outcome)
        return True

    def _attempt_due(self, step_id: int) -> None:
        """The wait before the next attempt is over. On replay its claim follows; where that is missing, the worker died
        in between, and `open_steps` makes up for it."""
        step = self._steps.get(step_id)
        if step is None or step.pending.abandoned:
            return
        if self._live:
            self._claim(step_id, step)
        else:
            step.claimed = True

    def _claim(self, step_id: int, step: _Step) -> TurnCommand:
        step.attempt += 1
        step.claimed = step.failed = False
        command = c.StartStep(step_id=step_id, name=step.pending.command.name, attempt=step.attempt)
        self._append(command)
        return command

    def _next_ended(self) -> bool:
        """Live: apply what `step_ended` has reported, up to the next one that the code has to see."""
        while self._ended and not self._closed:
            step_id, result, failure, retry_in = self._ended.popleft()
            step = self._steps[step_id]
            if failure is None:
                event_id = self._append(c.CompleteStep(step_id=step_id, result=result or ()))
                outcome = Outcome(status="completed", result=result or ())
            else:
                if retry_in is not None and not step.pending.abandoned:
                    self._retry_later(step_id, step, failure, retry_in)
                    continue
                event_id = self._append(c.FailStep(step_id=step_id, failure=failure, attempt=step.attempt))
                outcome = Outcome(status="failed", failure=failure)
            self.activation = event_id
            self._steps.pop(step_id).pending.end(outcome)
            return True
        return False

    # --------------------------------------------------------------------------------------------------- code
    def issue(self, command: TurnCommand) -> Pending:
        """Ask for something. While replaying it is compared; NonDeterminismError says where it differs. Commands that
        end with their event (markers, search attributes, cancels, closing ones) have an outcome at once."""
        if self.error is not None:
            raise self.error
        if self.read_only:
            raise ForbiddenError(f"{self.read_only} only reads: it cannot call what becomes part of the history")
        if isinstance(command, c.RejectUpdate):
            self._commands.append(command)  # without an event
            return _ended(Pending(command, 0, None))
        if self._live:
            pending = Pending(command, self._append(command), None)
        else:
            event = self._expected()
            if event is None or not matches(command, event.attributes):
                raise self._diverged(unexpected(command, event or self._peek(), self._next_id()))
            self._next += 1
            task_id: bytes | None = getattr(event.attributes, "task_id", None)
            if task_id is not None:
                command.task_id = task_id  # type: ignore[union-attr]
            pending = Pending(command, event.id, event)
        self._closed |= isinstance(command, CLOSING)
        if isinstance(command, c.StartStep):
            self._steps[command.step_id] = _Step(pending, command.attempt, claimed=not self._live)
        elif isinstance(command, _LASTING):
            self._open[pending.event_id] = pending
        else:
            if isinstance(command, c.CancelTimer):
                self._open.pop(command.started_event_id, None)
            pending.end(DONE)
        return pending

    def recorded_next(self) -> Any:
        """While replaying: the attributes of the event that the next command has to become, if there is one."""
        event = None if self._live else self._expected()
        return None if event is None else event.attributes

    def version(self, name: str, newest: int, deprecated: bool = False) -> int | None:
        """What a run that comes here for the first time is to do: live it is `newest`, and a marker says so; on replay
        what the marker says, None without one."""
        if not self._live:
            return self._versions.get(name)
        details = {"id": to_payloads(name, "id"), "version": to_payloads(newest, "version")}
        if deprecated:
            details["deprecated"] = to_payloads(True, "deprecated")
        self.issue(c.RecordMarker(marker_name=c.VERSION_MARKER, details=details))
        return newest

    @property
    def closed(self) -> bool:
        """The code has issued a closing command."""
        return self._closed

    def _append(self, command: TurnCommand) -> int:
        self._commands.append(command)
        event_id = self._command_id
        self._command_id += 1
        return event_id

    def _expected(self) -> Event | None:
        """The next command event of this activation that the code has to issue; the machine's own are passed."""
        events = self._events
        while self._next < len(events):
            event = events[self._next]
            attributes: Any = event.attributes
            kind = type(attributes)
            if kind not in COMMAND_EVENTS:
                if kind is not e.StepFailed or attributes.retry_in is None:
                    return None
                self._apply_step(event)
            elif kind is e.StepStarted and attributes.attempt > 1:
                step = self._steps[attributes.step_id]
                step.attempt, step.claimed, step.failed = attributes.attempt, True, False
            elif kind is e.TimerStarted and attributes.timer_id.startswith(STEP_TIMER):
                self._step_timers[event.id] = int(attributes.timer_id.split(":")[1])
            elif kind is not e.MarkerRecorded or attributes.marker_name != c.VERSION_MARKER:
                return event
            self._next += 1
        return None

    def _peek(self) -> Event | None:
        return self._events[self._next] if self._next < len(self._events) else None

    def _next_id(self) -> int:
        event = self._peek()
        return self.last_event_id + 1 if event is None else event.id

    def _diverged(self, error: NonDeterminismError) -> NonDeterminismError:
        self.error = error
        return error

    # ------------------------------------------------------------------------------------------------- worker
    def drop(self) -> None:
        """The run is not to go on here: whatever the code still asks for raises Dropped, and nothing is told to it."""
        self.error = Dropped()
        del self._code

    def take(self) -> tuple[int, list[TurnCommand]]:
        """What the next append says: `after` and the commands issued since the last one. StartStep commands among them
        are to be run once the append is accepted."""
        commands, self._commands = self._commands, []
        self._sent_up_to = self._command_id - 1
        return self.last_event_id, commands

    def accepted(self) -> None:
        """The append of the last `take` is in the history."""
        self.last_event_id = self._sent_up_to

    def step_held(self, step_id: int, result: Payloads | None, failure: Failure | None, retry_in: float | None) -> None:
        """As `step_ended`; but the code goes on from it with the next turn only, because messages wait."""
        step = self._steps[step_id]
        if failure is not None and retry_in is not None and not step.pending.abandoned:
            self._retry_later(step_id, step, failure, retry_in)
        elif failure is not None:
            event_id = self._append(c.FailStep(step_id=step_id, failure=failure, attempt=step.attempt, held=True))
            failed = e.StepFailed(step_id=step_id, failure=failure, attempt=step.attempt, held=True)
            self._incoming.append(Event(event_id, self.now, failed))
        else:
            event_id = self._append(c.CompleteStep(step_id=step_id, result=result or (), held=True))
            ended = e.StepCompleted(step_id=step_id, result=result or (), held=True)
            self._incoming.append(Event(event_id, self.now, ended))

    def _retry_later(self, step_id: int, step: _Step, failure: Failure, again: float) -> None:
        step.failed = True
        self._append(c.FailStep(step_id=step_id, failure=failure, attempt=step.attempt, retry_in=again))
        timer = f"{STEP_TIMER}{step_id}:{step.attempt}"
        timer_id = self._append(c.StartTimer(task_id=mint_id(), timer_id=timer, start_to_fire=again))
        self._step_timers[timer_id] = step_id

    def is_open(self, step_id: int) -> bool:
        """Whether the history has claimed the last attempt of a step, and does not say how it ended."""
        step = self._steps.get(step_id)
        return step is not None and step.claimed and not step.failed

    def open_steps(self) -> list[TurnCommand]:
        """Live: StartStep commands that the history has claimed but not ended (their worker died): to be claimed again
        with the next attempt. Each is issued by this call."""
        lost = [(i, step) for i, step in self._steps.items() if step.claimed and not step.pending.abandoned]
        return [self._claim(step_id, step) for step_id, step in lost]

    def step_ended(
        self, step_id: int, result: Payloads | None, failure: Failure | None, retry_in: float | None
    ) -> None:
        """Live: a claimed step has ended. Issues CompleteStep or FailStep (and StartTimer for `retry_in`), and makes it
        the next activation: `advance` applies it."""
        self._ended.append((step_id, result, failure, retry_in))


_FRAMES = frozenset((e.WorkflowTaskScheduled, e.WorkflowTaskCompleted, e.WorkflowTaskFailed, e.WorkflowTaskTimedOut))


def _is_from_outside(event: Event) -> bool:
    """Whether a cancel has closed a run before its code began."""
    attributes = event.attributes
    return isinstance(attributes, e.WorkflowExecutionCanceled) and not attributes.completed_event_id


def _ended(pending: Pending) -> Pending:
    pending.end(DONE)
    return pending
