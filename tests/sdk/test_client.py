"""The client over an embedded server on SQLite, and over services that fail."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest

from perdure import (
    AsyncPerdure,
    IdempotencyConflict,
    InvalidArgument,
    NotFound,
    Perdure,
    TaskCanceled,
    TaskExpired,
    TaskFailed,
    Unavailable,
    WaitTimeout,
    task,
)
from perdure.core import messages as m
from perdure.core.errors import FatalError, ResourceExhausted
from perdure.core.model import RetryPolicy
from perdure.sdk import client as client_module
from perdure.sdk import handle as handle_module
from perdure.sdk.client import COALESCED, AsyncClient


@pytest.fixture
async def app() -> AsyncIterator[AsyncPerdure]:
    async with AsyncPerdure("sqlite:///:memory:") as app:
        yield app


def _id(item: m.NewTask) -> str:
    return str(uuid.UUID(bytes=item.minted)) if item.minted else f"id-{item.idempotency_key}"


class Recorder:
    """A Service that answers enqueues and keeps them; each request first awaits `gate`."""

    def __init__(self) -> None:
        self.requests: list[m.Enqueue] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.faults: list[Exception] = []

    async def enqueue(self, body: m.Enqueue) -> m.EnqueueReply:
        self.requests.append(body)
        await self.gate.wait()
        if self.faults:
            raise self.faults.pop(0)
        return m.EnqueueReply([m.Enqueued(_id(item)) for item in body.tasks])


async def test_concurrent_enqueues_share_requests() -> None:
    recorder = Recorder()
    client = AsyncClient(recorder)  # type: ignore[arg-type]
    recorder.gate.clear()
    first = asyncio.create_task(client.enqueue("t", 0, idempotency_key="0"))
    while not recorder.requests:
        await asyncio.sleep(0)
    rest = [asyncio.create_task(client.enqueue("t", n, idempotency_key=str(n))) for n in range(1, COALESCED + 10)]
    await asyncio.sleep(0)
    recorder.gate.set()
    jobs = await asyncio.gather(first, *rest)
    assert [len(request.tasks) for request in recorder.requests] == [1, COALESCED, 9]
    assert [job.id for job in jobs] == [f"id-{n}" for n in range(COALESCED + 10)]


async def test_a_bad_task_does_not_spoil_the_request_it_shares(app: AsyncPerdure) -> None:
    odd: Any = "high"
    outcomes = await asyncio.gather(
        app.enqueue("t", 1), app.enqueue("t", 2, priority=odd), app.enqueue("t", 3), return_exceptions=True
    )
    assert [isinstance(outcome, BaseException) for outcome in outcomes] == [False, True, False]


async def test_coalescing_can_be_switched_off() -> None:
    recorder = Recorder()
    client = AsyncClient(recorder, coalesce=False)  # type: ignore[arg-type]
    await asyncio.gather(*(client.enqueue("t", n) for n in range(5)))
    assert [len(request.tasks) for request in recorder.requests] == [1] * 5


async def test_large_payloads_split_requests_by_bytes() -> None:
    recorder = Recorder()
    client = AsyncClient(recorder)  # type: ignore[arg-type]
    await client.enqueue_many("t", ["x" * 200_000] * 100)
    assert sum(len(request.tasks) for request in recorder.requests) == 100
    assert all(len(request.tasks) <= 21 for request in recorder.requests)


async def test_bulk_requests_leave_while_the_next_ones_are_made() -> None:
    """The first is with the server before the last payloads were asked for; at most three are in flight."""
    recorder = Recorder()
    recorder.gate.clear()
    client = AsyncClient(recorder)  # type: ignore[arg-type]
    under_way: list[int] = []

    def payloads() -> Iterator[int]:
        for number in range(6 * COALESCED):
            if number % COALESCED == 0:
                under_way.append(len(recorder.requests))
            yield number

    bulk = asyncio.create_task(client.enqueue_many("t", payloads()))
    while len(recorder.requests) < 3:
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(recorder.requests) == 3
    recorder.gate.set()
    jobs = await bulk
    assert under_way[:4] == [0, 1, 2, 3]
    minted = [item.minted for request in recorder.requests for item in request.tasks]
    assert [job.id for job in jobs] == [str(uuid.UUID(bytes=made)) for made in minted]
    assert len(set(minted)) == 6 * COALESCED
    assert not any(item.idempotency_key for request in recorder.requests for item in request.tasks)


async def test_a_bad_payload_is_an_error_after_the_requests_before_it_were_answered() -> None:
    recorder = Recorder()
    client = AsyncClient(recorder)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="payload"):
        await client.enqueue_many("t", [*range(COALESCED), {1}])
    assert [len(request.tasks) for request in recorder.requests] == [COALESCED]


async def test_a_canceled_bulk_lets_its_requests_go() -> None:
    recorder = Recorder()
    recorder.gate.clear()
    bulk = asyncio.create_task(AsyncClient(recorder).enqueue_many("t", range(9 * COALESCED)))  # type: ignore[arg-type]
    while len(recorder.requests) < 3:
        await asyncio.sleep(0)
    bulk.cancel()
    with pytest.raises(asyncio.CancelledError):
        await bulk
    recorder.gate.set()
    await asyncio.sleep(0)
    assert len(recorder.requests) == 3


async def test_a_full_server_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's bulk enqueue fails because many commands wait for a batch: the same items are sent again."""
    monkeypatch.setattr(client_module, "_RETRY_SECONDS", (0.0, 0.0))
    recorder = Recorder()
    recorder.faults = [Unavailable("20000 commands are waiting"), ResourceExhausted("slow down")]
    jobs = await AsyncClient(recorder).enqueue_many("t", range(4 * COALESCED))  # type: ignore[arg-type]
    assert len({job.id for job in jobs}) == 4 * COALESCED
    assert len(recorder.requests) == 4 + 2
    assert len({id(item) for request in recorder.requests for item in request.tasks}) == 4 * COALESCED


async def test_an_outage_is_waited_out_under_the_same_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """IDEM-05: a lost answer never makes a second task."""
    monkeypatch.setattr(client_module, "_RETRY_SECONDS", (0.0, 0.0))
    recorder = Recorder()
    recorder.faults = [Unavailable("away"), Unavailable("away")]
    await AsyncClient(recorder).enqueue("t")  # type: ignore[arg-type]
    ids = {item.minted for request in recorder.requests for item in request.tasks}
    assert len(recorder.requests) == 3
    assert {len(made) for made in ids} == {16}
    assert len(ids) == 1


async def test_a_long_outage_is_an_error_for_every_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "OUTAGE_SECONDS", 0.0)
    recorder = Recorder()
    recorder.faults = [Unavailable("away")]
    client = AsyncClient(recorder)  # type: ignore[arg-type]
    outcomes = await asyncio.gather(*(client.enqueue("t") for _ in range(3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Unavailable] * 3


async def test_idempotency_key(app: AsyncPerdure) -> None:
    """IDEM-01, IDEM-15."""
    first, second = await app.enqueue("t", 1, idempotency_key="k"), await app.enqueue("t", 1, idempotency_key="k")
    assert (first.id, first.duplicate, second.duplicate) == (second.id, False, True)
    with pytest.raises(IdempotencyConflict):
        await app.enqueue("t", 2, idempotency_key="k")


async def test_options_reach_the_task(app: AsyncPerdure) -> None:
    """B048: the call overrules the task, the task overrules the default."""

    @task(queue="own", priority=2, retries=1)
    def optioned(ctx: Any, payload: Any) -> None: ...

    plain = await (await app.enqueue(optioned)).status()
    assert (plain.queue, plain.priority, plain.max_attempts) == ("own", 2, 2)
    job = await app.enqueue(
        optioned, queue="other", priority=5, retry=RetryPolicy(max_attempts=9), delay="1h", fairness_key="f"
    )
    view = await job.status()
    assert (view.queue, view.priority, view.max_attempts, view.fairness_key) == ("other", 5, 9, "f")
    assert view.waiting_for == "its start time"


async def test_an_unknown_option_is_an_error(app: AsyncPerdure) -> None:
    with pytest.raises(TypeError, match="no option prioritty"):
        await app.enqueue("t", prioritty=1)  # type: ignore[call-arg]


async def test_bad_payload_is_refused_before_anything_is_sent() -> None:
    recorder = Recorder()
    with pytest.raises(InvalidArgument, match=r"payload\.a"):
        await AsyncClient(recorder).enqueue("t", {"a": {1}})  # type: ignore[arg-type]
    assert not recorder.requests


async def test_every_end_has_an_error_of_its_own(app: AsyncPerdure) -> None:
    """B159: failed, canceled, expired, still open and unknown are told apart."""

    @task(retries=0)
    async def fails(ctx: Any, payload: Any) -> None:
        raise FatalError("broken")

    @task(schedule_to_start=0.001)
    async def late(ctx: Any, payload: Any) -> None: ...

    expired = await app.enqueue(late, queue="none")
    canceled = await app.enqueue("nobody", queue="none")
    assert (await canceled.cancel("enough")).job_state == "CANCELLED"
    failed = await app.enqueue(fails)
    async with app.worker(queues=["default"]):
        with pytest.raises(TaskFailed, match="FatalError: broken") as caught:
            await failed.result(10)
        assert caught.value.failure.code == "fatal"
    with pytest.raises(TaskCanceled, match="enough"):
        await canceled.result(10)
    with pytest.raises(TaskExpired):
        await expired.result(10)
    with pytest.raises(WaitTimeout):
        await (await app.enqueue("nobody", queue="none")).result(0)
    with pytest.raises(NotFound):
        await app.job("01a22c60-3b9a-7000-9de6-012d84a3cb20").result(0)


@pytest.mark.parametrize("timeout", [-1, "5 minutes", float("nan")])
async def test_a_bad_wait_is_refused(app: AsyncPerdure, timeout: Any) -> None:
    """B116."""
    with pytest.raises(InvalidArgument, match="timeout"):
        await app.job("01a22c60-3b9a-7000-9de6-012d84a3cb20").result(timeout)


async def test_a_wait_ends_on_time_when_the_server_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """B116, B159: no server is not the task's failure, and not its time-out either."""
    monkeypatch.setattr(handle_module, "_ANSWER_SECONDS", 0.0)

    class Away:
        async def get(self, body: m.Get) -> m.TaskView:
            raise Unavailable("away")

    class Silent:
        async def get(self, body: m.Get) -> m.TaskView:
            await asyncio.Event().wait()
            raise AssertionError

    for service in (Away(), Silent()):
        with pytest.raises(Unavailable):
            await AsyncClient(service).job("id").result(0.05)  # type: ignore[arg-type]


async def test_a_short_outage_does_not_end_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handle_module, "_RETRY_SECONDS", 0.0)
    async with AsyncPerdure("sqlite:///:memory:") as app:
        job = await app.enqueue("nobody")
        await job.cancel()
        real = await app.service()

        class Flaky:
            faults = 3

            async def get(self, body: m.Get) -> m.TaskView:
                if self.faults:
                    self.faults -= 1
                    raise Unavailable("away")
                return await real.get(body)

        with pytest.raises(TaskCanceled):
            await AsyncClient(Flaky()).job(job.id).result()  # type: ignore[arg-type]


def test_the_blocking_face() -> None:
    @task
    def double(ctx: Any, payload: int) -> int:
        return 2 * payload

    @task
    async def blocks(ctx: Any, payload: Any) -> str:
        try:
            app.enqueue(double, 1)
        except RuntimeError as error:
            return str(error)
        return "no error"

    with Perdure("sqlite:///:memory:") as app, app.worker(slots=3):
        jobs = app.enqueue_many(double, range(5))
        assert [job.result(10) for job in jobs] == [0, 2, 4, 6, 8]
        assert app.enqueue(double, 21).result("10s") == 42
        assert {view.state for view in app.find(type="double").tasks} == {"SUCCEEDED"}
        assert "AsyncPerdure" in app.enqueue(blocks).result(10)


def test_a_perdure_that_was_never_used_closes() -> None:
    Perdure("http://127.0.0.1:1").close()


@pytest.mark.parametrize("url", ["mysql://x/y", "jobs.db", "sqlite:///"])
def test_unknown_urls_are_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidArgument, match="URL"):
        Perdure(url)


def plain(ctx: Any, payload: Any) -> None: ...


@pytest.mark.parametrize(("given", "named"), [(plain, "plain"), (12, "12"), (None, "None")])
async def test_what_is_no_task_is_not_enqueued(given: Any, named: str) -> None:
    recorder = Recorder()
    client = AsyncClient(recorder)  # type: ignore[arg-type]
    for call in (client.enqueue(given, 1), client.enqueue_many(given, [1])):
        with pytest.raises(TypeError, match=f"^{named} is not a task: decorate it with @task, or give the name"):
            await call
    assert recorder.requests == []


async def test_a_name_stands_for_the_task_that_this_process_has() -> None:
    recorder = Recorder()
    client = AsyncClient(recorder)  # type: ignore[arg-type]

    @task(name="by_name", queue="mail", retries=0, timeout="10s", priority=1)
    def own(ctx: Any, payload: Any) -> None: ...

    await client.enqueue(own, 1, idempotency_key="k")
    await client.enqueue("by_name", 1, idempotency_key="k")
    first, second = (request.tasks[0] for request in recorder.requests)
    assert (first, first.queue, first.priority) == (second, "mail", 1)


async def test_options_of_enqueue() -> None:
    recorder = Recorder()
    client = AsyncClient(recorder)  # type: ignore[arg-type]
    await client.enqueue("t", delay=timedelta(minutes=1.5))
    assert recorder.requests[0].tasks[0].delay == 90
    with pytest.raises(TypeError, match="no option dealy; it has delay, run_at, queue"):
        await client.enqueue("t", dealy=1)  # type: ignore[call-arg]


async def test_a_payload_that_cannot_be_encoded_is_named_by_its_index() -> None:
    client = AsyncClient(Recorder())  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"payloads\[2\]\.a is a set"):
        await client.enqueue_many("t", [1, 2, {"a": {3}}])
