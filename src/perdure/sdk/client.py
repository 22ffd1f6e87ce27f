"""The client of applications: enqueue, look, wait, cancel, retry; for asyncio. `Perdure` in app.py is its blocking
face.

Every enqueue carries an idempotency key or, where the caller gives none, the id of its task. Both are kept while the
call is repeated over outages, so a lost answer never makes a second task (IDEM-05). Concurrent `enqueue` calls share
requests; each still returns only after its own task is committed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from datetime import datetime, timedelta
from typing import Any, TypedDict, Unpack

from perdure.client.base import Service
from perdure.core.durations import Duration, seconds
from perdure.core.errors import ResourceExhausted, Unavailable, from_problem
from perdure.core.limits import MAX_WAIT_SECONDS
from perdure.core.messages import (
    Cancel,
    CancelReply,
    Enqueue,
    Enqueued,
    EnqueueReply,
    Find,
    Get,
    ListQueues,
    ListWorkers,
    NewTask,
    QueueView,
    Retry,
    TaskPage,
    TaskView,
    Throttle,
    TimeoutOptions,
    WorkerView,
)
from perdure.core.model import RetryPolicy
from perdure.sdk.batch import Batcher
from perdure.sdk.converter import Converter
from perdure.sdk.events import AsyncEvents
from perdure.sdk.failures import AsyncFailures
from perdure.sdk.handle import LONGEST_WAIT, OUTAGE_SECONDS, AsyncJob
from perdure.sdk.hints import ANY, of_value
from perdure.sdk.limits import AsyncLimits
from perdure.sdk.middleware import Middleware
from perdure.sdk.mint import mint_id, mint_ids
from perdure.sdk.owners import AsyncOwners
from perdure.sdk.plugin import DataConverter
from perdure.sdk.schedules import AsyncSchedules
from perdure.sdk.search import AsyncSearches
from perdure.sdk.task import REGISTRY, R, Task

COALESCED = 500
"""Most tasks that share a request: more makes an answer later, not cheaper."""
_REQUEST_BYTES = 4 * 1024 * 1024
_ITEM_BYTES = 300  #: of an item besides its payload, more or less
_BULK_REQUESTS = 3  #: in flight: one is committed, one waits for it, one travels
_TURNS = 2  #: of the event loop until a request has left: one packs it, one writes it
_RETRY_SECONDS = (0.05, 2.0)


class TaskOptions(TypedDict, total=False):
    """What a call may say about a task; it overrules what `@task` says, option by option.

    Times are seconds or text such as "90s", `delay` also a timedelta; `delay` and `run_at` exclude each other. Tasks
    that share a `fairness_key` in a queue share one turn; those with a `concurrency_key` "name:value" count against the
    limit of that name. While a task of the same `singleton` is open, or one of the same `throttle` (key, period) was
    made within the period, that one is returned; one with a `debounce`, and a delay, takes the place of the one before
    it that has not begun. `retry` and `timeouts` replace the task's own as a whole.
    """

    delay: Duration | timedelta | None
    run_at: datetime | None
    queue: str | None
    priority: int | None
    fairness_key: str
    concurrency_key: str
    weight: int | None
    singleton: str
    throttle: tuple[str, Duration] | None
    debounce: str
    retry: RetryPolicy | None
    timeouts: TimeoutOptions | None
    headers: dict[str, str] | None


class TaskFilter(TypedDict, total=False):
    """Which tasks a list shows. `failure_group` shows the dead letters of a group that nobody has retried; `limit` (50
    by default, at most 1,000) is the size of a page. `query` (docs/search.md) is one more filter, and may say another
    order; a page of a query may be short, or empty, although more follow."""

    state: str | None
    queue: str | None
    type: str | None
    since: datetime | None
    failure_group: str | None
    query: str
    limit: int
    cursor: str | None


class Edit(TypedDict, total=False):
    """What a retry changes about a closed task."""

    payload: object


class AsyncClient(AsyncEvents, AsyncFailures, AsyncLimits, AsyncOwners, AsyncSchedules, AsyncSearches):
    """A client for one namespace, over any Service. Its calls raise the errors of core/errors.py. Of its
    `converters` the first one writes values, and all of them read."""

    def __init__(
        self,
        service: Service | None = None,
        *,
        coalesce: bool = True,
        identity: str = "",
        converters: Sequence[DataConverter] = (),
        middleware: Sequence[Middleware] = (),
    ) -> None:
        self._service = service
        self.converter = Converter(converters)
        self._coalesce = coalesce
        self.identity = identity
        self._middleware = tuple(middleware)
        self._batcher = Batcher(self._send_gathered, _waiting_size, most=COALESCED, most_bytes=_REQUEST_BYTES)
        # A transaction somewhere may hold a key for seconds: what has none must not wait behind it.
        self._keyed = Batcher(self._send_gathered, _waiting_size, most=COALESCED, most_bytes=_REQUEST_BYTES)
        self._again: set[asyncio.Task[None]] = set()

    async def service(self) -> Service:
        """What this client talks to."""
        assert self._service is not None
        return self._service

    async def enqueue(
        self,
        task: Task[..., R] | str,
        payload: object = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[TaskOptions],
    ) -> AsyncJob[R]:
        """A job that is committed. A repeated `idempotency_key` within 24 hours returns the first job.

        `task` is a @task, or a name when the function lives elsewhere; the options of a task that this process has
        count also by its name. `payload` is what the function is annotated with, or JSON that stands for it (see
        docs/handlers.md). An outage of up to 30 s is waited out. Raises InvalidArgument (also for a payload that would
        not arrive as it was sent), IdempotencyConflict (same key, other body), Unavailable.
        """
        new, own = self._new(task, payload, idempotency_key, options)
        new.minted = mint_id() if needs_id(new) else b""
        if self._coalesce:
            answer: asyncio.Future[Enqueued] = asyncio.get_running_loop().create_future()
            (self._batcher if idempotency_key is None else self._keyed).add((new, answer))
            return self._job(await answer, own)
        return self._job((await self._send([new])).tasks[0], own)

    async def execute(
        self,
        task: Task[..., R] | str,
        payload: object = None,
        *,
        timeout: Duration | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[TaskOptions],
    ) -> R:
        """Enqueue a job and wait for what it returns, in one request: the shortest way to a result. Like `enqueue` and
        then `AsyncJob.result`, whose errors it raises; after a WaitTimeout the job goes on."""
        begun = time.monotonic()
        limit = None if timeout is None else seconds(timeout, "timeout", most=LONGEST_WAIT)
        new, own = self._new(task, payload, idempotency_key, options)
        new.minted = mint_id() if needs_id(new) else b""
        reply = await self._send([new], MAX_WAIT_SECONDS if limit is None else min(limit, MAX_WAIT_SECONDS))
        job: AsyncJob[R] = self._job(reply.tasks[0], own)
        if reply.closed is not None:
            return job.outcome(reply.closed)
        return await job.result(None if limit is None else max(0.0, limit - (time.monotonic() - begun)))

    async def enqueue_many(
        self, task: Task[..., R] | str, payloads: Iterable[object], **options: Unpack[TaskOptions]
    ) -> list[AsyncJob[R]]:
        """A job for each payload, in order; returns when all are committed. Requests of up to 500 leave while the next
        ones are made, three at a time, so `payloads` may be a generator of more than fits in memory.

        When a task is refused, or a payload cannot be sent, that error is raised after all requests before it were
        answered: their tasks are enqueued, and so are the others of a request in which one was refused.
        """
        own = _own(task)
        template = _template(task, own, options)
        template.headers = self.headers_of(template.type, template.headers)
        slots = asyncio.Semaphore(_BULK_REQUESTS)
        requests: list[asyncio.Task[list[Enqueued]]] = []

        async def send(chunk: list[NewTask]) -> list[Enqueued]:
            try:
                return (await self._send(chunk)).tasks
            finally:
                slots.release()

        fault: Exception | None = None
        try:
            for chunk in self._chunks(template, own, payloads):
                await slots.acquire()
                requests.append(asyncio.create_task(send(chunk)))
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 - of a payload, or of the caller's generator; raised below
            fault = error
        except BaseException:
            for request in requests:
                request.cancel()
            raise
        answers = await asyncio.gather(*requests, return_exceptions=True)
        if fault is not None:
            raise fault
        jobs: list[AsyncJob[R]] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            jobs.extend(self._job(item, own) for item in answer)
        return jobs

    def _new(
        self, task: Task[..., Any] | str, payload: object, idempotency_key: str | None, options: TaskOptions
    ) -> tuple[NewTask, Task[..., Any] | None]:
        """The item that an enqueue sends, and the task if this process has it."""
        own = _own(task)
        new = _template(task, own, options)
        new.headers = self.headers_of(new.type, new.headers)
        hint = of_value(payload) if own is None else own.payload
        new.payload = self.converter.to_payloads(payload, "payload", hint)
        new.idempotency_key = idempotency_key
        return new, own

    def headers_of(self, name: str, given: dict[str, str]) -> dict[str, str]:
        headers = dict(given) if self._middleware else given
        for middleware in self._middleware:
            middleware.before_enqueue(name, headers)
        return headers

    def job(self, id: str, task: Task[..., R] | None = None) -> AsyncJob[R]:
        """The handle of a task whose id is known; asks nobody. With its @task the result has the type that the function
        is annotated with, else plain JSON's."""
        return AsyncJob(self, id, result=ANY if task is None else task.result)

    async def get(self, id: str) -> TaskView:
        """A task as it is now. Raises NotFound."""
        return await (await self.service()).get(Get(id))

    async def find(self, **filter: Unpack[TaskFilter]) -> TaskPage:
        """Tasks that pass all filters, newest first, without payloads; `next` of a page is the `cursor` of the next."""
        return await (await self.service()).find(Find(**filter))

    async def cancel(self, id: str, reason: str = "") -> CancelReply:
        """Cancel a task: at once while it waits, cooperatively while it runs."""
        return await (await self.service()).cancel(Cancel(id, reason))

    async def retry(self, id: str, **edit: Unpack[Edit]) -> AsyncJob:
        """Run a task again: a waiting one now, a closed one as a new task, with another `payload` if one is given.
        IllegalMove when there is nothing to retry; Conflict when it was retried with another payload before."""
        value = edit.get("payload")
        payload = self.converter.to_payloads(value, "payload", of_value(value)) if edit else None
        reply = await (await self.service()).retry(Retry(id, payload))
        return AsyncJob(self, reply.task_id)

    async def queues(self) -> list[QueueView]:
        """The queues that hold open tasks or are polled, by name, and about how much waits in each."""
        return (await (await self.service()).queues(ListQueues())).queues

    async def workers(self, running: int = 0) -> list[WorkerView]:
        """The registered worker processes, oldest first, each with so many (100 at most) of the tasks that it holds."""
        return (await (await self.service()).workers(ListWorkers(running))).workers

    def _job(self, answer: Enqueued, own: Task[..., R] | None) -> AsyncJob[R]:
        if answer.error is not None:
            raise from_problem(answer.error)
        return AsyncJob(self, answer.task_id, answer.duplicate, ANY if own is None else own.result)

    def _chunks(
        self, template: NewTask, own: Task[..., Any] | None, payloads: Iterable[object]
    ) -> Iterator[list[NewTask]]:
        """Requests within the limits of a request, each made when it is asked for. Items are copies of the template: a
        call with all fields would cost more than the rest of an item."""
        chunk: list[NewTask] = []
        room = _REQUEST_BYTES
        for index, value in enumerate(payloads):
            hint = of_value(value) if own is None else own.payload
            payload = self.converter.to_payloads(value, f"payloads[{index}]", hint)
            size = _ITEM_BYTES + len(payload[0].data)
            if chunk and size > room:
                yield _with_ids(chunk)
                chunk, room = [], _REQUEST_BYTES
            new = copy(template)
            new.payload = payload
            chunk.append(new)
            room -= size
            if len(chunk) == COALESCED:
                yield _with_ids(chunk)
                chunk, room = [], _REQUEST_BYTES
        if chunk:
            yield _with_ids(chunk)

    async def _send(self, news: list[NewTask], wait: float = 0.0) -> EnqueueReply:
        """One request, repeated over outages, and again for those of its items that the server could not take; every
        task has a key or an id of ours, so repeating it is safe."""
        end = time.monotonic() + OUTAGE_SECONDS
        reply = await self._ask(Enqueue(news, self.identity, wait), end)
        while left := [index for index, answer in enumerate(reply.tasks) if _is_passing(answer)]:
            pause = from_problem(reply.tasks[left[0]].error).retry_after or _RETRY_SECONDS[1]  # type: ignore[arg-type]
            if time.monotonic() + pause > end:
                break
            await asyncio.sleep(pause)
            try:
                again = await self._ask(Enqueue([news[index] for index in left], self.identity), end)
            except (Unavailable, ResourceExhausted):
                break  # what these items were answered before still holds
            for index, answer in zip(left, again.tasks, strict=True):
                reply.tasks[index] = answer
        return reply

    async def _ask(self, body: Enqueue, end: float) -> EnqueueReply:
        """The answer to one request; Unavailable or ResourceExhausted if there is none until `end`."""
        pause, longest = _RETRY_SECONDS
        while True:
            try:
                return await (await self.service()).enqueue(body)
            except (Unavailable, ResourceExhausted) as error:
                pause_now = error.retry_after or pause
                if time.monotonic() + pause_now > end:
                    raise
            await asyncio.sleep(pause_now)
            pause = min(pause * 2, longest)

    async def _send_gathered(self, waiting: list[_Waiting]) -> None:
        """One request for many callers; each hears of its own task only, and waits for no other one that the server
        could not take yet."""
        body = Enqueue([new for new, _ in waiting], self.identity)
        try:
            answers = (await self._ask(body, time.monotonic() + OUTAGE_SECONDS)).tasks
        except Exception as error:  # noqa: BLE001 - whatever went wrong, every caller must hear of it
            if len(waiting) > 1 and not isinstance(error, (Unavailable, ResourceExhausted)):
                for one in waiting:  # one of them is at fault: a value of a wrong type, say
                    await self._send_gathered([one])
                return
            for _, answer in waiting:
                if not answer.done():
                    answer.set_exception(error)
            return
        for (new, answer), enqueued in zip(waiting, answers, strict=True):
            if _is_passing(enqueued):
                again = asyncio.create_task(self._send_again(new, answer))
                self._again.add(again)
                again.add_done_callback(self._again.discard)
            elif not answer.done():
                answer.set_result(enqueued)

    def _stop_sending_again(self) -> None:
        """The client is closed: what the server could not take yet is not sent any more, or it would connect anew."""
        for again in self._again:
            again.cancel()

    async def _send_again(self, new: NewTask, answer: asyncio.Future[Enqueued]) -> None:
        try:
            enqueued = (await self._send([new])).tasks[0]
        except asyncio.CancelledError:
            if not answer.done():
                answer.set_exception(Unavailable("the client was closed"))
            raise
        except Exception as error:  # noqa: BLE001 - as above
            if not answer.done():
                answer.set_exception(error)
        else:
            if not answer.done():
                answer.set_result(enqueued)


_Waiting = tuple[NewTask, asyncio.Future[Enqueued]]


def _own(task: Task[..., Any] | str) -> Task[..., Any] | None:
    """The task, if this process has it."""
    return task if isinstance(task, Task) else REGISTRY.get(_name(task))


def _template(task: Task[..., Any] | str, own: Task[..., Any] | None, options: TaskOptions) -> NewTask:
    """All of an item but payload and key."""
    if unknown := options.keys() - TaskOptions.__annotations__.keys():
        known = ", ".join(TaskOptions.__annotations__)
        raise TypeError(f"enqueue has no option {', '.join(sorted(unknown))}; it has {known}")
    delay, queue, priority = options.get("delay"), options.get("queue"), options.get("priority")
    return NewTask(
        _name(task),
        queue=(own.queue if own is not None else "default") if queue is None else queue,
        delay=delay.total_seconds() if isinstance(delay, timedelta) else delay,
        run_at=options.get("run_at"),
        priority=(own.priority if own is not None else 3) if priority is None else priority,
        fairness_key=options.get("fairness_key", ""),
        concurrency_key=options.get("concurrency_key", ""),
        weight=options.get("weight") or (own.weight if own is not None else 1),
        singleton=options.get("singleton", ""),
        throttle=None if (throttle := options.get("throttle")) is None else Throttle(*throttle),
        debounce=options.get("debounce", ""),
        retry=options.get("retry") or (own.retry if own is not None else None),
        timeouts=options.get("timeouts") or (own.timeouts if own is not None else None),
        headers=options.get("headers") or {},
    )


def _name(task: Task[..., Any] | str) -> str:
    if isinstance(task, Task):
        return task.name
    if isinstance(task, str):
        return task
    given = getattr(task, "__name__", None) or repr(task)
    raise TypeError(f"{given} is not a task: decorate it with @task, or give the name of one")


def needs_id(new: NewTask) -> bool:
    """Whether a repeat is known by nothing else."""
    return new.idempotency_key is None and not (new.singleton or new.throttle or new.debounce)


def _with_ids(chunk: list[NewTask]) -> list[NewTask]:
    for new, minted in zip(chunk, mint_ids(len(chunk)), strict=True):
        new.minted = minted if needs_id(new) else b""
    return chunk


def _is_passing(answer: Enqueued) -> bool:
    """Whether the server could not take this item at the moment."""
    return answer.error is not None and isinstance(from_problem(answer.error), (Unavailable, ResourceExhausted))


def _waiting_size(waiting: _Waiting) -> int:
    return _ITEM_BYTES + len(waiting[0].payload[0].data)
