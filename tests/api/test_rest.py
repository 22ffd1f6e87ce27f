"""The REST interface as people use it: tasks, and the same rows as jobs."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from perdure.api import schema
from perdure.api.server import Server
from perdure.client.http import HttpService
from perdure.core import messages as m
from perdure.core.model import Failure, Payload, Progress
from tests.api.calls import INCARNATION, Rest, poll, succeed

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
        assert job.headers["retry-after"] == "5"
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
    assert (task["worker"], task["attempt"], task["attempts"]) == ("host:1", 1, [])


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
    assert task["failure"]["cause"]["details"] == {"encoding": "", "data": "AA=="}
    again = await rest("POST", f"/v1/tasks/{task_id}/retry")
    assert (again.status, again.body.get("state")) == (202, "ENQUEUED"), again
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


async def test_workers_are_listed(rest: Rest, worker: HttpService) -> None:
    [shown] = (await rest("GET", "/v1/workers")).body
    assert (shown["identity"], shown["queues"]) == ("host:1", ["default", "slow"])
    assert (shown["slots"], shown["build"], shown["ending"]) == (4, "v7", False)


async def test_openapi_describes_every_route(rest: Rest) -> None:
    document = (await rest("GET", "/openapi.json")).body
    assert {
        "/v1/tasks", "/v1/tasks:batch", "/v1/tasks/{task_id}", "/v1/tasks/{task_id}/cancel",
        "/v1/tasks/{task_id}/retry", "/v1/jobs/{job_id}", "/jobs/{job_id}", "/v1/jobs/{job_id}/cancel",
        "/jobs/{job_id}/cancel", "/v1/workers", "/healthz",
    } == set(document["paths"])  # fmt: skip
    assert "TaskRequest" in str(document["paths"]["/v1/tasks"]["post"]["requestBody"])


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
