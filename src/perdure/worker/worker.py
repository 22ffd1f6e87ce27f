"""A worker: polls for tasks, runs them in bounded slots, and leaves nothing behind when it goes.

All of it lives on one event loop, but for plain handlers (threads.py, pool.py) and heartbeats (heartbeat.py). Slots are
given out in three ways, and never twice: to a running handler, to a poll that is under way, or free (slots.py). A slot
is free again when its handler ends, not when that was reported, so the next task runs while the report travels.

Drain: no more polls; running handlers may end; what still runs after `drain_seconds` is released, which spends no
attempt; all reports are answered; then the session says goodbye. A poll that is under way when the drain begins is
not called back, because it may have been answered already: whatever it brings is released at once.

A worker whose process is to be replaced (wear.py) drains too, but has time: its handlers end when they end, except
those that were told to stop and do not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import random
import secrets
import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import Unpack

from perdure.client.base import Service
from perdure.core.errors import Internal, InvalidArgument, NotFound, PerdureError, PermissionDenied, Unauthenticated
from perdure.core.messages import CloseSession, Completion, Delivery, OpenSession, Poll
from perdure.sdk.definition import WORKFLOWS
from perdure.sdk.limits import declared
from perdure.sdk.task import REGISTRY
from perdure.worker.execute import BARE, Environment, Run, broken, released, run_async, unknown_handler
from perdure.worker.heartbeat import ACKNOWLEDGE_SECONDS, Heartbeats
from perdure.worker.options import WorkerOptions, cores, positive
from perdure.worker.pool import Pool
from perdure.worker.process import ProcessReport
from perdure.worker.report import Reporter
from perdure.worker.slots import Ask, Slots
from perdure.worker.status import WorkerStatus
from perdure.worker.suspension import Suspension
from perdure.worker.threads import Ended, Threads
from perdure.worker.turns import Turns, is_turn
from perdure.worker.watchdog import LIMIT_SECONDS
from perdure.worker.wear import Wear

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
_WATCH_SECONDS = 1.0
_PAUSE = (0.1, 5.0)
_HOPELESS = (InvalidArgument, NotFound, PermissionDenied, Unauthenticated)
"""Answers to a poll that another try would only get again. Whatever else goes wrong passes, or gets mended."""


def new_incarnation() -> int:
    """A random number for a worker process: 63 bits, because databases have no unsigned ones."""
    return secrets.randbits(63)


class Worker:
    """Runs tasks from `service`. An async context manager: entering starts it, leaving drains it.

    `heartbeat_service` is a way of its own to the server for the heartbeat thread, not yet tied to an event loop;
    None shares `service`, which must then take calls from any thread. `greeted` says that `service` calls
    `open_session` on each connect; else the worker does it when it starts. `threads` makes what plain handlers run in.
    `environment` is what the application gives to all handlers. Entering raises TypeError when a task is annotated with
    what cannot be read.
    """

    def __init__(
        self,
        service: Service,
        *,
        heartbeat_service: Service | None = None,
        greeted: bool = False,
        environment: Environment = BARE,
        threads: Callable[[Ended], Threads] = Threads,
        **options: Unpack[WorkerOptions],
    ) -> None:
        if unknown := options.keys() - WorkerOptions.__annotations__.keys():
            raise TypeError(f"a worker has no option {', '.join(sorted(unknown))}")
        slots = positive("slots", options.get("slots", 100))
        tasks = options.get("tasks")
        incarnation = options.get("incarnation")
        self._service = service
        self._heartbeat_service = heartbeat_service
        self._greeted = greeted
        self._environment = environment
        self._make_threads = threads
        self._tasks = REGISTRY if tasks is None else {task.name: task for task in tasks}
        workflows = options.get("workflows")
        self._workflows = WORKFLOWS if workflows is None else {workflow.name: workflow for workflow in workflows}
        self._deadlock_seconds = options.get("deadlock_seconds", LIMIT_SECONDS)
        queues = options.get("queues")
        self._queues = sorted({"default", *self._declared()}) if queues is None else list(queues)
        given = options.get("process_slots")
        self._process_slots = positive("process_slots", given if given is not None else cores())
        self._slots = Slots(self._tasks, self._queues, slots, self._process_slots, POLL_BATCH)
        self._limits = options.get("max_tasks"), options.get("max_memory")
        self._wear = Wear(*self._limits)
        self._lifeline = options.get("lifeline")
        self._identity = options.get("identity") or f"{socket.gethostname()}:{os.getpid()}"
        self._drain_seconds = options.get("drain_seconds", DRAIN_SECONDS)
        self._build = options.get("build", "")
        self.incarnation = new_incarnation() if incarnation is None else incarnation
        self._epoch = 0
        self._connected = False
        self._connecting = asyncio.Lock()
        self._polls = 0
        self._polled_at: float | None = None  #: when one was answered last
        self._pollers: list[asyncio.Task[None]] = []
        self._turn = asyncio.Lock()  #: one delivery at a time
        self._running: set[Run] = set()
        self._latest: dict[str, Run] = {}  #: of those that began, by task
        self._behind: dict[Run, Run] = {}  #: what waits for an older attempt of its task to end
        self._changed = asyncio.Event()  #: slots became free, or a drain began
        self._suspension = Suspension(_WATCH_SECONDS)
        self._draining = asyncio.Event()
        self._told = False  #: to drain; else it drains because it is worn, and has time
        self._pool: Pool | None = None
        self._fault: BaseException | None = None

    def _declared(self) -> dict[str, list[str]]:
        """The queues that its tasks and workflows are declared on, with the names of those."""
        declared: dict[str, list[str]] = {}
        known = [(each.queue, each.name) for each in self._tasks.values()]
        known += [(each.queue, each.name) for each in self._workflows.values()]
        for queue, name in known:
            declared.setdefault(queue, []).append(name)
        return declared

    async def __aenter__(self) -> Worker:
        for queue, names in self._declared().items():
            if queue not in self._queues:
                log.warning("queue %r is not polled; tasks declared on it: %s", queue, ", ".join(names))
        for task in self._tasks.values():  # an annotation that cannot be read must fail here, and not the tasks
            self._environment.converter.prepare(task.payload)
            self._environment.converter.prepare(task.result)
        self._loop = asyncio.get_running_loop()
        self._reporter = Reporter(self._service, self._answered)
        self._threads = self._make_threads(self._ended)
        self._turns = Turns(
            self._service,
            self._workflows,
            self._threads,
            self._environment,
            self._ended,
            self._draining.is_set,
            self._deadlock_seconds,
        )
        self._heartbeats = Heartbeats(
            self._heartbeat_service or self._service,
            self.incarnation,
            self._stopped,
            self._heartbeats_died,
            own_connection=self._heartbeat_service is not None,
        )
        if any(task.process for task in self._tasks.values()):
            self._processes()
        self._watcher = self._loop.create_task(self._watch(), name="perdure-watch")
        for number in range(_POLLS):
            poller = self._loop.create_task(self._poll_forever(number), name=f"perdure-poll-{number}")
            poller.add_done_callback(self._poller_done)
            self._pollers.append(poller)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._draining.is_set() or self._lifeline is None:
            self.drain()
        await self._wind_down()
        if self._fault is not None and error is None:
            raise self._fault

    async def draining(self) -> None:
        """Returns when `drain` was called, or working became impossible; leaving the context raises why."""
        await self._draining.wait()

    def drain(self) -> None:
        """Begin to leave: no new tasks from here on. On the worker's event loop; harmless when repeated."""
        self._told = True
        self._draining.set()
        self._changed.set()

    def status(self) -> WorkerStatus:
        """How it is at this moment. On the worker's event loop."""
        now, heard_at = time.monotonic(), self._heartbeats.answered_at
        return WorkerStatus(
            pid=os.getpid(), identity=self._identity,
            slots=self._slots.total,
            free=self._slots.total - sum(self._slots.weight(run.delivery) for run in self._running),
            running=len(self._running), stuck=len(self._wear.stuck()),
            connected=self._connected, draining=self._draining.is_set(),
            poll_age=None if self._polled_at is None else round(now - self._polled_at, 3),
            heartbeat_age=None if heard_at is None else round(now - heard_at, 3),
            figures=self._turns.figures,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------------------------ polling
    async def _poll_forever(self, number: int) -> None:
        """One of the polls."""
        while not self._draining.is_set():
            ask = self._slots.ask(number)
            if ask is None:
                self._changed.clear()
                await self._changed.wait()
                continue
            deliveries = await self._ask(ask)
            admitted = self._slots.admit(ask, deliveries)
            self._changed.set()
            if deliveries:
                await self._start_in_turn(ask, deliveries, admitted)

    async def _start_in_turn(self, ask: Ask, deliveries: list[Delivery], admitted: list[bool]) -> None:
        """Of deliveries that arrive together one is begun, and what it reports at once is sent, before the other. So
        the server works on those reports while the handlers of the other run; else each side waits for the other
        (measured, six pairs: a drain of 20,000 jobs is 17 % faster on PostgreSQL, 9 % on SQLite)."""
        async with self._turn:
            self._start(ask, deliveries, admitted)
            for _ in range(_TURNS):
                await asyncio.sleep(0)

    async def _ask(self, ask: Ask) -> list[Delivery]:
        """One poll, repeated under its number until it is answered: leases of a lost answer come again."""
        self._polls += 1
        body = Poll(self.incarnation, self._polls, list(ask.queues), ask.capacity, turns=bool(self._workflows))
        pause, longest = _PAUSE
        while not self._draining.is_set():
            try:
                await self._connect()
                tasks = (await self._service.poll(body)).tasks
                self._polled_at = time.monotonic()
                return tasks
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
        body = OpenSession(self.incarnation, self._epoch, self._identity, self._queues, self._slots.total, self._build)
        body.limits = declared(self._tasks.values())
        reply = await self._service.open_session(body)
        self._heartbeats.start(reply.heartbeat)
        self._turns.figures.namespace = reply.namespace
        self._connected = True
        if self._lifeline is not None:
            self._lifeline.tell(ProcessReport(self.status()))
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
    def _start(self, ask: Ask, deliveries: list[Delivery], admitted: list[bool]) -> None:
        beat_at = time.monotonic() + ACKNOWLEDGE_SECONDS
        changed, given = self._heartbeats.changed, self._environment
        runs = [Run(item, self._tasks.get(item.type), changed, beat_at, given) for item in deliveries]
        self._heartbeats.add(runs)
        self._reporter.streams.open(runs)
        refused = []
        for run, fits in zip(runs, admitted, strict=True):
            if fits:
                self._running.add(run)
            if not fits or self._draining.is_set() or self._suspension.outlasted(run.delivery, ask.at):
                refused.append(run)
            elif run.task is None and not is_turn(run.delivery):
                self._ended(run, unknown_handler(run))
            else:
                self._begin(run)
        for run in reversed(refused):  # each goes to the front of its queue
            self._ended(run, released(run))

    def _begin(self, run: Run) -> None:
        """Start its handler. An older attempt of its task that still runs here, as after a long suspension, has lost
        its lease. It has to end before, unless it is deaf to the end of its time: this one's runs."""
        older = self._latest.get(run.delivery.task_id)
        self._latest[run.delivery.task_id] = run
        if older is not None:
            older.stop("lost")
            self._stopped(older)
        if older is None or older.overran or older.ended:
            self._launch(run)
        else:
            self._behind[older] = run

    def _launch(self, run: Run) -> None:
        if self._lifeline is not None:
            self._lifeline.receipts.note(run.delivery.lease)
        if run.task is None:
            self._turns.start(run)
            return
        limit = run.delivery.start_to_close
        if limit is not None:
            run.timer = self._loop.call_later(limit, self._time_out, run)
        if run.task.is_async:
            self._loop.create_task(self._run_async(run))
        elif self._is_in_process(run):
            self._processes().start(run)
        else:
            self._threads.start(run)
        if reason := self._wear.started():
            self._retire(reason)

    async def _run_async(self, run: Run) -> None:
        self._ended(run, await run_async(run))

    def _ended(self, run: Run, completion: Completion | None) -> None:
        """The handler is done, or given up: its slot is free, and what it has to report is on its way."""
        if run.ended:
            return
        run.ended = True
        if run.timer is not None:
            run.timer.cancel()
        self._wear.ended(run)
        if run in self._running:
            self._running.remove(run)
            self._slots.give_back(run.delivery)
            self._changed.set()
            if self._latest.get(run.delivery.task_id) is run:
                del self._latest[run.delivery.task_id]
            if (waiting := self._behind.pop(run, None)) is not None and not waiting.ended:
                self._launch(waiting)
        if completion is None:
            self._heartbeats.drop(run)
        else:
            self._heartbeats.ended(run)
            self._reporter.add(run, completion)
            self._turns.figures.ended(completion.outcome)

    def _time_out(self, run: Run) -> None:
        if run.stop("timeout"):
            self._stopped(run)

    def _stopped(self, run: Run) -> None:
        """The handler is asked to stop. A plain one has to look at `ctx`, an async one is interrupted."""
        if run.ctx.stop == "lost":
            self._heartbeats.drop(run)
            if not run.ended:
                log.warning("%s; stopping", run.loss())
        if run.ended:
            return
        if run.task is None:
            self._turns.stop(run)
            return
        if self._is_in_process(run):
            self._processes().stop(run)
            return
        if run.ctx.stop != "drain":
            self._wear.stopped(run)
        if run.running is not None:
            run.running.cancel()

    def _is_in_process(self, run: Run) -> bool:
        """Whether a process runs it; what takes the place of the threads takes that of the processes."""
        return run.task is not None and run.task.process and self._make_threads is Threads

    def _processes(self) -> Pool:
        if self._pool is None:
            changed = self._heartbeats.changed
            self._pool = Pool(self._ended, changed, self._environment, self._process_slots, *self._limits)
        return self._pool

    # ------------------------------------------------------------------------------------------------------- wear
    async def _watch(self) -> None:
        """Looks at itself once a second, and tells its supervisor."""
        complained = False
        while True:
            if missed := self._suspension.look():
                log.warning("worker %s was suspended or blocked for %.1f s", self._identity, missed)
            status = self.status()
            if self._lifeline is not None:
                leaving = self._draining.is_set() and not self._told
                self._lifeline.tell(ProcessReport(status, leaving))
            held = sum(self._slots.weight(run.delivery) for run in self._wear.stuck())
            if reason := self._wear.worn(held, status.slots):
                if self._lifeline is not None or not held:
                    self._retire(reason)
                elif not complained:
                    complained = True
                    log.error("worker %s cannot be replaced, but should be: %s", self._identity, reason)
            await asyncio.sleep(_WATCH_SECONDS)

    def _retire(self, reason: str) -> None:
        """Drain, so that a fresh process takes the place of this one; without a supervisor that is for others to
        see to."""
        if self._draining.is_set():
            return
        log.warning("worker %s leaves, to be replaced: %s", self._identity, reason)
        if self._lifeline is None:
            self.drain()
            return
        self._lifeline.tell(ProcessReport(leaving=True))
        self._draining.set()
        self._changed.set()

    # ------------------------------------------------------------------------------------------------------- leaving
    async def _wind_down(self) -> None:
        log.info("worker %s drains; %d handlers run", self._identity, len(self._running))
        await self._until(lambda: self._told or self._is_idle(), math.inf)
        end = self._loop.time() + (self._drain_seconds if self._told else 0.0)
        await self._until(self._is_idle, end)
        for run in list(self._running):
            if run.stop("drain"):
                self._stopped(run)
        await self._until(self._is_idle, self._loop.time() + _STOP_SECONDS)
        if self._pool is not None:
            self._pool.kill()
            await self._until(
                lambda: not any(map(self._is_in_process, self._running)), self._loop.time() + _STOP_SECONDS
            )
        if self._running:
            log.warning("%d handlers did not stop; their tasks are given up", len(self._running))
        for run in list(self._running):
            ended_by_us = run.ctx.stop == "drain"
            self._ended(run, released(run) if ended_by_us else broken(run, "", "the handler did not stop"))
        await self._flush(max(end - self._loop.time(), _FLUSH_SECONDS))
        for poller in self._pollers:
            poller.cancel()
        _, stuck = await asyncio.wait(self._pollers, timeout=_GOODBYE_SECONDS)
        if stuck:
            log.warning("%d polls cannot be called back", len(stuck))
        await asyncio.gather(self._say_goodbye(), self._heartbeats.stop())
        self._watcher.cancel()
        await self._turns.close()
        self._threads.close()
        if self._pool is not None:
            self._pool.close()
        log.info("worker %s is done", self._identity)

    def _is_idle(self) -> bool:
        """No handler runs that could still end."""
        return not self._running.difference(self._wear.stuck())

    async def _until(self, condition: Callable[[], bool], end: float) -> None:
        """Returns when the condition holds, which is looked at when a handler has ended or a second is over, or at
        `end`."""
        while not condition() and (left := end - self._loop.time()) > 0:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, _WATCH_SECONDS)):
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
