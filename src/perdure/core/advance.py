"""Appends by which a turn goes on from step to step: ends of steps and claims of others, behind its first append.

Nearly all appends are such. Nothing decides about one but the lease and the numbers that it names, so stores write it
without a look at the row (`Batch.advance`); like `decide.succeed` this is a rule that SQL repeats, and the contract
suite holds the stores to `turns.append`.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import msgspec

from perdure.core import commands as c
from perdure.core import pages
from perdure.core.events import Event, StepCompleted, StepFailed, StepStarted
from perdure.core.history_size import crosses
from perdure.core.model import Lease, Task
from perdure.core.run import Page, Run
from perdure.core.states import State
from perdure.core.turn_commands import CompleteStep, FailStep, StartStep, TurnCommand

_STEPS = frozenset((StartStep, CompleteStep, FailStep))


class Advance(msgspec.Struct, frozen=True, gc=False):
    """One such append. `completed_event_id` is the WorkflowTaskCompleted of the turn, `worker` who has the lease, `at`
    the time of the events in the page."""

    lease: Lease
    completed_event_id: int
    worker: str
    at: int
    page: Page


def is_advance(command: c.Append, max_events: int) -> bool:
    """Whether no more than its lease and its numbers decide about an append to a history of `max_events` at most; one
    by which that is to be warned of takes the long way."""
    last = command.after + len(command.commands)
    return (
        not command.final
        and command.completed_event_id > 0
        and command.identity != ""
        and command.after < last <= max_events
        and not crosses(command.after, last, max_events)
        and _STEPS.issuperset(map(type, command.commands))
    )


def advance(command: c.Append, now: int) -> Advance:
    """What to write for an append that `is_advance`."""
    events = _events(command.commands, command.after, now, command.identity, command.completed_event_id)
    page = pages.pack(command.lease.task_id, events)
    return Advance(command.lease, command.completed_event_id, command.identity, now, page)


def _events(commands: Sequence[TurnCommand], last: int, now: int, worker: str, completed: int) -> list[Event]:
    """The same as turn_effects.TurnWriter makes of them."""
    events: list[Event] = []
    for event_id, one in enumerate(commands, last + 1):
        attributes: StepStarted | StepCompleted | StepFailed
        match one:
            case StartStep():
                attributes = StepStarted(
                    step_id=one.step_id,
                    name=one.name,
                    attempt=one.attempt,
                    identity=worker,
                    completed_event_id=completed,
                )
            case CompleteStep():
                attributes = StepCompleted(step_id=one.step_id, result=one.result, held=one.held)
            case FailStep():
                attributes = StepFailed(
                    step_id=one.step_id,
                    failure=one.failure,
                    attempt=one.attempt,
                    retry_in=one.retry_in,
                    held=one.held,
                )
            case _:
                raise AssertionError(f"{type(one).__name__} is about no step")
        events.append(Event(event_id, now, attributes))
    return events


def holds(task: Task, run: Run, wanted: Advance) -> bool:
    """Whether it may be written: it is under the current lease, compared whole, goes on from the last event, and its
    events are later than all before."""
    return (
        task.state == State.LEASED
        and task.lease == wanted.lease
        and task.worker == wanted.worker
        and task.updated_at <= wanted.at
        and run.turn_prepared_at is not None
        and run.turn_prepared_at <= wanted.at
        and run.turn_written == wanted.completed_event_id
        and run.event_count == wanted.page.first - 1
    )


def advanced(run: Run, written: Advance) -> Run:
    """The run after it."""
    run = copy(run)
    run.event_count += written.page.count
    run.history_bytes += len(written.page.data)
    run.turn_prepared_at = written.at
    return run
