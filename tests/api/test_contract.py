"""One contract for all ways to call: embedded, WebSocket, and POST with MessagePack or JSON bodies answer the same."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from perdure.client.base import Service
from perdure.core import messages as m
from perdure.core.errors import IllegalMove, InvalidArgument, NotFound
from perdure.core.model import Failure, Progress, RetryPolicy
from perdure.sdk.mint import mint_id
from tests.api.calls import INCARNATION, enqueue, payload, poll, succeed, task

FAILURE = Failure(message="no such file", type="FileNotFoundError")


async def test_a_task_from_enqueue_to_result(service: Service) -> None:
    """TASK-05, TASK-08, WORK-08: everything given comes back, to the worker and to the owner."""
    retry = RetryPolicy(max_attempts=3, base=0.5)
    timeouts = m.TimeoutOptions(start_to_close="10m", lease=60)
    given = task("resize", priority=2, fairness_key="ann", headers={"trace": "é"}, retry=retry, timeouts=timeouts)
    [task_id] = await enqueue(service, given)

    [delivery] = await poll(service)
    assert delivery.task_id == task_id
    assert (delivery.type, delivery.queue, delivery.attempt, delivery.max_attempts) == ("resize", "default", 1, 3)
    assert (delivery.payload, delivery.headers) == (payload(), {"trace": "é"})
    assert (delivery.start_to_close, delivery.lease_seconds, delivery.retry) == (600.0, 60.0, retry)

    beat = m.Beat(delivery.lease, progress=Progress(1, 2), checkpoint=payload(b'"half"'))
    assert (await service.heartbeat(m.Heartbeat(INCARNATION, [beat]))).actions == ["continue"]
    running = await service.get(m.Get(task_id))
    assert (running.state, running.job_state, running.progress) == ("LEASED", "RUNNING", Progress(1, 2))
    assert running.waiting_for

    assert (await succeed(service, delivery)).state == "SUCCEEDED"
    assert (await succeed(service, delivery)).state == "SUCCEEDED", "a repeated completion gets its recorded answer"
    view = await service.get(m.Get(task_id))
    assert (view.state, view.result, view.payload, view.attempt) == ("SUCCEEDED", payload(b"42"), payload(), 1)
    assert view.created_at <= view.closed_at  # type: ignore[operator]
    lean = await service.get(m.Get(task_id, payload=False))
    assert (lean.result, lean.payload) == (payload(b"42"), None)


async def test_a_failed_attempt_is_shown_and_followed(service: Service) -> None:
    """RETRY-01: the back-off asked for, the failure kept with its attempt; RETRY-08: an operator cuts it short."""
    [task_id] = await enqueue(service)
    [delivery] = await poll(service)
    failed = m.Completion(delivery.lease, "failed", failure=FAILURE, retry_after=60.0)
    reply = await service.complete(m.Complete([failed]))
    assert reply.outcomes[0].state == "RETRY_WAIT"
    view = await service.get(m.Get(task_id))
    assert [(a.attempt, a.outcome, a.failure) for a in view.attempts] == [(1, "failed", FAILURE)]
    assert view.next_event_at is not None and view.next_event_at > datetime.now(UTC) + timedelta(seconds=50)
    assert await service.retry(m.Retry(task_id)) == m.RetryReply(task_id, "ENQUEUED")
    [again] = await poll(service, 2)
    assert (again.task_id, again.attempt) == (task_id, 2)
    with pytest.raises(IllegalMove):
        await service.retry(m.Retry(task_id))


async def test_a_closed_task_is_repeated_as_a_new_one(service: Service) -> None:
    """RETRY-08: the old one stays closed; asking twice makes one new task."""
    [task_id] = await enqueue(service)
    await service.cancel(m.Cancel(task_id))
    again = await service.retry(m.Retry(task_id))
    assert (again.task_id != task_id, again.state) == (True, "ENQUEUED")
    assert await service.retry(m.Retry(task_id)) == again
    view = await service.get(m.Get(again.task_id))
    assert (view.retry_of, view.payload) == (task_id, payload())
    assert (await service.get(m.Get(task_id))).state == "CANCELED"


async def test_items_are_answered_one_by_one(service: Service) -> None:
    """TASK-06, TASK-07: a bad item does not hold back the good ones, and each outcome is at its item's place."""
    items = [task("a"), task(""), task("b", priority=9), task("c"), task("d", delay="soon")]
    reply = await service.enqueue(m.Enqueue(items))
    assert [item.error.field if item.error else None for item in reply.tasks] == [
        None, "type", "priority", None, "delay",
    ]  # fmt: skip
    assert {d.type for d in await poll(service)} == {"a", "c"}


async def test_keys(service: Service) -> None:
    """IDEM-01, IDEM-15, B150: the same key and body find the first task; another body is a conflict."""
    [first] = await enqueue(service, task(idempotency_key="k"))
    other = task(idempotency_key="k", priority=1)
    reply = await service.enqueue(m.Enqueue([task(idempotency_key="k"), other, task(idempotency_key="l")]))
    assert (reply.tasks[0].task_id, reply.tasks[0].duplicate) == (first, True)
    assert reply.tasks[1].error is not None and reply.tasks[1].error.code == "idempotency_conflict"
    assert reply.tasks[2].error is None and not reply.tasks[2].duplicate


async def test_completions_are_answered_one_by_one(service: Service) -> None:
    """LEASE-05: a stale lease is told so, the rest is committed."""
    await enqueue(service, task(), task(), task())
    one, two, three = await poll(service)
    stale = two.lease[:-1] + bytes([two.lease[-1] ^ 1])
    body = m.Complete(
        [
            m.Completion(one.lease, "succeeded"),
            m.Completion(stale, "succeeded"),
            m.Completion(b"short", "succeeded"),
            m.Completion(two.lease, "won"),
            m.Completion(two.lease, "failed"),
            m.Completion(three.lease, "released"),
        ]
    )
    outcomes = (await service.complete(body)).outcomes
    assert [o.state or (o.error.code if o.error else "") for o in outcomes] == [
        "SUCCEEDED", "lease_lost", "invalid_argument", "invalid_argument", "invalid_argument", "ENQUEUED",
    ]  # fmt: skip
    lost = await service.heartbeat(m.Heartbeat(INCARNATION, [m.Beat(stale), m.Beat(two.lease), m.Beat(one.lease)]))
    assert lost.actions == ["lost", "continue", "lost"]


async def test_failures_have_bounds(service: Service) -> None:
    """Too large or too deep is refused by item, and the lease goes on."""
    await enqueue(service)
    [delivery] = await poll(service)
    deep = FAILURE
    for _ in range(101):
        deep = Failure(message="", cause=deep)
    large = Failure(message="x" * 65_536)
    body = m.Complete([m.Completion(delivery.lease, "failed", failure=failure) for failure in (deep, large)])
    errors = [outcome.error for outcome in (await service.complete(body)).outcomes]
    assert [error and error.field for error in errors] == ["failure.cause", "failure"]
    fitting = m.Completion(delivery.lease, "failed", failure=deep.cause, retry_after=60.0)
    assert (await service.complete(m.Complete([fitting]))).outcomes[0].state == "RETRY_WAIT"
    view = await service.get(m.Get(delivery.task_id))
    assert view.failure == deep.cause


async def test_a_beat_that_cannot_be_read_costs_nobody_else_a_lease(service: Service) -> None:
    """LEASE-07: the others count; the fault is named."""
    [task_id] = await enqueue(service)
    [delivery] = await poll(service)
    with pytest.raises(InvalidArgument) as caught:
        await service.heartbeat(m.Heartbeat(INCARNATION, [m.Beat(b""), m.Beat(delivery.lease, progress=Progress(3))]))
    assert caught.value.field == "beats[0].lease"
    assert (await service.get(m.Get(task_id))).progress == Progress(3)


async def test_cancel(service: Service) -> None:
    """CANC-01 to CANC-03, CANC-12: at once where nobody runs it, else through the worker; twice is harmless."""
    waiting, running = await enqueue(service, task("waiting", delay=60), task("running"))
    [delivery] = await poll(service)
    assert (await service.cancel(m.Cancel(waiting, "no need"))).state == "CANCELED"
    assert (await service.cancel(m.Cancel(waiting))).job_state == "CANCELLED"
    assert (await service.cancel(m.Cancel(running))).job_state == "CANCELLING"
    assert (await service.heartbeat(m.Heartbeat(INCARNATION, [m.Beat(delivery.lease)]))).actions == ["cancel"]
    reply = await service.complete(m.Complete([m.Completion(delivery.lease, "canceled")]))
    assert reply.outcomes[0].state == "CANCELED"
    assert (await service.get(m.Get(waiting))).cancel_reason == "no need"


async def test_lists_page_through_everything_once(service: Service) -> None:
    """B162: newest first, filters are conjunctive, a cursor goes on where the page ended."""
    ids = await enqueue(service, *[task("a" if n % 2 else "b", delay=60) for n in range(7)])
    found: list[str] = []
    cursor = None
    while True:
        page = await service.find(m.Find(limit=3, cursor=cursor))
        found += [view.task_id for view in page.tasks]
        if (cursor := page.next) is None:
            break
    assert found == ids[::-1]
    since = datetime(2020, 1, 1, tzinfo=UTC)
    some = await service.find(m.Find(type="a", state="ENQUEUED", queue="default", since=since))
    assert {view.task_id for view in some.tasks} == set(ids[1::2])
    assert (await service.find(m.Find(state="FAILED"))).tasks == []


async def test_get_waits_for_the_end(service: Service) -> None:
    """JOB-14: the answer is held back until the task has closed, and not longer than asked."""
    [task_id] = await enqueue(service)
    [delivery] = await poll(service)
    assert (await service.get(m.Get(task_id, wait=0.05))).state == "LEASED"
    waiting = asyncio.ensure_future(service.get(m.Get(task_id, wait=20)))
    await succeed(service, delivery)
    assert (await waiting).state == "SUCCEEDED"


async def test_an_enqueue_waits_for_the_end(service: Service) -> None:
    """JOB-14: one request from the task to its result; with a repeat of it under the same id (IDEM-05)."""
    body = m.Enqueue([m.NewTask("t", payload(), minted=mint_id())], wait=20.0)
    waiting = asyncio.create_task(service.enqueue(body))
    [delivery] = await poll(service)
    await succeed(service, delivery)
    reply = await waiting
    assert reply.closed is not None
    assert (reply.closed.task_id, reply.closed.state) == (delivery.task_id, "SUCCEEDED")
    assert (reply.closed.result, reply.closed.payload) == (payload(b"42"), None)
    again = await service.enqueue(body)
    assert (again.tasks, again.closed) == (reply.tasks, reply.closed)
    open_ = await service.enqueue(m.Enqueue([m.NewTask("t", payload())], wait=0.001))
    assert (open_.tasks[0].error, open_.closed) == (None, None)


async def test_a_poll_is_answered_when_work_arrives_and_empty_when_none_does(service: Service) -> None:
    """API-23, WORK-09: within its wait, and never more than its capacity."""
    assert await poll(service, 1, wait=0.05) == []
    waiting = asyncio.ensure_future(poll(service, 2, capacity=2))
    await asyncio.sleep(0)
    await enqueue(service, task(), task(), task())
    first = await waiting
    assert 1 <= len(first) <= 2
    rest = await poll(service, 3)
    assert len(first) + len(rest) == 3


async def test_sessions(service: Service) -> None:
    """An epoch is used once; closing the session ends its leases at once."""
    opening = m.OpenSession(INCARNATION, 1, "host:1", ["default"], 10)
    reply = await service.open_session(opening)
    assert (reply.heartbeat, reply.lease) == (10, 30)
    with pytest.raises(Exception, match="epoch"):
        await service.open_session(opening)
    [task_id] = await enqueue(service)
    await poll(service)
    await service.close_session(m.CloseSession(INCARNATION))
    [again] = (await service.poll(m.Poll(INCARNATION + 1, 1, ["default"], 1))).tasks
    assert again.task_id == task_id


async def test_what_is_not_there(service: Service) -> None:
    unknown = "01a22c5e-1f18-7000-aa4d-4bdddeb7e306"
    for call in (
        service.get(m.Get(unknown)),
        service.cancel(m.Cancel(unknown)),
        service.retry(m.Retry(unknown)),
    ):
        with pytest.raises(NotFound):
            await call


LONG = "x" * 5_000
BAD = {
    "task_id": ("get", m.Get("abc")),
    "wait": ("get", m.Get("01a22c5e-1f18-7000-aa4d-4bdddeb7e306", wait=26.0)),
    "limit": ("find", m.Find(limit=0)),
    "limit ": ("find", m.Find(limit=10**9)),
    "state": ("find", m.Find(state="'; drop table tasks; --")),
    "cursor": ("find", m.Find(cursor="next please")),
    "queue": ("find", m.Find(queue="")),
    "type": ("find", m.Find(type=LONG)),
    "since": ("find", m.Find(since=datetime(1901, 1, 1, tzinfo=UTC))),
    "reason": ("cancel", m.Cancel("01a22c5e-1f18-7000-aa4d-4bdddeb7e306", "\x00")),
    "tasks": ("enqueue", m.Enqueue([])),
    "tasks ": ("enqueue", m.Enqueue([task()] * 1_001)),
    "identity": ("enqueue", m.Enqueue([task()], LONG)),
    "queues": ("poll", m.Poll(1, 1, [], 1)),
    "queues ": ("poll", m.Poll(1, 1, [" blank ends "], 1)),
    "capacity": ("poll", m.Poll(1, 1, ["default"], 0)),
    "capacity ": ("poll", m.Poll(1, 1, ["default"], 1_001)),
    "incarnation": ("poll", m.Poll(-1, 1, ["default"], 1)),
    "poll": ("poll", m.Poll(1, 2**63, ["default"], 1)),
    "wait ": ("poll", m.Poll(1, 1, ["default"], 1, wait=-1.0)),
    "slots": ("open_session", m.OpenSession(1, 1, "x", ["default"], 0)),
    "epoch": ("open_session", m.OpenSession(1, -1, "x", ["default"], 1)),
    "completions": ("complete", m.Complete([])),
    "reason ": ("close_session", m.CloseSession(1, "because")),
}


async def test_bad_values_are_refused_by_field(service: Service) -> None:
    """B162: a 400 that names field and limit, the same by every transport."""
    for case, (op, body) in BAD.items():
        with pytest.raises(InvalidArgument) as caught:
            await getattr(service, op)(body)
        assert (caught.value.field, caught.value.code) == (case.strip(), "invalid_argument")
        assert caught.value.limit, case


async def test_a_cancel_nudges_the_worker(service: Service) -> None:
    """CANC-02: whoever runs the task hears at once that its next heartbeat has something to tell; also of what came
    while nobody waited."""
    first, second = await enqueue(service, task(), task())
    await poll(service, 2)
    waiting = asyncio.create_task(service.nudge(m.Nudge(INCARNATION, 20.0)))
    await asyncio.sleep(0.05)  # until it waits there
    await service.cancel(m.Cancel(first))
    assert (await waiting).task_ids == [first]
    await service.cancel(m.Cancel(second))
    assert (await service.nudge(m.Nudge(INCARNATION, 20.0))).task_ids == [second]
    assert (await service.nudge(m.Nudge(INCARNATION, 0.01))).task_ids == []
