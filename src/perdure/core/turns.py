"""A turn of a workflow run: prepared when it is leased, written by the first append of its worker.

    begin      what the turn will see is fixed: the messages that have arrived by now
    prepared   its events, the same whenever they are computed: nothing is written for a turn that comes to nothing
    append     what the code asked for becomes events and rows (commands are in turn_effects.py)
    fail       the code could not go on (RPLY-10): the run stays open and the turn is tried again

Both `append` and `fail` are fenced: they carry the lease, compared whole.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from copy import copy

from msgspec.structs import replace

from perdure.core import commands as c
from perdure.core import decide, pages, runs
from perdure.core.effects import Append, Change, Effect, PutRun, Take
from perdure.core.errors import Conflict, InvalidArgument, LeaseLost, UnhandledMessages
from perdure.core.events import (
    ActivityTaskCanceled,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    ActivityTaskStarted,
    ActivityTaskTimedOut,
    Event,
    WorkflowExecutionCancelRequested,
    WorkflowExecutionSignaled,
    WorkflowExecutionStarted,
    WorkflowTaskCompleted,
    WorkflowTaskFailed,
    WorkflowTaskScheduled,
    WorkflowTaskStarted,
)
from perdure.core.history_size import MAX_EVENTS
from perdure.core.ids import Mint
from perdure.core.model import Failure, Task, pack, unpack
from perdure.core.policy import wake_at
from perdure.core.rounds import Rounds
from perdure.core.run import Message, MessageKind, Run, UpdateRequest
from perdure.core.states import Cause, Kind, State, move
from perdure.core.turn_commands import CLOSING, CompleteStep, ContinueAsNew, FailStep, RejectUpdate, TurnCommand
from perdure.core.turn_effects import TurnWriter

_CLOSED = (ActivityTaskCompleted, ActivityTaskFailed, ActivityTaskTimedOut, ActivityTaskCanceled)


def begin(task: Task, run: Run, messages: Sequence[Message], now: int) -> Run:
    """The run with a turn in hand, as `claim` leases its row. `messages` are those of the inbox that have been read,
    from the first one on."""
    run = copy(run)
    run.turn_inbox = last_read(run, messages)
    run.turn_prepared_at = max(now, task.updated_at)
    run.turn_written = 0
    return run


def last_read(run: Run, messages: Sequence[Message]) -> int:
    """The number of the last message up to which none is missing; the rest of a large inbox comes with later turns."""
    seq = run.inbox_taken
    for message in messages:
        if message.seq > seq + 1:
            break
        seq = max(seq, message.seq)
    return seq


def prepared(task: Task, run: Run, messages: Sequence[Message]) -> tuple[list[Event], list[UpdateRequest]]:
    """The events that the turn in hand begins with, and the updates that it sees. `messages` are those of the inbox
    that no earlier turn took; later ones are not looked at."""
    assert run.turn_prepared_at is not None
    events: list[Event] = []
    updates: list[UpdateRequest] = []
    last, at = run.event_count, run.turn_scheduled_at  # one that came during the turn before has an earlier time
    for message in messages:
        if message.seq > run.turn_inbox:
            break
        if message.kind == MessageKind.UPDATE:
            updates.append(unpack(message.body, UpdateRequest))
            continue
        at = max(at, message.at)
        for attributes in runs.news_of(message):
            last += 1
            if isinstance(attributes, _CLOSED) and events and isinstance(events[-1].attributes, ActivityTaskStarted):
                attributes = replace(attributes, started_event_id=last - 1)
            events.append(Event(last, at, attributes))
    scheduled = max(run.turn_scheduled_at, events[-1].time if events else 0)
    attempt = run.failures + 1
    events.append(Event(last + 1, scheduled, WorkflowTaskScheduled(task_queue=task.queue, attempt=attempt)))
    started = WorkflowTaskStarted(
        scheduled_event_id=last + 1, identity=task.worker or "", history_bytes=run.history_bytes
    )
    events.append(Event(last + 2, max(run.turn_prepared_at, scheduled), started))
    return events, updates


def append(
    task: Task,
    run: Run,
    messages: Sequence[Message],
    command: c.Append,
    *,
    rows: Mapping[bytes, Task],
    taken: Container[bytes],
    first: Callable[[], WorkflowExecutionStarted],
    now: int,
    mint: Mint,
    rounds: Rounds,
    max_events: int = MAX_EVENTS,
) -> tuple[list[Effect], c.Outcome]:
    """The effects, and the outcome after them: an UnhandledMessages is one that changes something, too. `rows` are the
    locked rows of children that the commands name, `taken` the child runs whose workflow id could not be reserved,
    `first` gives event 1 of this run, and `max_events` bounds its history."""
    if repeated := _answered(task, run, command):
        return [], repeated
    task, now = runs.own(task, run, now)
    run = copy(run)
    effects: list[Effect] = []
    written: list[Event] = []
    if not run.turn_written:
        written, _ = prepared(task, run, messages)
    if command.after != run.event_count + len(written):
        raise LeaseLost(f"the append follows event {command.after}, but the history goes to {run.event_count}")
    closes = _closes(command)
    _check(command, closes, run.event_count + len(written), max_events)
    wanted = command.commands
    unhandled = closes and _has_unhandled(run, messages, along=isinstance(wanted[-1], ContinueAsNew))
    if unhandled and not (wanted := _settled(wanted)):
        return _show_more(task, run, messages, now, rounds), UnhandledMessages()
    if not run.turn_written:
        started = written[-1]
        assert isinstance(started.attributes, WorkflowTaskStarted)
        done = WorkflowTaskCompleted(
            scheduled_event_id=started.attributes.scheduled_event_id,
            started_event_id=started.id,
            identity=task.worker or "",
            build=command.build,
        )
        run.turn_written = started.id + 1
        written.append(Event(run.turn_written, max(now, started.time), done))
        if run.turn_inbox > run.inbox_taken:
            effects.append(Take(run.id, run.turn_inbox))
            run.inbox_taken = run.turn_inbox
    failed = task.failure is not None
    run.failures, task.failure = 0, None  # before the commands: one of them may fail the run
    writer = TurnWriter(task, run, written, messages, rows, taken, first, now, mint, rounds)
    for one in wanted:
        writer.write(one)
    if unhandled:
        writer.fail_turn("unhandled_messages")
    if writer.events:
        page = pages.pack(run.id, writer.events)
        run.event_count += page.count
        run.history_bytes += len(page.data)
        effects.append(Append(page))
    effects += writer.effects
    run.turn_prepared_at = now = max(now, writer.events[-1].time if writer.events else 0)
    if command.final:  # messages have times of a clock that may have been put back since: what follows is later
        task.updated_at = now
    if unhandled:
        return [*effects, *_put_off(task, run, now, rounds)], UnhandledMessages()
    if command.final:
        effects += _end(task, run, command, writer, now, mint, rounds)
    else:  # the lock fences it: nothing of the row itself has changed
        effects += [PutRun(run), Change(task)] if failed else [PutRun(run)]
    return effects, c.Appended(run.id, task.state, run.event_count, is_waiting(run))


def _answered(task: Task, run: Run, command: c.Append) -> c.Outcome | None:
    """The answer that this append got before; LeaseLost when its lease is not the current one."""
    lease, count = command.lease, sum(not isinstance(wanted, RejectUpdate) for wanted in command.commands)
    if decide.holds(task, command):
        ends = (command.after + count, command.after + count + 1)
        if run.turn_written and run.event_count > command.after and run.event_count in ends:
            return c.Appended(run.id, task.state, run.event_count, is_waiting(run))
        return None
    if lease.number == task.done_number and lease.bits == task.done_bits and task.done_number:
        if _closes(command):  # but the run is open
            return UnhandledMessages()
        if run.event_count >= command.after + count:  # else the turn was handed back, or failed, before this came
            return c.Appended(run.id, State(task.done_state), run.event_count)
    raise LeaseLost(decide.why_lost(task))


def _closes(command: c.Append) -> bool:
    return bool(command.commands) and isinstance(command.commands[-1], CLOSING)


def may_close(command: object, task: Task) -> bool:
    """Whether a command may close the row that it is about, so that the row's parent hears of it. All other commands
    must do without the parent's row: what a thousand child runs do would else wait for each other."""
    match command:
        case c.Append():
            return _closes(command)
        case c.Complete():
            return task.kind != Kind.WORKFLOW  # a turn that failed, or was handed back
        case c.Tell(message=message):
            return isinstance(message, WorkflowExecutionCancelRequested)
        case c.Enqueue(start=start):
            return start is not None and start.id_conflict == "terminate_existing"
        case c.Pause() | c.Reset():  # a reset run goes on for its parent as the new one
            return False
        case _:
            return True


def is_waiting(run: Run) -> bool:
    """Whether messages have come that the turn in hand does not see."""
    return run.inbox_count > run.turn_inbox


def _check(command: c.Append, closes: bool, events: int, most: int) -> None:
    for wanted in command.commands[:-1]:
        if isinstance(wanted, CLOSING):
            raise InvalidArgument("a closing command is not the last one", field="commands", kind=type(wanted).__name__)
    if closes and not command.final:
        raise InvalidArgument("a closing command ends the turn", field="final", limit="true", kind="bool")
    if events + len(command.commands) > most and not closes:
        raise Conflict(f"the history would have more than {most} events: continue as new", field="commands")


def _has_unhandled(run: Run, messages: Sequence[Message], *, along: bool) -> bool:
    """Whether an update, or a signal unless the next run takes those `along`, would be lost if the run closed now; or a
    message that has not even been read, because the inbox is large."""
    if last_read(run, messages) < run.inbox_count:
        return True
    unseen = [message for message in messages if message.seq > run.turn_inbox]
    return any(
        message.kind == MessageKind.UPDATE
        or (not along and any(isinstance(news, WorkflowExecutionSignaled) for news in runs.news_of(message)))
        for message in unseen
    )


def _settled(wanted: list[TurnCommand]) -> list[TurnCommand]:
    """Those up to the last end of a step. What a step has done must not be done again, whatever the turn comes to."""
    for index in range(len(wanted), 0, -1):
        one = wanted[index - 1]
        if isinstance(one, CompleteStep) or (isinstance(one, FailStep) and one.retry_in is None):
            return wanted[:index]
    return []


def _show_more(task: Task, run: Run, messages: Sequence[Message], now: int, rounds: Rounds) -> list[Effect]:
    """A close that is put off before anything was written. Of a large inbox what the turn was shown is written down, so
    that the next one comes further; or else that one is shown all of it."""
    effects: list[Effect] = []
    if last_read(run, messages) < run.inbox_count:
        effects = _shown(task, run, messages, now)
        now = task.updated_at
        run.turn_inbox = run.turn_inbox if effects else run.inbox_count
    return [*effects, *_put_off(task, run, now, rounds)]


def _put_off(task: Task, run: Run, now: int, rounds: Rounds) -> list[Effect]:
    """The turn is over without what it wanted to write: the next one sees more."""
    _over(task, run)
    task.state = move(task.state, Cause.GO_ON)
    task.done_state = int(task.state)
    runs.make_ready(task, run, now, rounds)
    return [Change(task), PutRun(run)]


def _over(task: Task, run: Run) -> None:
    """The turn in hand is over, and its lease."""
    task.done_number, task.done_bits = task.lease_number, task.lease_bits
    task.received = True
    decide.end_lease(task)
    run.turn_prepared_at = None
    run.turn_written = 0


def _end(
    task: Task, run: Run, command: c.Append, writer: TurnWriter, now: int, mint: Mint, rounds: Rounds
) -> list[Effect]:
    """The turn is over: the run waits, is ready again because of what arrived meanwhile, or of ends of steps that the
    code has not seen (it was wrong to believe that something had arrived), or closes."""
    run.sticky_session = task.session if command.sticky else None
    run.build = command.build or run.build
    task.started_at = task.started_at or task.attempt_started_at
    _over(task, run)
    if writer.closing is not None:
        task.done_state = int(move(task.state, writer.closing))
        task.attempt += 1
        return runs.closing(task, run, writer.closing, now, mint, task.failure, continued=writer.continued)
    held = any(isinstance(one, (CompleteStep, FailStep)) and one.held for one in command.commands)
    if run.inbox_count > run.inbox_taken or held:
        task.state = move(task.state, Cause.GO_ON)
        runs.make_ready(task, run, now, rounds)
    else:
        task.state = move(task.state, Cause.WAIT)
        task.ready_at = None
        task.wake_at = wake_at(task)
    task.done_state = int(task.state)
    return [PutRun(run), Change(task)]


def fail(
    task: Task, run: Run, messages: Sequence[Message], command: c.Complete, now: int
) -> tuple[list[Effect], State]:
    """The worker reports that the turn failed."""
    if not decide.holds(task, command):
        return [], decide.recorded(task, command)
    task, now = runs.own(task, run, now)
    run = copy(run)
    effects: list[Effect] = []
    failure = Failure(message="the turn failed") if command.failure is None else unpack(command.failure, Failure)
    run.failures += 1
    if run.failures == 1:
        effects = _shown(task, run, messages, now, failure.code, failure)
        now = task.updated_at
    noted = decide.record(task, "failed", run.failures, now, pack(failure))
    task.failure = pack(failure)
    task.attempt += 1
    run.sticky_session = None
    _over(task, run)
    task.state = move(task.state, Cause.FAIL)
    task.done_state = int(task.state)
    task.ready_at = now + runs.turn_pause(run.failures)
    task.wake_at = wake_at(task)
    return [*effects, noted, Change(task), PutRun(run)], task.state


def _shown(
    task: Task, run: Run, messages: Sequence[Message], now: int, cause: str = "unhandled_messages",
    failure: Failure | None = None,
) -> list[Effect]:  # fmt: skip
    """A turn that has come to nothing is written down with what it was shown, so that the next one goes on from there.
    Not if updates were among that: they become no events, so they must stay in the inbox. Both are the caller's own."""
    if run.turn_written or _updates(messages, run):
        return []
    events, _ = prepared(task, run, messages)
    started = events[-1]
    assert isinstance(started.attributes, WorkflowTaskStarted)
    failed = WorkflowTaskFailed(
        scheduled_event_id=started.attributes.scheduled_event_id,
        started_event_id=started.id,
        cause=cause,
        failure=failure,
        identity=task.worker or "",
    )
    task.updated_at = max(now, started.time)
    events.append(Event(started.id + 1, task.updated_at, failed))
    page = pages.pack(run.id, events)
    run.event_count += len(events)
    run.history_bytes += len(page.data)
    effects: list[Effect] = [Append(page)]
    if run.turn_inbox > run.inbox_taken:
        effects.append(Take(run.id, run.turn_inbox))
        run.inbox_taken = run.turn_inbox
    return effects


def release(task: Task, run: Run, command: c.Complete, now: int, rounds: Rounds) -> tuple[list[Effect], State]:
    """The worker leaves: another one gets the turn at once."""
    if not decide.holds(task, command):
        return [], decide.recorded(task, command)
    task, now = runs.own(task, run, now)
    run = copy(run)
    _over(task, run)
    run.sticky_session = None
    task.state = move(task.state, Cause.RELEASE)
    runs.make_ready(task, run, now, rounds)
    task.done_state = int(task.state)
    return [Change(task), PutRun(run)], task.state


def _updates(messages: Sequence[Message], run: Run) -> bool:
    """Whether updates are among what the turn in hand sees: they become no events, so a failed turn must not take what
    is in the inbox."""
    return any(message.kind == MessageKind.UPDATE and message.seq <= run.turn_inbox for message in messages)
