"""Dead letters, actions on many jobs and the checks as callers see them: over a server with a real file, by every way
to call it."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from perdure.api.service import Caller
from perdure.api.service import Service as ServerService
from perdure.client.base import Service
from perdure.core import doctor_messages as d
from perdure.core import failure_messages as f
from perdure.core import messages as m
from perdure.core.errors import Conflict, IdempotencyConflict, IllegalMove, InvalidArgument, NotFound
from perdure.core.model import Failure, RetryPolicy
from perdure.engine.engine import Engine
from tests.api.calls import Rest, enqueue, new_rest, payload, poll, task

ONCE = RetryPolicy(max_attempts=1)
POLLS = count(1)


async def dead(
    service: Service, jobs: int, message: str = "no order 1", kind: str = "KeyError", type_: str = "t"
) -> None:
    """Dead letters."""
    await enqueue(service, *(task(type_, retry=ONCE) for _ in range(jobs)))
    tasks = await poll(service, next(POLLS), capacity=jobs)
    failure = Failure(message=message, type=kind)
    await service.complete(m.Complete([m.Completion(one.lease, "failed", failure=failure) for one in tasks]))


async def test_failures_are_grouped_by_what_is_alike(service: Service) -> None:
    """RETRY-06."""
    await dead(service, 2, "no order 17 of 'mail'")
    await dead(service, 1, "no order 18 of 'post'")
    await dead(service, 1, "cannot open /srv/a.png", "OSError", "resize")
    page = await service.failures(f.ListFailures())
    assert [(g.type, g.error, g.message, g.count, g.kind) for g in page.groups] == [
        ("resize", "OSError", "cannot open <path>", 1, "job"),
        ("t", "KeyError", "no order <n> of <text>", 3, "job"),
    ]
    assert not page.more
    orders = page.groups[1]
    assert orders.first_seen <= orders.last_seen <= page.groups[0].last_seen
    found = (await service.find(m.Find(failure_group=orders.group))).tasks
    assert [view.failure_group for view in found] == [orders.group] * 3
    assert found[0].task_id == orders.last_task_id
    assert [g.type for g in (await service.failures(f.ListFailures(type="t"))).groups] == ["t"]
    cut = await service.failures(f.ListFailures(limit=1))
    assert (len(cut.groups), cut.more) == (1, True)


async def test_an_action_counts_first_and_says_what_it_did(service: Service) -> None:
    """RETRY-07, RETRY-08."""
    await dead(service, 3)
    counted = await service.start_bulk(f.StartBulk("retry", f.BulkFilter(error="KeyError"), dry_run=True))
    assert (counted.total, counted.at_least, counted.id) == (3, False, "")
    begun = await service.start_bulk(f.StartBulk("retry", f.BulkFilter(error="KeyError"), "r1"))
    assert (begun.state, begun.total, begun.filter.error) == ("RUNNING", 3, "KeyError")
    ended = await service.get_bulk(f.GetBulk(begun.id, wait=20))
    assert (ended.state, ended.done, ended.failed, ended.errors) == ("SUCCEEDED", 3, 0, [])
    assert ended.closed_at is not None
    assert (await service.failures(f.ListFailures())).groups == []
    again = await service.start_bulk(f.StartBulk("retry", f.BulkFilter(error="KeyError"), "r1"))
    assert again.id == begun.id
    with pytest.raises(IdempotencyConflict):
        await service.start_bulk(f.StartBulk("retry", f.BulkFilter(error="OSError"), "r1"))
    other = await service.start_bulk(f.StartBulk("delete", f.BulkFilter(state="FAILED"), "r2"))
    assert (await service.get_bulk(f.GetBulk(other.id, wait=20))).done == 3
    page = await service.find_bulk(f.FindBulk(limit=1))
    assert ([view.id for view in page.actions], page.next) == ([other.id], other.id)
    assert [view.id for view in (await service.find_bulk(f.FindBulk(cursor=page.next))).actions] == [begun.id]


async def test_a_dead_letter_is_retried_with_another_payload(service: Service) -> None:
    await dead(service, 1)
    [old] = (await service.find(m.Find(state="FAILED"))).tasks
    new = await service.retry(m.Retry(old.task_id, payload(b'{"b":2}')))
    view = await service.get(m.Get(new.task_id))
    assert (view.payload, view.retry_of, view.state) == (payload(b'{"b":2}'), old.task_id, "ENQUEUED")
    before = await service.get(m.Get(old.task_id))
    assert (before.payload, before.retried_by, before.state) == (payload(), new.task_id, "FAILED")
    assert (await service.retry(m.Retry(old.task_id, payload(b'{"b":2}')))).task_id == new.task_id
    with pytest.raises(Conflict, match=new.task_id):
        await service.retry(m.Retry(old.task_id))
    with pytest.raises(IllegalMove, match="open"):
        await service.retry(m.Retry(new.task_id, payload()))
    with pytest.raises(InvalidArgument):
        await service.retry(m.Retry(old.task_id, payload(b"x" * 300_000)))


BAD: list[tuple[f.StartBulk, str]] = [
    (f.StartBulk("repeat"), "action"),
    (f.StartBulk("retry", f.BulkFilter(state="NONE")), "filter.state"),
    (f.StartBulk("retry", f.BulkFilter(state="SUCCEEDED")), "filter.state"),
    (f.StartBulk("cancel", f.BulkFilter(error="E")), "filter.error"),
    (f.StartBulk("retry", f.BulkFilter(queue="")), "filter.queue"),
    (f.StartBulk("retry", f.BulkFilter(type="a\0")), "filter.type"),
    (f.StartBulk("retry", f.BulkFilter(failure_group="1")), "filter.failure_group"),
    (f.StartBulk("retry", f.BulkFilter(error="\0")), "filter.error"),
    (f.StartBulk("cancel"), "filter"),
    (f.StartBulk("delete", dry_run=True), "filter"),
    (f.StartBulk("retry", request_id="x" * 300), "request_id"),
    (f.StartBulk("cancel", f.BulkFilter(queue="q"), reason="x" * 3_000), "reason"),
]


@pytest.mark.parametrize("number", range(len(BAD)))
async def test_a_bad_request_names_its_field(service: Service, number: int) -> None:
    """B162."""
    body, field = BAD[number]
    with pytest.raises(InvalidArgument) as refused:
        await service.start_bulk(body)
    assert refused.value.field == field
    assert refused.value.limit


async def test_other_bad_requests(service: Service) -> None:
    for call in (
        service.failures(f.ListFailures(limit=0)),
        service.failures(f.ListFailures(type="\0")),
        service.find(m.Find(failure_group="x")),
        service.get_bulk(f.GetBulk("x")),
        service.find_bulk(f.FindBulk(limit=100_000)),
        service.find_bulk(f.FindBulk(cursor="x")),
    ):
        with pytest.raises(InvalidArgument):
            await call


async def test_what_is_no_action_is_not_found(service: Service) -> None:
    [job] = await enqueue(service)
    for id_ in (job, "01a22c60-3b9a-7000-9de6-012d84a3cb20"):
        with pytest.raises(NotFound):
            await service.get_bulk(f.GetBulk(id_))


async def test_the_checks_answer_everybody(service: Service) -> None:
    await enqueue(service)
    reply = await service.doctor(d.Doctor())
    assert [(one.check, one.namespace) for one in reply.findings] == [("no_worker", "default"), ("no_owner", "default")]
    assert reply.whole and "lost" in reply.checks


# REST -----------------------------------------------------------------------------------------------------------------
async def rest_dead(engine: Engine, jobs: int) -> None:
    await dead(ServerService(engine, Caller("default")), jobs)


async def test_rest_retries_many(rest: Rest, engine: Engine) -> None:
    """API-02: with and without /v1, with the filter in the body or in the query."""
    await rest_dead(engine, 3)
    group = (await rest("GET", "/v1/failures")).body["groups"][0]["group"]
    counted = await rest("POST", f"/tasks:retry?filter=failure_group={group},error=KeyError", {"dry_run": True})
    assert (counted.status, counted.body) == (200, {"action": "retry", "total": 3, "at_least": False})
    body = {"filter": {"failure_group": group}}
    begun = await rest("POST", "/v1/tasks:retry", body, headers={"Idempotency-Key": "k"})
    assert begun.status == 202
    assert begun.headers["location"] == begun.body["links"]["self"] == f"/v1/bulk/{begun.body['id']}"
    ended = (await rest("GET", f"{begun.body['links']['self']}?wait=20")).body
    assert (ended["state"], ended["done"], ended["errors"]) == ("SUCCEEDED", 3, [])
    again = await rest("POST", "/v1/tasks:retry", body | {"request_id": "k"})
    assert again.body["id"] == begun.body["id"]
    assert (await rest("GET", "/v1/bulk")).body["actions"][0]["id"] == begun.body["id"]
    assert (await rest("POST", f"{begun.body['links']['cancel']}")).body["state"] == "SUCCEEDED"


async def test_rest_cancels_and_deletes_many(rest: Rest) -> None:
    await rest("POST", "/v1/tasks:batch", {"tasks": [{"type": "t", "queue": q} for q in ("a", "a", "b")]})
    begun = await rest("POST", "/v1/tasks:cancel?filter=queue=a", {"reason": "moved"})
    ended = (await rest("GET", f"{begun.body['links']['self']}?wait=20")).body
    assert ended["done"] == 2
    assert [t["cancel_reason"] for t in (await rest("GET", "/v1/tasks?state=CANCELED")).body["tasks"]] == ["moved"] * 2
    begun = await rest("POST", "/v1/tasks:delete", {"filter": {"state": "CANCELLED"}})
    assert (await rest("GET", f"{begun.body['links']['self']}?wait=20")).body["done"] == 2
    assert len((await rest("GET", "/v1/tasks")).body["tasks"]) == 1


async def test_rest_retries_with_another_payload(rest: Rest, engine: Engine) -> None:
    await rest_dead(engine, 1)
    [old] = (await rest("GET", "/v1/tasks?state=FAILED")).body["tasks"]
    found = await rest("POST", old["links"]["retry"], {"payload": {"n": 12345678901234567890.5}})
    new = (await rest("GET", f"/v1/tasks/{found.body['task_id']}")).body
    assert (new["payload"], new["retry_of"]) == ({"n": 12345678901234567890.5}, old["task_id"])
    assert (await rest("GET", old["links"]["self"])).body["retried_by"] == new["task_id"]
    shown = (await rest("GET", f"/v1/tasks?failure_group={old['failure_group']}")).body["tasks"]
    assert shown == []


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/tasks:retry?filter=x=1", {}, "filter"),
        ("/v1/tasks:retry?filter=type", {}, "filter"),
        ("/v1/tasks:retry?filter=type=a,type=b", {}, "filter"),
        ("/v1/tasks:retry?filter=since=soon", {}, "filter"),
        ("/v1/tasks:retry?filter=type=a", {"filter": {}}, "filter"),
        ("/v1/tasks:retry?type=a", {}, "type"),
        ("/v1/tasks:retry", {"filter": {"kind": "x"}}, "filter.kind"),
        ("/v1/tasks:retry", {"filter": {"state": 1}}, "filter.state"),
        ("/v1/tasks:delete", {"filter": {"state": "LEASED"}}, "filter.state"),
    ],
)
async def test_rest_refuses_what_it_does_not_know(rest: Rest, path: str, body: dict[str, Any], field: str) -> None:
    """B162."""
    answer = await rest("POST", path, body)
    assert (answer.status, answer.body["field"]) == (400, field)


async def test_rest_runs_the_checks(rest: Rest) -> None:
    assert (await rest("GET", "/v1/doctor")).body["findings"] == []
    await rest("POST", "/v1/tasks", {"type": "t"})
    assert [one["check"] for one in (await rest("GET", "/v1/doctor")).body["findings"]] == ["no_worker", "no_owner"]


async def test_namespaces_see_their_own(rest: Rest, engine: Engine, server: Any) -> None:
    await rest_dead(engine, 2)
    begun = (await rest("POST", "/v1/tasks:retry", {})).body
    await rest("POST", "/v1/tasks", {"type": "t"})
    async with new_rest(server.url, **{"Perdure-Namespace": "other"}) as others:
        assert (await others("GET", "/v1/failures")).body["groups"] == []
        assert (await others("POST", "/v1/tasks:retry", {"dry_run": True})).body["total"] == 0
        assert (await others("GET", f"/v1/bulk/{begun['id']}")).status == 404
        assert (await others("POST", f"/v1/bulk/{begun['id']}/cancel")).status == 404
        assert (await others("GET", "/v1/bulk")).body["actions"] == []
        assert (await others("GET", "/v1/doctor")).body["findings"] == []
