"""The job resource: state, pace, result and the URL of the result, for people who wait for one thing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import pytest

from perdure.api import links
from perdure.api.keys import hash_key, new_key
from perdure.api.server import App, Server
from perdure.client.http import HttpService
from perdure.core import ids
from perdure.core import messages as m
from perdure.core.errors import Gone, NotFound
from perdure.core.ids import Mint
from perdure.core.model import SECOND, Failure, Payload
from perdure.engine.engine import Engine
from perdure.store.sqlite import SqliteStore
from tests.api.calls import INCARNATION, JSON, Rest, enqueue, new_rest, poll, succeed, task

TASK = {"task_type": "export", "retry": {"max_attempts": 1}}


async def test_a_job_from_its_post_to_its_result(rest: Rest, server: Server) -> None:
    """JOB-01 to JOB-06, JOB-10: 202 while it is open, then 200; the pace is in every answer."""
    worker = HttpService(server.url)
    job_id = (await rest("POST", "/v1/tasks", TASK)).body["id"]
    [delivery] = await poll(worker)
    running = await rest("GET", f"/jobs/{job_id}")
    assert (running.status, running.body["state"], running.body["result_url"]) == (202, "RUNNING", None)
    early = await rest("GET", f"/v1/jobs/{job_id}/result")
    assert (early.status, early.body["state"]) == (202, "RUNNING")
    assert (early.headers["location"], early.headers["retry-after"]) == (f"/v1/jobs/{job_id}", "5")
    waiting = asyncio.ensure_future(rest("GET", f"/v1/jobs/{job_id}?wait=20s"))
    await succeed(worker, delivery, b'{"rows":7}')
    done = await waiting
    assert (done.status, done.body["state"], done.headers["retry-after"]) == (200, "SUCCEEDED", "5")
    assert (await rest("GET", done.body["result_url"])).body == {"rows": 7}
    canceled = await rest("POST", f"/jobs/{job_id}/cancel")
    assert (canceled.status, canceled.body["state"]) == (202, "SUCCEEDED")
    await worker.close()


async def test_five_answers_when_there_is_no_result(rest: Rest, server: Server, engine: Engine) -> None:
    """B159: failed, still open, not found, purged, and no database: a program can tell them apart."""
    worker = HttpService(server.url)
    made = [(await rest("POST", "/v1/tasks", TASK)).body["id"] for _ in range(3)]
    failing, *_ = await poll(worker, capacity=1)
    failure = Failure(message="no disk", type="OSError")
    await worker.complete(m.Complete([m.Completion(failing.lease, "failed", failure=failure)]))
    await rest("POST", f"/v1/jobs/{made[1]}/cancel", {"reason": "enough"})
    old = ids.text(Mint().task_id(engine.now() - int((engine.retention + 60) * SECOND)))
    new = ids.text(Mint().task_id(engine.now()))
    answers = [await rest("GET", f"/v1/jobs/{job}/result") for job in (*made, new, old)]
    assert [(answer.status, answer.body.get("code")) for answer in answers] == [
        (409, "task_failed"), (409, "task_canceled"), (202, None), (404, "not_found"), (410, "gone"),
    ]  # fmt: skip
    assert (answers[0].body["detail"], answers[1].body["detail"]) == ("OSError: no disk", "enough")
    with pytest.raises(Gone, match="kept for 30 days"):
        await worker.get(m.Get(old))
    with pytest.raises(NotFound) as caught:
        await worker.get(m.Get(new))
    assert not isinstance(caught.value, Gone)
    await engine.store.close()
    away = await rest("GET", f"/v1/jobs/{made[2]}/result")
    assert (away.status, away.body["code"], away.body["retryable"]) == (503, "unavailable", True)
    await worker.close()


async def test_a_result_that_is_not_json(rest: Rest, server: Server) -> None:
    worker = HttpService(server.url)
    [job_id] = await enqueue(worker, task())
    [delivery] = await poll(worker)
    result = (Payload({"encoding": "binary/plain"}, b"<script>"),)
    await worker.complete(m.Complete([m.Completion(delivery.lease, "succeeded", result=result)]))
    answer = await rest("GET", f"/v1/jobs/{job_id}/result")
    assert answer.body == {"encoding": "binary/plain", "data": "PHNjcmlwdD4="}
    assert (answer.type, answer.headers["x-content-type-options"]) == ("application/json", "nosniff")
    await worker.close()


# ------------------------------------------------------------------------------------------------------- signed URLs
@asynccontextmanager
async def result_of(server: Server, key: str, namespace: str) -> AsyncIterator[tuple[str, str]]:
    """A job of this key's namespace that returned the name of the namespace; its id and its result_url."""
    worker = HttpService(server.url, api_key=key)
    [job_id] = await enqueue(worker, task())
    [delivery] = await poll(worker, INCARNATION)
    await succeed(worker, delivery, f'"{namespace}"'.encode())
    async with new_rest(server.url, Authorization=f"Bearer {key}") as rest:
        yield job_id, (await rest("GET", f"/v1/jobs/{job_id}")).body["result_url"]
    await worker.close()


@pytest.fixture
async def keys(store: SqliteStore) -> dict[str, str]:
    made = {namespace: new_key() for namespace in ("blue", "red")}
    for namespace, key in made.items():
        await store.add_api_key(hash_key(key), namespace, "")
    return made


async def test_a_result_url_needs_no_key(
    keys: dict[str, str], server: Server, rest: Rest, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JOB-04: it is signed, for one job, and short-lived; any server of the database can check it."""
    async with result_of(server, keys["blue"], "blue") as (job_id, url):
        assert (await rest("GET", url)).body == "blue"
        assert (await rest("GET", f"/v1/jobs/{job_id}/result")).status == 401
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        left = int(query["expires"]) - time.time()
        assert 0 < left <= links.LIFE_SECONDS
        other = Server(App(engine), port=0)
        await other.start()
        async with new_rest(other.url) as elsewhere:
            assert (await elsewhere("GET", url)).body == "blue"
        await other.stop()
        for change in (
            {"expires": str(int(query["expires"]) + 1)}, {"signature": "x"}, {"signature": "\udcff"}, {"key": "zz"},
            {"key": ""}, {"expires": "soon"}, {"key": hash_key(keys["red"])[:8].hex()},
        ):  # fmt: skip
            answer = await rest("GET", f"/v1/jobs/{job_id}/result", params=_safe(query | change))
            assert (answer.status, answer.body["code"]) == (401, "unauthenticated"), change
        async with result_of(server, keys["blue"], "blue") as (another, _):
            assert (await rest("GET", f"/v1/jobs/{another}/result", params=query)).status == 401
        monkeypatch.setattr(engine.store, "now", lambda: (int(query["expires"]) + 1) * SECOND)
        late = await rest("GET", url)
        assert (late.status, "was good until" in late.body["detail"]) == (401, True)


def _safe(query: dict[str, str]) -> dict[str, str]:
    return {name: value.encode("utf-8", "replace").decode() for name, value in query.items()}


async def test_revoking_a_key_ends_its_result_urls(
    keys: dict[str, str], store: SqliteStore, server: Server, rest: Rest
) -> None:
    """SEC-02: as it ends its connections."""
    async with result_of(server, keys["red"], "red") as (_, url):
        assert (await rest("GET", url)).status == 200
        assert await store.remove_api_key(hash_key(keys["red"]))
        await server._app.gate.run_once()
        assert (await rest("GET", url)).status == 401


async def test_result_urls_of_a_server_without_keys(server: Server, rest: Rest) -> None:
    """They are plain paths, and name the namespace where it is another one."""
    for namespace in ("default", "other"):
        worker = HttpService(server.url, namespace=namespace)
        [job_id] = await enqueue(worker, task(payload=(Payload(JSON, b"1"),)))
        [delivery] = await poll(worker)
        await succeed(worker, delivery, b"[1]")
        async with new_rest(server.url, **{"Perdure-Namespace": namespace}) as asking:
            url = (await asking("GET", f"/v1/jobs/{job_id}")).body["result_url"]
        assert (await rest("GET", url)).body == [1]
        await worker.close()
