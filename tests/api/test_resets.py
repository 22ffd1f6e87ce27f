"""Reset, pause and the question for version markers, by all ways to call, and over REST (RPLY-20, RPLY-39, API-26)."""

from __future__ import annotations

import msgspec
import pytest

from perdure.api import resets, versions
from perdure.api.service import Caller
from perdure.api.service import Service as ServerService
from perdure.client.base import Service
from perdure.client.http import repeatable
from perdure.core import turn_commands as t
from perdure.core import workflow_messages as w
from perdure.core.errors import (
    InvalidArgument,
    NotFound,
    PerdureError,
    Unavailable,
    WorkflowAlreadyStarted,
    WorkflowClosed,
)
from perdure.core.events import Event
from perdure.core.run import Run
from perdure.engine.engine import Engine
from tests.api.calls import Rest, payload
from tests.api.turns import Hand, done, history, names, signal, start, timer

FIRST = ["WorkflowExecutionStarted", "WorkflowTaskScheduled", "WorkflowTaskStarted", "WorkflowTaskCompleted"]


def claim(name: str, step_id: int = 1) -> t.StartStep:
    return t.StartStep(step_id=step_id, name=name)


async def two_steps(hand: Hand) -> None:
    """The turn of a run that does step "a" and step "b" and then waits: events 4 to 9."""
    delivery = await hand.turn()
    await hand.append(delivery, claim("a"), final=False)
    assert delivery.turn is not None
    for after, commands, final in (
        (5, (t.CompleteStep(step_id=1, result=payload(b"1")), claim("b", 2)), False),
        (7, (t.CompleteStep(step_id=2, result=payload(b"2")), timer()), True),
    ):
        item = w.Append(delivery.lease, after, list(commands), final)
        [answer] = (await hand._service.append(w.Appends([item]))).outcomes
        assert answer.error is None, answer


async def test_a_run_begins_again(service: Service) -> None:
    """A signal that came later is kept; the old run says why it was terminated, the new one where it comes from."""
    old = (await service.start_workflow(start())).run_id
    hand = Hand(service)
    await two_steps(hand)
    await service.signal_workflow(signal())
    reply = await service.reset_workflow(w.ResetWorkflow("w", step="b", reason="a bug"))
    assert (reply.workflow_id, reply.started) == ("w", True) and reply.run_id != old
    view = await service.describe_workflow(w.DescribeWorkflow("w", old))
    assert view.status == "TERMINATED" and view.failure is not None and view.failure.message == "a bug"
    assert names(await history(service)) == [*FIRST, "StepStarted", "StepCompleted", "WorkflowTaskFailed"]
    delivery = await hand.play(done())
    assert delivery.task_id == reply.run_id
    assert "WorkflowExecutionSignaled" in names(await history(service))
    again = await service.reset_workflow(w.ResetWorkflow("w", old, event_id=1))
    assert names(await history(service, run_id=again.run_id)) == ["WorkflowExecutionStarted"]


async def test_a_repeated_request_is_one_reset(service: Service) -> None:
    """IDEM-05: whichever run it named, and also when the answer to the first one was lost."""
    old = (await service.start_workflow(start(request_id="r"))).run_id
    await Hand(service).play(timer())
    request = w.ResetWorkflow("w", event_id=1, request_id="r")
    made = {(await service.reset_workflow(request)).run_id for _ in range(2)}
    made.add((await service.reset_workflow(msgspec.structs.replace(request, run_id=old))).run_id)
    assert len(made) == 1 and old not in made
    with pytest.raises(WorkflowAlreadyStarted):  # a start is no reset, whatever it calls itself
        await service.start_workflow(start(request_id="r"))
    made.add((await service.reset_workflow(msgspec.structs.replace(request, request_id="s"))).run_id)
    assert len(made) == 2
    assert repeatable(request) and not repeatable(w.ResetWorkflow("w", event_id=1))


REFUSED: list[tuple[w.ResetWorkflow, type[PerdureError], str]] = [
    (w.ResetWorkflow("w"), InvalidArgument, "event_id"),
    (w.ResetWorkflow("w", event_id=1, step="a"), InvalidArgument, "event_id"),
    (w.ResetWorkflow("w", event_id=0), InvalidArgument, "event_id"),
    (w.ResetWorkflow("w", event_id=99), InvalidArgument, "event_id"),
    (w.ResetWorkflow("w", step=" "), InvalidArgument, "step"),
    (w.ResetWorkflow("w", step="c"), NotFound, "step"),
    (w.ResetWorkflow("w", event_id=1, request_id="\n"), InvalidArgument, "request_id"),
    (w.ResetWorkflow("w", event_id=1, reason="\0"), InvalidArgument, "reason"),
    (w.ResetWorkflow("w", "no id", event_id=1), InvalidArgument, "run_id"),
    (w.ResetWorkflow("other", event_id=1), NotFound, "workflow_id"),
]


@pytest.mark.parametrize(("body", "error", "field"), REFUSED)
async def test_what_is_refused_changes_nothing(
    service: Service, body: w.ResetWorkflow, error: type[PerdureError], field: str
) -> None:
    run_id = (await service.start_workflow(start())).run_id
    await two_steps(Hand(service))
    with pytest.raises(error) as raised:
        await service.reset_workflow(body)
    assert raised.value.field == field
    view = await service.describe_workflow(w.DescribeWorkflow("w"))
    assert (view.run_id, view.status) == (run_id, "RUNNING")


async def test_an_old_run_waits_for_the_open_one(service: Service) -> None:
    """RPLY-08: of one workflow id one run is open."""
    old = (await service.start_workflow(start())).run_id
    hand = Hand(service)
    await hand.play(done())
    await service.start_workflow(start())
    with pytest.raises(WorkflowAlreadyStarted) as raised:
        await service.reset_workflow(w.ResetWorkflow("w", old, event_id=1))
    assert raised.value.field == "run_id"
    await hand.play(done())
    assert (await service.reset_workflow(w.ResetWorkflow("w", old, event_id=1))).run_id != old


async def test_who_hurries_too_much_is_told_to_pause(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    service = ServerService(engine, Caller("default"))
    await service.start_workflow(start())
    await two_steps(Hand(service))
    monkeypatch.setattr(resets, "TRIES", 2)
    monkeypatch.setattr(resets.Resets, "_read_on", _late)
    with pytest.raises(Unavailable, match="pause it first") as raised:
        await service.reset_workflow(w.ResetWorkflow("w", event_id=1))
    assert raised.value.retryable


async def _late(self: resets.Resets, run: Run, history: list[Event]) -> None:
    """As if the run had gone on since."""


async def test_a_paused_run_says_so_in_every_state(service: Service) -> None:
    """Every wait has a reason. The run that follows a paused one is paused too."""
    await service.start_workflow(start())
    hand = Hand(service)
    reply = await service.pause_workflow(w.PauseWorkflow("w"))
    assert (reply.state, await hand.poll(0)) == ("ENQUEUED", [])
    view = await service.describe_workflow(w.DescribeWorkflow("w"))
    assert (view.paused, view.waiting_for) == (True, "somebody to resume it: it is paused")
    await service.pause_workflow(w.PauseWorkflow("w", paused=False))
    delivery = await hand.turn()
    await service.pause_workflow(w.PauseWorkflow("w"))
    view = await service.describe_workflow(w.DescribeWorkflow("w"))
    assert view.paused and view.waiting_for.startswith("worker ")
    await hand.append(delivery, t.ContinueAsNew(task_id=bytes.fromhex("01a22c603b9a70009de6012d84a3cb20")))
    view = await service.describe_workflow(w.DescribeWorkflow("w"))
    assert (view.paused, view.previous_run_id, await hand.poll(0)) == (True, delivery.task_id, [])
    assert not (await service.describe_workflow(w.DescribeWorkflow("w", delivery.task_id))).paused
    await service.pause_workflow(w.PauseWorkflow("w", paused=False))
    await hand.play(done())
    with pytest.raises(WorkflowClosed):
        await service.pause_workflow(w.PauseWorkflow("w"))
    with pytest.raises(NotFound):
        await service.pause_workflow(w.PauseWorkflow("other"))


def marker(id: str) -> t.RecordMarker:
    return t.RecordMarker(
        marker_name=t.VERSION_MARKER, details={"id": payload(msgspec.json.encode(id)), "version": payload(b"1")}
    )


async def test_markers_are_found_page_by_page(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """RPLY-20: in long histories, over many runs, with a bound on what one answer reads."""
    hand = Hand(service)
    for n in range(6):
        await service.start_workflow(start(f"w{n}"))
        delivery = await hand.turn()
        other = t.RecordMarker(marker_name="side_effect", details={"value": payload(b'"x"')})
        await hand.append(delivery, other, marker("y"), final=False)
        assert delivery.turn is not None
        last = [marker("x")] if n % 2 else [timer()]
        item = w.Append(delivery.lease, delivery.turn.started_event_id + 3, [*last, timer()])
        [answer] = (await service.append(w.Appends([item]))).outcomes
        assert answer.error is None
    await service.start_workflow(start("closed"))
    await hand.play(done())

    async def asked(version: str, limit: int = 50) -> tuple[list[str], int]:
        found: list[str] = []
        cursor, pages = None, 0
        while True:
            body = w.FindWorkflows(type="fulfil", lacks_version=version, limit=limit, cursor=cursor)
            page = await service.find_workflows(body)
            found += [view.workflow_id for view in page.workflows]
            cursor, pages = page.next, pages + 1
            if cursor is None:
                return found, pages

    assert await asked("x") == (["w4", "w2", "w0"], 1)
    assert await asked("y") == ([], 1)
    assert (await asked("z"))[0] == ["w5", "w4", "w3", "w2", "w1", "w0"]
    assert await asked("x", limit=2) == (["w4", "w2", "w0"], 2)
    for name, value in (("_PAGES", 1), ("_ROWS", 2), ("_ROUNDS", 1), ("_AT_ONCE", 1), ("MAX_READ_BYTES", 1)):
        monkeypatch.setattr(versions, name, value)
        found, pages = await asked("x")
        assert found == ["w4", "w2", "w0"], name
    assert pages >= 6

    for body in (
        w.FindWorkflows(lacks_version="x"),
        w.FindWorkflows(type="fulfil", lacks_version="x", status="COMPLETED"),
        w.FindWorkflows(type="fulfil", lacks_version=""),
    ):
        with pytest.raises(InvalidArgument):
            await service.find_workflows(body)


async def test_a_marker_that_nobody_can_read_is_none(engine: Engine) -> None:
    """Codes of applications may write markers of this name."""
    for payloads in ((), payload(b"{")):
        assert versions._value(payloads) is None


async def test_over_rest(rest: Rest, engine: Engine) -> None:
    """API-03: 202 with a place to look; a key makes a repeated request one."""
    made = await rest("POST", "/v1/workflows", {"type": "fulfil", "workflow_id": "order 1/2"})
    path = made.body["links"]["self"]
    paused = await rest("POST", f"{path}/pause")
    assert (paused.status, paused.headers["location"], paused.body["state"]) == (202, path, "ENQUEUED")
    assert (await rest("GET", path)).body["paused"] is True
    assert (await rest("GET", "/v1/workflows?type=fulfil&lacks_version=x")).body["workflows"][0]["paused"] is True
    assert (await rest("POST", f"{path}/resume", {"run_id": made.body["run_id"]})).status == 202
    runs = [await rest("POST", f"{path}/reset", {"event_id": 1}, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert [(run.status, run.headers["location"]) for run in runs] == [(202, path)] * 2
    assert runs[0].body == runs[1].body and runs[0].body["run_id"] != made.body["run_id"]
    assert runs[0].body["links"]["reset"] == f"{path}/reset"
    for body, code in (({}, "invalid_argument"), ({"step": "a"}, "not_found"), ({"event": 1}, "invalid_argument")):
        answer = await rest("POST", f"{path}/reset", body)
        assert answer.body["code"] == code, answer.body
    missing = await rest("GET", "/v1/workflows?lacks_version=x")
    assert (missing.status, missing.body["field"]) == (400, "type")
