"""The life of a workflow run from outside of its turns: how it starts, what reaches it, how it is closed by others.

    start      the row, its columns, event 1, in one write (RPLY-08)
    post       a message into its inbox; a run that waits becomes ready for its next turn
    ended      a child has closed: its parent hears of it
    cancel     its code is asked to end; a run that never started is closed
    pause      no turn begins until it is resumed
    terminate  closed at once
    ring       its alarm: time-outs, the end of a back-off, a worker that was lost

As in decide.py everything works on copies, and reads no clock. The turns themselves are in turns.py.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from msgspec.structs import replace

from perdure.core import commands as c
from perdure.core import compensations, decide, pages
from perdure.core.cron import next_after
from perdure.core.effects import (
    Append,
    Change,
    Close,
    Effect,
    Insert,
    Post,
    PutRun,
    Take,
)
from perdure.core.errors import WorkflowClosed
from perdure.core.events import (
    ActivityTaskCanceled,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    ActivityTaskStarted,
    ActivityTaskTimedOut,
    AnyAttributes,
    ChildWorkflowExecutionCanceled,
    ChildWorkflowExecutionCompleted,
    ChildWorkflowExecutionFailed,
    ChildWorkflowExecutionTerminated,
    ChildWorkflowExecutionTimedOut,
    Event,
    TimerFired,
    WorkflowExecutionCanceled,
    WorkflowExecutionCancelRequested,
    WorkflowExecutionSignaled,
    WorkflowExecutionStarted,
    WorkflowExecutionTerminated,
    WorkflowExecutionTimedOut,
)
from perdure.core.ids import Mint
from perdure.core.model import SECOND, Failure, Payloads, Task, pack, unpack
from perdure.core.policy import wake_at
from perdure.core.rounds import Rounds
from perdure.core.run import ClosePolicy, Message, MessageKind, Run, UpdateRequest
from perdure.core.states import Cause, Kind, State, is_closed, move

_attributes = list[AnyAttributes]
UPDATES_LOST = "the run closed before it answered the update"


def start(command: c.Enqueue, now: int, rounds: Rounds) -> list[Effect]:
    """A new run, ready for its first turn (or delayed). Its input is kept by event 1 and not by the row."""
    given = command.start
    assert given is not None
    run, draft = copy(given.run), given.event
    if run.cron is not None and not draft.initiator and (first := next_after(run.cron, now)) is not None:
        command = replace(command, delay=max(command.delay, first - now))
    inserted = decide.enqueue(command, now, rounds)
    task = inserted.task
    if run.paused:  # as the run is that it follows
        task.place = None
    run.id = task.id
    run.first_run_id = run.first_run_id or task.id
    run.original_run_id = run.original_run_id or task.id
    run.root_run_id = run.root_run_id or task.id
    run.root_workflow_id = run.root_workflow_id or run.workflow_id
    begins = max(now + command.delay, task.run_at or 0)
    limit(task, run, draft, begins)
    event = replace(
        draft,
        first_run_id=run.first_run_id,
        original_run_id=run.original_run_id,
        root_run_id=run.root_run_id,
        root_workflow_id=run.root_workflow_id,
    )
    page = pages.pack(run.id, [Event(1, now, event)])
    run.event_count = 1
    run.history_bytes = len(page.data)
    run.turn_scheduled_at = begins
    return [inserted, PutRun(run), Append(page), *tell(task, run, given, now, rounds)]


def tell(task: Task, run: Run, start: c.Start, now: int, rounds: Rounds) -> list[Effect]:
    """What a start brings for the open run: a signal (SIG-06), an update, or nothing."""
    if start.signal is not None:
        return post(task, run, [start.signal], now, rounds)
    return [] if start.update is None else update(task, run, start.update, now, rounds)


def limit(task: Task, run: Run, begun: WorkflowExecutionStarted, begins: int) -> None:
    """Its time-outs count from when it begins; that of the execution goes on where the chain has one already. Both are
    the caller's own."""
    if begun.execution_timeout is not None and run.chain_deadline is None:
        run.chain_deadline = begins + int(begun.execution_timeout * SECOND)
    limits = [run.chain_deadline, None if begun.run_timeout is None else begins + int(begun.run_timeout * SECOND)]
    task.deadline = min((limit for limit in limits if limit is not None), default=None)
    task.wake_at = wake_at(task)


def may_follow(last: Task | None, id_reuse: str) -> bool:
    """Whether a new run may have a workflow id whose last run is this closed one; None: it is not kept any more, or
    never came to be."""
    if last is None or id_reuse == "allow_duplicate":
        return True
    return id_reuse == "allow_duplicate_failed_only" and last.state != State.SUCCEEDED


def own(task: Task, run: Run, now: int) -> tuple[Task, int]:
    """As decide.own, with a time that is not before what the turn in hand has written."""
    return decide.own(task, max(now, run.turn_prepared_at or 0))


def post(task: Task, run: Run, body: list[AnyAttributes] | UpdateRequest, now: int, rounds: Rounds) -> list[Effect]:
    """One more message. A turn that is in hand does not see it; the next one will (SIG-02)."""
    run = copy(run)
    run.inbox_count += 1
    kind = MessageKind.UPDATE if isinstance(body, UpdateRequest) else MessageKind.EVENTS
    effects: list[Effect] = [Post(Message(run.id, run.inbox_count, kind, max(now, task.updated_at), pack(body)))]
    if task.state == State.WAITING:
        task, now = decide.own(task, now)
        task.state = move(task.state, Cause.WAKE)
        make_ready(task, run, now, rounds)
        effects.append(Change(task))
    return [*effects, PutRun(run)]


def update(task: Task, run: Run, asked: UpdateRequest, now: int, rounds: Rounds) -> list[Effect]:
    """An update arrives: the message, and the row that waits for the answer."""
    row = Task(
        asked.task_id, task.namespace, asked.name, State.WAITING, task.lane, now, now, app=task.app,
        kind=Kind.UPDATE, queue=task.queue, idempotency_key=asked.update_id, identity=asked.identity,
        parent_run_id=task.id, parent_event_id=0,
    )  # fmt: skip
    run = copy(run)
    run.children += 1
    return [Insert(row), *post(task, run, asked, now, rounds)]


def fire(timer: Task, now: int) -> list[Effect]:
    """The alarm of a timer: it succeeds, and its parent hears of it."""
    timer, now = decide.own(timer, now)
    return [decide.close(timer, Cause.ANSWER, now)]


def news_of(message: Message) -> list[AnyAttributes]:
    """The events that a message becomes; an update becomes none by itself."""
    return [] if message.kind == MessageKind.UPDATE else unpack(message.body, _attributes)


def is_for_successor(message: Message) -> bool:
    """Whether a message that a run has not seen is for the run that follows it: what others sent is, the ends of its
    own children are not, because their events are not in the new history (RPLY-25)."""
    return any(isinstance(a, (WorkflowExecutionSignaled, WorkflowExecutionCancelRequested)) for a in news_of(message))


def asks_to_cancel(message: Message) -> bool:
    """Whether a message is, or brings, a cancel request."""
    return any(isinstance(attributes, WorkflowExecutionCancelRequested) for attributes in news_of(message))


def make_ready(task: Task, run: Run, now: int, rounds: Rounds) -> None:
    """A turn is due now; that of a paused run once it is resumed. Both are the caller's own."""
    task.ready_at = task.blocked_on = task.blocked_place = None
    task.place = None if run.paused else rounds.next(task.lane, task.fairness_key)
    task.wake_at = wake_at(task)
    run.turn_scheduled_at = now


def ended(parent: Task, run: Run, child: Task, child_run: Run | None, now: int, rounds: Rounds) -> list[Effect]:
    """The parent of a child that has closed: one open child less, and a message, unless the code knows already."""
    run = copy(run)
    run.children -= 1
    body = _ending(child, child_run)
    return post(parent, run, body, now, rounds) if body else [PutRun(run)]


def _ending(child: Task, run: Run | None) -> list[AnyAttributes]:
    began = child.parent_event_id or 0
    match child.kind:
        case Kind.ACTIVITY:
            return _activity_ending(child, began)
        case Kind.TIMER if child.state == State.SUCCEEDED:
            return [TimerFired(timer_id=child.idempotency_key or "", started_event_id=began)]
        case Kind.WORKFLOW if run is not None:
            return [_child_ending(child, run, began)]
        case _:
            return []


def _activity_ending(child: Task, began: int) -> list[AnyAttributes]:
    failure = failure_of(child)
    started: list[AnyAttributes] = []
    if child.started_at is not None:
        last = failure if child.state == State.SUCCEEDED else None
        started = [
            ActivityTaskStarted(
                scheduled_event_id=began, identity=child.worker or "", attempt=max(child.attempt, 1), last_failure=last
            )
        ]
    ending: AnyAttributes
    if child.state == State.SUCCEEDED:
        ending = ActivityTaskCompleted(
            scheduled_event_id=began, result=payloads(child.result), identity=child.worker or ""
        )
    elif child.state == State.CANCELED:
        details = failure.details if failure is not None else ()
        ending = ActivityTaskCanceled(scheduled_event_id=began, details=details, identity=child.worker or "")
    elif failure.code.endswith("_timeout"):
        ending = ActivityTaskTimedOut(scheduled_event_id=began, failure=failure, retry_state=retry_state(child))
    else:
        ending = ActivityTaskFailed(
            scheduled_event_id=began, failure=failure, identity=child.worker or "", retry_state=retry_state(child)
        )
    return [*started, ending]


def retry_state(child: Task) -> str:
    """Why an activity that has failed was not tried again."""
    if child.state == State.EXPIRED or (child.deadline is not None and child.deadline <= (child.closed_at or 0)):
        return "timeout"
    return "maximum_attempts_reached" if child.attempt >= child.max_attempts else "non_retryable_failure"


def _child_ending(child: Task, run: Run, began: int) -> AnyAttributes:
    who: dict[str, Any] = {"workflow_id": run.workflow_id, "run_id": run.id, "initiated_event_id": began}
    match child.state:
        case State.SUCCEEDED:
            return ChildWorkflowExecutionCompleted(result=payloads(child.result), **who)
        case State.CANCELED:
            return ChildWorkflowExecutionCanceled(**who)
        case State.TERMINATED:
            return ChildWorkflowExecutionTerminated(**who)
        case State.TIMED_OUT:
            return ChildWorkflowExecutionTimedOut(**who)
        case _:
            return ChildWorkflowExecutionFailed(failure=failure_of(child), **who)


def failure_of(task: Task) -> Failure:
    """Why a task ended, or failed last."""
    if task.failure is None:
        return Failure(message=f"it was {task.state.name}", code=task.state.name.lower())
    failure: Failure = unpack(task.failure, Failure)
    return failure


def payloads(data: bytes | None) -> Payloads:
    """The payloads of a column."""
    found: Payloads = () if data is None else unpack(data, Payloads)
    return found


# ---------------------------------------------------------------------------------------------------- closed by others
def cancel(
    task: Task, run: Run, request: WorkflowExecutionCancelRequested, now: int, mint: Mint, rounds: Rounds
) -> list[Effect]:
    """Ask its code to end (CANC-10); nothing new for one that was asked (CANC-12). A run whose code never ran, not even
    in a run before it, is closed (CANC-05)."""
    if task.cancel_requested_at is not None:
        return []
    task, now = own(task, run, now)
    task.cancel_requested_at = now
    task.cancel_reason = request.cause or None
    if run.event_count == 1 and task.state == State.ENQUEUED:
        if run.previous_run_id is None:
            return shut(task, run, WorkflowExecutionCanceled(), Cause.CANCEL, now, mint)
        run = copy(run)
        make_ready(task, run, now, rounds)  # no back-off holds it up
    effects = post(task, run, [request], now, rounds)
    if not any(isinstance(effect, Change) for effect in effects):
        effects.append(Change(task))
    return effects


def pause(task: Task, run: Run, paused: bool, now: int, rounds: Rounds) -> list[Effect]:
    """Begin no turn until it is resumed; the one in hand goes on to its end. Repeating it changes nothing."""
    if run.paused == paused:
        return []
    task, now = own(task, run, now)
    run = copy(run)
    run.paused = paused
    if task.state == State.ENQUEUED and (task.place is not None or task.ready_at is None):
        make_ready(task, run, now, rounds)
    return [Change(task), PutRun(run)]


def terminate(task: Task, run: Run, reason: str, identity: str, now: int, mint: Mint) -> list[Effect]:
    """Close it without asking (RPLY-40)."""
    task, now = own(task, run, now)
    failure = Failure(message=reason or "terminated", code="terminated", type="Terminated", retryable=False)
    event = WorkflowExecutionTerminated(reason=reason, identity=identity)
    return shut(task, run, event, Cause.TERMINATE, now, mint, pack(failure))


def shut(
    task: Task, run: Run, event: AnyAttributes, cause: Cause, now: int, mint: Mint, failure: bytes | None = None
) -> list[Effect]:
    """The end of a run by one event, whatever its turn is about. `task` is the caller's own."""
    run = copy(run)
    page = pages.pack(run.id, [Event(run.event_count + 1, now, event)])
    run.event_count += 1
    run.history_bytes += len(page.data)
    return [Append(page), *closing(task, run, cause, now, mint, failure)]


def closing(
    task: Task, run: Run, cause: Cause, now: int, mint: Mint, failure: bytes | None = None, *, continued: bool = False
) -> list[Effect]:
    """What follows once the last event is written: the row closes, its inbox goes, its children are swept up. Both are
    the caller's own."""
    run.turn_prepared_at = None
    if cause in (Cause.SUCCEED, Cause.CONTINUE) and compensations.owed(run) == compensations.Owed.NOT_RUN:
        run = compensations.without(run)
    effects: list[Effect] = [PutRun(run)]
    if run.inbox_count > run.inbox_taken:
        effects.append(Take(run.id, run.inbox_count))
    closed = decide.close(task, cause, now, failure)
    assert isinstance(closed, Close)
    effects.append(Close(closed.task, continued))
    if run.children:
        effects.append(Insert(_sweep(task, now, mint)))
    return effects


def _sweep(task: Task, now: int, mint: Mint) -> Task:
    sweep = Task(
        mint.task_id(now), task.namespace, "sweep", State.WAITING, task.lane, now, now,
        app=task.app, kind=Kind.SWEEP, queue=task.queue, parent_run_id=task.id, ready_at=now,
    )  # fmt: skip
    sweep.wake_at = wake_at(sweep)
    return sweep


def swept(child: Task, run: Run | None, now: int, mint: Mint, rounds: Rounds) -> list[Effect]:
    """What becomes of a child whose parent is closed (CHILD-02); nothing where it may go on. A message was sent before
    the end, so it arrives."""
    if child.kind in (Kind.MESSAGE, Kind.SWEEP):
        return []
    if child.kind == Kind.WORKFLOW and run is not None:
        if run.parent_close_policy == ClosePolicy.TERMINATE:
            return terminate(child, run, "its parent closed", "", now, mint)
        if run.parent_close_policy == ClosePolicy.REQUEST_CANCEL:
            request = WorkflowExecutionCancelRequested(cause="its parent closed")
            return cancel(child, run, request, now, mint, rounds)
        return []
    child, now = decide.own(child, now)
    cause = Cause.REFUSE if child.kind == Kind.UPDATE else Cause.TERMINATE
    return [decide.close(child, cause, now, pack(Failure(message=UPDATES_LOST, code="workflow_closed")))]


def ring(task: Task, run: Run, now: int, mint: Mint, rounds: Rounds, hold_until: int) -> list[Effect]:
    """The alarm of a run: its time-outs, then its lease, then the end of a delay or back-off."""
    task, now = own(task, run, now)
    if task.deadline is not None and task.deadline <= now:
        failure = Failure(message="the run or execution time-out is over", code="workflow_timeout", type="Timeout")
        return shut(task, run, WorkflowExecutionTimedOut(), Cause.TIME_OUT, now, mint, pack(failure))
    if task.state == State.LEASED and task.lease_until is not None and max(task.lease_until, hold_until) <= now:
        return lose(task, run, "no heartbeat came within the lease", now, rounds)
    if task.ready_at is not None and task.ready_at <= now and task.place is None:
        run = copy(run)
        if task.state == State.RETRY_WAIT:
            task.state = move(task.state, Cause.RETRY)
        make_ready(task, run, now, rounds)
        return [Change(task), PutRun(run)]
    task.wake_at = wake_at(task, hold_until)
    return [Change(task)]


def turn_pause(failures: int) -> int:
    """Microseconds until a turn that failed so many times in a row is tried again: 1 s, doubled up to a minute
    (RPLY-10)."""
    return min(SECOND << min(failures - 1, 6), 60 * SECOND)


def lose(task: Task, run: Run, reason: str, now: int, rounds: Rounds) -> list[Effect]:
    """The worker that had the turn is gone: another one gets it, at once at first and later and later if that goes on.
    What it appended before counts. `task` is the caller's own."""
    run = copy(run)
    run.turn_prepared_at = None
    run.turn_written = 0
    run.sticky_session = None
    outcome = "lost" if task.received else "undelivered"
    text = f"the worker {task.worker} was lost: {reason}"
    noted = decide.record(
        task, outcome, task.attempt + 1, now, pack(Failure(message=text, code="lease_lost", type="LeaseLost"))
    )
    received = task.received
    decide.end_lease(task)
    run.failures += received
    if run.failures <= 1:
        task.state = move(task.state, Cause.UNDELIVERED)
        make_ready(task, run, now, rounds)
    else:
        task.state = move(task.state, Cause.LOSE)
        task.ready_at = now + turn_pause(run.failures - 1)
        task.wake_at = wake_at(task)
    return [noted, Change(task), PutRun(run)]


def reset_failure(reason: str) -> Failure:
    """Why the last turn that a reset keeps is shown as failed."""
    return Failure(message=reason or "the run was reset", code="reset", type="Reset")


def refuse_closed(task: Task | None) -> None:
    """WorkflowClosed for a run that is."""
    if task is None or is_closed(task.state):
        state = "gone" if task is None else task.state.name
        raise WorkflowClosed(f"the run is {state}", field="workflow_id")
