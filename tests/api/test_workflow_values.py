"""Every value about workflows that a caller could get wrong: the error names the field and the limit, and nothing is
written. What is malformed as a whole is in test_bad_input.py."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from perdure.api import run_drafts
from perdure.api.service import Caller, Service
from perdure.api.turn_checks import MAX_COMMANDS, checked
from perdure.core import ids, limits
from perdure.core import messages as m
from perdure.core import turn_commands as t
from perdure.core import workflow_messages as w
from perdure.core.errors import InvalidArgument
from perdure.core.lanes import TURNS, lane
from perdure.core.model import Failure, Lease, Payload, RetryPolicy
from perdure.core.states import Kind
from perdure.engine.engine import Engine
from perdure.sdk.mint import mint_id
from tests.api.calls import JSON, payload
from tests.api.turns import signal, start

BAD_NAMES = ("", " a", "a\x00b", "a\nb", "\ud800", "x" * 256)
LARGE = (Payload(JSON, b"x" * (limits.MAX_PAYLOAD + 1)),)
BAD_STARTS: list[tuple[str, Any]] = [
    *((field, name) for field in ("type", "workflow_id", "queue") for name in BAD_NAMES),
    *((field, name) for field in ("fairness_key", "request_id", "cron") for name in BAD_NAMES if name),
    *(
        (field, value)
        for field in ("start_delay", "execution_timeout", "run_timeout")
        for value in (-1, math.nan, math.inf, "soon", True, 10**12)
    ),
    ("run_timeout", 0),
    ("execution_timeout", 0),
    ("id_reuse", "never"),
    ("id_conflict", "use-existing"),
    ("priority", 0),
    ("priority", 6),
    ("retry", RetryPolicy(max_attempts=0)),
    ("headers", {"a": 1}),
    ("input", LARGE),
    ("memo", {"": payload()}),
    ("memo", {"a": (Payload(JSON, b"x" * limits.MAX_MEMO),)}),
    ("search_attributes", {"": 1}),
    ("search_attributes", {"a": None}),
    ("search_attributes", {"a": math.nan}),
    ("search_attributes", {"a": 2**63}),
    ("search_attributes", {"a": {"b": 1}}),
    ("search_attributes", {"a": ["x", 1]}),
    ("search_attributes", {"a": "\x00"}),
    ("search_attributes", {str(n): n for n in range(limits.MAX_ATTRIBUTES + 1)}),
    ("signal", w.Signal("")),
    ("signal", w.Signal("s", LARGE)),
    ("wait", 26),
    ("wait", -1),
    ("identity", "x\x00"),
]


@pytest.fixture
def inside(engine: Engine) -> Service:
    return Service(engine, Caller("default"))


async def test_a_start_names_what_is_wrong(inside: Service) -> None:
    """B015: an empty workflow id is refused, not taken for none; B047, B128, B130."""
    wrong = []
    for field, value in BAD_STARTS:
        try:
            body = start()
            setattr(body, field, value)
            await inside.start_workflow(body)
            wrong.append((field, ascii(value)[:60], "accepted"))
        except InvalidArgument as error:
            if not (error.field or "").startswith(field) or not (error.limit and error.detail):
                wrong.append((field, ascii(value)[:60], f"{error.field} {error.limit}"))
    assert not wrong, wrong
    assert (await inside.find_workflows(w.FindWorkflows())).workflows == []


async def test_odd_values_that_are_right_are_taken(inside: Service) -> None:
    """B015: names in any script."""
    odd = start(
        "a/b %2F 任务", search_attributes={"a": True, "b": -(2**63), "c": 0.5, "d": [], "e": "é"}, start_delay="1h",
        memo={"m": ()}, cron="", execution_timeout="52w", run_timeout=0.001,
    )  # fmt: skip
    await inside.start_workflow(odd)
    view = await inside.describe_workflow(w.DescribeWorkflow("a/b %2F 任务"))
    assert view.search_attributes == odd.search_attributes
    assert view.waiting_for == "its start time"


BAD_CALLS: list[tuple[str, m.Body, str]] = [
    ("signal_workflow", signal(""), "workflow_id"),
    ("signal_workflow", signal("w", ""), "signal.name"),
    ("signal_workflow", signal(run_id="x"), "run_id"),
    ("signal_workflow", signal(request_id="\x00"), "request_id"),
    ("signal_workflow", w.SignalWorkflow("w", w.Signal("s", LARGE)), "signal.input"),
    ("signal_workflow", w.SignalWorkflow("w", w.Signal("s", headers={"a": "\ud800"})), "signal.headers"),
    ("update_workflow", w.UpdateWorkflow("w", "", "n"), "update_id"),
    ("update_workflow", w.UpdateWorkflow("w", "u", ""), "name"),
    ("update_workflow", w.UpdateWorkflow("w", "u", "n", stage="admitted"), "stage"),
    ("update_workflow", w.UpdateWorkflow("w", "u", "n", wait=26), "wait"),
    ("update_workflow", w.UpdateWorkflow("w", "u", "n", LARGE), "input"),
    ("query_workflow", w.QueryWorkflow("w", ""), "name"),
    ("query_workflow", w.QueryWorkflow("w", "q", LARGE), "input"),
    ("query_workflow", w.QueryWorkflow("w", "q", wait=math.nan), "wait"),
    ("cancel_workflow", w.CancelWorkflow("w", reason="x" * 2001), "reason"),
    ("cancel_workflow", w.CancelWorkflow(" w"), "workflow_id"),
    ("terminate_workflow", w.TerminateWorkflow("w", "zz"), "run_id"),
    ("terminate_workflow", w.TerminateWorkflow("w", reason="\x00"), "reason"),
    ("describe_workflow", w.DescribeWorkflow(""), "workflow_id"),
    ("result_workflow", w.ResultWorkflow("w", wait=-1), "wait"),
    ("find_workflows", w.FindWorkflows(limit=0), "limit"),
    ("find_workflows", w.FindWorkflows(cursor="x"), "cursor"),
    ("find_workflows", w.FindWorkflows(type=""), "type"),
    ("find_workflows", w.FindWorkflows(status="OPEN"), "status"),
    ("find_workflows", w.FindWorkflows(open=True, requires_intervention=True), "requires_intervention"),
    ("history", w.History("w", after=-1), "after"),
    ("history", w.History("w", limit=0), "limit"),
    ("group_results", w.GroupResults("w"), "group_id"),
    ("group_results", w.GroupResults("01890000-0000-7000-8000-000000000000", -1), "after"),
    ("complete_activity", w.CompleteActivity("w", ""), "activity_id"),
    ("complete_activity", w.CompleteActivity("w", "1", "won"), "outcome"),
    ("complete_activity", w.CompleteActivity("w", "1", "failed"), "failure"),
    ("complete_activity", w.CompleteActivity("w", "1", result=LARGE), "result"),
    ("append", w.Appends([]), "appends"),
]


@pytest.mark.parametrize(("op", "body", "field"), BAD_CALLS, ids=lambda value: value if isinstance(value, str) else "")
async def test_calls_name_what_is_wrong(inside: Service, op: str, body: m.Body, field: str) -> None:
    await inside.start_workflow(start())
    with pytest.raises(InvalidArgument) as raised:
        await getattr(inside, op)(body)
    assert raised.value.field == field
    assert raised.value.limit or raised.value.kind


ID = mint_id()
TENTH = (Payload({}, bytes(limits.MAX_GROUP_BYTES // 90)),)


def group(**fields: Any) -> t.StartGroup:
    given = {"group_id": "g#1", "activity_type": "a", "task_queue": "q", "inputs": [()]} | fields
    return t.StartGroup(task_id=ID, **given)


BAD_COMMANDS: list[tuple[t.TurnCommand, str]] = [
    (t.StartStep(step_id=-1, name="a"), "step_id"),
    (t.StartStep(step_id=1, name=""), "name"),
    (t.StartStep(step_id=1, name="a", attempt=-1), "attempt"),
    (t.CompleteStep(step_id=1, result=LARGE), "result"),
    (t.StartTimer(task_id=b"short", timer_id="a", start_to_fire=1), "task_id"),
    (t.StartTimer(task_id=bytes(16), timer_id="a", start_to_fire=1), "task_id"),
    (t.StartTimer(task_id=ID, timer_id="", start_to_fire=1), "timer_id"),
    (t.StartTimer(task_id=ID, timer_id="a", start_to_fire=-1), "start_to_fire"),
    (t.StartTimer(task_id=ID, timer_id="a", start_to_fire=math.nan), "start_to_fire"),
    (t.StartTimer(task_id=ID, timer_id="a", start_to_fire=1e15), "start_to_fire"),
    (t.ScheduleActivity(task_id=ID, activity_id="1", activity_type="a\x00", task_queue="q"), "activity_type"),
    (t.ScheduleActivity(task_id=ID, activity_id="1", activity_type="a", task_queue=""), "task_queue"),
    (t.ScheduleActivity(task_id=ID, activity_id="1", activity_type="a", task_queue="q", priority=9), "priority"),
    (t.ScheduleActivity(task_id=ID, activity_id="1", activity_type="a", task_queue="q", input=LARGE), "input"),
    (
        t.ScheduleActivity(task_id=ID, activity_id="1", activity_type="a", task_queue="q", retry=RetryPolicy(base=0)),
        "retry.base",
    ),
    (group(inputs=[]), "inputs"),
    (group(inputs=[(), LARGE]), "inputs[1]"),
    (group(inputs=[TENTH] * 100), "inputs"),
    (group(inputs=[()] * (limits.MAX_GROUP + 1)), "inputs"),
    (group(policy="hope"), "policy"),
    (group(window=-1), "window"),
    (group(group_id=""), "group_id"),
    (t.RecordMarker(marker_name="m", details={"a": LARGE}), "details.a"),
    (t.StartChildWorkflow(task_id=ID, workflow_type="a", workflow_id="", task_queue="q"), "workflow_id"),
    (
        t.StartChildWorkflow(
            task_id=ID, workflow_type="a", workflow_id="w", task_queue="q", parent_close_policy="kill"
        ),
        "parent_close_policy",
    ),
    (t.SignalExternalWorkflow(task_id=ID, workflow_id="w", signal_name="s", run_id=b"x"), "run_id"),
    (t.UpsertSearchAttributes(search_attributes={"a": {"b": 1}}), "search_attributes.a"),
    (t.FailWorkflow(failure=Failure(message="x" * limits.MAX_FAILURE)), "failure"),
    (t.CompleteWorkflow(result=LARGE), "result"),
    (t.ContinueAsNew(task_id=ID, workflow_type=" "), "workflow_type"),
]


@pytest.mark.parametrize(("command", "field"), BAD_COMMANDS, ids=lambda value: value if isinstance(value, str) else "")
def test_appends_name_the_command_and_its_field(command: t.TurnCommand, field: str) -> None:
    good = t.StartStep(step_id=0, name="a")
    with pytest.raises(InvalidArgument) as raised:
        checked([good, command])
    assert raised.value.field == f"commands[1].{field}"


def test_what_is_right_may_be_appended() -> None:
    every = [
        t.ScheduleActivity(task_id=ID, activity_id="1", activity_type="a", task_queue="q", start_to_close=1.5),
        t.CancelActivity(task_id=ID, scheduled_event_id=5),
        t.StartGroup(task_id=ID, group_id="g#1", activity_type="a", task_queue="q", inputs=[(), payload()], window=2),
        t.CancelGroup(task_id=ID, started_event_id=5),
        t.StartTimer(task_id=ID, timer_id="step:1:1", start_to_fire=0),
        t.CancelTimer(task_id=ID, timer_id="a", started_event_id=1),
        t.StartStep(step_id=0, name="a"),
        t.CompleteStep(step_id=0, result=payload()),
        t.FailStep(step_id=0, failure=Failure(message="m"), retry_in=1.0),
        t.RecordMarker(marker_name="version", details={"a": payload()}),
        t.StartChildWorkflow(task_id=ID, workflow_type="a", workflow_id="w", task_queue="q", memo={"m": payload()}),
        t.SignalExternalWorkflow(task_id=ID, workflow_id="w", signal_name="s", run_id=bytes(16)),
        t.CancelExternalWorkflow(task_id=ID, workflow_id="w"),
        t.UpsertSearchAttributes(search_attributes={"a": 1, "b": None}),
        t.ModifyProperties(memo={"a": payload()}),
        t.AcceptUpdate(update_id="u", task_id=ID, name="n"),
        t.RejectUpdate(update_id="u", task_id=ID, failure=Failure(message="m")),
        t.CompleteUpdate(update_id="u", task_id=ID, accepted_event_id=1),
        t.CompleteWorkflow(),
        t.FailWorkflow(failure=Failure(message="m")),
        t.CancelWorkflow(details=payload()),
        t.ContinueAsNew(task_id=ID),
    ]
    assert {type(command) for command in every} == set(t.TurnCommand.__args__), "a command is missing here"
    assert checked(every) > sum(map(len, (payload()[0].data,) * 3))
    with pytest.raises(InvalidArgument):
        checked([every[4]] * (MAX_COMMANDS + 1))


async def test_one_bad_append_spoils_no_other(inside: Service) -> None:
    """As with completions: each is answered by itself, at its place."""
    lease = ids.lease_token(Lease(mint_id(), 1, 1))
    items = [
        w.Append(b"short", 0, []),
        w.Append(lease, 3, [t.StartStep(step_id=1, name="a")]),
        w.Append(lease, 3, [t.StartStep(step_id=1, name="")]),
        w.Append(lease, -1, []),
        w.Append(lease, 3, [], completed_event_id=-1),
    ]
    outcomes = (await inside.append(w.Appends(items))).outcomes
    assert [(o.error.code, o.error.field) for o in outcomes if o.error] == [
        ("invalid_argument", "lease"),
        ("lease_lost", None),
        ("invalid_argument", "commands[0].name"),
        ("invalid_argument", "after"),
        ("invalid_argument", "completed_event_id"),
    ]


async def test_a_start_makes_one_command(engine: Engine) -> None:
    """What the rules get: the lane of turns, the key, an id in the slot of the workflow id."""
    drafts = run_drafts.RunDraftsman("shop", engine.mint, 7)
    body = start(queue="orders", retry=RetryPolicy(max_attempts=3), start_delay="2s", request_id="r", cron="0 * * * *")
    command = drafts.start(body, "me", engine.now())
    assert (command.draft.kind, command.draft.lane, command.draft.app) == (
        Kind.WORKFLOW,
        lane("shop", "orders", TURNS),
        "",
    )
    assert (command.key, command.key_kind, command.key_life, command.digest) == ("w", "workflow", 7, b"r")
    assert command.delay == 2_000_000 and command.task_id is not None and command.start is not None
    assert ids.slot(command.task_id) == ids.slot_of("shop", "w")
    assert (command.start.event.identity, command.start.event.start_delay) == ("me", 2.0)
    assert command.size >= len(payload()[0].data)


async def test_another_namespace_sees_nothing(engine: Engine) -> None:
    """As if it did not exist."""
    ours, theirs = Service(engine, Caller("ours")), Service(engine, Caller("theirs"))
    run_id = (await ours.start_workflow(start())).run_id
    assert (await theirs.find_workflows(w.FindWorkflows())).workflows == []
    for run in (None, run_id):
        for call, body in (
            (theirs.describe_workflow, w.DescribeWorkflow("w", run)),
            (theirs.result_workflow, w.ResultWorkflow("w", run, wait=0)),
            (theirs.history, w.History("w", run)),
            (theirs.signal_workflow, signal(run_id=run)),
            (theirs.terminate_workflow, w.TerminateWorkflow("w", run)),
        ):
            with pytest.raises(Exception, match="there is no"):
                await call(body)  # type: ignore[operator]
    assert (await theirs.start_workflow(start())).started
    async with asyncio.timeout(5):
        assert (await ours.describe_workflow(w.DescribeWorkflow("w"))).run_id == run_id
