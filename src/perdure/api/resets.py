"""Runs that begin again from an event of their past (RPLY-39): finds the event, reads all that the engine needs to know
of the old run, and asks again when that has gone on meanwhile.

What is read here is what the engine would have to read within a transaction otherwise: a history may be long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from perdure.api import run_drafts
from perdure.api.plan import as_error
from perdure.api.reading import reading
from perdure.core import commands as c
from perdure.core import ids, limits, pages
from perdure.core import workflow_messages as w
from perdure.core.errors import InvalidArgument, NotFound, Unavailable
from perdure.core.events import Event, StepStarted
from perdure.core.model import Task
from perdure.core.reset import request_digest
from perdure.core.run import Run
from perdure.core.turn_effects import key_of
from perdure.engine.engine import Engine

TRIES = 20
"""How often a run may have gone on while its history was read. Only what is new is read again."""
_PAUSES = (0.001, 0.1)  #: seconds between tries: the first, and the longest
_PAGES = 100  #: of a history that are read at once
_BYTES = 16 * 1024 * 1024  #: the same

Load = Callable[[str, str | None], Awaitable[tuple[Task, Run]]]


class Resets:
    """`load` finds the rows of a run by workflow id and run id, or raises NotFound."""

    def __init__(self, engine: Engine, namespace: str, load: Load) -> None:
        self._engine = engine
        self._namespace = namespace
        self._load = load

    async def reset(self, body: w.ResetWorkflow, identity: str) -> w.StartReply:
        _check(body)
        digest = request_digest(limits.name(body.request_id, "request_id", empty=True))
        reason = limits.text(body.reason, "reason")
        new_run_id = self._new_id(body.workflow_id)
        histories: dict[bytes, list[Event]] = {}  #: by run: another one may become the current one meanwhile
        pause, longest = _PAUSES
        for _ in range(TRIES):
            if digest and (done := await self._done_before(body.workflow_id, digest)) is not None:
                return w.StartReply(body.workflow_id, ids.text(done))
            task, run = await self._load(body.workflow_id, body.run_id)
            history = histories.setdefault(run.id, [])
            await self._read_on(run, history)
            command = c.Reset(
                namespace=self._namespace,
                workflow_id=body.workflow_id,
                run_id=run.id,
                event_id=_event_id(body, history),
                history=history,
                task=task,
                run=run,
                new_run_id=new_run_id,
                digest=digest,
                reason=reason,
                identity=identity,
            )
            outcome = (await self._engine.apply([command]))[0]
            if isinstance(outcome, c.Started):
                return w.StartReply(body.workflow_id, ids.text(outcome.run_id))
            if not isinstance(outcome, c.Stale):
                raise as_error(outcome)
            await asyncio.sleep(pause)
            pause = min(pause * 2, longest)
        raise Unavailable("the run goes on faster than its history can be read: pause it first", retry_after=1.0)

    def _new_id(self, workflow_id: str) -> bytes:
        """The same over all tries; it carries the slot of the workflow id, as do those of all its runs."""
        return self._engine.mint.task_id(self._engine.now(), ids.slot_of(self._namespace, workflow_id))

    async def _done_before(self, workflow_id: str, digest: bytes) -> bytes | None:
        """The run that an earlier call with this request id made, while that is the current one."""
        with reading():
            key = await self._engine.store.find_key(key_of(self._namespace, workflow_id))
        return key.task_id if key is not None and key.digest == digest else None

    async def _read_on(self, run: Run, history: list[Event]) -> None:
        """Add the events that are not in `history` yet."""
        while len(history) < run.event_count:
            after = len(history)
            with reading():
                found = (await self._engine.store.histories({run.id: after}, _PAGES, _BYTES)).get(run.id, [])
            history += (event for page in found for event in pages.unpack(page.data) if event.id > after)
            if len(history) == after:
                raise NotFound("the history of this run is not kept any more", field="run_id")


def _check(body: w.ResetWorkflow) -> None:
    run_drafts.workflow_id(body.workflow_id)
    if (body.event_id is None) == (body.step is None):
        raise InvalidArgument("give event_id or step, one of them", field="event_id", limit="one of two", kind="null")
    if body.step is not None:
        limits.name(body.step, "step")
    else:
        limits.integer(body.event_id, "event_id", 1, 2**53)  # type: ignore[arg-type]  # not None


def _event_id(body: w.ResetWorkflow, history: Sequence[Event]) -> int:
    """The last event that is kept."""
    if body.step is None:
        assert body.event_id is not None
        return body.event_id
    for event in reversed(history):
        began = event.attributes
        if isinstance(began, StepStarted) and began.name == body.step and began.attempt == 1:
            return event.id - 1
    raise NotFound(f"the run has begun no step {body.step!r}", field="step")
