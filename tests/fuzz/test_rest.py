"""The REST interface of a real server, asked by what its OpenAPI document says and by what it forbids (PROOF): no
request is answered by a 5xx, an answer is what the document says, and nothing is accepted that the document refuses.
On both databases, with API keys and without."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import given
from hypothesis import strategies as st
from schemathesis import Case, CheckContext, GenerationMode, Response
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from perdure.api import openapi, rest
from perdure.api.auth import Gate
from perdure.api.parking import Parking
from perdure.client.http import HttpService
from perdure.core import messages as m
from perdure.core import workflow_messages as w
from perdure.core.model import Failure
from perdure.engine.engine import Engine
from perdure.store.memory import MemoryStore
from tests.api.calls import enqueue, payload, poll, succeed, task
from tests.api.turns import Hand, activity, timer
from tests.fuzz.effort import effort
from tests.fuzz.running import Running, running


def _operations() -> dict[str, dict[str, Any]]:
    """All that the document of a server has."""
    engine = Engine(MemoryStore())
    app = rest.build(engine, Gate(engine.store), Parking())
    document = openapi.complete(app.openapi_schema.to_schema())
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


OPERATIONS = _operations()
TAKING = [label for label, found in OPERATIONS.items() if found.get("parameters") or "requestBody" in found]
"""Those that can be asked wrongly."""
SERVERS = [("sqlite", False), ("sqlite", True), ("postgres", False), ("postgres", True)]
NAMES = ["sqlite", "sqlite with keys", "postgres", "postgres with keys"]
WORKFLOWS = ("waiting", "stepping", "paused", "closed")
"""Workflow ids of a server: one that no worker takes, one that waits for an activity and a timer, ..."""


def no_fault(context: CheckContext, answer: Response, case: Case) -> bool | None:
    """No answer is a 5xx but that to a query which no worker was there to answer."""
    if answer.status_code == 503 and answer.json()["code"] == "no_worker":
        return None
    return not_a_server_error(context, answer, case)


FITS = [
    no_fault, status_code_conformance, content_type_conformance, response_headers_conformance,
    response_schema_conformance,
]  # fmt: skip
"""What holds for every answer."""


class Target:
    """A server, its document, and tasks of it in every state."""

    def __init__(self, server: Running) -> None:
        self.server = server
        self.session = requests.Session()
        if server.key:
            self.session.headers["Authorization"] = f"Bearer {server.key}"
        self.schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
        self.operations = {found.ok().label: found.ok() for found in self.schema.get_all_operations()}
        self.ids = server.call(self._fill())

    async def _fill(self) -> list[str]:
        service = HttpService(self.server.url, api_key=self.server.key or None)
        try:
            return await self._made(service)
        finally:
            await service.close()

    async def _made(self, service: HttpService) -> list[str]:
        ids = await enqueue(service, *(task(type_=name) for name in ("good", "bad", "running")))
        await service.open_session(m.OpenSession(77, 1, "w", ["default"], 10))
        for delivery in await poll(service):
            if delivery.type == "good":
                await succeed(service, delivery)
            elif delivery.type == "bad":
                failure = Failure(message="it broke", type="ValueError", stack="a\n  b", retryable=False)
                await service.complete(m.Complete([m.Completion(delivery.lease, "failed", failure=failure)]))
            else:
                await service.heartbeat(m.Heartbeat(77, [m.Beat(delivery.lease, checkpoint=payload())]))
        await self._run(service)
        ids += await enqueue(service, task("waiting", queue="nobody"), task("canceled"), task("later", delay="1h"))
        await service.cancel(m.Cancel(ids[-2], "why"))
        return ids

    async def _run(self, service: HttpService) -> None:
        """Workflows in every state."""
        hand = Hand(service, "turns", 77)
        for name in WORKFLOWS:
            queue = "turns" if name == "stepping" else "nobody"
            await service.start_workflow(w.StartWorkflow("flow", name, queue=queue))
        await hand.play(activity("a1", queue="nobody"), timer())
        await service.pause_workflow(w.PauseWorkflow("paused"))
        await service.terminate_workflow(w.TerminateWorkflow("closed"))

    def ask(self, case: Case) -> Response:
        """What the server answers. It is not asked to wait: a moment says as much as 25 s do."""
        if case.operation.label.endswith(("/query", "/update")) and isinstance(case.body, dict):
            case.body.setdefault("wait", 0.001)
        for part in (case.query, case.body):
            if isinstance(part, dict) and str(part.get("wait"))[:1] in "0123456789":
                part["wait"] = "0.001" if part is case.query else 0.001
        return case.call(session=self.session, timeout=10.0)


@pytest.fixture(scope="module", params=SERVERS, ids=NAMES)
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    kind, locked = request.param

    def postgres() -> Any:
        return request.getfixturevalue("postgres_server")

    with running(kind, tmp_path_factory.mktemp("fuzz"), postgres, locked=locked) as server:
        target = Target(server)
        yield target
        target.session.close()


def test_every_operation_is_asked(target: Target) -> None:
    assert set(target.operations) == set(OPERATIONS)


@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_what_the_document_allows(target: Target, label: str) -> None:
    """It is accepted, or refused in a way that names the field: a schema cannot say all that limits.py checks."""
    operation = target.operations[label]

    @effort(6)
    @given(
        case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE),
        known=st.none() | st.sampled_from(target.ids),
        workflow=st.sampled_from(WORKFLOWS),
    )
    def ask(case: Case, known: str | None, workflow: str) -> None:
        if known is not None and case.path_parameters:
            there = {"workflow_id": workflow, "activity_id": "a1"}
            case.path_parameters = {name: there.get(name, known) for name in case.path_parameters}
        answer = target.ask(case)
        if answer.status_code == 503 and answer.json()["code"] == "no_worker":
            return  # nobody is there to answer a query
        case.validate_response(answer, checks=FITS)
        if answer.status_code == 400:
            assert answer.json()["field"], answer.text
        if label == "POST /v1/tasks" and answer.status_code == 202:
            _is_kept(target, case.body, answer.json())

    ask()


def _is_kept(target: Target, sent: dict[str, Any], accepted: dict[str, Any]) -> None:
    """What was accepted is there, and is what was sent."""
    found = target.session.get(f"{target.server.url}/v1/tasks/{accepted['task_id']}", timeout=10.0)
    assert found.status_code == 200, found.text
    document = found.json()
    assert json.dumps(document["payload"], sort_keys=True) == json.dumps(sent.get("payload"), sort_keys=True)
    for name in ("queue", "app", "priority", "fairness_key"):
        assert name not in sent or document[name] == sent[name]


@pytest.mark.parametrize("label", sorted(TAKING))
def test_what_the_document_forbids(target: Target, label: str) -> None:
    operation = target.operations[label]

    @effort(6)
    @given(case=operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def ask(case: Case) -> None:
        answer = target.ask(case)
        if label == "POST /v1/tasks:batch" and answer.status_code == 200:
            case.validate_response(answer, checks=FITS)
            assert any("error" in outcome for outcome in answer.json()["tasks"]), answer.text
        else:
            case.validate_response(answer, checks=[*FITS, negative_data_rejection])

    ask()


@pytest.mark.parametrize("target", SERVERS[1::2], indirect=True, ids=NAMES[1::2])
@pytest.mark.parametrize("label", sorted(OPERATIONS))
def test_nobody_gets_in_without_a_key(target: Target, label: str) -> None:
    """SEC-02: but for the health check, whatever else a request says."""

    @effort(3)
    @given(
        case=target.operations[label].as_strategy(generation_mode=GenerationMode.POSITIVE),
        key=st.sampled_from([None, "Bearer pdk_wrong", "Basic cGRrOg==", "Bearer", "\xff"]),
    )
    def ask(case: Case, key: str | None) -> None:
        answer = case.call(headers={} if key is None else {"Authorization": key}, timeout=10.0)
        case.validate_response(answer, checks=[not_a_server_error])
        assert answer.status_code == (200 if label == "GET /healthz" else 401), answer.text

    ask()


def test_what_was_accepted_can_be_listed(target: Target) -> None:
    """Last: page by page, all that the other tests left."""
    cursor = None
    listed: list[str] = []
    while True:
        query = {"limit": "20"} | ({} if cursor is None else {"cursor": cursor})
        answer = target.session.get(f"{target.server.url}/v1/tasks", params=query, timeout=10.0)
        assert answer.status_code == 200, answer.text
        listed += [found["task_id"] for found in answer.json()["tasks"]]
        cursor = answer.json()["next"]
        if cursor is None:
            break
    assert len(listed) == len(set(listed))
    assert {*target.ids} <= {*listed}
