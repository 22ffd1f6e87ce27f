"""A server in a few lines: it writes the history of one run as the engine would, and keeps what the run waits for."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from perdure.core import events as e
from perdure.core import turn_commands as c
from perdure.core.model import SECOND, Failure
from perdure.core.run import UpdateRequest
from perdure.core.turn_commands import CLOSING, TurnCommand
from perdure.sdk.history import WorkflowHistory
from perdure.sdk.workflow import Workflow
from perdure.worker.async_code import AsyncCode
from tests.replay.history import RUN_ID, History, started, values

NO = Failure(message="no", type="ValueError")


class Server:
    """One run. `instance` is the worker's; None: no worker has it in memory."""

    def __init__(self, workflow: Workflow, payload: object = None, **more: Any) -> None:
        self.workflow = workflow
        self.history = History()
        self.inbox: list[e.AnyAttributes] = [started(payload, workflow.name, **more)]
        self.updates: list[UpdateRequest] = []
        self.open: dict[int, TurnCommand] = {}  #: what was begun and has not ended, by event id
        self.running: dict[int, c.StartStep] = {}  #: claimed steps
        self.rejected: dict[str, Failure] = {}
        self.closed: TurnCommand | None = None
        self.instance: AsyncCode | None = None
        self.known = 0  #: the last event that the instance has seen

    # ----------------------------------------------------------------------------------------------------- turns
    def turn(self) -> Server:
        """The worker's turn, up to its first append."""
        self.taken, self.inbox = self.inbox, []
        self.before = self.history.last
        self.history.prepare(*self.taken)
        self.started_id = self.history.last
        self.first = True
        if self.instance is None:
            self.instance, self.known = self.fresh(), 0
        updates, self.updates = self.updates, []
        self.instance.machine.feed(self.history.events[self.known :], updates)
        self.instance.run()
        self.instance.machine.open_steps()
        return self.append()

    def append(self) -> Server:
        assert self.instance is not None
        machine = self.instance.machine
        after, commands = machine.take()
        assert after == self.history.last
        if self.is_early(commands):
            return self.put_off(commands)
        if self.first:
            frame = e.WorkflowTaskCompleted(scheduled_event_id=self.started_id - 1, started_event_id=self.started_id)
            self.history.add(frame)
            self.first = False
        for command in commands:
            self.write(command)
        machine.accepted()
        assert machine.last_event_id == self.history.last
        self.known = self.history.last
        return self

    def is_early(self, commands: list[TurnCommand]) -> bool:
        """The code closes the run, and has not seen a signal."""
        closes = bool(commands) and isinstance(commands[-1], CLOSING) and not isinstance(commands[-1], c.ContinueAsNew)
        return closes and any(isinstance(one, e.WorkflowExecutionSignaled) for one in self.inbox)

    def put_off(self, commands: list[TurnCommand]) -> Server:
        """The ends of steps are kept, and the rest is undone."""
        if self.first:
            del self.history.events[self.before :]
            self.inbox = self.taken + self.inbox
        else:
            ends = [i for i, one in enumerate(commands) if isinstance(one, (c.CompleteStep, c.FailStep))]
            for command in commands[: ends[-1] + 1]:
                self.write(command)
            failed = e.WorkflowTaskFailed(
                scheduled_event_id=self.started_id - 1, started_event_id=self.started_id, cause="unhandled_messages"
            )
            self.history.add(failed)
        return self.lose().turn()

    def step(
        self, step_id: int, result: object = None, failure: Failure | None = None, again: float | None = None
    ) -> Server:
        """A claimed step ends, in the same turn."""
        self.end_step(step_id, result, failure, again)
        return self.append()

    def end_step(
        self, step_id: int, result: object = None, failure: Failure | None = None, again: float | None = None
    ) -> None:
        assert self.instance is not None
        del self.running[step_id]
        self.instance.machine.step_ended(step_id, None if failure else values(result), failure, again)
        self.instance.run()

    def fresh(self) -> AsyncCode:
        return AsyncCode(self.workflow)

    def cold(self) -> AsyncCode:
        """A replay of all there is."""
        instance = self.fresh()
        instance.machine.feed(self.history.events)
        instance.run()
        return instance

    def recorded(self) -> WorkflowHistory:
        return WorkflowHistory("w1", str(UUID(bytes=RUN_ID)), self.history.events)

    def lose(self) -> Server:
        """The worker is gone, and its steps with it."""
        if self.instance is not None:
            self.instance.drop()
        self.instance, self.running = None, {}
        return self

    # -------------------------------------------------------------------------------------------------- messages
    def tell(self, *events: e.AnyAttributes) -> Server:
        self.inbox += events
        return self

    def signal(self, name: str, payload: object = None) -> Server:
        return self.tell(e.WorkflowExecutionSignaled(signal_name=name, input=values(payload)))

    def cancel(self) -> Server:
        return self.tell(e.WorkflowExecutionCancelRequested(cause="please"))

    def update(self, name: str, payload: object = None, id: str = "") -> Server:
        update_id = id or f"u{len(self.updates) + self.history.last}"
        self.updates.append(UpdateRequest(update_id=update_id, task_id=b"u", name=name, input=values(payload)))
        return self

    def find(self, kind: type[TurnCommand], **fields: Any) -> int:
        """The event of something open."""
        for event_id, command in self.open.items():
            if isinstance(command, kind) and all(getattr(command, key) == value for key, value in fields.items()):
                return event_id
        raise KeyError(f"{kind.__name__} {fields} is not open")

    def fire(self, event_id: int | None = None) -> Server:
        """A timer, the only one if none is named."""
        event_id = event_id or self.find(c.StartTimer)
        timer: Any = self.open.pop(event_id)
        self.history.now += int(timer.start_to_fire * SECOND)
        return self.tell(e.TimerFired(timer_id=timer.timer_id, started_event_id=event_id))

    def complete(self, event_id: int | None = None, result: object = None) -> Server:
        event_id = event_id or self.find(c.ScheduleActivity)
        del self.open[event_id]
        return self.tell(
            e.ActivityTaskStarted(scheduled_event_id=event_id),
            e.ActivityTaskCompleted(scheduled_event_id=event_id, result=values(result)),
        )

    def fail(self, event_id: int | None = None, failure: Failure = NO) -> Server:
        event_id = event_id or self.find(c.ScheduleActivity)
        del self.open[event_id]
        return self.tell(
            e.ActivityTaskStarted(scheduled_event_id=event_id),
            e.ActivityTaskFailed(scheduled_event_id=event_id, failure=failure, retry_state="maximum_attempts_reached"),
        )

    def child_started(self, event_id: int | None = None) -> Server:
        event_id = event_id or self.find(c.StartChildWorkflow)
        child: Any = self.open[event_id]
        return self.tell(
            e.ChildWorkflowExecutionStarted(
                workflow_id=child.workflow_id,
                run_id=RUN_ID,
                workflow_type=child.workflow_type,
                initiated_event_id=event_id,
            )
        )

    def child_completed(self, event_id: int | None = None, result: object = None) -> Server:
        event_id = event_id or self.find(c.StartChildWorkflow)
        child: Any = self.open.pop(event_id)
        return self.tell(
            e.ChildWorkflowExecutionCompleted(
                workflow_id=child.workflow_id, run_id=RUN_ID, initiated_event_id=event_id, result=values(result)
            )
        )

    def told(self, event_id: int | None = None) -> Server:
        """A signal to another run has arrived."""
        event_id = event_id or self.find(c.SignalExternalWorkflow)
        command: Any = self.open.pop(event_id)
        return self.tell(
            e.ExternalWorkflowExecutionSignaled(workflow_id=command.workflow_id, initiated_event_id=event_id)
        )

    # ---------------------------------------------------------------------------------------------------- writing
    def write(self, command: Any) -> None:
        if isinstance(command, c.RejectUpdate):
            self.rejected[command.update_id] = command.failure
            return
        self.history.add(_EVENTS[type(command)](command))
        event_id = self.history.last
        match command:
            case c.StartStep():
                self.running[command.step_id] = command
            case c.ScheduleActivity() | c.StartTimer() | c.StartChildWorkflow() | c.SignalExternalWorkflow():
                self.open[event_id] = command
            case c.CancelTimer():
                self.open.pop(command.started_event_id, None)
            case c.CompleteWorkflow() | c.FailWorkflow() | c.CancelWorkflow() | c.ContinueAsNew():
                self.closed = command


def _copy(kind: type[Any], **more: Any) -> Any:
    names = set(kind.__struct_fields__)

    def event(command: Any) -> Any:
        fields = {name: getattr(command, name) for name in command.__struct_fields__ if name in names}
        return kind(**fields, **more)

    return event


_EVENTS: dict[type[Any], Any] = {
    c.ScheduleActivity: _copy(e.ActivityTaskScheduled),
    c.CancelActivity: _copy(e.ActivityTaskCancelRequested),
    c.StartTimer: _copy(e.TimerStarted),
    c.CancelTimer: _copy(e.TimerCanceled),
    c.StartStep: _copy(e.StepStarted),
    c.CompleteStep: _copy(e.StepCompleted),
    c.FailStep: _copy(e.StepFailed),
    c.RecordMarker: _copy(e.MarkerRecorded),
    c.StartChildWorkflow: _copy(e.StartChildWorkflowExecutionInitiated),
    c.SignalExternalWorkflow: _copy(e.SignalExternalWorkflowExecutionInitiated),
    c.CancelExternalWorkflow: _copy(e.RequestCancelExternalWorkflowExecutionInitiated),
    c.UpsertSearchAttributes: _copy(e.UpsertWorkflowSearchAttributes),
    c.ModifyProperties: _copy(e.WorkflowPropertiesModified),
    c.AcceptUpdate: _copy(e.WorkflowExecutionUpdateAccepted),
    c.CompleteUpdate: _copy(e.WorkflowExecutionUpdateCompleted),
    c.CompleteWorkflow: _copy(e.WorkflowExecutionCompleted),
    c.FailWorkflow: _copy(e.WorkflowExecutionFailed),
    c.CancelWorkflow: _copy(e.WorkflowExecutionCanceled),
    c.ContinueAsNew: _copy(e.WorkflowExecutionContinuedAsNew, new_run_id=b"n"),
}
