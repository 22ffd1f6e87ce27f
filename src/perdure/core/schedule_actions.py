"""What a firing starts: a task, or the run of a workflow, as if it had been asked for with the nominal time in its
headers."""

from __future__ import annotations

from perdure.core import commands as c
from perdure.core import decide, runs
from perdure.core.calendar import stamp
from perdure.core.effects import Effect
from perdure.core.events import WorkflowExecutionStarted
from perdure.core.lanes import TURNS, WORK, lane
from perdure.core.model import DEFAULT_RETRY, SECOND, Payloads, Task, pack
from perdure.core.rounds import Rounds
from perdure.core.run import Run
from perdure.core.schedule import Action, Start, TaskAction, WorkflowAction
from perdure.core.schedule_messages import SCHEDULE_ID, SCHEDULED_AT
from perdure.core.states import Kind, State


def lane_of(action: Action, namespace: str) -> str:
    """Where it makes something ready."""
    return lane(namespace, action.queue, TURNS if isinstance(action, WorkflowAction) else WORK)


def begin(
    action: Action, namespace: str, schedule_id: str, start: Start, last_result: Payloads, now: int, rounds: Rounds
) -> list[Effect]:
    """The rows. `last_result` is for a workflow."""
    headers = {**action.headers, SCHEDULE_ID: schedule_id, SCHEDULED_AT: stamp(start.scheduled_at)}
    draft = Task(
        b"", namespace, action.type, State.ENQUEUED, lane_of(action, namespace), 0, 0, queue=action.queue,
        priority=action.priority, fairness_key=action.fairness_key, identity=action.identity,
    )  # fmt: skip
    if action.retry is not None:
        draft.retry_policy = pack(action.retry)
    if isinstance(action, WorkflowAction):
        return runs.start(_run(action, draft, start, headers, last_result), now, rounds)
    return [decide.enqueue(_task(action, draft, start, headers), now, rounds)]


def _task(action: TaskAction, draft: Task, start: Start, headers: dict[str, str]) -> c.Enqueue:
    command = c.Enqueue(draft=draft, task_id=start.task_id)
    draft.app = action.app
    draft.concurrency_key = action.concurrency_key or None
    draft.weight = action.weight
    draft.payload = pack(action.payload)
    draft.headers = pack(headers)
    draft.idempotency_key = start.key
    draft.max_attempts = (action.retry or DEFAULT_RETRY).max_attempts
    if (limits := action.timeouts) is not None:
        draft.timeouts = pack(limits)
        if limits.lease is not None:
            draft.lease_length = int(limits.lease * SECOND)
        if limits.schedule_to_start is not None:
            command.schedule_to_start = int(limits.schedule_to_start * SECOND)
        if limits.schedule_to_close is not None:
            command.schedule_to_close = int(limits.schedule_to_close * SECOND)
    return command


def _run(
    action: WorkflowAction, draft: Task, start: Start, headers: dict[str, str], last_result: Payloads
) -> c.Enqueue:
    draft.app, draft.kind = "", Kind.WORKFLOW
    run = Run(b"", start.workflow_id, b"", b"", root_workflow_id=start.workflow_id)
    if action.memo:
        run.memo = pack(action.memo)
    if action.search_attributes:
        run.search_attributes = pack(action.search_attributes)
    event = WorkflowExecutionStarted(
        workflow_type=action.type,
        workflow_id=start.workflow_id,
        task_queue=action.queue,
        input=action.input,
        execution_timeout=action.execution_timeout,
        run_timeout=action.run_timeout,
        retry=action.retry,
        last_result=last_result,
        identity=action.identity,
        header=headers,
        memo=action.memo,
        search_attributes=action.search_attributes,
    )
    return c.Enqueue(draft=draft, task_id=start.task_id, start=c.Start(run=run, event=event))
