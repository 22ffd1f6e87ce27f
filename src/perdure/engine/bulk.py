"""Drives actions on many jobs or runs: picks the next of them, writes down which, applies ordinary commands to them,
and writes down how it went (core/bulk.py). Live work goes first: a step is a request like any other, and there is a
breath between two."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from perdure.core import bulk, decide, ids
from perdure.core import commands as c
from perdure.core.bulk import Action
from perdure.core.errors import Conflict, Internal, NotFound, PerdureError, Unavailable
from perdure.core.events import WorkflowExecutionCancelRequested
from perdure.core.ids import Mint
from perdure.core.model import Task, pack
from perdure.core.states import State, is_closed
from perdure.store.base import Store, StoreFault
from perdure.store.search import pick

log = logging.getLogger("perdure.engine")

WINDOW = 5_000
"""Rows that one look for the jobs of an action reads at most."""
BREATH = 0.05
"""Seconds between steps."""
READ = 50
"""Closed jobs, whole, that are in memory at once."""
PAUSE = 1.0
"""Seconds after which is tried again what the database did not do."""

Apply = Callable[[Sequence[c.Command]], Awaitable[list[c.Outcome]]]


class BulkActions:
    """Those whose alarm rang here."""

    def __init__(self, store: Store, apply: Apply, mint: Mint) -> None:
        self._store = store
        self._apply = apply
        self._mint = mint

    async def drive(self, task: Task) -> None:
        """To the end of the action; or until it is canceled, or another server has taken it over because a step took
        too long here."""
        try:
            action = bulk.action_of(task)
            going_on = True
            while going_on:
                going_on = await self._step_or_wait(task, action)
                await asyncio.sleep(BREATH)
        except Exception:  # a bug, or a row of another version: its alarm will ring again
            log.exception("action %s cannot go on; it is tried again in 30 s", ids.text(task.id))

    async def _step_or_wait(self, task: Task, action: Action) -> bool:
        """As `_step`; an outage is waited out."""
        while True:
            try:
                return await self._step(task, action)
            except (StoreFault, Unavailable) as fault:
                log.info("action %s waits for the database: %s", ids.text(task.id), fault)
                await asyncio.sleep(PAUSE)

    async def _step(self, task: Task, action: Action) -> bool:
        """Take the step in hand, and write down the next one; False when there is nothing more to do here. A fault
        leaves `action` such that the same step is taken again, with the same counts."""
        errors = await self._act(action, task) if action.step else {}
        done = _noted(action, errors)
        if not done.ended:
            picked = await pick(self._store, done.selection, WINDOW, done.cursor)
            done.step = picked.ids[: bulk.STEP]
            cut = len(picked.ids) > bulk.STEP
            done.cursor = done.step[-1] if cut else picked.last
            done.ended = not cut and picked.last is None
        over = done.ended and not done.step
        note = c.NoteBulk(
            namespace=task.namespace, task_id=task.id, number=task.lease_number, checkpoint=pack(done), over=over
        )
        (outcome,) = await self._apply([note])
        if isinstance(outcome, Unavailable):
            raise outcome
        for field in Action.__struct_fields__:
            setattr(action, field, getattr(done, field))
        return isinstance(outcome, c.Changed) and not is_closed(outcome.state)

    async def _act(self, action: Action, task: Task) -> dict[bytes, PerdureError]:
        """Do it to the jobs, or runs, of the step; the errors of those that were left as they are."""
        namespace = action.selection.namespace
        match action.action:
            case "cancel_runs" | "terminate_runs":
                return await self._end_runs(action, task)
            case "cancel":
                cancels = [c.Cancel(namespace=namespace, task_id=i, reason=action.reason) for i in action.step]
                outcomes = await self._answers(cancels)
                return {i: error for i, one in zip(action.step, outcomes, strict=True) if (error := _not_canceled(one))}
            case "delete":
                await self._answers([c.Erase(task_ids=action.step)])
                return {}
            case _:
                errors: dict[bytes, PerdureError] = {}
                for start in range(0, len(action.step), READ):
                    errors |= await self._retry(action.step[start : start + READ], task.identity)
                return errors

    async def _end_runs(self, action: Action, task: Task) -> dict[bytes, PerdureError]:
        """Cancel or terminate them. A cancel has the id of the action, so it is asked for once."""
        runs = await self._store.run_rows(action.step)
        namespace, reason, who = action.selection.namespace, action.reason, task.identity
        commands: list[c.Command] = []
        for run in runs.values():
            if action.action == "terminate_runs":
                ends: c.Command = c.Terminate(
                    namespace=namespace, workflow_id=run.workflow_id, run_id=run.id, reason=reason, identity=who
                )
            else:
                asked = f"bulk {ids.text(task.id)}"
                request = WorkflowExecutionCancelRequested(cause=reason, identity=who, request_id=asked)
                ends = c.Tell(
                    namespace=namespace, workflow_id=run.workflow_id, run_id=run.id, message=request, request_id=asked
                )
            commands.append(ends)
        outcomes = await self._answers(commands)
        errors: dict[bytes, PerdureError] = {i: NotFound("there is no such run any more") for i in action.step}
        for run_id, outcome in zip(runs, outcomes, strict=True):
            if (error := _not_ended(outcome)) is None:
                del errors[run_id]
            else:
                errors[run_id] = error
        return errors

    async def _retry(self, task_ids: Sequence[bytes], identity: str) -> dict[bytes, PerdureError]:
        """What was retried before, by this action or by somebody else, is done."""
        closed = await self._store.read(task_ids)
        done = await self._store.retried_by(task_ids)
        errors: dict[bytes, PerdureError] = {}
        repeats: dict[bytes, c.Enqueue] = {}
        for task_id in task_ids:
            if task_id in done:
                continue
            if task_id not in closed:
                errors[task_id] = NotFound("there is no such task any more", field="task_id")
                continue
            try:
                repeats[task_id] = decide.repeat(closed[task_id])
            except PerdureError as error:
                errors[task_id] = error
            else:
                repeats[task_id].task_id = self._mint.task_id(self._store.now(), ids.slot(task_id))
        outcomes = await self._answers(list(repeats.values()))
        errors |= {i: one for i, one in zip(repeats, outcomes, strict=True) if isinstance(one, PerdureError)}
        return errors

    async def _answers(self, commands: Sequence[c.Command]) -> list[c.Outcome]:
        """Unavailable where one of them was not tried: the whole step is taken again."""
        outcomes = await self._apply(commands)
        for outcome in outcomes:
            if isinstance(outcome, Unavailable):
                raise outcome
        return outcomes


def _noted(action: Action, errors: dict[bytes, PerdureError]) -> Action:
    """The action after its step."""
    done = bulk.copied(action)
    done.done += len(action.step) - len(errors)
    for task_id, error in errors.items():
        bulk.add_error(done, task_id, error.problem())
    done.step = []
    return done


def _not_ended(outcome: c.Outcome) -> PerdureError | None:
    if isinstance(outcome, PerdureError):
        return outcome
    if isinstance(outcome, c.Told) or (isinstance(outcome, c.Changed) and outcome.state == State.TERMINATED):
        return None
    if isinstance(outcome, c.Changed):
        return Conflict(f"it was {outcome.state.name} before it could be terminated")
    return Internal(f"unexpected outcome {type(outcome).__name__}")


def _not_canceled(outcome: c.Outcome) -> PerdureError | None:
    if isinstance(outcome, PerdureError):
        return outcome
    if not isinstance(outcome, c.Changed):
        return Internal(f"unexpected outcome {type(outcome).__name__}")
    if outcome.state == State.CANCELED or outcome.cancel_requested:
        return None
    return Conflict(f"it was {outcome.state.name} before it could be canceled")
