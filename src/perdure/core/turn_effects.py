"""What each command of a turn causes: one event, and the rows that the run then waits for."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache
from typing import Any

from msgspec.structs import replace

from perdure.core import commands as c
from perdure.core import compensations, decide, groups, runs
from perdure.core import turn_commands as t
from perdure.core.activities import activity
from perdure.core.cron import next_after
from perdure.core.effects import Append, Change, Effect, Insert, PassOn, Post
from perdure.core.events import (
    ActivityTaskCanceled,
    ActivityTaskCancelRequested,
    ActivityTaskScheduled,
    AnyAttributes,
    ChildWorkflowExecutionStarted,
    Event,
    GroupCancelRequested,
    GroupStarted,
    MarkerRecorded,
    RequestCancelExternalWorkflowExecutionInitiated,
    SignalExternalWorkflowExecutionInitiated,
    StartChildWorkflowExecutionFailed,
    StartChildWorkflowExecutionInitiated,
    StepCompleted,
    StepFailed,
    StepStarted,
    TimerCanceled,
    TimerStarted,
    UpsertWorkflowSearchAttributes,
    WorkflowExecutionCanceled,
    WorkflowExecutionCancelRequested,
    WorkflowExecutionCompleted,
    WorkflowExecutionContinuedAsNew,
    WorkflowExecutionFailed,
    WorkflowExecutionSignaled,
    WorkflowExecutionStarted,
    WorkflowExecutionUpdateAccepted,
    WorkflowExecutionUpdateCompleted,
    WorkflowPropertiesModified,
    WorkflowTaskFailed,
)
from perdure.core.ids import Mint
from perdure.core.lanes import TURNS, lane
from perdure.core.model import SECOND, Failure, Key, Payloads, Task, pack, unpack
from perdure.core.policy import backoff, retry_policy, wake_at
from perdure.core.rounds import Rounds
from perdure.core.run import ClosePolicy, Message, MessageKind, Run
from perdure.core.states import Cause, Kind, State

KEY_LIFE = 30 * 86_400 * SECOND
"""Microseconds that a workflow id remembers its last run."""


def key_of(namespace: str, workflow_id: str) -> tuple[str, str, str, str]:
    """The name of the key that the current run of a workflow id holds."""
    return (namespace, "", "workflow", workflow_id)


class TurnWriter:
    """Writes the commands of one append. `task` and `run` are the caller's own and are changed; `events` begins with
    what was written before the first command."""

    def __init__(
        self,
        task: Task,
        run: Run,
        events: list[Event],
        messages: Sequence[Message],
        rows: Mapping[bytes, Task],
        taken: Container[bytes],
        first: Callable[[], WorkflowExecutionStarted],
        now: int,
        mint: Mint,
        rounds: Rounds,
    ) -> None:
        self.events = events
        self.effects: list[Effect] = []
        self.closing: Cause | None = None
        self.continued = False
        self._task = task
        self._run = run
        self._last = run.event_count + len(events)
        self._messages = messages
        self._rows = rows
        self._taken = taken
        self._first = first
        self._now = max(now, events[-1].time if events else 0)
        self._mint = mint
        self._rounds = rounds
        self._made: dict[bytes, Insert] = {}  #: children that this append makes

    def write(self, command: t.TurnCommand) -> None:
        """One command: its event and what follows from it."""
        _WRITERS[type(command)](self, command)

    def fail_turn(self, cause: str) -> None:
        """The rest of the turn is not written, and will be decided upon again."""
        done = self._run.turn_written
        self._event(WorkflowTaskFailed(scheduled_event_id=done - 2, started_event_id=done - 1, cause=cause))

    def _event(self, attributes: AnyAttributes) -> int:
        self._last += 1
        self.events.append(Event(self._last, self._now, attributes))
        return self._last

    def _shared(self, command: t.TurnCommand, kind: type[Any], **others: object) -> int:
        """The event of attributes that have the fields of the command."""
        fields = {name: getattr(command, name) for name in _common(type(command), kind)}  # type: ignore[arg-type]  # a class
        if "completed_event_id" in kind.__struct_fields__:
            fields["completed_event_id"] = self._run.turn_written
        return self._event(kind(**fields, **others))

    def _child(self, task_id: bytes, kind: Kind, type_: str, event_id: int, **fields: Any) -> Task:
        parent = self._task
        return Task(
            task_id, parent.namespace, type_, fields.pop("state", State.WAITING), fields.pop("lane", parent.lane),
            self._now, self._now, app=parent.app, kind=kind, queue=fields.pop("queue", parent.queue),
            parent_run_id=parent.id, parent_event_id=event_id, **fields,
        )  # fmt: skip

    def _insert(self, child: Task) -> None:
        child.wake_at = wake_at(child)
        self._add(Insert(child))

    def _add(self, made: Insert) -> None:
        self._made[made.task.id] = made
        self.effects.append(made)
        self._run.children += 1

    def _unmake(self, task_id: bytes) -> bool:
        """Whether the child was made by this same append: then it never comes to be."""
        made = self._made.pop(task_id, None)
        if made is None:
            return False
        self.effects.remove(made)
        self._run.children -= 1
        return True

    # ------------------------------------------------------------------------------------------- activities, timers
    def _schedule_activity(self, command: t.ScheduleActivity) -> None:
        event_id = self._shared(command, ActivityTaskScheduled)
        scheduled = self.events[-1].attributes
        assert isinstance(scheduled, ActivityTaskScheduled)
        self._add(activity(scheduled, self._task, self._task.id, event_id, self._now, self._rounds))

    def _cancel_activity(self, command: t.CancelActivity) -> None:
        self._shared(command, ActivityTaskCancelRequested)
        if self._unmake(command.task_id):
            self._tell([ActivityTaskCanceled(scheduled_event_id=command.scheduled_event_id)])
            return
        child = self._rows.get(command.task_id)
        if child is not None and child.kind == Kind.ACTIVITY and child.parent_run_id == self._task.id:
            asked = c.Cancel(namespace=child.namespace, task_id=child.id, reason="its workflow canceled it")
            self.effects += decide.cancel(child, asked, self._now)

    def _start_timer(self, command: t.StartTimer) -> None:
        event_id = self._shared(command, TimerStarted)
        at = self._now + int(command.start_to_fire * SECOND)
        self._insert(
            self._child(
                command.task_id, Kind.TIMER, "timer", event_id, idempotency_key=command.timer_id, ready_at=at, run_at=at
            )
        )

    def _cancel_timer(self, command: t.CancelTimer) -> None:
        """A timer that rang already is out of the way of the code: its event is dropped by the worker."""
        self._shared(command, TimerCanceled)
        if self._unmake(command.task_id):
            return
        child = self._rows.get(command.task_id)
        if child is not None and child.kind == Kind.TIMER and child.parent_run_id == self._task.id:
            child, now = decide.own(child, self._now)
            self.effects.append(decide.close(child, Cause.CANCEL, now))

    def _start_group(self, command: t.StartGroup) -> None:
        event_id = self._shared(command, GroupStarted, count=command.count)
        started = self.events[-1].attributes
        assert isinstance(started, GroupStarted)
        row, *pages = groups.begin(command, started, self._task, event_id, self._now)
        assert isinstance(row, Insert)
        self._add(row)
        self.effects += pages

    def _cancel_group(self, command: t.CancelGroup) -> None:
        self._shared(command, GroupCancelRequested)
        if self._unmake(command.task_id):
            mine = command.task_id
            self.effects = [it for it in self.effects if not (isinstance(it, Append) and it.page.run_id == mine)]
            return
        row = self._rows.get(command.task_id)
        if row is not None and row.kind == Kind.GROUP and row.parent_run_id == self._task.id:
            self.effects += groups.cancel(row, self._now)

    # ------------------------------------------------------------------------------------------------------- steps
    def _start_step(self, command: t.StartStep) -> None:
        self._shared(command, StepStarted, identity=self._task.worker or "")

    def _complete_step(self, command: t.CompleteStep) -> None:
        self._shared(command, StepCompleted)

    def _fail_step(self, command: t.FailStep) -> None:
        self._shared(command, StepFailed)

    # ------------------------------------------------------------------------------------------------ other workflows
    def _start_child(self, command: t.StartChildWorkflow) -> None:
        event_id = self._shared(command, StartChildWorkflowExecutionInitiated)
        who = {"workflow_id": command.workflow_id, "workflow_type": command.workflow_type}
        if command.task_id in self._taken:
            self._tell([StartChildWorkflowExecutionFailed(initiated_event_id=event_id, **who)])
            return
        self.effects += runs.start(self._child_start(command, event_id), self._now, self._rounds)
        self._run.children += 1
        self._tell([ChildWorkflowExecutionStarted(run_id=command.task_id, initiated_event_id=event_id, **who)])

    def _child_start(self, command: t.StartChildWorkflow, event_id: int) -> c.Enqueue:
        parent, run = self._task, self._run
        draft = self._child(
            command.task_id,
            Kind.WORKFLOW,
            command.workflow_type,
            event_id,
            state=State.ENQUEUED,
            queue=command.task_queue,
            lane=lane(parent.namespace, command.task_queue, TURNS),
            headers=pack(command.header) if command.header else None,
            retry_policy=None if command.retry is None else pack(command.retry),
            priority=parent.priority,
            fairness_key=parent.fairness_key,
        )
        event = WorkflowExecutionStarted(
            workflow_type=command.workflow_type, workflow_id=command.workflow_id, task_queue=command.task_queue,
            input=command.input, execution_timeout=command.execution_timeout, run_timeout=command.run_timeout,
            retry=command.retry, cron=command.cron, parent_namespace=parent.namespace,
            parent_workflow_id=run.workflow_id, parent_run_id=run.id, parent_event_id=event_id, header=command.header,
            memo=command.memo, search_attributes=command.search_attributes,
        )  # fmt: skip
        child = Run(
            command.task_id, command.workflow_id, b"", b"",
            root_workflow_id=run.root_workflow_id or run.workflow_id, root_run_id=run.root_run_id or run.id,
            parent_namespace=parent.namespace, parent_workflow_id=run.workflow_id,
            parent_close_policy=ClosePolicy[command.parent_close_policy.upper()], cron=command.cron or None,
            memo=pack(command.memo) if command.memo else None,
            search_attributes=pack(command.search_attributes) if command.search_attributes else None,
        )  # fmt: skip
        return c.Enqueue(draft=draft, task_id=command.task_id, start=c.Start(run=child, event=event))

    def _signal(self, command: t.SignalExternalWorkflow) -> None:
        self._send(command, self._shared(command, SignalExternalWorkflowExecutionInitiated))

    def _cancel_external(self, command: t.CancelExternalWorkflow) -> None:
        self._send(command, self._shared(command, RequestCancelExternalWorkflowExecutionInitiated))

    def _send(self, command: t.SignalExternalWorkflow | t.CancelExternalWorkflow, event_id: int) -> None:
        """The row brings it there, in a batch that locks the other run."""
        message = self._child(command.task_id, Kind.MESSAGE, "message", event_id, checkpoint=pack(command))
        message.ready_at = self._now
        self._insert(message)

    def _tell(self, body: list[AnyAttributes]) -> None:
        """A message for the run itself, which its next turn sees."""
        self._run.inbox_count += 1
        self.effects.append(
            Post(Message(self._run.id, self._run.inbox_count, MessageKind.EVENTS, self._now, pack(body)))
        )

    # ------------------------------------------------------------------------------------------------------- notes
    def _marker(self, command: t.RecordMarker) -> None:
        self._shared(command, MarkerRecorded)

    def _attributes(self, command: t.UpsertSearchAttributes) -> None:
        self._shared(command, UpsertWorkflowSearchAttributes)
        run = self._run
        known = {} if run.search_attributes is None else unpack(run.search_attributes, dict[str, Any])
        merged = {**known, **command.search_attributes}
        run.search_attributes = pack({name: value for name, value in merged.items() if value is not None})

    def _memo(self, command: t.ModifyProperties) -> None:
        self._shared(command, WorkflowPropertiesModified)
        run = self._run
        known = {} if run.memo is None else unpack(run.memo, dict[str, Payloads])
        run.memo = pack({**known, **command.memo})

    # ------------------------------------------------------------------------------------------------------- updates
    def _answer_row(self, task_id: bytes) -> Task | None:
        row = self._rows.get(task_id)
        return row if row is not None and row.kind == Kind.UPDATE and row.parent_run_id == self._task.id else None

    def _accept(self, command: t.AcceptUpdate) -> None:
        self._shared(command, WorkflowExecutionUpdateAccepted)
        if (row := self._answer_row(command.task_id)) is not None:
            row, now = decide.own(row, self._now)
            row.started_at = now
            self.effects.append(Change(row))

    def _reject(self, command: t.RejectUpdate) -> None:
        self._answer(command.task_id, (), command.failure)

    def _complete_update(self, command: t.CompleteUpdate) -> None:
        self._shared(command, WorkflowExecutionUpdateCompleted)
        self._answer(command.task_id, command.result, command.failure)

    def _answer(self, task_id: bytes, result: Payloads, failure: Failure | None) -> None:
        row = self._answer_row(task_id)
        if row is None:
            return
        row, now = decide.own(row, self._now)
        row.result = pack(result) if failure is None else None
        cause = Cause.ANSWER if failure is None else Cause.REFUSE
        self.effects.append(decide.close(row, cause, now, None if failure is None else pack(failure)))

    # ------------------------------------------------------------------------------------------------------- the end
    def _complete(self, command: t.CompleteWorkflow) -> None:
        self._task.result = pack(command.result)
        self.closing = Cause.SUCCEED
        wait = self._until_again()
        if wait is None:
            self._shared(command, WorkflowExecutionCompleted)
            return
        new_id = self._mint.task_id(self._now)
        self._shared(command, WorkflowExecutionCompleted, new_run_id=new_id)
        self._again(new_id, wait, last_result=command.result, last_failure=None)

    def _fail(self, command: t.FailWorkflow) -> None:
        failure, task, run = command.failure, self._task, self._run
        policy = None if task.retry_policy is None else retry_policy(task)
        task.failure = pack(failure)
        self.closing = Cause.EXHAUST
        if task.cancel_requested_at is not None:
            self._failed_for_good(command, "cancel_requested")
            return
        if policy is None or not failure.retryable or failure.type in policy.fatal_types:
            self._failed_for_good(command, "non_retryable_failure" if policy else "")
            return
        wait = backoff(policy, run.chain_attempt, self._mint)
        if self._too_late(wait) or run.chain_attempt >= policy.max_attempts:
            self._failed_for_good(command, "timeout" if self._too_late(wait) else "maximum_attempts_reached")
            return
        new_id = self._mint.task_id(self._now)
        self._shared(command, WorkflowExecutionFailed, retry_state="in_progress", new_run_id=new_id)
        attempt = run.chain_attempt + 1
        event = replace(
            self._first(), attempt=attempt, initiator="retry", last_failure=failure, start_delay=wait / SECOND
        )
        self._next_run(new_id, event, wait, attempt)

    def _failed_for_good(self, command: t.FailWorkflow, retry_state: str) -> None:
        """No retry follows; with cron the next run does."""
        wait = self._until_again()
        if wait is None:
            self._shared(command, WorkflowExecutionFailed, retry_state=retry_state)
            return
        new_id = self._mint.task_id(self._now)
        self._shared(command, WorkflowExecutionFailed, retry_state=retry_state, new_run_id=new_id)
        self._again(new_id, wait, last_result=self._first().last_result, last_failure=command.failure)

    def _until_again(self) -> int | None:
        """Microseconds until the next run by cron; None without one. A chain that was to be canceled ends."""
        if self._run.cron is None or self._task.cancel_requested_at is not None:
            return None
        if (at := next_after(self._run.cron, self._now)) is None:
            return None
        return None if self._too_late(at - self._now) else at - self._now

    def _too_late(self, wait: int) -> bool:
        deadline = self._run.chain_deadline
        return deadline is not None and self._now + wait >= deadline

    def _again(self, new_id: bytes, wait: int, *, last_result: Payloads, last_failure: Failure | None) -> None:
        event = replace(
            self._first(), attempt=1, initiator="cron", start_delay=wait / SECOND,
            last_result=last_result, last_failure=last_failure,
        )  # fmt: skip
        self._next_run(new_id, event, wait, 1)

    def _cancel(self, command: t.CancelWorkflow) -> None:
        self._shared(command, WorkflowExecutionCanceled)
        self.closing = Cause.YIELD

    def _continue(self, command: t.ContinueAsNew) -> None:
        first, run = self._first(), self._run
        event = replace(
            first,
            workflow_type=command.workflow_type or first.workflow_type,
            task_queue=command.task_queue or first.task_queue,
            input=command.input,
            run_timeout=first.run_timeout if command.run_timeout is None else command.run_timeout,
            initiator="workflow",
            attempt=1,
            start_delay=None,
            last_failure=None,
            memo=(unpack(run.memo, dict[str, Payloads]) if run.memo else {}) if command.memo is None else command.memo,
            search_attributes=compensations.left_out(
                unpack(run.search_attributes, dict[str, Any]) if run.search_attributes else {}
            )
            if command.search_attributes is None
            else command.search_attributes,
        )
        self._event(
            WorkflowExecutionContinuedAsNew(
                new_run_id=command.task_id,
                workflow_type=event.workflow_type,
                task_queue=event.task_queue,
                input=command.input,
                run_timeout=event.run_timeout,
                completed_event_id=run.turn_written,
            )
        )
        self.closing = Cause.CONTINUE
        kept = [WorkflowExecutionSignaled(signal_name=one.name, input=one.input) for one in command.signals]
        self._next_run(command.task_id, event, 0, 1, kept)

    def _next_run(
        self,
        new_id: bytes,
        event: WorkflowExecutionStarted,
        delay: int,
        attempt: int,
        kept: Sequence[WorkflowExecutionSignaled] = (),
    ) -> None:
        """The run that goes on under this workflow id, with the signals that this one kept and what others sent that it
        has not seen. A request to cancel is one to the whole chain, so its code hears of it, too."""
        old, run = self._task, self._run
        along = [Message(new_id, 0, MessageKind.EVENTS, self._now, pack([signal])) for signal in kept]
        along += [m for m in self._messages if m.seq > run.inbox_taken and runs.is_for_successor(m)]
        if old.cancel_requested_at is not None and not any(map(runs.asks_to_cancel, along)):
            asked = WorkflowExecutionCancelRequested(cause=old.cancel_reason or "")
            along.insert(0, Message(new_id, 0, MessageKind.EVENTS, self._now, pack([asked])))
        draft = Task(
            new_id, old.namespace, event.workflow_type, State.ENQUEUED, lane(old.namespace, event.task_queue, TURNS),
            0, 0, app=old.app, kind=Kind.WORKFLOW, queue=event.task_queue, headers=old.headers,
            retry_policy=old.retry_policy, timeouts=old.timeouts, max_attempts=old.max_attempts,
            lease_length=old.lease_length, identity=old.identity, priority=old.priority,
            fairness_key=old.fairness_key, parent_run_id=old.parent_run_id, parent_event_id=old.parent_event_id,
            cancel_requested_at=old.cancel_requested_at, cancel_reason=old.cancel_reason,
        )  # fmt: skip
        following = Run(
            new_id, run.workflow_id, run.first_run_id, b"", previous_run_id=run.id,
            root_workflow_id=run.root_workflow_id, root_run_id=run.root_run_id,
            parent_namespace=run.parent_namespace, parent_workflow_id=run.parent_workflow_id,
            parent_close_policy=run.parent_close_policy, chain_attempt=attempt, chain_deadline=run.chain_deadline,
            cron=run.cron, paused=run.paused, memo=pack(event.memo) if event.memo else None,
            search_attributes=pack(event.search_attributes) if event.search_attributes else None,
            inbox_count=len(along),
        )  # fmt: skip
        event = replace(event, continued_run_id=run.id)
        enqueue = c.Enqueue(draft=draft, task_id=new_id, delay=delay, start=c.Start(run=following, event=event))
        self.effects += runs.start(enqueue, self._now, self._rounds)
        for seq, message in enumerate(along, 1):
            self.effects.append(Post(Message(new_id, seq, message.kind, max(message.at, self._now), message.body)))
        name = key_of(old.namespace, run.workflow_id)
        holder = Key(*name, run.id, b"", 0)
        self.effects.append(PassOn(holder, Key(*name, new_id, b"", self._now + KEY_LIFE)))
        self.continued = True


@cache
def _common(command: type[Any], event: type[Any]) -> tuple[str, ...]:
    """The fields that commands of this type share with their event."""
    return tuple(name for name in command.__struct_fields__ if name in event.__struct_fields__)


_WRITERS: dict[type[Any], Callable[[TurnWriter, Any], None]] = {
    t.ScheduleActivity: TurnWriter._schedule_activity,
    t.CancelActivity: TurnWriter._cancel_activity,
    t.StartGroup: TurnWriter._start_group,
    t.CancelGroup: TurnWriter._cancel_group,
    t.StartTimer: TurnWriter._start_timer,
    t.CancelTimer: TurnWriter._cancel_timer,
    t.StartStep: TurnWriter._start_step,
    t.CompleteStep: TurnWriter._complete_step,
    t.FailStep: TurnWriter._fail_step,
    t.RecordMarker: TurnWriter._marker,
    t.StartChildWorkflow: TurnWriter._start_child,
    t.SignalExternalWorkflow: TurnWriter._signal,
    t.CancelExternalWorkflow: TurnWriter._cancel_external,
    t.UpsertSearchAttributes: TurnWriter._attributes,
    t.ModifyProperties: TurnWriter._memo,
    t.AcceptUpdate: TurnWriter._accept,
    t.RejectUpdate: TurnWriter._reject,
    t.CompleteUpdate: TurnWriter._complete_update,
    t.CompleteWorkflow: TurnWriter._complete,
    t.FailWorkflow: TurnWriter._fail,
    t.CancelWorkflow: TurnWriter._cancel,
    t.ContinueAsNew: TurnWriter._continue,
}
"""By the type of the command."""
