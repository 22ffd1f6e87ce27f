"""Every value that a caller could get wrong, by every way in and on both databases: it works from end to end, or the
same typed error names the field and the limit (B015, B046, B047, B128, B130, B132, B133, B150). What is malformed as a
whole is in test_bad_input.py."""

from __future__ import annotations

import io
import json
import math
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest

from perdure.api import schema
from perdure.api.server import Server
from perdure.api.service import Caller
from perdure.api.service import Service as ServerService
from perdure.client.base import Service
from perdure.client.embedded import EmbeddedService
from perdure.client.http import HttpService
from perdure.core import ids
from perdure.core import messages as m
from perdure.core.errors import InvalidArgument, PerdureError, Problem, from_problem
from perdure.core.limits import MAX_PAYLOAD
from perdure.core.model import Failure, Payload, Progress, RetryPolicy
from perdure.engine.engine import Engine
from perdure.sdk.client import AsyncClient
from perdure.sdk.converter import MAX_DEPTH, Converter
from perdure.store.base import Store
from tests.api.calls import INCARNATION, JSON, JsonService, Rest, enqueue, new_rest, payload, poll, succeed, task
from tests.api.stores import STORES, opened


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with opened(request, tmp_path) as store:
        yield store


class Way(Protocol):
    """A way in: enqueues a task with these fields; its id, or the error raised."""

    async def __call__(self, **fields: Any) -> str: ...


class ByRest:
    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    async def __call__(self, **fields: Any) -> str:
        body = {"type": "t", "queue": "q", **fields}
        data = json.dumps(body, default=lambda moment: moment.isoformat())
        answer = await self._rest(
            "POST", "/v1/tasks", data=io.BytesIO(data.encode()), headers={"Content-Type": "application/json"}
        )
        if answer.status != 202:
            raise from_problem(msgspec.convert(answer.body, Problem))
        return str(answer.body["id"])


class ByClient:
    def __init__(self, service: Service) -> None:
        self._client = AsyncClient(service)

    async def __call__(self, **fields: Any) -> str:
        if "retry" in fields:
            fields["retry"] = RetryPolicy(**fields["retry"])
        if "timeouts" in fields:
            fields["timeouts"] = m.TimeoutOptions(**fields["timeouts"])
        name, value = fields.pop("type", "t"), fields.pop("payload", None)
        return (await self._client.enqueue(name, value, **{"queue": "q", **fields})).id


@pytest.fixture(params=["rest", "embedded", "websocket", "post"])
async def way(request: pytest.FixtureRequest, engine: Engine, server: Server) -> AsyncIterator[Way]:
    if request.param == "rest":
        async with new_rest(server.url) as rest:
            yield ByRest(rest)
        return
    service: Service
    if request.param == "embedded":
        service = EmbeddedService(ServerService(engine, Caller("default")))
    else:
        service = HttpService(server.url, transport="http" if request.param == "post" else "websocket")
    yield ByClient(service)
    await service.close()


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


BAD_NAMES = (
    "", "   ", " a", "a ", "\x00", "a\x00b", "a\nb", "\ud800", "x" * 256, "é" * 128, "x" * 10_000, "\u202eabc",
    "\u200b",
)  # fmt: skip
GOOD_NAMES = (
    "..", ".", "a/b", "a%2Fb", "a b", "مرحبا", "e\u0301", "é", "🎉", "Ω_задача_任务", "x" * 255, "<script>", "';--",
)  # fmt: skip
NAMES = ("type", "queue", "idempotency_key", "fairness_key")
TIMEOUTS = ("schedule_to_start", "start_to_close", "schedule_to_close", "heartbeat", "lease")
TEN_YEARS = 10 * 365 * 86_400

REFUSED: dict[str, list[tuple[str, Any, str]]] = {
    "names": [
        (field, name, field) for field in NAMES for name in BAD_NAMES if not (field == "fairness_key" and not name)
    ],
    "payloads": [
        ("payload", "\ud800", "payload"),
        ("payload", {"\ud800": 1}, "payload"),
        ("payload", [1, {"a": "\udfff"}], "payload[1].a"),
        ("payload", math.nan, "payload"),
        ("payload", {"a": [math.inf]}, "payload.a[0]"),
        ("payload", [-math.inf], "payload[0]"),
        ("payload", nested(MAX_DEPTH + 1), "payload"),
        ("payload", "x" * (MAX_PAYLOAD + 1), "payload"),
        ("payload", {"a": ["é" * MAX_PAYLOAD]}, "payload"),
        ("headers", {"a": "\ud800"}, "headers"),
        ("headers", {"\ud800": "a"}, "headers"),
        ("headers", {"a": 1}, "headers"),
        ("headers", {"a": "x" * 16_385}, "headers"),
    ],
    "delays": [
        ("delay", value, "delay")
        for value in (
            -1, -1e-9, 10**12, 10**30, math.nan, math.inf, True, [], "", "5 minutes", "-1", "1e3", " 5m ", "5M",
            "1h 30m", "1" * 200,
        )
    ],
    "time-outs": [
        ("timeouts", {which: value}, f"timeouts.{which}")
        for which in TIMEOUTS
        for value in (-1, 0, 1e-9, "0.5ms", 10**12, 10**30, math.nan, math.inf, True, "", "soon")
    ],
    "times": [
        ("run_at", datetime(2030, 1, 1), "run_at"),
        ("run_at", datetime(1900, 1, 1, tzinfo=UTC), "run_at"),
        ("run_at", datetime(9999, 12, 31, tzinfo=UTC), "run_at"),
    ],
    "retries": [
        ("retry", {field: value}, f"retry.{field}")
        for field, values in {
            "max_attempts": (0, -1, 10_001, 2**70, 1.5, True, "3"),
            "base": (0, -1, 1e-9, math.nan, 10**12, 10**30),
            "factor": (0, 0.5, -1, math.inf, 10**12),
            "cap": (0, -1, math.nan, 10**12),
        }.items()
        for value in values
    ],
    "priorities": [("priority", value, "priority") for value in (0, -1, 6, 2**70, 1.5, True, "1")],
}  # fmt: skip
"""By kind: the field, its value, and the field that the error names."""


@pytest.mark.parametrize("kind", REFUSED)
async def test_bad_values_are_refused_by_name_and_limit(way: Way, store: Store, kind: str) -> None:
    """Nothing is written, and no call is our fault."""
    wrong = []
    for field, value, named in REFUSED[kind]:
        try:
            await way(**{field: value})
            wrong.append((field, ascii(value)[:60], "accepted"))
        except InvalidArgument as error:
            at = (error.field or "").removeprefix("tasks[0].")
            if not at.startswith(named) or not error.limit or not error.detail:
                wrong.append((field, ascii(value)[:60], f"{error.field} {error.limit}"))
    assert not wrong, wrong
    assert await store.next_alarm() is None
    assert (await store.count_lanes("", "\uffff", 10)) == []


ACCEPTED: dict[str, list[tuple[str, Any]]] = {
    "delays": [("delay", value) for value in (0, 1e-9, 0.0005, "0.5ms", "5", "42m30s", "1.5h", "PT1H30M", TEN_YEARS)],
    "time-outs": [("timeouts", {which: value}) for which in TIMEOUTS for value in (1, "1h30m", TEN_YEARS)],
    "times": [("run_at", datetime(1970, 1, 1, tzinfo=UTC)), ("run_at", datetime.now(UTC) - timedelta(days=1))],
    "retries": [("retry", {"max_attempts": 1}), ("retry", {"max_attempts": 10_000, "factor": 2})],
    "headers": [("headers", {"a": "\x00"}), ("headers", {"": ""}), ("headers", {"\u202e": "e\u0301"})],
}


@pytest.mark.parametrize("kind", ACCEPTED)
async def test_odd_values_that_are_right_are_taken(way: Way, engine: Engine, kind: str) -> None:
    for field, value in ACCEPTED[kind]:
        task_id = ids.parse(await way(**{field: value}))
        assert task_id in await engine.store.read([task_id]), (field, value)


async def test_names_in_any_script_work_from_end_to_end(way: Way, server: Server) -> None:
    """B015: enqueue, key, list by type and queue, deliver, cancel by a link."""
    async with new_rest(server.url) as rest:
        for name in GOOD_NAMES:
            task_id = await way(type=name, queue=name, idempotency_key=f"k {name}"[:255], fairness_key=name)
            assert await way(type=name, queue=name, idempotency_key=f"k {name}"[:255], fairness_key=name) == task_id
            found = await rest("GET", "/v1/tasks", params={"type": name, "queue": name})
            assert [task["task_id"] for task in found.body["tasks"]] == [task_id]
            worker = HttpService(server.url)
            body = m.Poll(INCARNATION, GOOD_NAMES.index(name) + 1, [name], 1, 5.0)
            assert [(d.task_id, d.type, d.queue) for d in (await worker.poll(body)).tasks] == [(task_id, name, name)]
            await worker.close()
            document = (await rest("GET", f"/v1/tasks/{task_id}")).body
            assert (document["type"], document["queue"], document["idempotency_key"]) == (name, name, f"k {name}"[:255])
            assert (await rest("POST", document["links"]["cancel"])).body["job_state"] == "CANCELLING"


PAYLOADS = (
    "\x00", {"a\x00": "\x00"}, [{"b": ["\x00"]}], "\u202eabc\u2028", "e\u0301", "🎉", 2**63 - 1, -(2**63), 2**64 - 1,
    0.1, 1e308, nested(MAX_DEPTH), {"": [None, True, {}]}, "x" * (MAX_PAYLOAD - 64),
)  # fmt: skip


async def test_payloads_come_back_equal(way: Way, server: Server) -> None:
    """B128, B135: to a worker, in the task as REST shows it, and as a result."""
    worker = HttpService(server.url)
    converter = Converter()
    async with new_rest(server.url) as rest:
        for number, value in enumerate(PAYLOADS, 1):
            task_id = await way(payload=value)
            [delivery] = (await worker.poll(m.Poll(INCARNATION, number, ["q"], 1, 5.0))).tasks
            assert converter.from_payloads(delivery.payload, "payload") == value
            await worker.complete(m.Complete([m.Completion(delivery.lease, "succeeded", result=delivery.payload)]))
            async with rest._session.get(f"/v1/tasks/{task_id}") as answer:
                document = msgspec.json.decode(await answer.read())  # a strict reader (B130)
            assert (document["payload"], document["result"]) == (value, value)
    await worker.close()


async def test_numbers_beyond_64_bits_by_rest(server: Server, rest: Rest) -> None:
    """They are kept as written and arrive whole; Python's client refuses them, because other readers round."""
    worker = HttpService(server.url)
    for number, value in enumerate((2**64, -(2**63) - 1, 10**30), 1):
        await ByRest(rest)(payload=value)
        [delivery] = (await worker.poll(m.Poll(INCARNATION, number, ["q"], 1, 5.0))).tasks
        assert Converter().from_payloads(delivery.payload, "payload") == value
        with pytest.raises(InvalidArgument, match="payload"):
            await ByClient(worker)(payload=value)
    await worker.close()


def test_nesting_has_one_limit() -> None:
    assert schema.MAX_DEPTH == MAX_DEPTH
    assert schema._depth(b'{"a]":["[","\\"[",[{}]]}') == 4


async def test_one_key_with_another_body(way: Way) -> None:
    """B150, IDEM-15."""
    await way(idempotency_key="k", payload=1)
    for other in (
        {"payload": 2},
        {"payload": 1, "type": "u"},
        {"payload": 1, "priority": 1},
        {"payload": 1, "queue": "r"},
    ):
        with pytest.raises(PerdureError) as caught:
            await way(idempotency_key="k", **other)
        assert (caught.value.code, caught.value.status, caught.value.field) == (
            "idempotency_conflict", 409, "idempotency_key",
        )  # fmt: skip


async def test_a_queue_that_nobody_knows_is_a_queue(way: Way, server: Server) -> None:
    """It is named where its tasks are; what they wait for is said (B160)."""
    task_id = await way(queue="never-seen")
    async with new_rest(server.url) as rest:
        assert "none is registered" in (await rest("GET", f"/v1/tasks/{task_id}")).body["waiting_for"]


# ---------------------------------------------------------------------------------------------------- lists and workers
@pytest.fixture(params=["embedded", "websocket", "post", "json"])
async def service(request: pytest.FixtureRequest, engine: Engine, server: Server) -> AsyncIterator[Service]:
    service: Service
    match request.param:
        case "embedded":
            service = EmbeddedService(ServerService(engine, Caller("default")))
        case "json":
            service = JsonService(server.url)
        case transport:
            service = HttpService(server.url, transport="http" if transport == "post" else "websocket")
    yield service
    await service.close()


async def refusal(call: Any) -> PerdureError:
    with pytest.raises(PerdureError) as caught:
        await call
    assert caught.value.status < 500
    return caught.value


async def test_requests_of_too_many_or_nothing(service: Service, rest: Rest) -> None:
    """TASK-06: 1,001 items are one too many; so is a poll with room for nothing."""
    for count in (0, 1_001):
        error = await refusal(service.enqueue(m.Enqueue([task()] * count)))
        assert (error.code, error.field, error.limit) == ("invalid_argument", "tasks", "1 to 1000")
        answer = await rest("POST", "/v1/tasks:batch", {"tasks": [{"type": "t"}] * count})
        assert (answer.status, answer.body["field"], answer.body["limit"]) == (400, "tasks", "1 to 1000")
    for capacity in (0, -1, 1_001):
        error = await refusal(poll(service, capacity=capacity))
        assert (error.field, error.limit) == ("capacity", "1 to 1000")
    error = await refusal(service.complete(m.Complete([])))
    assert error.field == "completions"
    assert (await service.heartbeat(m.Heartbeat(INCARNATION, []))).actions == []


async def test_a_thousand_and_one_payloads_by_the_client_are_two_requests(service: Service) -> None:
    jobs = await AsyncClient(service).enqueue_many("t", range(1_001))
    assert len({job.id for job in jobs}) == 1_001


async def test_bad_polls_and_sessions(service: Service) -> None:
    cases: list[tuple[Any, str]] = [
        (service.poll(m.Poll(INCARNATION, 1, [], 1)), "queues"),
        (service.poll(m.Poll(INCARNATION, 1, ["q"] * 101, 1)), "queues"),
        (service.poll(m.Poll(INCARNATION, 1, ["\x00"], 1)), "queues"),
        (service.poll(m.Poll(-1, 1, ["q"], 1)), "incarnation"),
        (service.poll(m.Poll(2**63, 1, ["q"], 1)), "incarnation"),
        (service.poll(m.Poll(INCARNATION, 1, ["q"], 1, 26.0)), "wait"),
        (service.poll(m.Poll(INCARNATION, 1, ["q"], 1, -1.0)), "wait"),
        (service.open_session(m.OpenSession(INCARNATION, 1, "\x00", ["q"], 1)), "identity"),
        (service.open_session(m.OpenSession(INCARNATION, 1, "w", ["q"], 0)), "slots"),
        (service.open_session(m.OpenSession(INCARNATION, 1, "w", ["a\nb"], 1)), "queues"),
        (service.close_session(m.CloseSession(INCARNATION, "bored")), "reason"),
        (service.find(m.Find(limit=0)), "limit"),
        (service.find(m.Find(limit=1_001)), "limit"),
        (service.find(m.Find(state="'; drop table tasks")), "state"),
        (service.find(m.Find(type="x" * 10_000)), "type"),
        (service.find(m.Find(cursor="\x00")), "cursor"),
        (service.find(m.Find(since=datetime(1900, 1, 1, tzinfo=UTC))), "since"),
        (service.cancel(m.Cancel("x" * 10_000)), "task_id"),
        (service.cancel(m.Cancel("")), "task_id"),
        (service.retry(m.Retry("\u202e")), "task_id"),
    ]
    for call, field in cases:
        error = await refusal(call)
        assert (error.code, error.field) == ("invalid_argument", field), error
        assert error.limit, field


async def test_leases_that_are_no_leases(service: Service) -> None:
    """LEASE-05: of another task, closed, forged, cut short: a typed error for that item, and its neighbours count."""
    first, second = await enqueue(service, task(), task())
    one, two = await poll(service, capacity=2)
    mixed = one.lease[:16] + two.lease[16:]
    forged = one.lease[:-1] + bytes([one.lease[-1] ^ 1])
    unknown = bytes(16) + one.lease[16:]
    done = [
        m.Completion(lease, "succeeded", result=payload()) for lease in (mixed, forged, unknown, b"", one.lease[:27])
    ]
    outcomes = (await service.complete(m.Complete([*done, m.Completion(two.lease, "succeeded")]))).outcomes
    codes = [outcome.error.code if outcome.error else outcome.state for outcome in outcomes]
    assert codes == ["lease_lost", "lease_lost", "lease_lost", "invalid_argument", "invalid_argument", "SUCCEEDED"]
    assert [outcome.error.field for outcome in outcomes[3:5] if outcome.error] == ["lease", "lease"]
    actions = await service.heartbeat(m.Heartbeat(INCARNATION, [m.Beat(mixed), m.Beat(two.lease), m.Beat(one.lease)]))
    assert actions.actions == ["lost", "lost", "continue"]
    assert (await succeed(service, one)).state == "SUCCEEDED"
    again = await succeed(service, two)
    assert (again.state, again.error) == ("SUCCEEDED", None)  # what this lease was answered before
    other = await service.complete(m.Complete([m.Completion(forged, "failed", failure=Failure(message="no"))]))
    assert other.outcomes[0].error is not None and other.outcomes[0].error.code == "lease_lost"
    assert {(await service.get(m.Get(task_id))).state for task_id in (first, second)} == {"SUCCEEDED"}


async def test_completions_with_bad_values(service: Service) -> None:
    """B128, B133, B134: each is refused by name, and the attempt can still be ended."""
    [task_id] = await enqueue(service, task(retry=RetryPolicy(max_attempts=1)))
    [delivery] = await poll(service, capacity=1)
    large = (Payload(JSON, b"x" * (MAX_PAYLOAD + 1)),)
    chain = Failure(message="end")
    for _ in range(200):
        chain = Failure(message="link", cause=chain)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"outcome": "succeeded", "result": large}, "result"),
        ({"outcome": "odd"}, "outcome"),
        ({"outcome": "failed"}, "failure"),
        ({"outcome": "failed", "failure": Failure(message="x" * 100_000)}, "failure"),
        ({"outcome": "failed", "failure": chain}, "failure.cause"),
        ({"outcome": "failed", "failure": Failure(message="m"), "retry_after": -1.0}, "retry_after"),
        ({"outcome": "succeeded", "progress": Progress(-1)}, "progress.done"),
        ({"outcome": "succeeded", "progress": Progress(1, 1, "\x00")}, "progress.message"),
        ({"outcome": "succeeded", "checkpoint": large}, "checkpoint"),
    ]
    completions = [m.Completion(delivery.lease, **fields) for fields, _ in cases]
    outcomes = (await service.complete(m.Complete(completions))).outcomes
    assert [outcome.error and outcome.error.field for outcome in outcomes] == [field for _, field in cases]
    whole = Failure(message="\x00 \u202e e\u0301", type="Odd\x00Error", stack="\x00")
    last = await service.complete(m.Complete([m.Completion(delivery.lease, "failed", failure=whole)]))
    assert last.outcomes[0].state == "FAILED"
    view = await service.get(m.Get(task_id))
    assert view.failure is not None
    assert (view.failure.message, view.failure.type) == (whole.message, whole.type)


async def test_unknown_fields_are_refused(server: Server, rest: Rest) -> None:
    """By REST, and by the wire in both encodings; Python's own raise TypeError."""
    answer = await rest("POST", "/v1/tasks", {"type": "t", "color": "red"})
    assert (answer.status, answer.body["field"]) == (400, "color")
    answer = await rest("POST", "/v1/tasks:batch", {"tasks": [{"type": "t"}, {"type": "t", "retries": 3}]})
    assert (answer.status, answer.body["field"]) == (400, "tasks[1].retries")
    for content_type, encode in (
        ("application/json", msgspec.json.encode),
        ("application/msgpack", msgspec.msgpack.encode),
    ):
        headers = {"Content-Type": content_type}
        async with rest._session.post(
            "/wire/enqueue", data=encode({"tasks": [{"type": "t", "color": 1}]}), headers=headers
        ) as wire:
            decode = msgspec.json.decode if content_type.endswith("json") else msgspec.msgpack.decode
            assert (wire.status, decode(await wire.read())["field"]) == (400, "tasks[0].color")


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 10_000, 1_000_000])
async def test_deep_nesting_names_its_field(rest: Rest, depth: int) -> None:
    """B132: at once, and the server lives."""
    value = "[" * depth + "]" * depth
    for path, body, field in (
        ("/v1/tasks", f'{{"type": "t", "payload": {value}}}', "payload"),
        ("/v1/tasks:batch", f'{{"tasks": [{{"type": "t", "payload": {value}}}]}}', "payload"),
    ):
        answer = await rest("POST", path, data=io.BytesIO(body.encode()), headers={"Content-Type": "application/json"})
        problem = answer.body if answer.status != 200 else answer.body["tasks"][0]["error"]
        assert (problem["status"], problem["field"], problem["limit"]) == (400, field, f"{MAX_DEPTH} levels")
    for path in ("/v1/tasks/x/cancel", "/jobs/x/cancel"):
        answer = await rest("POST", path, data=io.BytesIO(value.encode()), headers={"Content-Type": "application/json"})
        assert (answer.status, answer.body["code"]) == (400, "invalid_argument")
    assert (await rest("GET", "/healthz")).status == 200
