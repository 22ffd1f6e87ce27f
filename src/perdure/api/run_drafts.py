"""From what callers send about workflows to commands: every check, and the packed form that is stored."""

from __future__ import annotations

from perdure.api.drafts import micros, packed
from perdure.api.turn_checks import ID_REUSE, checked
from perdure.core import commands as c
from perdure.core import ids, limits
from perdure.core import workflow_messages as w
from perdure.core.cron import check_cron
from perdure.core.durations import Duration, seconds
from perdure.core.errors import InvalidArgument
from perdure.core.events import (
    WorkflowExecutionCancelRequested,
    WorkflowExecutionSignaled,
    WorkflowExecutionStarted,
)
from perdure.core.ids import Mint
from perdure.core.lanes import TURNS, lane
from perdure.core.model import SECOND, Payload, Payloads, RetryPolicy, Task, Timeouts, pack
from perdure.core.run import Run, UpdateRequest
from perdure.core.states import Kind, State

ID_CONFLICT = ("fail", "use_existing", "terminate_existing")
STAGES = ("accepted", "completed")

QUERY_TIMEOUTS = Timeouts(schedule_to_start=10, schedule_to_close=30)
QUERY_RETRY = RetryPolicy(max_attempts=2, base=0.1)
"""Of the job that asks a query: nobody waits for its answer any longer than that."""
_FIRST = 1  #: the priority of queries, because somebody waits for them and they take no time


class RunDraftsman:
    """Makes the commands about workflows of one namespace, each raising at the first fault of its body. `key_life`
    (microseconds) is how long a workflow id is known after its last run was started."""

    def __init__(self, namespace: str, mint: Mint, key_life: int) -> None:
        self._namespace = namespace
        self._mint = mint
        self._key_life = key_life

    def start(self, body: w.StartWorkflow, identity: str, now: int) -> c.Enqueue:
        """The run id is made here, so that it stays the same over all tries; it carries the slot of the workflow id,
        as do those of all its later runs."""
        event = _started(body, identity)
        delay = 0 if body.start_delay is None else micros(body.start_delay, "start_delay")
        draft = Task(
            b"", self._namespace, body.type, State.ENQUEUED, lane(self._namespace, body.queue, TURNS), 0, 0,
            app="", kind=Kind.WORKFLOW, queue=body.queue, priority=body.priority, fairness_key=body.fairness_key,
            identity=identity,
        )  # fmt: skip
        if body.retry is not None:
            draft.retry_policy = pack(body.retry)
        run = Run(b"", body.workflow_id, b"", b"", root_workflow_id=body.workflow_id, cron=body.cron or None)
        size = payload_size(body.input)
        if body.memo:
            run.memo = packed(body.memo, "memo")
            size += len(run.memo)
        if body.search_attributes:
            run.search_attributes = packed(body.search_attributes, "search_attributes")
            size += len(run.search_attributes)
        signal = None
        if body.signal is not None:
            signal = _signaled(body.signal, identity, body.request_id)
            size += payload_size(signal.input)
        update = None
        if body.update is not None:
            update = self._brought(body, body.update, identity, now)
            size += payload_size(update.input)
        return c.Enqueue(
            draft=draft,
            delay=delay,
            key=body.workflow_id,
            key_kind="workflow",
            key_life=self._key_life,
            digest=body.request_id.encode(),
            size=size,
            task_id=self._mint.task_id(now, self._slot(body.workflow_id)),
            start=c.Start(
                run=run,
                event=event,
                id_reuse=limits.choice(body.id_reuse, "id_reuse", ID_REUSE),
                id_conflict=limits.choice(body.id_conflict, "id_conflict", ID_CONFLICT),
                signal=signal,
                update=update,
            ),
        )

    def _brought(self, body: w.StartWorkflow, update: w.Update, identity: str, now: int) -> UpdateRequest:
        """The update of a start."""
        if body.signal is not None:
            raise InvalidArgument("a start brings a signal or an update", field="update", limit="one", kind="Update")
        return UpdateRequest(
            update_id=limits.name(update.update_id, "update.update_id"),
            task_id=self._mint.task_id(now, self._slot(body.workflow_id)),
            name=limits.name(update.name, "update.name"),
            input=limits.payload(update.input, "update.input"),
            header=limits.headers(update.headers, "update.headers"),
            identity=identity,
        )

    def signal(self, body: w.SignalWorkflow, identity: str) -> c.Tell:
        message = _signaled(body.signal, identity, _request_id(body.request_id))
        return self._tell(body, message, body.request_id, payload_size(message.input))

    def cancel(self, body: w.CancelWorkflow, identity: str) -> c.Tell:
        message = WorkflowExecutionCancelRequested(
            cause=limits.text(body.reason, "reason"), identity=identity, request_id=_request_id(body.request_id)
        )
        return self._tell(body, message, body.request_id, 0)

    def update(self, body: w.UpdateWorkflow, identity: str, now: int) -> c.Tell:
        """Its answer's row gets the slot of the workflow id."""
        limits.choice(body.stage, "stage", STAGES)
        message = UpdateRequest(
            update_id=limits.name(body.update_id, "update_id"),
            task_id=self._mint.task_id(now, self._slot(body.workflow_id)),
            name=limits.name(body.name, "name"),
            input=limits.payload(body.input, "input"),
            header=limits.headers(body.headers, "headers"),
            identity=identity,
        )
        return self._tell(body, message, "", payload_size(message.input))

    def _tell(
        self,
        body: w.SignalWorkflow | w.CancelWorkflow | w.UpdateWorkflow,
        message: WorkflowExecutionSignaled | WorkflowExecutionCancelRequested | UpdateRequest,
        request_id: str,
        size: int,
    ) -> c.Tell:
        return c.Tell(
            namespace=self._namespace,
            workflow_id=workflow_id(body.workflow_id),
            run_id=run_id(body.run_id),
            message=message,
            request_id=request_id,
            size=size,
        )

    def terminate(self, body: w.TerminateWorkflow, identity: str) -> c.Terminate:
        return c.Terminate(
            namespace=self._namespace,
            workflow_id=workflow_id(body.workflow_id),
            run_id=run_id(body.run_id),
            reason=limits.text(body.reason, "reason"),
            identity=identity,
        )

    def pause(self, body: w.PauseWorkflow) -> c.Pause:
        return c.Pause(
            namespace=self._namespace,
            workflow_id=workflow_id(body.workflow_id),
            run_id=run_id(body.run_id),
            paused=body.paused,
        )

    def query(self, run: Run, task: Task, body: w.QueryWorkflow, now: int) -> c.Enqueue:
        """The job in the run's lane that asks its code; see workflow_messages.QUERY. The body was checked before."""
        query = w.QueryWorkflow(run.workflow_id, body.name, body.input, ids.text(run.id))
        payload = packed((Payload({"encoding": "binary/plain"}, packed(query, "input")),), "input")
        draft = Task(
            b"", self._namespace, w.QUERY, State.ENQUEUED, lane(self._namespace, task.queue, TURNS), 0, 0,
            app="", queue=task.queue, priority=_FIRST, payload=payload, retry_policy=pack(QUERY_RETRY),
            max_attempts=QUERY_RETRY.max_attempts, timeouts=pack(QUERY_TIMEOUTS),
        )  # fmt: skip
        return c.Enqueue(
            draft=draft,
            schedule_to_start=_whole(QUERY_TIMEOUTS.schedule_to_start),
            schedule_to_close=_whole(QUERY_TIMEOUTS.schedule_to_close),
            size=len(payload),
            task_id=self._mint.task_id(now, ids.slot(run.id)),
        )

    def _slot(self, workflow_id: str) -> int:
        return ids.slot_of(self._namespace, workflow_id)


def append(item: w.Append, identity: str, build: str) -> c.Append:
    size = checked(item.commands)
    return c.Append(
        lease=ids.parse_lease(item.lease),
        after=limits.integer(item.after, "after", 0, 2**53),
        commands=item.commands,
        final=item.final,
        sticky=item.sticky,
        completed_event_id=limits.integer(item.completed_event_id, "completed_event_id", 0, 2**53),
        size=size,
        identity=identity,
        build=build,
    )


def check_query(body: w.QueryWorkflow) -> None:
    limits.name(body.name, "name")
    limits.payload(body.input, "input")


def workflow_id(value: str) -> str:
    """Never empty: what reads it as none would make a new run of it."""
    return limits.name(value, "workflow_id")


def run_id(value: str | None) -> bytes | None:
    """Empty text means the same as none: the current run (SIG-05)."""
    return ids.parse(value, "run_id") if value else None


def payload_size(value: Payloads) -> int:
    return sum(len(item.data) for item in value)


def _started(body: w.StartWorkflow, identity: str) -> WorkflowExecutionStarted:
    """The first event; whoever writes it adds the ids."""
    limits.integer(body.priority, "priority", 1, limits.MAX_PRIORITY)
    limits.name(body.fairness_key, "fairness_key", empty=True)
    return WorkflowExecutionStarted(
        workflow_type=limits.name(body.type, "type"),
        workflow_id=workflow_id(body.workflow_id),
        task_queue=limits.name(body.queue, "queue"),
        input=limits.payload(body.input, "input"),
        execution_timeout=_timeout(body.execution_timeout, "execution_timeout"),
        run_timeout=_timeout(body.run_timeout, "run_timeout"),
        retry=None if body.retry is None else limits.retry_policy(body.retry),
        cron=check_cron(limits.name(body.cron, "cron", empty=True), "cron") if body.cron else "",
        start_delay=None if body.start_delay is None else seconds(body.start_delay, "start_delay"),
        identity=identity,
        request_id=_request_id(body.request_id),
        header=limits.headers(body.headers, "headers"),
        memo=limits.memo(body.memo),
        search_attributes=limits.search_attributes(body.search_attributes),
    )


def _signaled(signal: w.Signal, identity: str, request_id: str) -> WorkflowExecutionSignaled:
    return WorkflowExecutionSignaled(
        signal_name=limits.name(signal.name, "signal.name"),
        input=limits.payload(signal.input, "signal.input"),
        identity=identity,
        header=limits.headers(signal.headers, "signal.headers"),
        request_id=request_id,
    )


def _request_id(value: str) -> str:
    return limits.name(value, "request_id", empty=True)


def _timeout(value: Duration | None, field: str) -> float | None:
    """At least a millisecond."""
    return None if value is None else seconds(value, field, least=0.001)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value * SECOND)
