"""Runs jobs on the event loop of a test: what is due, then a jump to what is due next, until nothing is left.

All that decides is the real thing: an SQLite database in memory, an engine, workers. The engine's own services are off,
because time passes here only by jumps: after each the stage rings the alarms itself. It is idle, and may jump, when no
task is ready and every task that runs waits for another one.

A handler that does not end is no reason to wait in real time for its limit. One that still runs after `patience`
seconds counts as hanging: its lease is kept alive and the clock jumps to whatever happens next, such as its time limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from perdure.api.service import Caller
from perdure.api.service import Service as ServerService
from perdure.api.workflow_views import run_view
from perdure.app import AsyncPerdure
from perdure.client.base import Service
from perdure.client.embedded import EmbeddedService
from perdure.core import commands as c
from perdure.core import messages as m
from perdure.core import workflow_messages as w
from perdure.core.errors import TaskFailed
from perdure.core.lanes import TURNS, WORK, lane
from perdure.core.limits import MAX_PAGE, MAX_QUEUES
from perdure.core.model import Task as Row
from perdure.core.states import Kind, State, is_closed
from perdure.engine.engine import Engine
from perdure.sdk.definition import WORKFLOWS
from perdure.sdk.task import REGISTRY
from perdure.store.base import Filter
from perdure.store.sqlite import SqliteStore
from perdure.testing.clock import JumpingClock
from perdure.testing.door import Door
from perdure.testing.waits import Waits
from perdure.worker.execute import BARE
from perdure.worker.options import WorkerOptions
from perdure.worker.threads import Ended, Threads
from perdure.worker.watchdog import LIMIT_SECONDS
from perdure.worker.worker import Worker

_CHORE = 200  #: rows that one chore changes
_ALL = 1_000_000
Until = Callable[[], Awaitable[bool]]


class Stage:
    """One database and its jobs, and what `client` gives to its handlers. To be used on the event loop on which `open`
    was entered; `service` may be called from others."""

    service: Service  #: what applications and workers talk to

    def __init__(
        self,
        clock: JumpingClock,
        client: AsyncPerdure,
        slots: int,
        patience: float,
        threads: Callable[[Ended], Threads],
    ) -> None:
        self.clock = clock
        self._client = client
        self._namespace = client.namespace or "default"
        self._slots = slots
        self._patience = patience
        self._threads = threads
        self._given = BARE
        self._queues = {"default"}
        self._workers: list[Worker] = []
        self._awaited: list[bytes] = []  #: tasks that handlers wait for
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """From here on it answers; nothing is kept afterwards."""
        store = SqliteStore(":memory:", clock=self.clock)
        await store.migrate()
        await store.open()
        try:
            self._engine = Engine(store)
            await self._engine.start(services=False)
            try:
                self._server = ServerService(self._engine, Caller(self._namespace))
                door = Door(self._server, self._queues.add, self._changed.set, Waits(self, self._server))
                self.service = EmbeddedService(door)
                yield
            finally:
                await self._engine.stop()
        finally:
            await store.close()

    async def drive(self, until: Until | None = None, end: int | None = None, *, stuck: bool = False) -> None:
        """Run what is due, jump to what is due next, again and again, until nothing is left; not beyond `end`, and no
        further than to where `until` says so.

        Raises TaskFailed when a turn of a workflow fails, because turns are tried again for ever; unless with `stuck`
        runs may be so.
        """
        async with self._turn:
            await self._drive(until, end, stuck)

    async def run(self, end: int | None, *, stuck: bool = False) -> None:
        """Run all there is, or what is due until the clock shows `end`, which it then does."""
        async with self._turn:
            await self._drive(None, end, stuck)
            if end is not None:
                self.clock.jump(end)

    async def views(self, states: Iterable[State], *, payload: bool = False) -> list[m.TaskView]:
        """All tasks in these states, oldest first."""
        found: list[m.TaskView] = []
        for state in states:
            cursor = None
            while True:
                page = await self.service.find(m.Find(state=state.name, limit=MAX_PAGE, cursor=cursor))
                found += page.tasks
                cursor = page.next
                if cursor is None:
                    break
        found.sort(key=lambda view: view.task_id)
        return [await self.service.get(m.Get(view.task_id)) for view in found] if payload else found

    async def failed_runs(self) -> list[w.WorkflowView]:
        """Runs that FAILED or TIMED_OUT, oldest first; not those of a child, nor those that went on in another run."""
        found: list[w.WorkflowView] = []
        for status in ("FAILED", "TIMED_OUT"):
            cursor = None
            while True:
                page = await self._server.find_workflows(w.FindWorkflows(status=status, limit=MAX_PAGE, cursor=cursor))
                found += [view for view in page.workflows if not view.parent_workflow_id]
                cursor = page.next
                if cursor is None:
                    break
        found.sort(key=lambda view: view.run_id)
        whole = [await self._server.describe_workflow(w.DescribeWorkflow(run.workflow_id, run.run_id)) for run in found]
        return [view for view in whole if not view.next_run_id]

    @asynccontextmanager
    async def lent_slot(self, *awaited: bytes) -> AsyncIterator[None]:
        """In a handler that waits, for the end of a task if that is known: another one may use its slot meanwhile."""
        async with self._worker(self._polled(set()), slots=1):
            self._awaited += awaited
            self._changed.set()
            try:
                yield
            finally:
                for task_id in awaited:
                    self._awaited.remove(task_id)
                self._changed.set()

    # ------------------------------------------------------------------------------------------------------ driving
    async def _drive(self, until: Until | None, end: int | None, stuck: bool) -> None:
        async with AsyncExitStack() as around, AsyncExitStack() as stack:
            polled: list[str] = []
            while True:
                await self._ring()
                _, ready = await self._look()
                if not ready.issubset(polled):
                    await stack.aclose()
                    if not polled:
                        self._given = await around.enter_async_context(self._client.environment())
                    polled = self._polled(ready)
                    await stack.enter_async_context(self._worker(polled, slots=self._slots))
                idle = await self._quiet(polled)
                running, ready = await self._look()
                if idle and ready:
                    continue  # in a queue that nobody polls yet
                if not stuck:
                    await self._refuse_stuck()
                if until is not None and await until():
                    return
                due = await self._next(running, schedules=end is not None)
                if due is not None and (end is None or due <= end):
                    self.clock.jump(due)
                    await self._engine.apply([c.Heartbeat(lease=task.lease) for task in running])
                elif idle and not running:
                    return
                else:
                    raise TimeoutError(self._hanging(running))

    async def _ring(self) -> None:
        """Everything that is due by the clock happens."""
        count = _CHORE
        while count >= _CHORE:
            [did] = await self._engine.apply([c.Ring(limit=_CHORE)])
            count = did.count if isinstance(did, c.Did) else 0

    async def _look(self) -> tuple[list[Row], set[str]]:
        """The tasks that run, and the queues in which some are ready."""
        kinds = (TURNS, WORK) if WORKFLOWS else (WORK,)  # a worker that has no workflow asks for no turns
        lanes = {lane(self._namespace, queue, kind): queue for queue in self._queues for kind in kinds}
        async with self._engine.store.batch() as rows:
            ready = {lanes[name] for name in await rows.places(list(lanes))}
            running = [task for worker in self._workers for task in await rows.leased_by(worker.incarnation, _CHORE)]
        return running, ready

    async def _refuse_stuck(self) -> None:
        waiting = Filter(namespace=self._namespace, limit=_CHORE, state=State.RETRY_WAIT, kind=Kind.WORKFLOW)
        tasks = await self._engine.store.find(waiting)
        rows = await self._engine.store.run_rows([task.id for task in tasks]) if tasks else {}
        for view in (run_view(task, rows[task.id]) for task in tasks):
            if view.failure is not None:
                error = TaskFailed(view.failure)
                error.add_note(
                    f"in a turn of workflow {view.type} ({view.workflow_id}), which goes on with mended code"
                )
                raise error

    async def _quiet(self, polled: list[str]) -> bool:
        """Returns when it is idle; False when a handler hangs instead."""
        while True:
            self._changed.clear()
            running, ready = await self._look()
            if ready.isdisjoint(polled) and len(running) <= len(self._awaited) and await self._are_open(self._awaited):
                return True
            try:
                async with asyncio.timeout(self._patience):
                    await self._changed.wait()
            except TimeoutError:
                return False

    async def _are_open(self, task_ids: list[bytes]) -> bool:
        tasks = await self._engine.store.read(task_ids) if task_ids else {}
        return not any(is_closed(task.state) for task in tasks.values())

    async def _next(self, running: list[Row], *, schedules: bool) -> int | None:
        """When something happens by itself. The silence of our own workers is nothing; nor, unless `schedules`, are
        firings behind all else, because they never come to an end."""
        if not running and schedules:
            return await self._engine.store.next_alarm()
        times = [time for task in running for time in (task.attempt_deadline, task.deadline, task.cancel_deadline)]
        ours = {task.id for task in running}
        tasks = await self._engine.store.find(Filter(namespace=self._namespace, limit=_ALL))
        open_ = [task for task in tasks if not is_closed(task.state) and task.id not in ours]
        times += [task.wake_at for task in open_ if task.kind is not Kind.SCHEDULE]
        due = min((time for time in times if time is not None), default=None)
        if due is None and not schedules:
            return None
        firings = [task.wake_at for task in open_ if task.kind is Kind.SCHEDULE]
        return min((time for time in (due, *firings) if time is not None), default=None)

    def _hanging(self, running: list[Row]) -> str:
        names = ", ".join(sorted({task.type for task in running})) or "a handler that was told to stop"
        return f"{names} still runs after {self._patience:g} s, and nothing else is going to happen"

    # ------------------------------------------------------------------------------------------------------ workers
    def _polled(self, first: set[str]) -> list[str]:
        """These queues, then all others that were used or that tasks declare, as many as one poll takes."""
        declared = {task.queue for task in REGISTRY.values()} | {workflow.queue for workflow in WORKFLOWS.values()}
        others = self._queues | declared
        return [*sorted(first), *sorted(others - first)][:MAX_QUEUES]

    @asynccontextmanager
    async def _worker(self, queues: list[str], *, slots: int) -> AsyncIterator[None]:
        options = WorkerOptions(
            queues=queues,
            slots=slots,
            identity="test",
            drain_seconds=self._patience,
            deadlock_seconds=max(self._patience, LIMIT_SECONDS),
        )
        worker = Worker(self.service, environment=self._given, threads=self._threads, **options)
        self._workers.append(worker)
        try:
            async with worker:
                yield
            await self._engine.apply([c.Reap(limit=_CHORE)])  # a lease that it did not hear of
        finally:
            self._workers.remove(worker)
