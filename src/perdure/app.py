"""`Perdure(url)`: the composition root, where clients, workers, servers and stores meet.

    sqlite:///jobs.db          a file, relative to the working directory (four slashes: absolute); the server runs here
    sqlite:///:memory:         the same, gone with the process
    postgresql://host/db       a database; the server runs here, beside others on the same database
    http://127.0.0.1:7400      a server somewhere else (`perdure server`)

Whatever the URL, it is the same code: in this process the calls go straight to the service that a server would put
behind its sockets. `AsyncPerdure` is the whole; `Perdure` runs one on an event loop in a thread and waits for it.

No process is a client, a worker and a server at once, and each part takes a tenth of a second or more to load. So this
module loads none of them before it is needed.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack

import uvloop

from perdure.core import limits
from perdure.core import messages as m
from perdure.core.durations import Duration
from perdure.core.history_size import MAX_EVENTS, check_max_events
from perdure.core.ids import Mint
from perdure.database import EngineOptions, open_store, running_engine
from perdure.sdk.blocking import Call
from perdure.sdk.client import Edit, TaskFilter, TaskOptions
from perdure.sdk.events import Events
from perdure.sdk.extensions import Extensions, checked, converters
from perdure.sdk.failures import Failures
from perdure.sdk.handle import Job, Runner
from perdure.sdk.limits import Limits
from perdure.sdk.owners import Owners
from perdure.sdk.schedules import Schedules
from perdure.sdk.search import Searches
from perdure.sdk.task import R, Task
from perdure.sdk.transaction import Value
from perdure.sdk.transactional import TransactionalClient
from perdure.worker.process import Lifeline, calm_garbage_collector, leave_soon, on_stop_signals

if TYPE_CHECKING:
    from perdure.api.drafts import Draftsman
    from perdure.api.server import Invite
    from perdure.client.base import Service
    from perdure.client.http import HttpService
    from perdure.client.websocket import Hook
    from perdure.worker.execute import Environment
    from perdure.worker.options import WorkerOptions
    from perdure.worker.replay import Replayer
    from perdure.worker.worker import Worker

T = TypeVar("T")


@asynccontextmanager
async def running_server(
    url: str, host: str, port: int, invite: Invite | None = None, **options: Unpack[EngineOptions]
) -> AsyncIterator[str]:
    """A server over a store; gives its URL. Port 0: a free one. `invite` makes what it carries beside its own
    interfaces: the dashboard."""
    from perdure.api.server import App, Server

    async with running_engine(url, **options) as engine:
        server = Server(App(engine, invite), host, port)
        await server.start()
        try:
            yield server.url
        finally:
            # Together: the engine answers what waits for a database that is away, and the server waits for the answers.
            await asyncio.gather(server.stop(), engine.stop())


async def serve(server: AbstractAsyncContextManager[str], tell: Callable[[str], None]) -> None:
    """A `running_server` until a signal stops it; `tell` is told its URL. A second signal ends the process at once."""
    stop = asyncio.Event()
    async with server as address:
        on_stop_signals(stop.set)
        calm_garbage_collector()
        tell(address)
        await stop.wait()


class AsyncPerdure(TransactionalClient):
    """A client, and if the URL names a store a server in this process. It connects at the first call.

    Use one on one event loop, and close it: `async with AsyncPerdure(url) as app`. `namespace` separates tenants
    ("default" when None); where a server wants an `api_key`, the key decides it. `coalesce=False` sends each enqueue
    by itself. `max_history_events` bounds histories if the server is in this process. `extensions` (sdk/extensions.py)
    are what the application adds to its clients and workers.
    """

    def __init__(
        self,
        url: str,
        *,
        namespace: str | None = None,
        api_key: str | None = None,
        coalesce: bool = True,
        max_history_events: int = MAX_EVENTS,
        **extensions: Unpack[Extensions],
    ) -> None:
        self.extensions = checked(extensions)
        super().__init__(
            coalesce=coalesce, converters=converters(extensions), middleware=extensions.get("middleware", ())
        )
        self.url = url
        self.remote = url.startswith(("http://", "https://"))
        self.namespace = namespace
        self.api_key = api_key
        self._max_history_events = check_max_events(max_history_events)
        self._opening = asyncio.Lock()
        self._open = AsyncExitStack()
        self._instead: Service | None = None  #: of what the URL names, while redirected
        if not self.remote:
            open_store(url)  # a bad URL is an error here, not at the first call

    @cached_property
    def _draftsman(self) -> Draftsman:
        from perdure.api.drafts import Draftsman

        return Draftsman(limits.name(self.namespace or "default", "namespace"), Mint())

    def _arguments(self, new: m.NewTask) -> dict[str, Value]:
        from perdure.api import transaction

        return transaction.arguments(self._draftsman, new)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of everything; what was committed goes on elsewhere, or after the next start."""
        self._stop_sending_again()
        service, self._service = self._service, None
        if service is not None:
            await service.close()
        await self._open.aclose()

    @contextmanager
    def redirected(self, service: Service) -> Iterator[None]:
        """Inside the context all calls go to `service`, which takes them from any event loop, and not to the URL; for
        perdure.testing. Closing this object does not close `service`."""
        before, self._instead = self._instead, service
        try:
            yield
        finally:
            self._instead = before

    async def service(self) -> Service:
        if self._instead is not None:
            return self._instead
        if self._service is None:
            async with self._opening:
                self._service = self._service or await self._connect()
        return self._service

    async def _connect(self) -> Service:
        if self.remote:
            from perdure.client.http import HttpService

            return HttpService(self.url, api_key=self.api_key, namespace=self.namespace)
        from perdure.api.service import Caller
        from perdure.api.service import Service as ServerService
        from perdure.client.embedded import EmbeddedService

        running = running_engine(self.url, max_history_events=self._max_history_events)
        engine = await self._open.enter_async_context(running)
        return EmbeddedService(ServerService(engine, Caller(self.namespace or "default")))

    def replayer(self) -> Replayer:
        """Replays histories with the workflows of this process and the converter of this object."""
        from perdure.worker.execute import Environment
        from perdure.worker.replay import Replayer

        return Replayer(environment=Environment(self.converter))

    @asynccontextmanager
    async def worker(self, **options: Unpack[WorkerOptions]) -> AsyncIterator[Worker]:
        """A worker on this event loop; leaving the context drains it. Over the network it has connections of its
        own."""
        async with self.environment() as environment, self._worker(environment, options) as worker:
            yield worker

    @asynccontextmanager
    async def environment(self) -> AsyncIterator[Environment]:
        """What all handlers of a worker share, from before the first until after the last one."""
        from perdure.worker.execute import Environment

        lifespan = self.extensions.get("lifespan")
        async with contextlib.nullcontext() if lifespan is None else lifespan(self) as state:
            yield Environment(self.converter, tuple(self.extensions.get("middleware", ())), state)

    @asynccontextmanager
    async def _worker(self, environment: Environment, options: WorkerOptions) -> AsyncIterator[Worker]:
        from perdure.worker.worker import Worker

        if not self.remote or self._instead is not None:
            async with Worker(await self.service(), environment=environment, **options) as worker:
                yield worker
            return
        from perdure.client.http import HttpService

        async def greet() -> None:
            await worker.open_session()

        def way(transport: Literal["websocket", "http"], on_connect: Hook | None = None) -> HttpService:
            return HttpService(
                self.url,
                api_key=self.api_key,
                namespace=self.namespace,
                transport=transport,
                on_connect=on_connect,
            )

        service = way("websocket", greet)
        worker = Worker(service, heartbeat_service=way("http"), greeted=True, environment=environment, **options)
        try:
            async with worker:
                yield worker
        finally:
            await service.close()

    async def run_worker(self, **options: Unpack[WorkerOptions]) -> None:
        """A worker until a signal, or the end of its supervisor, drains it: the business of a whole process."""
        lifeline = Lifeline.taken()
        if lifeline is not None:
            options["incarnation"] = lifeline.incarnation
            options["lifeline"] = lifeline
            from perdure.worker.output import keep_output

            keep_output()
        async with self.worker(**options) as worker:
            on_stop_signals(worker.drain)
            if lifeline is not None:
                lifeline.watch(worker.drain)
            calm_garbage_collector()
            await worker.draining()
        if lifeline is not None:
            leave_soon()

    async def supervise(
        self,
        command: Sequence[str],
        processes: int,
        hopeless: frozenset[int],
        files: Path | None = None,
        health: tuple[str, int] | None = None,
    ) -> int:
        """Keep worker processes running (each a `command` that calls `run_worker`) until a signal; the exit status.
        With `files`, they are restarted when a Python file in that folder changes. `health` is host and port of an
        endpoint that tells how they are (worker/health.py); Unavailable when it cannot be opened."""

        async def died(incarnation: int, begun: list[bytes]) -> None:
            service = await self.service()
            if begun:  # a handler that ended its process at once has used an attempt (worker/receipts.py)
                await service.heartbeat(m.Heartbeat(incarnation, list(map(m.Beat, begun))))
            await service.close_session(m.CloseSession(incarnation, "died"))

        from perdure.worker.reload import on_change
        from perdure.worker.supervisor import Supervisor

        supervisor = Supervisor(command, processes, died, hopeless)
        on_stop_signals(supervisor.stop, supervisor.kill)
        watcher = None if files is None else asyncio.create_task(on_change(files, supervisor.restart))
        try:
            if health is None:
                return await supervisor.run()
            from perdure.worker.health import health_server

            async with health_server(*health, supervisor.health):
                return await supervisor.run()
        finally:
            if watcher is not None:
                watcher.cancel()


class _Working:
    """A worker that one asyncio task enters and leaves, as what its lifespan holds may demand."""

    def __init__(self, worker: AbstractAsyncContextManager[Worker]) -> None:
        self._worker = worker
        self._started = asyncio.Event()
        self._leave = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when it works; raises why it does not."""
        self._task = asyncio.create_task(self._work())
        started = asyncio.create_task(self._started.wait())
        await asyncio.wait((self._task, started), return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if self._task.done():
            await self._task

    async def stop(self) -> None:
        """Returns when it has drained."""
        assert self._task is not None
        self._leave.set()
        await self._task

    async def _work(self) -> None:
        async with self._worker:
            self._started.set()
            await self._leave.wait()


class Perdure(Events, Failures, Limits, Owners, Schedules, Searches):
    """AsyncPerdure for code without an event loop: the same calls, and each blocks until it is answered. They may
    be made from any thread, but not from an async handler of its own worker. Not to be shared over a fork once used."""

    _app: AsyncPerdure

    def __init__(
        self,
        url: str,
        *,
        namespace: str | None = None,
        api_key: str | None = None,
        coalesce: bool = True,
        max_history_events: int = MAX_EVENTS,
        **extensions: Unpack[Extensions],
    ) -> None:
        self.url = url
        self.namespace = namespace
        self.api_key = api_key
        self.extensions = extensions
        self._app = AsyncPerdure(
            url, namespace=namespace, api_key=api_key, coalesce=coalesce, max_history_events=max_history_events,
            **extensions,
        )  # fmt: skip
        self._instead: Runner | None = None  #: of an event loop of its own, while redirected
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def redirected(self, service: Service, run: Runner) -> Iterator[None]:
        """See AsyncPerdure.redirected. `run` runs the calls meanwhile."""
        before, self._instead = self._instead, run
        try:
            with self._app.redirected(service):
                yield
        finally:
            self._instead = before

    def enqueue(
        self,
        task: Task[..., R] | str,
        payload: object = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[TaskOptions],
    ) -> Job[R]:
        """See AsyncClient.enqueue."""
        return Job(self._run(self._app.enqueue(task, payload, idempotency_key=idempotency_key, **options)), self._run)

    def enqueue_in(
        self,
        connection: object,
        task: Task[..., R] | str,
        payload: object = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[TaskOptions],
    ) -> Job[R]:
        """AsyncPerdure.enqueue_in for a psycopg 3 connection, or a SQLAlchemy Connection or Session."""
        return Job(self._app.enqueue_blocking_in(connection, task, payload, idempotency_key, options), self._run)

    def execute(
        self,
        task: Task[..., R] | str,
        payload: object = None,
        *,
        timeout: Duration | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[TaskOptions],
    ) -> R:
        """See AsyncClient.execute."""
        work = self._app.execute(task, payload, timeout=timeout, idempotency_key=idempotency_key, **options)
        return self._run(work)

    def enqueue_many(
        self, task: Task[..., R] | str, payloads: Iterable[object], **options: Unpack[TaskOptions]
    ) -> list[Job[R]]:
        """See AsyncClient.enqueue_many."""
        return [Job(job, self._run) for job in self._run(self._app.enqueue_many(task, payloads, **options))]

    def job(self, id: str, task: Task[..., R] | None = None) -> Job[R]:
        """See AsyncClient.job."""
        return Job(self._app.job(id, task), self._run)

    def get(self, id: str) -> m.TaskView:
        """A task as it is now. Raises NotFound."""
        return self._run(self._app.get(id))

    def find(self, **filter: Unpack[TaskFilter]) -> m.TaskPage:
        """See AsyncClient.find."""
        return self._run(self._app.find(**filter))

    def cancel(self, id: str, reason: str = "") -> m.CancelReply:
        """Cancel a task: at once while it waits, cooperatively while it runs."""
        return self._run(self._app.cancel(id, reason))

    def retry(self, id: str, **edit: Unpack[Edit]) -> Job:
        """See AsyncClient.retry."""
        return Job(self._run(self._app.retry(id, **edit)), self._run)

    def queues(self) -> list[m.QueueView]:
        """See AsyncClient.queues."""
        return self._run(self._app.queues())

    def workers(self, running: int = 0) -> list[m.WorkerView]:
        """See AsyncClient.workers."""
        return self._run(self._app.workers(running))

    @contextmanager
    def worker(self, **options: Unpack[WorkerOptions]) -> Iterator[None]:
        """A worker in this process, on a thread of its own; leaving the context drains it."""
        working = _Working(self._app.worker(**options))
        self._run(working.start())
        try:
            yield
        finally:
            self._run(working.stop())

    def close(self) -> None:
        """See AsyncPerdure.close. Happens by itself when the process ends."""
        if self._loop is not None and self._thread is not None and self._pid == os.getpid():
            self._run(self._app.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
        self._loop = None
        atexit.unregister(self.close)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """The outcome of `work` on the event loop of this object."""
        if self._instead is not None:
            return self._instead(work)
        with self._starting:
            if self._loop is None:
                self._start()
        assert self._loop is not None
        fault = ""
        if threading.current_thread() is self._thread:
            fault = "a blocking call on the event loop that must answer it; in async code use AsyncPerdure"
        elif self._pid != os.getpid():
            fault = f"this Perdure was used by process {self._pid} before the fork; make one of your own"
        if fault:
            work.close()
            raise RuntimeError(fault)
        call = Call(work, self._loop)
        self._loop.call_soon_threadsafe(call.start)
        return call.outcome()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="perdure", daemon=True)
        self._thread.start()
        atexit.register(self.close)
