"""What must hold in every answer of an engine, by what is committed at that moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perdure.core import commands as c
from perdure.core.errors import LeaseLost, UnhandledMessages
from perdure.core.events import StepCompleted, WorkflowExecutionSignaled
from perdure.core.model import Lease, Task
from perdure.core.run import UpdateRequest
from perdure.core.states import State as S
from perdure.core.turn_commands import CLOSING, CompleteStep, RejectUpdate
from perdure.engine.dispatch import PollRequest
from perdure.engine.engine import Engine
from tests.sim.invariants import Token, token
from tests.sim.pasts import value_of
from tests.sim.reading import short, show

if TYPE_CHECKING:
    from tests.sim.world import World


def name_of(command: c.Command) -> str:
    """What somebody asks for, as it is counted."""
    match command:
        case c.Enqueue(start=c.Start(signal=signal)):
            return "Start" if signal is None else "SignalWithStart"
        case c.Complete(outcome=outcome):
            return f"Complete {outcome}"
        case c.Append(commands=[*_, last]) if isinstance(last, CLOSING):
            return f"Append {type(last).__name__}"
        case c.Tell(message=message):
            return f"Tell {type(message).__name__}"
    return type(command).__name__


class Answers:
    """Sees every answer of every engine."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._seen = world.checker
        self._goodbyes: set[int] = set()  #: worker processes that are to end whatever their connection

    def attend(self, engine: Engine) -> None:
        """See the answers of an engine."""
        apply, poll = engine.apply, engine.poll

        async def applied(commands: Sequence[c.Command]) -> list[c.Outcome]:
            since = self._seen.commits
            for command in commands:
                if isinstance(command, c.Complete):
                    self._world.unreported.pop(token(command.lease), None)
            self._goodbyes.update(
                command.incarnation
                for command in commands
                if isinstance(command, c.CloseSession) and command.epoch is None
            )
            outcomes = await apply(commands)
            for command, outcome in zip(commands, outcomes, strict=True):
                self._seen.count(f"{name_of(command)} {type(outcome).__name__}")
                self._answered(command, outcome, since)
            return outcomes

        async def polled(request: PollRequest) -> list[Task]:
            before = self._unreceived(request)
            tasks = await poll(request)
            self._delivered(request, tasks, before)
            return tasks

        engine.apply = applied  # type: ignore[method-assign]
        engine.poll = polled  # type: ignore[method-assign]

    def _answered(self, command: c.Command, outcome: c.Outcome, since: int) -> None:
        match command, outcome:
            case c.Enqueue(), c.Enqueued():
                self._enqueued(command, outcome)
            case c.Heartbeat(), c.Alive():
                self._beaten(command.lease, since)
            case c.Complete(outcome="deferred"), c.Changed():
                self._handed(command.lease, outcome.state)
            case c.Complete(), c.Changed():
                self._completed(command.lease, outcome.state)
            case ((c.Complete() | c.Heartbeat()), LeaseLost()):
                self._lost(command.lease, completed=isinstance(command, c.Complete))
            case ((c.Cancel() | c.Retry()), c.Changed()):
                self._changed(command, outcome)
            case c.CloseSession(), c.Accepted() if command.epoch is not None:
                self._closed(command.incarnation, command.epoch)
            case c.Append(), (c.Appended() | UnhandledMessages()):
                self._appended(command, outcome, since)
            case c.Tell(), c.Told():
                self._told(command, outcome)
            case c.OpenSession(), c.Accepted():
                self._opened(command.incarnation, command.epoch)

    # ----------------------------------------------------------------------------------------------------------- tasks
    def _enqueued(self, command: c.Enqueue, outcome: c.Enqueued) -> None:
        if not self._seen.exists(outcome.task_id):
            self._seen.fail("committed", f"{short(outcome.task_id)} was acknowledged and is not there")
        if command.minted and outcome.task_id != command.task_id:
            self._seen.fail("keys", "another id than the one that was asked for")

    def _changed(self, command: c.Cancel | c.Retry, outcome: c.Changed) -> None:
        if outcome.state not in [state for _, state in self._seen.history[outcome.task_id]]:
            self._seen.fail("committed", f"{short(outcome.task_id)} is said to be {outcome.state.name}")
        task = self._seen.tasks.get(outcome.task_id)
        if isinstance(command, c.Cancel) and task is not None and task.cancel_requested_at is None:
            self._seen.fail("committed", f"a cancel was acknowledged and is not stored: {show(task)}")

    # ---------------------------------------------------------------------------------------------------------- leases
    def _beaten(self, lease: Lease, since: int) -> None:
        granted = self._seen.known(lease, "a heartbeat")
        if granted.ended is not None and granted.ended <= since:
            self._seen.fail("fence", f"a heartbeat under a stale lease: {short(lease.task_id)} {lease.number}")
        if granted.silenced and granted.beaten <= since and not self._world.set_back:
            self._seen.fail("beats", f"a heartbeat was accepted and its lease ended: {short(lease.task_id)}")
        if granted.ended is None and not granted.received:
            self._seen.fail("committed", "a receipt was acknowledged and is not stored")

    def _completed(self, lease: Lease, state: S) -> None:
        granted = self._seen.known(lease, "a completion")
        if granted.vanished:
            return
        if granted.closed_as is None:
            self._seen.fail("fence", f"a completion of {short(lease.task_id)} was accepted and did nothing")
        if granted.closed_as != state:
            self._seen.fail("answers", f"told {state.name}, was {granted.closed_as}")
        if state == S.SUCCEEDED and self._seen.winners.get(lease.task_id) != token(lease):
            self._seen.fail("once", f"two completions of {short(lease.task_id)} were accepted")

    def _handed(self, lease: Lease, state: S) -> None:
        """The attempt goes on, and somebody else ends it; or has done so already."""
        granted = self._seen.known(lease, "a hand-over")
        granted.handed = granted.handed or state == S.LEASED
        task = self._seen.tasks.get(lease.task_id)
        if granted.ended is None and task is not None and (task.session, task.lease_until) != (None, None):
            self._seen.fail("handed", f"a hand-over was acknowledged and is not stored: {show(task)}")
        if state != S.LEASED and not granted.vanished and granted.closed_as != state:
            self._seen.fail("answers", f"told {state.name}, was {granted.closed_as}")

    def _lost(self, lease: Lease, *, completed: bool) -> None:
        granted = self._seen.leases.get(token(lease))
        if granted is None:
            return
        if granted.ended is None:
            self._seen.fail("answers", f"a lease that holds is called lost: {short(lease.task_id)}")
        if completed and granted.closed_as is not None and lease.task_id not in self._seen.trimmed:
            current = self._seen.tasks.get(lease.task_id) or self._seen.closed.get(lease.task_id)
            if current is not None and current.done_number == lease.number:
                self._seen.fail("answers", f"a recorded completion is called lost: {show(current)}")

    # ----------------------------------------------------------------------------------------------------------- turns
    def _appended(self, command: c.Append, outcome: c.Appended | UnhandledMessages, since: int) -> None:
        run_id = command.lease.task_id
        granted = self._seen.known(command.lease, "an append")
        past = self._seen.runs.pasts[run_id]
        if granted.ended is not None and granted.ended <= since and granted.closed_as is None:
            self._seen.fail("fence", f"an append under a stale lease: {short(run_id)} {command.lease.number}")
        if isinstance(outcome, UnhandledMessages):
            kept = {event.attributes.step_id for event in past.events if isinstance(event.attributes, StepCompleted)}
            ends = {one.step_id for one in command.commands if isinstance(one, CompleteStep)}
            if past.closed is None and not ends <= kept:
                self._seen.fail(
                    "steps", f"{short(run_id)}: ends of steps {ends - kept} were not kept as it was put off"
                )
            return
        count = sum(not isinstance(one, RejectUpdate) for one in command.commands)
        if len(past.events) < max(outcome.last, command.after + count):
            self._seen.fail("committed", f"an append to {short(run_id)} was acknowledged and is not stored: {outcome}")
        if command.final and granted.ended is None:
            self._seen.fail("fence", f"the last append of a turn of {short(run_id)} was accepted and ended nothing")

    def _told(self, command: c.Tell, outcome: c.Told) -> None:
        match command.message:
            case WorkflowExecutionSignaled() as signal:
                self._seen.runs.stored(value_of(signal.input), outcome.run_id)
            case UpdateRequest():
                assert outcome.answer_id is not None
                if not self._seen.exists(outcome.answer_id):
                    self._seen.fail("committed", f"an update of {short(outcome.run_id)} is acknowledged and not there")

    # -------------------------------------------------------------------------------------------------------- sessions
    def _closed(self, incarnation: int, epoch: int) -> None:
        stored = self._seen.sessions.get(incarnation)
        newer = stored is not None and stored.epoch > epoch and stored.ends_at is not None
        if newer and incarnation not in self._goodbyes:
            self._seen.fail("epochs", f"an old connection ended a new session: {stored}")

    def _opened(self, incarnation: int, epoch: int) -> None:
        stored = self._seen.sessions.get(incarnation)
        seen = self._world.epochs.setdefault(incarnation, set())
        if epoch in seen:
            self._seen.fail("epochs", f"epoch {epoch} was accepted twice")
        seen.add(epoch)
        if stored is not None and stored.epoch < epoch:
            self._seen.fail("committed", "a session was opened and is not stored")

    # ----------------------------------------------------------------------------------------------------------- polls
    def _unreceived(self, request: PollRequest) -> list[Token]:
        """Leases that this poll got before and that were not acknowledged. A plain request that is repeated may reach
        another server, which takes it for a new one if it knows the worker."""
        if self._world.plan.posting and self._world.plan.servers > 1:
            return []
        return [
            token(task.lease)
            for task in self._seen.tasks.values()
            if task.state == S.LEASED and task.session == request.incarnation and task.poll == request.poll
            and not task.received
        ]  # fmt: skip

    def _delivered(self, request: PollRequest, tasks: list[Task], before: list[Token]) -> None:
        given = set()
        for task in tasks:
            granted = self._seen.known(task.lease, "a delivery")
            given.add(token(task.lease))
            if granted.session != request.incarnation or granted.poll != request.poll:
                self._seen.fail("twice", f"a lease of another poll was delivered: {show(task)}")
        if len(tasks) > request.capacity:
            self._seen.fail("slots", f"{len(tasks)} tasks for {request.capacity} slots")
        for lease in before:
            granted = self._seen.leases[lease]
            if self._world.database.is_held(lease[0]):
                continue  # somebody writes it this moment, its receipt mostly, and rows that are held are skipped
            if granted.ended is None and not granted.received and lease not in given and len(tasks) < request.capacity:
                self._seen.fail("polls", f"a repeated poll did not get its lease again: {short(lease[0])}")
