"""The REST interface as people use it: tasks, and the same rows as jobs."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from perdure.api import schema
from perdure.api.server import App, Server
from perdure.client.http import HttpService
from perdure.core import messages as m
from perdure.core.model import Failure, Payload, Progress
from perdure.engine.engine import Engine
from tests.api.calls import INCARNATION, Rest, new_rest, poll, succeed

TASK = {"task_type": "resize", "payload": {"a": [1, None, "é"]}}


@pytest.fixture
async def worker(server: Server):  # type: ignore[no-untyped-def]
    worker = HttpService(server.url)
    await worker.open_session(m.OpenSession(INCARNATION, 1, "host:1", ["default", "slow"], 4, "v7"))
    yield worker
    await worker.close()


async def test_work_is_accepted_with_a_place_to_look(rest: Rest) -> None:
    """JOB-01, JOB-02, JOB-06, JOB-08, X-18: 202, Location, Retry-After, and the job itself."""
    made = await rest("POST", "/v1/tasks", TASK)
    assert (made.status, made.headers["retry-after"]) == (202, "5")
    assert made.headers["location"] == f"/v1/tasks/{made.body['task_id']}"
    assert made.body["id"] == made.body["task_id"]
    assert (made.body["state"], made.body["duplicate"], made.body["error"]) == ("QUEUED", False, None)
    for path in ("/jobs", "/v1/jobs"):
        job = await rest("GET", f"{path}/{made.body['id']}")
        assert (job.status, job.headers["retry-after"]) == (202, "5")
        assert job.body == {
            "id": made.body["id"],
            "state": "QUEUED",
            "progress": {"done": 0, "total": None, "message": ""},
            "created_at": made.body["created_at"],
            "updated_at": made.body["updated_at"],
            "result_url": None,
            "error": None,
            "links": {"cancel": f"/v1/jobs/{made.body['id']}/cancel"},
        }


async def test_a_result_is_shown_as_json(rest: Rest, worker: HttpService) -> None:
    """TASK-08, JOB-10, JOB-14."""
    task_id = (await rest("POST", "/v1/tasks", TASK)).body["task_id"]
    [delivery] = await poll(worker)
    assert delivery.payload[0].data == b'{"a":[1,null,"\\u00e9"]}'
    await worker.heartbeat(m.Heartbeat(INCARNATION, [m.Beat(delivery.lease, progress=Progress(3, 9, "on it"))]))
    waiting = asyncio.ensure_future(rest("GET", f"/v1/tasks/{task_id}?wait=20s"))
    await succeed(worker, delivery, b'{"ok":true}')
    task = (await waiting).body
    assert (task["state"], task["job_state"]) == ("SUCCEEDED", "SUCCEEDED")
    assert (task["payload"], task["result"]) == (TASK["payload"], {"ok": True})
    assert task["progress"] == {"done": 3.0, "total": 9.0, "message": "on it"}
    assert (task["worker"], task["attempt"], task["error"]) == ("host:1", 1, None)
    assert [(a["attempt"], a["outcome"], a["worker"]) for a in task["attempts"]] == [(1, "succeeded", "host:1")]
    path = f"/v1/tasks/{task_id}"
    job = f"/v1/jobs/{task_id}"
    assert task["links"] == {"self": path, "cancel": f"{path}/cancel", "retry": f"{path}/retry", "job": job}


async def test_what_holds_for_a_task_is_shown(rest: Rest) -> None:
    """B048, TASK-08: its limits and its retries, whether they were said or are the defaults."""
    given = {"timeouts": {"start_to_close": "10m", "lease": 5}, "retry": {"max_attempts": 3, "delays": [1, 60]}}
    none = dict.fromkeys(("schedule_to_start", "start_to_close", "schedule_to_close", "heartbeat"))
    usual = {"base": 1.0, "factor": 2.0, "cap": 3600.0, "fatal_types": [], "delays": []}
    for body, timeouts, retry in (
        (TASK, none | {"lease": 30.0}, usual | {"max_attempts": 5}),
        (TASK | given, none | {"start_to_close": 600.0, "lease": 5.0}, usual | {"max_attempts": 3, "delays": [1, 60]}),
    ):
        task_id = (await rest("POST", "/v1/tasks", body)).body["task_id"]
        task = (await rest("GET", f"/v1/tasks/{task_id}")).body
        assert (task["timeouts"], task["retry"]) == (timeouts, retry)
        listed = (await rest("GET", "/v1/tasks?limit=1")).body["tasks"]
        assert (listed[0]["timeouts"], listed[0]["retry"]) == (timeouts, retry)


async def test_head_is_get_without_the_body(rest: Rest, server: Server) -> None:
    """B162: load balancers and link checkers ask with HEAD."""
    made = await rest("POST", "/v1/tasks", TASK)
    async with aiohttp.ClientSession(server.url) as http:
        for path in ("/healthz", "/openapi.json", made.headers["location"], f"/v1/jobs/{made.body['id']}"):
            got = await http.get(path)
            async with http.head(path) as answer:
                assert (answer.status, await answer.read()) == (got.status, b""), path
                assert answer.headers["content-length"] == got.headers["content-length"]
        async with http.head("/v1/tasks:batch") as answer:
            assert answer.status == 405


async def test_a_failed_job_says_why(rest: Rest, worker: HttpService) -> None:
    """JOB-05."""
    task_id = (await rest("POST", "/v1/tasks", {"type": "t", "retry": {"max_attempts": 1}})).body["task_id"]
    [delivery] = await poll(worker)
    failure = Failure(message="no disk", type="OSError", cause=Failure(message="full", details=(Payload({}, b"\x00"),)))
    await worker.complete(m.Complete([m.Completion(delivery.lease, "failed", failure=failure)]))
    job = (await rest("GET", f"/jobs/{task_id}")).body
    assert job["state"] == "FAILED"
    assert job["error"] == {"code": "handler_error", "message": "no disk", "retryable": True}
    task = (await rest("GET", f"/v1/tasks/{task_id}")).body
    assert task["error"] == job["error"]
    assert [(a["attempt"], a["outcome"], a["failure"]["message"]) for a in task["attempts"]] == [
        (1, "failed", "no disk")
    ]
    assert task["failure"]["cause"]["details"] == {"encoding": "", "data": "AA=="}
    again = await rest("POST", f"/v1/tasks/{task_id}/retry")
    assert (again.status, again.body.get("state")) == (202, "ENQUEUED"), again
    assert again.headers["location"] == f"/v1/tasks/{again.body['task_id']}"
    assert (await rest("GET", f"/v1/tasks/{again.body['task_id']}")).body["retry_of"] == task_id


async def test_an_expired_job_failed_with_a_code(rest: Rest, server: Server) -> None:
    body = {"type": "t", "timeouts": {"schedule_to_start": "1ms"}}
    task_id = (await rest("POST", "/v1/tasks", body)).body["task_id"]
    task = (await rest("GET", f"/v1/tasks/{task_id}?wait=20")).body
    assert (task["state"], task["job_state"]) == ("EXPIRED", "FAILED")
    error = (await rest("GET", f"/jobs/{task_id}")).body["error"]
    assert error["code"] == "schedule_to_start_timeout"


async def test_cancel_by_task_and_by_job(rest: Rest) -> None:
    for path, name in (("/v1/tasks", "job_state"), ("/v1/jobs", "state"), ("/jobs", "state")):
        task_id = (await rest("POST", "/v1/tasks", TASK)).body["task_id"]
        for body in (None, {"reason": "no need"}):
            answer = await rest("POST", f"{path}/{task_id}/cancel", body)
            assert (answer.status, answer.body[name]) == (202, "CANCELLED"), path


async def test_fifty_posts_of_one_key_make_one_job(rest: Rest) -> None:
    """B150, JOB-11, IDEM-01: by header or field; another body is a conflict."""
    header = {"Idempotency-Key": "k"}
    answers = await asyncio.gather(*(rest("POST", "/v1/tasks", TASK, headers=header) for _ in range(50)))
    assert {answer.status for answer in answers} == {202}
    assert len({answer.body["task_id"] for answer in answers}) == 1
    assert sum(not answer.body["duplicate"] for answer in answers) == 1
    field = await rest("POST", "/v1/tasks", {**TASK, "idempotency_key": "k"})
    assert field.body["duplicate"]
    other = await rest("POST", "/v1/tasks", {**TASK, "payload": 1}, headers=header)
    assert (other.status, other.body["code"]) == (409, "idempotency_conflict")
    both = await rest("POST", "/v1/tasks", {**TASK, "idempotency_key": "l"}, headers=header)
    assert both.status == 400


async def test_a_key_outlives_its_task_and_its_server(
    rest: Rest, server: Server, engine: Engine, worker: HttpService
) -> None:
    """B150: while it runs, after it has closed, and after a restart; another body is a conflict all the time."""
    header = {"Idempotency-Key": "k"}
    first = (await rest("POST", "/v1/tasks", TASK, headers=header)).body["id"]

    async def asked_again(rest: Rest) -> tuple[str, bool, str]:
        again = (await rest("POST", "/v1/tasks", TASK, headers=header)).body
        other = await rest("POST", "/v1/tasks", {**TASK, "payload": 1}, headers=header)
        assert (other.status, other.body["code"]) == (409, "idempotency_conflict")
        return again["id"], again["duplicate"], again["state"]

    [delivery] = await poll(worker)
    assert await asked_again(rest) == (first, True, "RUNNING")
    await succeed(worker, delivery)
    assert await asked_again(rest) == (first, True, "SUCCEEDED")
    successor = Engine(engine.store)
    await engine.stop()
    await successor.start()
    second = Server(App(successor), port=0)
    await second.start()
    async with new_rest(second.url) as elsewhere:
        assert await asked_again(elsewhere) == (first, True, "SUCCEEDED")
    await second.stop()
    await successor.stop()


async def test_what_goes_as_it_should_is_no_error_in_the_log(rest: Rest, caplog: pytest.LogCaptureFixture) -> None:
    """B152: duplicates, conflicts, cancels that come too late, tasks that are not there."""
    keyed = [{**TASK, "idempotency_key": "k"}, {**TASK, "payload": 1, "idempotency_key": "k"}] * 500
    made = (await rest("POST", "/v1/tasks:batch", {"tasks": keyed})).body["tasks"]
    assert sum(item.get("duplicate", False) for item in made) == 499
    for _ in range(50):
        await rest("POST", f"/v1/tasks/{made[0]['task_id']}/cancel")
        await rest("GET", "/jobs/7")
    assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []


async def test_a_key_is_the_same_in_header_and_field(rest: Rest) -> None:
    """B150, B015: in any script; a header's bytes are UTF-8."""
    for key in ("Ω_задача_任务", "🎉", "\u202eabc", "e\u0301"):
        by_field = await rest("POST", "/v1/tasks", {**TASK, "idempotency_key": key})
        by_header = await rest("POST", "/v1/tasks", TASK, headers={"Idempotency-Key": key})
        if by_field.status == 400:
            assert by_header.body["field"] == by_field.body["field"] == "idempotency_key"
        else:
            assert (by_header.body["id"], by_header.body["duplicate"]) == (by_field.body["id"], True)
    assert (await rest("POST", "/v1/tasks", TASK, headers={"Idempotency-Key": ""})).status == 400


async def test_batch_items_have_keys_of_their_own(rest: Rest) -> None:
    """B150, IDEM-15, TASK-07: a batch that is sent again doubles nothing; another body is that item's conflict."""
    items = [{**TASK, "payload": n, "idempotency_key": f"b{n}"} for n in range(3)]
    first = (await rest("POST", "/v1/tasks:batch", {"tasks": items})).body["tasks"]
    items[1] = {**items[1], "payload": "other"}
    again = (await rest("POST", "/v1/tasks:batch", {"tasks": [*items, items[0]]})).body["tasks"]
    assert [item.get("task_id") for item in again] == [
        first[0]["task_id"],
        None,
        first[2]["task_id"],
        first[0]["task_id"],
    ]
    assert [item.get("duplicate", False) for item in again] == [True, False, True, True]
    assert again[1]["error"]["code"] == "idempotency_conflict"


async def test_what_a_task_waits_for_is_said_in_words(rest: Rest, worker: HttpService) -> None:
    """B157, B160: in detail and list, with the time of the next event."""
    lonely = (await rest("POST", "/v1/tasks", {**TASK, "queue": "nobody"})).body["id"]
    ready = (await rest("POST", "/v1/tasks", TASK)).body["id"]

    async def waits(task_id: str) -> tuple[str, str, bool]:
        task = (await rest("GET", f"/v1/tasks/{task_id}")).body
        return task["state"], task["waiting_for"], task["next_event_at"] is not None

    assert await waits(lonely) == ("ENQUEUED", "a worker: none is registered for queue 'nobody'", False)
    assert await waits(ready) == ("ENQUEUED", "a free worker on queue 'default'", False)
    [delivery] = await poll(worker)
    assert await waits(ready) == ("LEASED", "worker host:1 to acknowledge receipt", True)
    await worker.heartbeat(m.Heartbeat(INCARNATION, [m.Beat(delivery.lease)]))
    assert await waits(ready) == ("LEASED", "worker host:1, which runs it", True)
    running = (await rest("GET", f"/v1/tasks/{ready}")).body["attempts"]
    assert [(a["attempt"], a["outcome"], a["finished_at"]) for a in running] == [(1, "running", None)]
    failed = m.Completion(delivery.lease, "failed", failure=Failure(message="no"), retry_after=60.0)
    await worker.complete(m.Complete([failed]))
    assert await waits(ready) == ("RETRY_WAIT", "the back-off after attempt 1 of 5", True)
    listed = (await rest("GET", "/v1/tasks?limit=1")).body["tasks"]
    assert (listed[0]["waiting_for"], listed[0]["attempts"]) == ("the back-off after attempt 1 of 5", [])


async def test_a_batch_is_answered_item_by_item(rest: Rest) -> None:
    """TASK-06, TASK-07."""
    tasks = [TASK, {"type": ""}, {}, {"type": "b", "delay": "1h30m"}, {"type": "c", "payload": "x" * 300_000}]
    answer = await rest("POST", "/v1/tasks:batch", {"tasks": tasks})
    assert answer.status == 200
    codes = [item.get("error", {}).get("code") for item in answer.body["tasks"]]
    assert codes == [None, "invalid_argument", "invalid_argument", None, "payload_too_large"]
    delayed = (await rest("GET", f"/v1/tasks/{answer.body['tasks'][3]['task_id']}")).body
    assert (delayed["state"], delayed["waiting_for"]) == ("ENQUEUED", "its start time")
    assert delayed["next_event_at"] == delayed["run_at"]


async def test_lists(rest: Rest) -> None:
    for number in range(5):
        await rest("POST", "/v1/tasks", {"type": f"t{number % 2}", "queue": "q", "delay": 60})
    page = (await rest("GET", "/v1/tasks?queue=q&type=t0&state=ENQUEUED&since=2020-01-01T00:00:00Z&limit=2")).body
    assert [task["type"] for task in page["tasks"]] == ["t0", "t0"]
    last = (await rest("GET", f"/v1/tasks?queue=q&type=t0&limit=2&cursor={page['next']}")).body
    assert (len(last["tasks"]), last["next"]) == (1, None)
    assert last["tasks"][0]["payload"] is None


async def test_pages_have_no_gaps_or_repeats(rest: Rest) -> None:
    """B054: however many were made by one request."""
    made = (await rest("POST", "/v1/tasks:batch", {"tasks": [TASK] * 1_000})).body["tasks"]
    pages, cursor = [], ""
    while cursor is not None:
        page = (await rest("GET", f"/v1/tasks?limit=90{cursor and f'&cursor={cursor}'}")).body
        pages += [task["task_id"] for task in page["tasks"]]
        cursor = page["next"]
    assert pages == [item["task_id"] for item in reversed(made)]


async def test_lists_take_both_spellings_of_canceled(rest: Rest) -> None:
    """X-07."""
    task_id = (await rest("POST", "/v1/tasks", TASK)).body["id"]
    await rest("POST", f"/v1/tasks/{task_id}/cancel")
    for state in ("CANCELED", "CANCELLED"):
        listed = (await rest("GET", f"/v1/tasks?state={state}")).body["tasks"]
        assert [task["task_id"] for task in listed] == [task_id]


@pytest.mark.parametrize(
    ("payloads", "shown"),
    [
        ((), None),
        ((Payload(schema.JSON_PLAIN, b"[1]"),), b"[1]"),
        ((Payload({"encoding": "binary/plain"}, b"\x00\xff"),), {"encoding": "binary/plain", "data": "AP8="}),
        ((Payload(schema.JSON_PLAIN, b"{broken"),), {"encoding": "json/broken", "data": "e2Jyb2tlbg=="}),
    ],
)
def test_values(payloads: tuple[Payload, ...], shown: object) -> None:
    """What is not JSON is shown as base64, also when it says that it is JSON."""
    value = schema.value(payloads)
    assert (bytes(value) if isinstance(shown, bytes) else value) == shown
    assert len(schema.value((*payloads, *payloads))) == 2 if payloads else True


@pytest.mark.parametrize("depth", [1_000, 5_000, 100_000])
@pytest.mark.parametrize("path", ["/v1/tasks", "/v1/tasks:batch"])
async def test_deep_nesting_is_the_callers_fault(server: Server, path: str, depth: int) -> None:
    """B132: 400 with a code, never a 500."""
    value = "[" * depth + "]" * depth
    one = f'{{"task_type": "resize", "payload": {value}}}'
    body = one if path == "/v1/tasks" else f'{{"tasks": [{one}]}}'
    headers = {"content-type": "application/json"}
    async with aiohttp.ClientSession() as session, session.post(server.url + path, data=body, headers=headers) as reply:
        assert reply.status == 400
        assert (await reply.json(content_type=None))["code"] == "invalid_argument"
