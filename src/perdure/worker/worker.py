"""A worker: polls for tasks, runs them in bounded slots, and leaves nothing behind when it goes.

All of it lives on one event loop, but for plain handlers (threads.py) and heartbeats (heartbeat.py). Slots are
given out in three ways, and never twice: to a running handler, to a poll that is under way, or free. A slot is free
again when its handler ends, not when that was reported, so the next task runs while the report travels.

Drain: no more polls; running handlers may end; what still runs after `drain_seconds` is released, which spends no
attempt; all reports are answered; then the session says goodbye. A poll that is under way when the drain begins is
not called back, because it may have been answered already: whatever it brings is released at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import secrets
import socket
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, TypedDict, Unpack

from perdure.client.base import Service
from perdure.core.errors import Internal, InvalidArgument, NotFound, PerdureError, PermissionDenied, Unauthenticated
from perdure.core.messages import CloseSession, Completion, Delivery, OpenSession, Poll
from perdure.sdk.task import REGISTRY, Task
from perdure.worker.execute import Run, released, run_async, unknown_handler
from perdure.worker.heartbeat import ACKNOWLEDGE_SECONDS, Heartbeats
from perdure.worker.report import Reporter
from perdure.worker.threads import Threads

log = logging.getLogger("perdure.worker")

DRAIN_SECONDS = 25.0
"""How long running handlers may go on after the drain began: within the 30 s that platforms give before they kill."""
POLL_BATCH = 50
"""Most tasks of one poll; a second poll is sent while the first is under way once so many slots are free."""
_POLLS = 2
_TURNS = 3
"""Of the event loop that a delivery has for itself: its handlers run, what they report is packed and written."""
_STOP_SECONDS = 1.0  #: for handlers to notice that they are stopped
_FLUSH_SECONDS = 2.0  #: for the last reports
_GOODBYE_SECONDS = 0.5
_PAUSE = (0.1, 5.0)
_HOPELESS = (InvalidArgument, NotFound, PermissionDenied, Unauthenticated)
"""Answers to a poll that another try would only get again. Whatever else goes wrong passes, or gets mended."""


def new_incarnation() -> int:
    """A random number for a worker process: 63 bits, because databases have no unsigned ones."""
    return secrets.randbits(63)


class WorkerOptions(TypedDict, total=False):
    """How a worker works."""

    queues: Sequence[str] | None  #: what it polls, the first first; None is "default" and all that its tasks declare
    slots: int  #: handlers at once, 100
    tasks: Iterable[Task[..., Any]] | None  #: what it runs; None is every @task of the process
    identity: str  #: its name for people; host and process id
    incarnation: int  #: tells processes apart; a new random number
    drain_seconds: float  #: how long handlers may go on once it leaves, 25
    build: str  #: version of the code, for people


class Worker:
    """Runs tasks from `service`. An async context manager: entering starts it, leaving drains it.

    `heartbeat_service` is a way of its own to the server for the heartbeat thread, not yet tied to an event loop;
    None shares `service`, which must then take calls from any thread. `greeted` says that `service` calls
    `open_session` on each connect; else the worker does it when it starts.
    """

    def __init__(
        self,
        service: Service,
        *,
        heartbeat_service: Service | None = None,
        greeted: bool = False,
        **options: Unpack[WorkerOptions],
    ) -> None:
        if unknown := options.keys() - WorkerOptions.__annotations__.keys():
            raise TypeError(f"a worker has no option {', '.join(sorted(unknown))}")
        slots = options.get("slots", 100)
        if slots < 1:
            raise InvalidArgument(f"slots is {slots}", field="slots", limit="1 and more", kind="int")
        tasks = options.get("tasks")
        incarnation = options.get("incarnation")
        self._service = service
        self._heartbeat_service = heartbeat_service
        self._greeted = greeted
        self._tasks = REGISTRY if tasks is None else {task.name: task for task in tasks}
        queues = options.get("queues")
        self._queues = sorted({"default", *self._declared()}) if queues is None else list(queues)
        self._slots = self._free = slots
        self._batch = min(POLL_BATCH, self._slots)
        self._identity = options.get("identity") or f"{socket.gethostname()}:{os.getpid()}"
        self._drain_seconds = options.get("drain_seconds", DRAIN_SECONDS)
        self._build = options.get("build", "")
        self.incarnation = new_incarnation() if incarnation is None else incarnation
        self._epoch = 0
        self._connected = False
        self._connecting = asyncio.Lock()
        self._polls = 0
        self._pollers: list[asyncio.Task[None]] = []
        self._turn = asyncio.Lock()  #: one delivery at a time
        self._running: set[Run] = set()
        self._changed = asyncio.Event()  #: slots became free, or a drain began
        self._draining = asyncio.Event()
        self._fault: BaseException | None = None

    def _declared(self) -> dict[str, list[str]]:
        """The queues that its tasks are declared on, with the names of the tasks."""
        declared: dict[str, list[str]] = {}
        for task in self._tasks.values():
            declared.setdefault(task.queue, []).append(task.name)
        return declared

    async def __aenter__(self) -> Worker:
        for queue, names in self._declared().items():
            if queue not in self._queues:
                log.warning("queue %r is not polled; tasks declared on it: %s", queue, ", ".join(names))
        self._loop = asyncio.get_running_loop()
        self._reporter = Reporter(self._service, self._answered)
        self._threads = Threads(self._ended)
        self._heartbeats = Heartbeats(
            self._heartbeat_service or self._service,
            self.incarnation,
            self._stopped,
            self._heartbeats_died,
            own_connection=self._heartbeat_service is not None,
        )
        for number in range(_POLLS):
            poller = self._loop.create_task(self._poll_forever(number), name=f"perdure-poll-{number}")
            poller.add_done_callback(self._poller_done)
            self._pollers.append(poller)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drain()
        await self._wind_down()
        if self._fault is not None and error is None:
            raise self._fault

    async def draining(self) -> None:
        """Returns when `drain` was called, or working became impossible; leaving the context raises why."""
        await self._draining.wait()

    def drain(self) -> None:
        """Begin to leave: no new tasks from here on. On the worker's event loop; harmless when repeated."""
        self._draining.set()
        self._changed.set()

    # ------------------------------------------------------------------------------------------------------ polling
    async def _poll_forever(self, number: int) -> None:
        """One of the polls. The first takes any free slots, the other waits until a whole batch is free."""
        least = 1 if number == 0 else self._batch
        while not self._draining.is_set():
            if self._free < least:
                self._changed.clear()
                await self._changed.wait()
                continue
            capacity = min(self._free, self._batch)
            self._free -= capacity
            deliveries = await self._ask(capacity)
            self._vacate(capacity - len(deliveries))
            if deliveries:
                await self._start_in_turn(deliveries)

    def _vacate(self, slots: int) -> None:
        """Slots are free: whoever waits for some looks again."""
        self._free += slots
        self._changed.set()

    async def _start_in_turn(self, deliveries: list[Delivery]) -> None:
        """Of deliveries that arrive together one is begun, and what it reports at once is sent, before the other. So
        the server works on those reports while the handlers of the other run; else each side waits for the other
        (measured, six pairs: a drain of 20,000 jobs is 17 % faster on PostgreSQL, 9 % on SQLite)."""
        async with self._turn:
            self._start(deliveries)
            for _ in range(_TURNS):
                await asyncio.sleep(0)

    async def _ask(self, capacity: int) -> list[Delivery]:
        """One poll, repeated under its number until it is answered: leases of a lost answer come again."""
        self._polls += 1
        body = Poll(self.incarnation, self._polls, self._queues, capacity)
        pause, longest = _PAUSE
        while not self._draining.is_set():
            try:
                await self._connect()
                return (await self._service.poll(body)).tasks
            except _HOPELESS:
                raise
            except Exception as error:  # also a delivery that cannot be read: it ends no worker
                bug = None if isinstance(error, PerdureError) else error
                log.warning("polling failed, next try in about %.1f s: %s", pause, error, exc_info=bug)
            self._connected = False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause * (0.5 + random.random() / 2)):
                    await self._draining.wait()
            pause = min(pause * 2, longest)
        return []

    async def _connect(self) -> None:
        """Open a session if there is none, once for all polls."""
        if not self._greeted:
            async with self._connecting:
                if not self._connected:
                    await self.open_session()

    async def open_session(self) -> None:
        """Register this process with the server: the first thing to do on every connection. Each is a new epoch."""
        self._epoch += 1
        reply = await self._service.open_session(
            OpenSession(self.incarnation, self._epoch, self._identity, self._queues, self._slots, self._build)
        )
        self._heartbeats.start(reply.heartbeat)
        self._connected = True
        log.info("worker %s works on %s", self._identity, ", ".join(self._queues))

    def _poller_done(self, poller: asyncio.Task[None]) -> None:
        if not poller.cancelled() and (error := poller.exception()) is not None:
            self._fail(error)

    def _heartbeats_died(self, error: BaseException) -> None:
        self._fail(Internal(f"the heartbeat thread ended: {error!r}"))

    def _fail(self, fault: BaseException) -> None:
        """Working became impossible."""
        self._fault = self._fault or fault
        self.drain()

    # -------------------------------------------------------------------------------------------------------- running
    def _start(self, deliveries: list[Delivery]) -> None:
        beat_at = time.monotonic() + ACKNOWLEDGE_SECONDS
        runs = [Run(item, self._tasks.get(item.type), self._heartbeats.changed, beat_at) for item in deliveries]
        self._running.update(runs)
        self._heartbeats.add(runs)
        for run in runs:
            if self._draining.is_set():
                self._ended(run, released(run))
            elif run.task is None:
                self._ended(run, unknown_handler(run))
            else:
                self._begin(run, run.task)

    def _begin(self, run: Run, task: Task[..., Any]) -> None:
        limit = run.delivery.start_to_close
        if limit is not None:
            run.timer = self._loop.call_later(limit, self._time_out, run)
        if task.is_async:
            self._loop.create_task(self._run_async(run))
        else:
            self._threads.start(run)

    async def _run_async(self, run: Run) -> None:
        self._ended(run, await run_async(run))

    def _ended(self, run: Run, completion: Completion | None) -> None:
        """The handler is done, or given up: its slot is free, and what it has to report is on its way."""
        if run.ended:
            return
        run.ended = True
        if run.timer is not None:
            run.timer.cancel()
        self._running.discard(run)
        self._vacate(1)
        if completion is None:
            self._heartbeats.drop(run)
        else:
            self._heartbeats.ended(run)
            self._reporter.add(run, completion)

    def _time_out(self, run: Run) -> None:
        if run.stop("timeout"):
            self._stopped(run)

    def _stopped(self, run: Run) -> None:
        """The handler is asked to stop. A plain one has to look at `ctx`, an async one is interrupted."""
        if run.ctx.stop == "lost":
            self._heartbeats.drop(run)
            if not run.ended:
                log.warning("task %s (%s): the lease was lost, stopping", run.delivery.task_id, run.delivery.type)
        if run.running is not None and not run.ended:
            run.running.cancel()

    # ------------------------------------------------------------------------------------------------------- leaving
    async def _wind_down(self) -> None:
        log.info("worker %s drains; %d handlers run", self._identity, len(self._running))
        end = self._loop.time() + self._drain_seconds
        await self._until_idle(end)
        for run in list(self._running):
            if run.stop("drain"):
                self._stopped(run)
        await self._until_idle(self._loop.time() + _STOP_SECONDS)
        if self._running:
            log.warning("%d handlers did not stop; their tasks are released", len(self._running))
        for run in list(self._running):
            self._ended(run, released(run))
        await self._flush(max(end - self._loop.time(), _FLUSH_SECONDS))
        for poller in self._pollers:
            poller.cancel()
        _, stuck = await asyncio.wait(self._pollers, timeout=_GOODBYE_SECONDS)
        if stuck:
            log.warning("%d polls cannot be called back", len(stuck))
        await asyncio.gather(self._say_goodbye(), self._heartbeats.stop())
        self._threads.close()
        log.info("worker %s is done", self._identity)

    async def _until_idle(self, end: float) -> None:
        """Returns when no handler runs, or at `end`."""
        while self._running and (left := end - self._loop.time()) > 0:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()

    async def _flush(self, limit: float) -> None:
        try:
            async with asyncio.timeout(limit):
                await self._reporter.flush()
        except TimeoutError:
            log.error("the server did not take the last reports; these tasks will run again")
            await self._reporter.cancel()

    async def _say_goodbye(self) -> None:
        if not self._epoch:
            return
        try:
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await self._service.close_session(CloseSession(self.incarnation))
        except Exception as error:  # noqa: BLE001 - the rest of leaving does not depend on it
            log.warning("the server did not hear the goodbye: %s", str(error) or "no answer")

    def _answered(self, run: Run) -> None:
        self._heartbeats.drop(run)
