"""Groups: one task called for many inputs, and a run that waits for all of it (STEP-18 to STEP-28).

    begin    one row, and the inputs in pages
    insert   the next calls, some at a time and so many in flight; each is an activity whose parent is the group
    ended    a call has ended: its bit is set, its result goes to the next page
    told     all have ended, or one has failed for good: the run hears of it, once
    cancel   the run does not wait for it any more
    stop     one call of a group that is not to go on
    sweep    its run has closed

The row of the group has a bit for each call, counts and cursors, and an alarm that is due whenever there is something
to do: that one mechanism inserts, tells, cancels and closes, in bounded steps. The calls never touch the run's row; a
batch merges all that happens to a group into one write of its row. The last bit does not tell the run itself: it makes
the alarm due, and the transaction that sends the message also writes down that it was sent, so it is sent once.

The pages of a group are a history of its own, kept under the id of its row: first the inputs, numbered from 1, then,
from `count` + 1 on, the results as they arrive. The row stays until its run has closed, and the pages go with it: a
replay reads them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import msgspec
from msgspec.structs import replace

from perdure.core import commands as c
from perdure.core import decide, pages, runs
from perdure.core import turn_commands as t
from perdure.core.effects import Append, Arrive, Change, CopyPages, Effect, Insert
from perdure.core.events import AnyAttributes, Event, GroupCancelRequested, GroupCompleted, GroupFailed, GroupStarted
from perdure.core.group_events import CallResult
from perdure.core.ids import Mint
from perdure.core.lanes import lane
from perdure.core.model import DEFAULT_RETRY, SECOND, Payloads, Task, Timeouts, pack, unpack
from perdure.core.policy import timeouts, wake_at
from perdure.core.rounds import Rounds
from perdure.core.run import Page
from perdure.core.states import Cause, Kind, State

PAGE_INPUTS = 200
"""Inputs of a page: what one step inserts."""
PAGE_BYTES = 256 * 1024
"""Of the inputs of a page, unless one alone is larger."""
PAUSE = SECOND // 50
"""Microseconds between two steps in which calls are stopped."""


class Group(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """What the row of a group keeps, in its checkpoint."""

    count: int
    collect: bool
    window: int
    ended: bytes  #: a bit for each call
    inserted: int = 0
    done: int = 0  #: bits that are set
    failed: int = 0  #: of those whose result counts
    arrived: int = 0  #: results in pages
    fatal: CallResult | None = None  #: until the run was told
    told: bool = False  #: the run, or it has asked not to be
    canceling: bool = False
    stopped_all: bool = False  #: every call was asked to end
    stopped: bytes = b""  #: up to this id
    over: bool = False  #: its run has closed


class Step(IntEnum):
    """What a group has to do next."""

    REST = 1
    INSERT = 2
    TELL = 3
    STOP = 4  #: ask the calls to end
    CLOSE = 5  #: end the calls, then its row


def group_of(task: Task) -> Group:
    """What a row of kind GROUP keeps."""
    group: Group = unpack(task.checkpoint or b"", Group)
    return group


def step_of(group: Group) -> Step:
    if group.over:
        return Step.CLOSE
    if not group.told and (group.fatal is not None or group.done == group.count):
        return Step.TELL
    if group.canceling:
        return Step.REST if group.stopped_all else Step.STOP
    return Step.INSERT if room(group) > 0 else Step.REST


def room(group: Group) -> int:
    """How many calls may be inserted now."""
    left = group.count - group.inserted
    return min(left, group.window - (group.inserted - group.done)) if group.window else left


def needs_run(task: Task) -> bool:
    """Whether the next step is also about the row of the run."""
    return step_of(group_of(task)) in (Step.TELL, Step.CLOSE)


# ------------------------------------------------------------------------------------------------------------ beginning
def begin(command: t.StartGroup, event: GroupStarted, parent: Task, event_id: int, now: int) -> list[Effect]:
    """The first effect is the row's Insert."""
    group = Group(event.count, event.policy == "collect", event.window, bytes((event.count + 7) // 8))
    row = _row(event, parent, parent.id, event_id, group, now)
    return [row, *(Append(page) for page in _input_pages(event.task_id, command.inputs))]


def _again(
    event: GroupStarted, end: GroupCompleted | None, old_id: bytes, parent: Task, run_id: bytes, event_id: int, now: int
) -> list[Effect]:
    """The group of a run that was reset: with the results that it had, or to be run anew. `event` names the new row,
    whose Insert is the first effect."""
    count = event.count
    group = Group(count, event.policy == "collect", event.window, bytes((count + 7) // 8))
    if end is not None:
        bits = (1 << count) - 1
        group.ended = bits.to_bytes(len(group.ended), "little")
        group.inserted = group.done = group.arrived = count
        group.failed, group.told = end.failed, True
    row = _row(event, parent, run_id, event_id, group, now)
    return [row, CopyPages(old_id, event.task_id, count if end is None else 2 * count)]


def renew(events: list[Event], parent: Task, run_id: bytes, now: int, mint: Mint) -> list[Effect]:
    """The groups of a run that begins with these events, those of another one: each gets a row of its own, whose id
    goes into its event. One that has completed keeps its results, one that has not is run anew; what failed or was
    canceled needs none."""
    completed = {
        it.attributes.started_event_id: it.attributes for it in events if isinstance(it.attributes, GroupCompleted)
    }
    given_up = {
        it.attributes.started_event_id
        for it in events
        if isinstance(it.attributes, (GroupFailed, GroupCancelRequested))
    }
    effects: list[Effect] = []
    for position, event in enumerate(events):
        if not isinstance(event.attributes, GroupStarted) or event.id in given_up - completed.keys():
            continue
        started = replace(event.attributes, task_id=mint.task_id(now))
        events[position] = Event(event.id, event.time, started)
        effects += _again(started, completed.get(event.id), event.attributes.task_id, parent, run_id, event.id, now)
    return effects


def _row(event: GroupStarted, parent: Task, run_id: bytes, event_id: int, group: Group, now: int) -> Insert:
    limits = Timeouts(
        schedule_to_start=event.schedule_to_start,
        start_to_close=event.start_to_close,
        schedule_to_close=event.schedule_to_close,
        heartbeat=event.heartbeat,
    )
    task = Task(
        event.task_id, parent.namespace, event.activity_type, State.WAITING, lane(parent.namespace, event.task_queue),
        now, now, app=parent.app, kind=Kind.GROUP, queue=event.task_queue, idempotency_key=event.group_id,
        retry_policy=None if event.retry is None else pack(event.retry),
        timeouts=None if limits == Timeouts() else pack(limits),
        max_attempts=(event.retry or DEFAULT_RETRY).max_attempts, priority=event.priority,
        fairness_key=parent.fairness_key, parent_run_id=run_id, parent_event_id=event_id, weight=event.weight,
    )  # fmt: skip
    return Insert(_keep(task, group, now))


def _input_pages(group_id: bytes, inputs: Sequence[Payloads]) -> list[Page]:
    """In order, so many a page."""
    found: list[Page] = []
    start = size = 0
    for index, one in enumerate(inputs):
        more = sum(len(payload.data) for payload in one)
        if index > start and (index - start >= PAGE_INPUTS or size + more > PAGE_BYTES):
            found.append(_page(group_id, start + 1, inputs[start:index]))
            start, size = index, 0
        size += more
    return [*found, _page(group_id, start + 1, inputs[start:])]


def _page(group_id: bytes, first: int, items: Sequence[Payloads] | Sequence[CallResult]) -> Page:
    return Page(group_id, first, len(items), pages.compressed(pack(items)))


_inputs = list[Payloads]


def inputs_from(page: Page, group: Group) -> list[Payloads]:
    """Those of a page that were not inserted yet; it holds the next one."""
    found: list[Payloads] = unpack(pages.plain(page.data), _inputs)
    return found[group.inserted - (page.first - 1) :]


def result_page(group_id: bytes, first: int, results: Sequence[CallResult]) -> Page:
    """The page of results that arrived together; `first` is the number of the first of them in the group's pages."""
    return _page(group_id, first, results)


# ---------------------------------------------------------------------------------------------------------- its calls
def insert(task: Task, inputs: Sequence[Payloads], now: int, mint: Mint, rounds: Rounds) -> list[Effect]:
    """The next calls, as many as there is room for; `inputs` begin with that of the first one."""
    task, now = decide.own(task, now)
    group, limits = group_of(task), timeouts(task)
    effects: list[Effect] = []
    for given in inputs[: max(room(group), 0)]:
        draft = Task(
            b"", task.namespace, task.type, State.ENQUEUED, task.lane, now, now, app=task.app, kind=Kind.ACTIVITY,
            queue=task.queue, payload=pack(given), idempotency_key=call_id(task, group.inserted),
            retry_policy=task.retry_policy, timeouts=task.timeouts, max_attempts=task.max_attempts,
            priority=task.priority, fairness_key=task.fairness_key, parent_run_id=task.id,
            parent_event_id=group.inserted, weight=task.weight,
        )  # fmt: skip
        call = c.Enqueue(
            draft=draft,
            task_id=mint.task_id(now),
            schedule_to_start=_micros(limits.schedule_to_start),
            schedule_to_close=_micros(limits.schedule_to_close),
        )
        effects.append(decide.enqueue(call, now, rounds))
        group.inserted += 1
    return [*effects, Change(_keep(task, group, now))]


def call_id(task: Task, index: int) -> str:
    """The activity id of a call."""
    return f"{task.idempotency_key}[{index}]"


def ended(task: Task, call: Task, now: int) -> list[Effect]:
    """A call has closed. `parent_event_id` of a call is its index. A bit that is set is not set again."""
    group, index = group_of(task), call.parent_event_id or 0
    bit = 1 << (index & 7)
    if group.ended[index >> 3] & bit:
        return []
    task, now = decide.own(task, now)
    bits = bytearray(group.ended)
    bits[index >> 3] |= bit
    group.ended = bytes(bits)
    group.done += 1
    effects: list[Effect] = []
    if not (group.told or group.over or group.fatal):
        result = _result(call, index)
        failed = result.status != "completed"
        group.failed += failed
        if failed and not group.collect:
            group.fatal = result
        else:
            group.arrived += 1
            effects.append(Arrive(task.id, group.count + group.arrived, result))
    return [*effects, Change(_keep(task, group, now))]


def _result(call: Task, index: int) -> CallResult:
    if call.state == State.SUCCEEDED:
        return CallResult(index, "completed", runs.payloads(call.result))
    failure = runs.failure_of(call)
    if call.state == State.CANCELED:
        return CallResult(index, "canceled", failure=failure)
    status = "timed_out" if failure.code.endswith("_timeout") else "failed"
    return CallResult(index, status, failure=failure, retry_state=runs.retry_state(call))


# ------------------------------------------------------------------------------------------------------------- its end
def news(task: Task) -> AnyAttributes:
    """What the run is to hear."""
    group, began = group_of(task), task.parent_event_id or 0
    if (fatal := group.fatal) is not None:
        assert fatal.failure is not None
        return GroupFailed(
            started_event_id=began, index=fatal.index, failure=fatal.failure, retry_state=fatal.retry_state
        )
    return GroupCompleted(started_event_id=began, failed=group.failed)


def told(task: Task, now: int) -> list[Effect]:
    """The message is sent by the same transaction."""
    task, now = decide.own(task, now)
    group = group_of(task)
    group.told = True
    group.canceling = group.fatal is not None
    group.fatal = None
    return [Change(_keep(task, group, now))]


def cancel(task: Task, now: int) -> list[Effect]:
    """The code does not want it any more: calls that are queued are canceled, those that run are asked to end."""
    group = group_of(task)
    if group.canceling or group.told:
        return []
    task, now = decide.own(task, now)
    group.told = group.canceling = True
    return [Change(_keep(task, group, now))]


def sweep(task: Task, now: int) -> list[Effect]:
    """Its run has closed."""
    group = group_of(task)
    if group.over:
        return []
    task, now = decide.own(task, now)
    group.over = True
    return [Change(_keep(task, group, now))]


def stop(call: Task, step: Step, now: int) -> list[Effect]:
    """End a call: in the step STOP its worker is asked, in the step CLOSE nobody is."""
    if step == Step.STOP:
        asked = c.Cancel(namespace=call.namespace, task_id=call.id, reason="its group was canceled")
        return decide.cancel(call, asked, now)
    call, now = decide.own(call, now)
    return [decide.close(call, Cause.TERMINATE, now)]


def stopped(task: Task, calls: Sequence[Task], *, whole: bool, last: bool, now: int) -> list[Effect]:
    """These calls were stopped. `whole`: none before the last of them was held elsewhere; `last`: none are behind
    it."""
    task, now = decide.own(task, now)
    group = group_of(task)
    if group.over and whole and not calls:
        return [decide.close(task, Cause.ANSWER if group.done == group.count else Cause.TERMINATE, now)]
    if not group.over and whole:
        group.stopped = calls[-1].id if calls else group.stopped
        group.stopped_all = last
    return [Change(_keep(task, group, now, PAUSE))]


def rest(task: Task, now: int) -> list[Effect]:
    """Nothing is to be done."""
    task, now = decide.own(task, now)
    return [Change(_keep(task, group_of(task), now))]


def _keep(task: Task, group: Group, now: int, pause: int = 0) -> Task:
    task.checkpoint = pack(group)
    task.ready_at = None if step_of(group) == Step.REST else now + pause
    task.wake_at = wake_at(task)
    return task


def _micros(duration: float | None) -> int | None:
    return None if duration is None else int(duration * SECOND)
