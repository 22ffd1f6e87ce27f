"""What the parts of the service share: the engine, for whom they act, and looking a task up."""

from __future__ import annotations

from collections.abc import Callable

from perdure.api.parking import Parking
from perdure.api.plan import as_error
from perdure.api.reading import reading
from perdure.core import commands as c
from perdure.core import ids
from perdure.core.errors import Gone, NotFound
from perdure.core.model import SECOND, Task
from perdure.engine.engine import Engine


class Part:
    """Acts for a namespace; `identity` is the name that the caller gives itself. See Service for the rest."""

    def __init__(
        self, engine: Engine, namespace: str, identity: str, parking: Parking, alive: Callable[[], bool]
    ) -> None:
        self._engine = engine
        self._namespace = namespace
        self._identity = identity
        self._parking = parking
        self._alive = alive

    async def _make(self, command: c.Enqueue) -> c.Enqueued:
        outcome = (await self._engine.apply([command]))[0]
        if isinstance(outcome, c.Enqueued):
            return outcome
        raise as_error(outcome)

    async def _read(self, task_id: bytes) -> Task:
        with reading():
            task = (await self._engine.store.read([task_id])).get(task_id)
        return self._found(task_id, task if task is not None and task.namespace == self._namespace else None)

    def _found(self, task_id: bytes, task: Task | None) -> Task:
        """Gone for an id so old that its task, once closed, is not kept any more; its time of birth is in the id."""
        if task is None and ids.made_at(task_id) < self._engine.now() - self._engine.retention * SECOND:
            days = self._engine.retention / 86_400
            raise Gone(f"there is no such task any more; closed tasks are kept for {days:g} days", field="task_id")
        if task is None:
            raise NotFound("there is no such task", field="task_id")
        return task
