"""Workflows over REST, as people use it."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import pytest

from perdure.api import openapi
from perdure.api.server import Server
from perdure.api.service import Caller
from perdure.api.service import Service as ServerService
from perdure.client.http import HttpService
from perdure.core import history_json
from perdure.core import messages as m
from perdure.core import turn_commands as t
from perdure.core.events import WorkflowExecutionStarted
from perdure.core.model import Failure, Payload
from perdure.engine.engine import Engine
from tests.api.calls import JSON, Rest, payload, poll
from tests.api.turns import Hand, activity, done, seen, timer

START = {"workflow_type": "fulfil", "workflow_id": "order 1/2 任务", "input": {"order": [1, None, "é"]}}
PATH = "/v1/workflows/" + quote(START["workflow_id"], safe="")  # type: ignore[arg-type]


@pytest.fixture
async def hand(server: Server):  # type: ignore[no-untyped-def]
    service = HttpService(server.url)
    await service.open_session(m.OpenSession(77, 1, "host:1", ["default"], 4))
    yield Hand(service)
    await service.close()


async def test_a_workflow_from_start_to_result(rest: Rest, hand: Hand) -> None:
    """API-03, STEP-01: 202 with a place to look; ids of any text in paths."""
    made = await rest("POST", "/v1/workflows", START)
    assert (made.status, made.headers["retry-after"], made.headers["location"]) == (202, "5", PATH)
    assert (made.body["workflow_id"], made.body["started"]) == (START["workflow_id"], True)
    assert made.body["links"]["self"] == PATH
    assert (await rest("GET", PATH)).body["status"] == "RUNNING"
    delivery = await hand.turn()
    first = seen(delivery)[0].attributes
    assert isinstance(first, WorkflowExecutionStarted)
    assert first.input == (Payload(JSON, b'{"order":[1,null,"\\u00e9"]}'),)
    open_still = await rest("GET", f"{PATH}/result")
    assert (open_still.status, open_still.body["run_id"]) == (202, made.body["run_id"])
    waiting = asyncio.ensure_future(rest("GET", f"{PATH}/result?wait=20s"))
    await hand.append(delivery, done(b'{"shipped":true}'))
    found = await waiting
    assert (found.status, found.body) == (200, {"shipped": True})
    view = (await rest("GET", f"{PATH}?run_id={made.body['run_id']}")).body
    assert (view["status"], view["result"]) == ("COMPLETED", {"shipped": True})


async def test_an_id_is_made_and_a_key_makes_one_run(rest: Rest) -> None:
    """IDEM-05: the header and the field are the same thing."""
    body = {"type": "fulfil"}
    made = [(await rest("POST", "/v1/workflows", body)).body["workflow_id"] for _ in range(2)]
    assert made[0] != made[1]
    keyed = {"type": "fulfil", "workflow_id": "k"}
    runs = [
        await rest("POST", "/v1/workflows", keyed, headers={"Idempotency-Key": "é"}),
        await rest("POST", "/v1/workflows", {**keyed, "request_id": "é"}),
    ]
    assert runs[0].body["run_id"] == runs[1].body["run_id"]
    other = await rest("POST", "/v1/workflows", keyed, headers={"Idempotency-Key": "other"})
    assert (other.status, other.body["code"]) == (409, "workflow_already_started")
    both = await rest("POST", "/v1/workflows", {**keyed, "request_id": "a"}, headers={"Idempotency-Key": "b"})
    assert (both.status, both.body["field"]) == (400, "request_id")


async def test_signals_updates_and_queries(rest: Rest, hand: Hand) -> None:
    """SIG-01, SIG-08, SIG-11, API-07."""
    await rest("POST", "/v1/workflows", START)
    await hand.play(timer())
    for _ in range(2):
        sent = await rest("POST", f"{PATH}/signal", {"name": "approve", "input": {"by": "bob"}, "request_id": "1"})
        assert (sent.status, sent.headers["location"]) == (202, PATH)
    assert (await rest("GET", PATH)).body["pending_signals"] == 1
    updating = asyncio.ensure_future(rest("POST", f"{PATH}/update", {"name": "change", "input": 1, "update_id": "u"}))
    while (await rest("GET", PATH)).body["pending_signals"] < 2:
        await asyncio.sleep(0.001)
    delivery = await hand.turn()
    assert delivery.turn is not None
    [request] = delivery.turn.updates
    accepted = t.AcceptUpdate(update_id="u", task_id=request.task_id, name="change")
    answered = t.CompleteUpdate(update_id="u", task_id=request.task_id, accepted_event_id=1, result=payload(b"2"))
    await hand.append(delivery, accepted, answered)
    update = await updating
    assert (update.status, update.body["stage"], update.body["result"]) == (200, "completed", 2)
    later = await rest("POST", f"{PATH}/update", {"name": "change", "wait": 0})
    assert (later.status, later.body["stage"], bool(later.body["update_id"])) == (202, "admitted", True)
    await hand.play(timer("other"))
    asking = asyncio.ensure_future(rest("POST", f"{PATH}/query", {"name": "status"}))
    await hand.answer(b'"waiting"')
    assert (await asking).body == {"result": "waiting"}
    asking = asyncio.ensure_future(rest("POST", f"{PATH}/query", {"name": "odd"}))
    await hand.answer(failure=Failure(message="no query of this name", code="unknown_query", retryable=False))
    assert ((await asking).status, (await asking).body["code"]) == (409, "query_failed")
    nobody = await rest("POST", f"{PATH}/query", {"name": "status", "wait": "0.1"})
    assert (nobody.status, nobody.body["code"], nobody.headers["retry-after"]) == (503, "no_worker", "1")


async def test_the_end_of_a_run_is_told(rest: Rest, hand: Hand) -> None:
    """CANC-10, RPLY-40: bodies may be left out."""
    for name, status, code in (
        ("cancel", "CANCELLED", "task_canceled"),
        ("terminate", "TERMINATED", "task_terminated"),
    ):
        await rest("POST", "/v1/workflows", START)
        assert (await rest("POST", f"{PATH}/{name}")).status == 202
        assert (await rest("GET", PATH)).body["status"] == status
        result = await rest("GET", f"{PATH}/result")
        assert (result.status, result.body["code"]) == (409, code)
    await rest("POST", "/v1/workflows", START)
    ended = await rest("POST", f"{PATH}/terminate", {"reason": "wrong data"})
    assert ended.body["state"] == "TERMINATED"
    assert (await rest("GET", PATH)).body["failure"]["message"] == "wrong data"
    await rest("POST", "/v1/workflows", START)
    await hand.play(t.FailWorkflow(failure=Failure(message="no stock", type="OutOfStock")))
    failed = await rest("GET", f"{PATH}/result")
    assert (failed.status, failed.body["code"], failed.body["detail"]) == (409, "task_failed", "OutOfStock: no stock")


async def test_a_history_in_pages_both_ways(rest: Rest, hand: Hand) -> None:
    """API-24, RPLY-05: event names as documents write them; what REST shows can be read back."""
    await rest("POST", "/v1/workflows", START)
    for n in range(4):
        await rest("POST", f"{PATH}/signal", {"name": f"s{n}", "input": {"n": n}})
        await hand.play(timer(f"t{n}"))
    whole = (await rest("GET", f"{PATH}/history?limit=1000")).body
    ids = [event["id"] for event in whole["events"]]
    assert ids == list(range(1, len(ids) + 1)) and not whole["closed"] and whole["next"] == str(ids[-1])
    assert whole["events"][0]["type"] == "WorkflowExecutionStarted"
    assert whole["events"][0]["attributes"]["input"] == [
        {"metadata": JSON, "data": "eyJvcmRlciI6WzEsbnVsbCwiXHUwMGU5Il19"}
    ], "not how msgspec writes it, so kept byte for byte"
    signal = next(event for event in whole["events"] if event["type"] == "WorkflowExecutionSignaled")
    assert signal["attributes"]["input"] == [{"n": 0}]
    assert history_json.to_json(history_json.from_json(whole["events"])) == whole["events"]
    for reverse in ("false", "true"):
        found: list[int] = []
        cursor = ""
        while True:
            page = (await rest("GET", f"{PATH}/history?limit=3&reverse={reverse}{cursor}")).body
            found += [event["id"] for event in page["events"]]
            if page["next"] is None or not page["events"]:
                break
            cursor = f"&cursor={page['next']}"
        assert found == (ids if reverse == "false" else ids[::-1])
    waiting = asyncio.ensure_future(rest("GET", f"{PATH}/history?cursor={whole['next']}&wait=20s"))
    await rest("POST", f"{PATH}/terminate")
    page = (await waiting).body
    assert [event["type"] for event in page["events"]] == ["WorkflowExecutionTerminated"]
    assert (page["closed"], page["next"]) == (True, None)


async def test_lists_have_filters_and_pages(rest: Rest) -> None:
    """API-08, API-14."""
    for n in range(3):
        await rest("POST", "/v1/workflows", {"type": f"t{n % 2}", "workflow_id": f"w{n}", "memo": {"n": {"a": n}}})
    first = (await rest("GET", "/v1/workflows?limit=2")).body
    assert [run["workflow_id"] for run in first["workflows"]] == ["w2", "w1"]
    assert first["workflows"][0]["memo"] == {"n": {"a": 2}}
    rest_ = (await rest("GET", f"/v1/workflows?limit=2&cursor={first['next']}")).body
    assert ([run["workflow_id"] for run in rest_["workflows"]], rest_["next"]) == (["w0"], None)
    found = (await rest("GET", "/v1/workflows?type=t0&status=RUNNING&queue=default")).body
    assert [run["workflow_id"] for run in found["workflows"]] == ["w2", "w0"]
    await rest("POST", "/v1/workflows/w2/terminate")
    found = (await rest("GET", "/v1/workflows?open=true")).body
    assert [run["workflow_id"] for run in found["workflows"]] == ["w1", "w0"]
    assert (await rest("GET", "/v1/workflows?open=perhaps")).status == 400
    assert (await rest("GET", "/v1/workflows?status=odd")).status == 400
    assert (await rest("GET", "/v1/workflows?state=RUNNING")).body["field"] == "state"


async def test_a_start_with_an_update_and_a_note_at_the_end(rest: Rest, hand: Hand) -> None:
    """One transaction; the answer is that of the update which the answer to the start names."""
    body = {**START, "id_conflict": "use_existing", "update": {"name": "add", "input": {"item": "é"}}}
    made = (await rest("POST", "/v1/workflows", body)).body
    delivery = await hand.turn()
    assert delivery.turn is not None
    [asked] = delivery.turn.updates
    assert (asked.update_id, asked.input) == (made["update_id"], (Payload(JSON, b'{"item":"\\u00e9"}'),))
    again = {**body, "update": {"name": "add", "update_id": made["update_id"]}}
    assert (await rest("POST", "/v1/workflows", again)).body["started"] is False
    accepted = t.AcceptUpdate(update_id=asked.update_id, task_id=asked.task_id, name="add")
    answered = t.CompleteUpdate(
        update_id=asked.update_id, task_id=asked.task_id, accepted_event_id=5, result=payload(b"[1]")
    )
    await hand.append(delivery, accepted, answered)
    answer = await rest("POST", f"{PATH}/update", {"name": "add", "update_id": made["update_id"], "wait": "20s"})
    assert (answer.status, answer.body["result"]) == (200, [1])
    assert (await rest("POST", "/v1/workflows", {"type": "x"})).body["update_id"] is None

    early = await rest("POST", f"{PATH}/resolve", {"note": "x"})
    assert (early.status, early.body["code"]) == (409, "illegal_move")
    await rest("POST", f"{PATH}/terminate")
    noted = await rest("POST", f"{PATH}/resolve", {"note": "refunded by hand"})
    assert (noted.status, noted.body["state"]) == (202, "TERMINATED")
    assert (await rest("GET", PATH)).body["resolution"]["note"] == "refunded by hand"
    assert (await rest("POST", f"{PATH}/resolve", {})).body["code"] == "invalid_argument"


async def test_an_activity_is_completed_by_a_person(rest: Rest, hand: Hand, server: Server) -> None:
    await rest("POST", "/v1/workflows", START)
    await hand.play(activity("7", queue="default"))
    service = HttpService(server.url)
    await poll(service, 99)
    await service.close()
    ended = await rest("POST", f"{PATH}/activities/7/complete", {"result": {"approved": True}})
    assert (ended.status, ended.body["state"]) == (202, "SUCCEEDED")
    assert (await rest("POST", f"{PATH}/activities/7/complete")).status == 404


async def test_unknown_runs_and_bad_values(rest: Rest) -> None:
    for method, path in (
        ("GET", ""), ("GET", "/history"), ("GET", "/result"), ("POST", "/cancel"), ("POST", "/terminate"),
    ):  # fmt: skip
        answer = await rest(method, f"/v1/workflows/unknown{path}")
        assert (answer.status, answer.body["field"]) == (404, "workflow_id"), path
    assert (await rest("POST", "/v1/workflows", {})).body["field"] == "workflow_type"
    assert (await rest("POST", "/v1/workflows", {"type": "t", "workflow_id": ""})).body["field"] == "workflow_id"
    assert (await rest("POST", "/v1/workflows", {"type": "t", "inputs": 1})).body["field"] == "inputs"
    deep = '{"type": "t", "input": ' + "[" * 501 + "]" * 501 + "}"
    refused = await rest("POST", "/v1/workflows", data=deep, headers={"Content-Type": "application/json"})
    assert refused.body["field"] == "input"
    assert (await rest("GET", "/v1/workflows/w/history?cursor=x")).body["field"] == "cursor"
    assert (await rest("GET", "/v1/workflows/w/history?limit=0")).body["field"] == "limit"
    assert (await rest("GET", "/v1/workflows/w?run_id=1")).body["field"] == "run_id"


async def test_examples_of_requests_are_accepted(rest: Rest, hand: Hand) -> None:
    """Those in the OpenAPI document."""
    for example in openapi.REQUESTS["startWorkflow"].values():
        assert (await rest("POST", "/v1/workflows", example)).status == 202
    path = "/v1/workflows/order-4711"
    for name in ("signal", "update", "cancel", "terminate"):
        for example in openapi.REQUESTS[f"{name}Workflow"].values():
            answer = await rest("POST", f"{path}/{name}", {**example, "wait": 0} if name == "update" else example)
            assert answer.status == 202, (name, answer.body)


async def test_a_run_is_a_job_too(rest: Rest, engine: Engine, hand: Hand) -> None:
    """X-06: the job view of a run, by its run id; to cancel it there is to ask its code."""
    run_id = (await rest("POST", "/v1/workflows", START)).body["run_id"]
    await hand.play(timer())
    assert (await rest("GET", f"/v1/jobs/{run_id}")).body["state"] == "RUNNING"
    assert (await rest("POST", f"/v1/jobs/{run_id}/cancel")).body["state"] == "CANCELLING"
    delivery = await hand.turn()
    assert "WorkflowExecutionCancelRequested" in [type(event.attributes).__name__ for event in seen(delivery)]
    await hand.append(delivery, t.CancelWorkflow())
    assert (await rest("GET", f"/v1/jobs/{run_id}")).body["state"] == "CANCELLED"
    again = await rest("POST", f"/v1/tasks/{run_id}/retry")
    assert (again.status, again.body["code"]) == (409, "illegal_move")
    service = ServerService(engine, Caller("default"))
    assert (await service.find(m.Find())).tasks == []
