"""A run that begins again from an event of its past (RPLY-39, B§20-4).

The new run's history is that of the old one up to the event, then a WorkflowTaskFailed that names both. Its code runs
through what is kept as in any replay, and goes on from there as if nothing else had happened. What the kept events
began and did not end is begun again: activities run anew, timers go off at their time. Signals that came later, and
what became of child workflows and of messages to others, are put into the new inbox. The old run, if it is open, is
terminated. Time-outs count from now.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from perdure.core import commands as c
from perdure.core import compensations, groups, pages, runs
from perdure.core.activities import activity
from perdure.core.effects import Append, Close, CopyPages, Effect, Insert, PassOn, PutRun
from perdure.core.errors import InvalidArgument
from perdure.core.events import (
    ActivityTaskCanceled,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    ActivityTaskScheduled,
    ActivityTaskTimedOut,
    AnyAttributes,
    ChildWorkflowExecutionCanceled,
    ChildWorkflowExecutionCompleted,
    ChildWorkflowExecutionFailed,
    ChildWorkflowExecutionTerminated,
    ChildWorkflowExecutionTimedOut,
    Event,
    ExternalWorkflowExecutionCancelRequested,
    ExternalWorkflowExecutionSignaled,
    RequestCancelExternalWorkflowExecutionFailed,
    RequestCancelExternalWorkflowExecutionInitiated,
    SignalExternalWorkflowExecutionFailed,
    SignalExternalWorkflowExecutionInitiated,
    StartChildWorkflowExecutionFailed,
    StartChildWorkflowExecutionInitiated,
    StepCompleted,
    StepFailed,
    TimerCanceled,
    TimerFired,
    TimerStarted,
    WorkflowExecutionCanceled,
    WorkflowExecutionCompleted,
    WorkflowExecutionContinuedAsNew,
    WorkflowExecutionFailed,
    WorkflowExecutionSignaled,
    WorkflowExecutionStarted,
    WorkflowExecutionUpdateAccepted,
    WorkflowExecutionUpdateCompleted,
    WorkflowTaskCompleted,
    WorkflowTaskFailed,
    WorkflowTaskScheduled,
    WorkflowTaskStarted,
)
from perdure.core.ids import Mint
from perdure.core.lanes import TURNS, lane
from perdure.core.model import SECOND, Key, Task
from perdure.core.policy import wake_at
from perdure.core.rounds import Rounds
from perdure.core.run import Message, Run
from perdure.core.states import Kind, State, is_closed
from perdure.core.turn_effects import KEY_LIFE, key_of

_ACTIVITY_ENDS = (ActivityTaskCompleted, ActivityTaskFailed, ActivityTaskTimedOut, ActivityTaskCanceled)
_CLOSING = (
    WorkflowExecutionCompleted,
    WorkflowExecutionFailed,
    WorkflowExecutionCanceled,
    WorkflowExecutionContinuedAsNew,
)
"""How a run closes by its own; how others close it is nothing that its code asked for."""
_SENT = (
    StartChildWorkflowExecutionInitiated,
    SignalExternalWorkflowExecutionInitiated,
    RequestCancelExternalWorkflowExecutionInitiated,
)
"""What a run did to others, which must not be done again."""
_SENT_ENDS = (
    ChildWorkflowExecutionCompleted,
    ChildWorkflowExecutionFailed,
    ChildWorkflowExecutionCanceled,
    ChildWorkflowExecutionTimedOut,
    ChildWorkflowExecutionTerminated,
    StartChildWorkflowExecutionFailed,
    ExternalWorkflowExecutionSignaled,
    SignalExternalWorkflowExecutionFailed,
    ExternalWorkflowExecutionCancelRequested,
    RequestCancelExternalWorkflowExecutionFailed,
)


def request_digest(request_id: str) -> bytes:
    """What the key of the workflow id remembers of a reset; none of a start has it."""
    return f"reset {request_id}".encode() if request_id else b""


def reset(
    task: Task, run: Run, messages: Sequence[Message], holder: bytes, command: c.Reset,
    now: int, mint: Mint, rounds: Rounds,
) -> list[Effect]:  # fmt: skip
    """`task` and `run` are the old ones, open or closed; `messages` are in the inbox, `holder` has the key of the
    workflow id. Raises InvalidArgument for an event that nothing can begin again from."""
    kept = _kept(command.history, command.event_id)
    now = max(now, kept[-1].time)  # the clock may have been put back since
    new_id = command.new_run_id
    over = _ended(kept, (*_ACTIVITY_ENDS, TimerFired, TimerCanceled))
    children: list[Insert] = []
    events = [
        event if event.id in over else _begun_again(event, task, children, new_id, now, mint, rounds) for event in kept
    ]
    grouped = groups.renew(events, task, new_id, now, mint)
    children += (effect for effect in grouped if isinstance(effect, Insert))
    begun = events[0].attributes
    assert isinstance(begun, WorkflowExecutionStarted)
    events[0] = Event(1, events[0].time, replace(begun, original_run_id=run.original_run_id))
    failed = _failed(events, run.id, new_id, command.reason)
    if failed is not None:
        events.append(Event(len(events) + 1, now, failed))
    effects: list[Effect] = []
    if not is_closed(task.state):
        left = compensations.without(run)  # the new run has the kept part of its past, and what that owes
        for effect in runs.terminate(task, left, command.reason or "reset", command.identity, now, mint):
            effects.append(Close(effect.task, continued=True) if isinstance(effect, Close) else effect)
    page = pages.pack(new_id, events)
    new = _new_task(task, new_id, now, rounds)
    following = _new_run(run, new_id, command.event_id, len(events), len(page.data), len(children), now)
    following = compensations.as_of(following, kept)
    runs.limit(new, following, begun, now)
    effects += [Insert(new), PutRun(following), Append(page), *children]
    effects += (effect for effect in grouped if isinstance(effect, CopyPages))
    for news in _later(command.history, messages, kept):
        posted = runs.post(new, following, [news], now, rounds)
        effects += posted
        following = next(effect.run for effect in posted if isinstance(effect, PutRun))
    name = key_of(task.namespace, run.workflow_id)
    effects.append(PassOn(Key(*name, holder, b"", 0), Key(*name, new_id, command.digest, now + KEY_LIFE)))
    return effects


def _kept(history: Sequence[Event], last: int) -> list[Event]:
    """The events up to `last`, without a turn that was not completed by then. Of the commands that the code issued
    together all are kept or none, because a replay compares them so."""
    if not 1 <= last <= len(history):
        raise InvalidArgument(f"event_id is {last}", field="event_id", limit=f"1 to {len(history)}", kind="int")
    while last > 1 and not _ends_whole(history, last):
        last -= 1
    kept = list(history[:last])
    under_way = {event.id for event in kept if isinstance(event.attributes, _SENT)} - _ended(history, _SENT_ENDS)
    if under_way:
        text = f"what event {min(under_way)} began in another workflow has not ended, and would be begun twice"
        raise InvalidArgument(text, field="event_id", limit=f"below {min(under_way)}", kind="int")
    return kept


def _ends_whole(history: Sequence[Event], last: int) -> bool:
    """Whether the code was at rest behind the event `last`: after what it was told, or after all that it asked for."""
    attributes = history[last - 1].attributes
    if isinstance(attributes, (WorkflowTaskScheduled, WorkflowTaskStarted, *_CLOSING)):
        return False
    if isinstance(attributes, (WorkflowTaskCompleted, StepCompleted)):
        return True
    if isinstance(attributes, StepFailed) and attributes.retry_in is None:
        return True
    if not _is_asked(attributes):
        return isinstance(attributes, WorkflowTaskFailed)
    return last == len(history) or not _is_asked(history[last].attributes)


def _is_asked(attributes: AnyAttributes) -> bool:
    """Whether a command of the code became this event; ends of steps are told, not asked for."""
    return "completed_event_id" in attributes.__struct_fields__ or isinstance(
        attributes, (WorkflowExecutionUpdateAccepted, WorkflowExecutionUpdateCompleted, StepFailed)
    )


def _ended(history: Sequence[Event], ends: tuple[type, ...]) -> set[int]:
    """Events that began what ended."""
    found: set[int] = set()
    for event in history:
        if isinstance(event.attributes, ends):
            for name in ("scheduled_event_id", "started_event_id", "initiated_event_id"):
                began = getattr(event.attributes, name, None)
                if began is not None and not (
                    name == "started_event_id" and isinstance(event.attributes, _ACTIVITY_ENDS)
                ):
                    found.add(began)
    return found


def _begun_again(
    event: Event, old: Task, children: list[Insert], new_id: bytes, now: int, mint: Mint, rounds: Rounds
) -> Event:
    """The event with the id of a new row, where it began an activity or a timer; the row, in `children`."""
    attributes = event.attributes
    if isinstance(attributes, ActivityTaskScheduled):
        attributes = replace(attributes, task_id=mint.task_id(now))
        children.append(activity(attributes, old, new_id, event.id, now, rounds))
    elif isinstance(attributes, TimerStarted):
        attributes = replace(attributes, task_id=mint.task_id(now))
        at = event.time + int(attributes.start_to_fire * SECOND)
        timer = Task(
            attributes.task_id, old.namespace, "timer", State.WAITING, old.lane, now, now, app=old.app,
            kind=Kind.TIMER, queue=old.queue, parent_run_id=new_id, parent_event_id=event.id,
            idempotency_key=attributes.timer_id, ready_at=at, run_at=at,
        )  # fmt: skip
        timer.wake_at = wake_at(timer)
        children.append(Insert(timer))
    return Event(event.id, event.time, attributes)


def _failed(events: Sequence[Event], base: bytes, new_id: bytes, reason: str) -> WorkflowTaskFailed | None:
    """What ends the last turn that is kept."""
    for event in reversed(events):
        if isinstance(event.attributes, WorkflowTaskCompleted):
            done = event.attributes
            return WorkflowTaskFailed(
                scheduled_event_id=done.scheduled_event_id,
                started_event_id=done.started_event_id,
                cause="reset",
                failure=runs.reset_failure(reason),
                base_run_id=base,
                new_run_id=new_id,
            )
    return None


def _later(history: Sequence[Event], messages: Sequence[Message], kept: Sequence[Event]) -> list[AnyAttributes]:
    """What came after the kept events and counts for the new run too."""
    began = {event.id for event in kept}
    later = [event.attributes for event in history[len(kept) :]]
    later += [news for message in messages for news in runs.news_of(message)]
    return [
        news
        for news in later
        if isinstance(news, WorkflowExecutionSignaled)
        or (isinstance(news, _SENT_ENDS) and news.initiated_event_id in began)
    ]


def _new_task(old: Task, new_id: bytes, now: int, rounds: Rounds) -> Task:
    name = lane(old.namespace, old.queue, TURNS)
    new = Task(
        new_id, old.namespace, old.type, State.ENQUEUED, name, now, now, app=old.app, kind=Kind.WORKFLOW,
        queue=old.queue, headers=old.headers, retry_policy=old.retry_policy, timeouts=old.timeouts,
        max_attempts=old.max_attempts, lease_length=old.lease_length, identity=old.identity, priority=old.priority,
        fairness_key=old.fairness_key, place=rounds.next(name, old.fairness_key),
    )  # fmt: skip
    if not is_closed(old.state):
        new.parent_run_id, new.parent_event_id = old.parent_run_id, old.parent_event_id
    return new


def _new_run(old: Run, new_id: bytes, event_id: int, events: int, size: int, children: int, now: int) -> Run:
    return Run(
        new_id, old.workflow_id, old.first_run_id, old.original_run_id, previous_run_id=old.previous_run_id,
        root_workflow_id=old.root_workflow_id, root_run_id=old.root_run_id, reset_run_id=old.id,
        reset_event_id=event_id, parent_namespace=old.parent_namespace, parent_workflow_id=old.parent_workflow_id,
        parent_close_policy=old.parent_close_policy, chain_attempt=old.chain_attempt, cron=old.cron,
        event_count=events, history_bytes=size, turn_scheduled_at=now, children=children, memo=old.memo,
        search_attributes=old.search_attributes,
    )  # fmt: skip
