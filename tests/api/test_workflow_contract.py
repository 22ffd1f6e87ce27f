"""One contract about workflows for all ways to call: embedded, WebSocket, POST with MessagePack or JSON bodies."""

from __future__ import annotations

import asyncio

import pytest

from perdure.client.base import Service
from perdure.client.http import repeatable
from perdure.core import messages as m
from perdure.core import pages
from perdure.core import turn_commands as t
from perdure.core import workflow_messages as w
from perdure.core.errors import (
    IllegalMove,
    InvalidArgument,
    NotFound,
    NoWorker,
    WorkflowAlreadyStarted,
    WorkflowClosed,
)
from perdure.core.events import Event, WorkflowExecutionSignaled, WorkflowExecutionStarted
from perdure.core.model import Failure
from perdure.core.run import UpdateRequest
from perdure.sdk.mint import mint_id
from tests.api.calls import payload, poll
from tests.api.turns import Hand, activity, done, history, names, seen, signal, start, timer


async def test_a_run_from_start_to_result(service: Service) -> None:
    """RPLY-08, RPLY-41, API-07: what was given is in the first event; turns carry events and write them."""
    given = start(
        memo={"note": payload(b'"gift"')}, search_attributes={"total": 42.5, "tags": ["a", "b"]}, headers={"trace": "é"}
    )
    reply = await service.start_workflow(given)
    assert (reply.workflow_id, reply.started, reply.closed) == ("w", True, None)
    view = await service.describe_workflow(w.DescribeWorkflow("w"))
    assert (view.run_id, view.status, view.state, view.type) == (reply.run_id, "RUNNING", "ENQUEUED", "fulfil")
    assert (view.memo, view.search_attributes) == (given.memo, given.search_attributes)
    assert view.waiting_for == "a worker: none is registered for queue 'default'"

    hand = Hand(service)
    delivery = await hand.turn()
    assert (delivery.task_id, delivery.type) == (reply.run_id, "fulfil")
    first = seen(delivery)[0].attributes
    assert isinstance(first, WorkflowExecutionStarted)
    assert (first.input, first.header, first.memo) == (payload(), {"trace": "é"}, given.memo)
    assert names(seen(delivery)) == ["WorkflowExecutionStarted", "WorkflowTaskScheduled", "WorkflowTaskStarted"]

    answer = await hand.append(delivery, timer(), activity())
    assert (answer.state, answer.last) == ("WAITING", 6)
    view = await service.describe_workflow(w.DescribeWorkflow("w"))
    assert (view.history_length, view.state) == (6, "WAITING")
    assert [(a.activity_id, a.type, a.state, a.scheduled_event_id) for a in view.pending_activities] == [
        ("1", "print_label", "ENQUEUED", 6)
    ]
    assert [(x.timer_id, x.started_event_id) for x in view.pending_timers] == [("nap", 5)]
    assert view.next_event_at == view.pending_timers[0].fires_at
    assert view.waiting_for == "timer 'nap', activity 'print_label'"

    await service.signal_workflow(signal())
    await hand.play(done())
    view = await service.result_workflow(w.ResultWorkflow("w", wait=0))
    assert (view.status, view.state, view.result) == ("COMPLETED", "SUCCEEDED", payload(b"42"))
    assert view.closed_at is not None and view.waiting_for == ""
    events = await history(service)
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    assert names(events)[6:] == [
        "WorkflowExecutionSignaled", "WorkflowTaskScheduled", "WorkflowTaskStarted", "WorkflowTaskCompleted",
        "WorkflowExecutionCompleted",
    ]  # fmt: skip


async def test_a_start_that_waits_is_one_request(service: Service) -> None:
    """The shortest way from a start to a result."""
    starting = asyncio.create_task(service.start_workflow(start(wait=10)))
    await Hand(service).play(done())
    reply = await starting
    assert reply.closed is not None
    assert (reply.closed.run_id, reply.closed.status, reply.closed.result) == (
        reply.run_id, "COMPLETED", payload(b"42"),
    )  # fmt: skip
    open_still = await service.start_workflow(start("other", wait=0.1))
    assert (open_still.started, open_still.closed) == (True, None)


async def test_one_run_of_an_id_is_open(service: Service) -> None:
    """The id policies, while a run is open and once it has closed; a request id makes a repeat the same call."""
    first = await service.start_workflow(start(request_id="r1"))
    assert await service.start_workflow(start(request_id="r1")) == first, "a repeat"
    with pytest.raises(WorkflowAlreadyStarted):
        await service.start_workflow(start(request_id="r2"))
    existing = await service.start_workflow(start(id_conflict="use_existing"))
    assert (existing.run_id, existing.started) == (first.run_id, False)
    second = await service.start_workflow(start(id_conflict="terminate_existing"))
    assert second.run_id != first.run_id
    view = await service.result_workflow(w.ResultWorkflow("w", first.run_id, wait=0))
    assert view.status == "TERMINATED"
    await Hand(service).play(done())
    with pytest.raises(WorkflowAlreadyStarted):
        await service.start_workflow(start(id_reuse="reject_duplicate"))
    with pytest.raises(WorkflowAlreadyStarted):
        await service.start_workflow(start(id_reuse="allow_duplicate_failed_only"))
    third = await service.start_workflow(start())
    page = await service.find_workflows(w.FindWorkflows(workflow_id="w"))
    assert [view.run_id for view in page.workflows] == [third.run_id, second.run_id, first.run_id]


async def test_signals_arrive_in_order_and_once(service: Service) -> None:
    """SIG-01 to SIG-05, SIG-14: kept before the code looks; by id of run or workflow; not to a closed run."""
    run_id = (await service.start_workflow(start())).run_id
    for name in ("a", "b"):
        assert (await service.signal_workflow(signal(name=name))).run_id == run_id
    for _ in range(3):
        await service.signal_workflow(signal(name="c", run_id=run_id, request_id="once"))
    assert (await service.describe_workflow(w.DescribeWorkflow("w"))).pending_signals == 3
    hand = Hand(service)
    delivery = await hand.turn()
    signals = [e.attributes for e in seen(delivery) if isinstance(e.attributes, WorkflowExecutionSignaled)]
    assert [(s.signal_name, s.input) for s in signals] == [(name, payload(b'"bob"')) for name in "abc"]
    await hand.append(delivery, done())
    for closed in (signal(), signal(run_id=run_id)):
        with pytest.raises(WorkflowClosed):
            await service.signal_workflow(closed)
    with pytest.raises(NotFound):
        await service.signal_workflow(signal("other"))
    with pytest.raises(NotFound):
        await service.signal_workflow(signal(run_id=str(run_id[:-1] + ("0" if run_id[-1] != "0" else "1"))))


async def test_signal_with_start_makes_one_run(service: Service) -> None:
    """SIG-06, B092: 20 at once, one run, 20 signals."""
    calls = [
        service.start_workflow(start(signal=w.Signal(f"s{n}"), id_conflict="use_existing", request_id=f"r{n}"))
        for n in range(20)
    ]
    replies = await asyncio.gather(*calls)
    assert len({reply.run_id for reply in replies}) == 1
    assert sum(reply.started for reply in replies) == 1
    delivery = await Hand(service).turn()
    signals = [e.attributes for e in seen(delivery) if isinstance(e.attributes, WorkflowExecutionSignaled)]
    assert {s.signal_name for s in signals} == {f"s{n}" for n in range(20)}
    assert names(seen(delivery))[0] == "WorkflowExecutionStarted", "the code starts before it sees any"


async def test_an_update_is_accepted_and_answered(service: Service) -> None:
    """SIG-11: the caller hears of both; the same update id is the same update, then and afterwards."""
    await service.start_workflow(start())
    hand = Hand(service)
    await hand.play(timer())
    asked = w.UpdateWorkflow("w", "u1", "change", payload(b"1"), wait=0)
    admitted = await service.update_workflow(asked)
    assert (admitted.stage, admitted.update_id) == ("admitted", "u1")
    accepting = asyncio.create_task(service.update_workflow(w.UpdateWorkflow("w", "u1", "change", stage="accepted")))
    delivery = await hand.turn()
    assert delivery.turn is not None
    [request] = delivery.turn.updates
    assert (request.name, request.input) == ("change", payload(b"1"))
    await hand.append(delivery, _accept(request))
    assert (await accepting).stage == "accepted"
    completing = asyncio.create_task(service.update_workflow(w.UpdateWorkflow("w", "u1", "change")))
    await service.signal_workflow(signal())
    answer = t.CompleteUpdate(
        update_id="u1", task_id=request.task_id, accepted_event_id=9, result=payload(b'"changed"')
    )
    await hand.play(answer)
    for reply in (await completing, await service.update_workflow(asked)):
        assert (reply.stage, reply.result, reply.failure) == ("completed", payload(b'"changed"'), None)
    assert "WorkflowExecutionUpdateCompleted" in names(await history(service))


def _accept(request: UpdateRequest) -> t.AcceptUpdate:
    return t.AcceptUpdate(update_id=request.update_id, task_id=request.task_id, name=request.name, input=request.input)


async def test_an_update_is_rejected_without_a_trace(service: Service) -> None:
    """SIG-12. One that the run did not answer before it closed is told so (B089, B091)."""
    await service.start_workflow(start())
    hand = Hand(service)
    asking = [asyncio.create_task(service.update_workflow(w.UpdateWorkflow("w", id, "change"))) for id in ("u1", "u2")]
    while (await service.describe_workflow(w.DescribeWorkflow("w"))).pending_signals < 2:
        await asyncio.sleep(0.001)
    delivery = await hand.turn()
    assert delivery.turn is not None
    by_id = {request.update_id: request for request in delivery.turn.updates}
    refused = t.RejectUpdate(
        update_id="u1", task_id=by_id["u1"].task_id, failure=Failure(message="no", code="update_rejected")
    )
    await hand.append(delivery, refused, _accept(by_id["u2"]), done())
    first, second = await asyncio.gather(*asking)
    assert first.failure is not None and (first.stage, first.failure.code) == ("completed", "update_rejected")
    assert second.failure is not None and (second.stage, second.failure.code) == ("completed", "workflow_closed")
    assert names(await history(service)).count("WorkflowExecutionUpdateAccepted") == 1
    with pytest.raises(WorkflowClosed):
        await service.update_workflow(w.UpdateWorkflow("w", "u3", "change"))


async def test_a_query_is_answered_by_a_worker_and_leaves_no_event(service: Service) -> None:
    """SIG-08, SIG-10, B097: of open and of closed runs."""
    run_id = (await service.start_workflow(start())).run_id
    hand = Hand(service)
    await hand.play(timer())
    before = await history(service)
    for _ in range(2):
        asking = asyncio.create_task(service.query_workflow(w.QueryWorkflow("w", "status", payload(b"7"))))
        asked = await hand.answer()
        assert (asked.workflow_id, asked.run_id, asked.name, asked.input) == ("w", run_id, "status", payload(b"7"))
        assert (await asking).result == payload(b'"fine"')
    failure = Failure(message="there is no query of this name", code="unknown_query", retryable=False)
    asking = asyncio.create_task(service.query_workflow(w.QueryWorkflow("w", "status")))
    await hand.answer(failure=failure)
    assert (await asking).failure == failure
    assert await history(service) == before
    await service.terminate_workflow(w.TerminateWorkflow("w"))
    asking = asyncio.create_task(service.query_workflow(w.QueryWorkflow("w", "status")))
    await hand.answer()
    assert (await asking).result == payload(b'"fine"')


async def test_a_query_that_nobody_answers_names_the_queue(service: Service) -> None:
    """B096: no worker, or one that does not answer."""
    await service.start_workflow(start(queue="orders"))
    with pytest.raises(NoWorker, match="the run has not begun: it waits for a free worker on queue 'orders'") as raised:
        await service.query_workflow(w.QueryWorkflow("w", "status", wait=0.1))
    assert raised.value.field == "queue"
    await Hand(service, "orders").play(timer())
    with pytest.raises(NoWorker, match="no worker is registered for queue 'orders'"):
        await service.query_workflow(w.QueryWorkflow("w", "status", wait=0.1))
    await service.open_session(m.OpenSession(5, 1, "me", ["orders"], 1))
    with pytest.raises(NoWorker, match="no worker of queue 'orders' answered"):
        await service.query_workflow(w.QueryWorkflow("w", "status", wait=0.1))
    with pytest.raises(NotFound):
        await service.query_workflow(w.QueryWorkflow("other", "status"))


async def test_cancel_asks_and_terminate_does_not(service: Service) -> None:
    """CANC-05, CANC-10, CANC-12, RPLY-40."""
    await service.start_workflow(start())
    hand = Hand(service)
    await hand.play(timer())
    for _ in range(2):
        await service.cancel_workflow(w.CancelWorkflow("w", reason="enough", request_id="c"))
    view = await service.describe_workflow(w.DescribeWorkflow("w"))
    assert view.cancel_requested_at is not None and view.status == "RUNNING"
    delivery = await hand.turn()
    assert names(seen(delivery)).count("WorkflowExecutionCancelRequested") == 1
    await hand.append(delivery, t.CancelWorkflow())
    assert (await service.result_workflow(w.ResultWorkflow("w"))).status == "CANCELLED"

    await service.start_workflow(start())
    waiting = asyncio.create_task(service.result_workflow(w.ResultWorkflow("w", wait=10)))
    reply = await service.terminate_workflow(w.TerminateWorkflow("w", reason="wrong data"))
    assert reply.state == "TERMINATED"
    view = await waiting
    assert (view.status, view.failure and view.failure.message) == ("TERMINATED", "wrong data")
    await service.start_workflow(start("never ran"))
    await service.cancel_workflow(w.CancelWorkflow("never ran"))
    assert (await service.result_workflow(w.ResultWorkflow("never ran"))).status == "CANCELLED"


async def test_a_result_follows_the_chain(service: Service) -> None:
    """RPLY-23: to the run that does not go on, unless one certain run is asked for."""
    first = (await service.start_workflow(start())).run_id
    hand = Hand(service)
    waiting = asyncio.create_task(service.result_workflow(w.ResultWorkflow("w", wait=20)))
    for n in range(3):
        await hand.play(t.ContinueAsNew(task_id=mint_id(), input=payload(str(n).encode())))
    last = await hand.play(done(b'"end"'))
    view = await waiting
    assert (view.run_id, view.status, view.result) == (last.task_id, "COMPLETED", payload(b'"end"'))
    assert (view.first_run_id, view.next_run_id) == (first, "")
    view = await service.result_workflow(w.ResultWorkflow("w", first))
    assert view.run_id == last.task_id
    view = await service.result_workflow(w.ResultWorkflow("w", first, follow=False))
    assert (view.run_id, view.status) == (first, "CONTINUED_AS_NEW")
    following = await service.describe_workflow(w.DescribeWorkflow("w", view.next_run_id))
    assert following.previous_run_id == first


async def test_a_history_is_read_in_parts_and_waited_for(service: Service) -> None:
    """API-24."""
    await service.start_workflow(start())
    hand = Hand(service)
    for _ in range(5):
        await service.signal_workflow(signal())
        await hand.play(timer())
    whole = await history(service)
    found: list[int] = []
    while True:
        reply = await service.history(w.History("w", after=found[-1] if found else 0, limit=3))
        found += [event.id for event in _unpacked(reply)]
        if not reply.more:
            break
        assert len(_unpacked(reply)) < len(whole)
    assert found == [event.id for event in whole] and not reply.closed
    nothing = await service.history(w.History("w", after=whole[-1].id, wait=0.05))
    assert (nothing.pages, nothing.more, nothing.closed) == ([], False, False)
    waiting = asyncio.create_task(service.history(w.History("w", after=whole[-1].id, wait=10)))
    await service.signal_workflow(signal())
    await hand.play(timer())
    assert _unpacked(await waiting)[0].id == whole[-1].id + 1
    end = (await history(service))[-1].id
    waiting = asyncio.create_task(service.history(w.History("w", after=end, wait=10)))
    await service.terminate_workflow(w.TerminateWorkflow("w"))
    reply = await waiting
    assert (names(_unpacked(reply)), reply.closed) == (["WorkflowExecutionTerminated"], True)


def _unpacked(reply: w.HistoryReply) -> list[Event]:
    return [event for page in reply.pages for event in pages.unpack(page)]


async def test_an_activity_is_completed_by_its_id(service: Service) -> None:
    """By somebody else than its worker."""
    await service.start_workflow(start())
    hand = Hand(service)
    await hand.play(activity("7", queue="default"))
    ended = w.CompleteActivity("w", "7", result=payload(b'"approved"'))
    with pytest.raises(IllegalMove):
        await service.complete_activity(ended)
    [delivery] = await poll(service, 99)
    assert delivery.type == "print_label"
    view = await service.describe_workflow(w.DescribeWorkflow("w"))
    assert view.pending_activities[0].state == "LEASED"
    assert (await service.complete_activity(ended)).state == "SUCCEEDED"
    assert "ActivityTaskCompleted" in names(seen(await hand.turn()))
    with pytest.raises(NotFound):
        await service.complete_activity(ended)


async def test_a_failing_turn_shows_as_stuck(service: Service) -> None:
    """RPLY-10: the run stays open; what its turn failed of is shown, and gone once it goes on."""
    await service.start_workflow(start())
    hand = Hand(service)
    delivery = await hand.turn()
    failure = Failure(message="expected a, found b", code="non_determinism")
    await service.complete(m.Complete([m.Completion(delivery.lease, "failed", failure=failure)]))
    view = await service.describe_workflow(w.DescribeWorkflow("w"))
    assert (view.status, view.state, view.stuck, view.failed_turns) == ("RUNNING", "RETRY_WAIT", True, 1)
    assert view.failure == failure and view.next_event_at is not None
    assert view.waiting_for == "the next try of its turn, which failed 1 times in a row"
    await hand.play(timer())
    view = await service.describe_workflow(w.DescribeWorkflow("w"))
    assert (view.stuck, view.failed_turns, view.failure) == (False, 0, None)


async def test_runs_are_listed_by_status_and_type(service: Service) -> None:
    """API-08: newest first, page by page; both spellings of canceled (X-07)."""
    for n in range(6):
        await service.start_workflow(start(f"w{n}"))
    for n in (1, 3):
        await service.terminate_workflow(w.TerminateWorkflow(f"w{n}"))
    await service.cancel_workflow(w.CancelWorkflow("w5"))
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await service.find_workflows(w.FindWorkflows(status="RUNNING", limit=2, cursor=cursor))
        found += [view.workflow_id for view in page.workflows]
        cursor = page.next
        if cursor is None:
            break
    assert found == ["w4", "w2", "w0"]
    for status, expected in (("TERMINATED", ["w3", "w1"]), ("CANCELED", ["w5"]), ("CANCELLED", ["w5"]), ("FAILED", [])):
        page = await service.find_workflows(w.FindWorkflows(status=status, type="fulfil"))
        assert [view.workflow_id for view in page.workflows] == expected, status
    open_ones = await service.find_workflows(w.FindWorkflows(open=True))
    assert [view.workflow_id for view in open_ones.workflows] == ["w4", "w2", "w0"]
    assert (await service.find_workflows(w.FindWorkflows(open=True, status="TERMINATED"))).workflows == []
    with pytest.raises(InvalidArgument) as raised:
        await service.find_workflows(w.FindWorkflows(status="ENQUEUED"))
    assert raised.value.field == "status"
    assert (await service.find(m.Find())).tasks == [], "runs are no tasks in lists of tasks"


async def test_a_page_of_open_runs_is_full_however_many_have_closed(service: Service) -> None:
    for n in range(8):
        await service.start_workflow(start(f"w{n}"))
        if n % 4:
            await service.terminate_workflow(w.TerminateWorkflow(f"w{n}"))
    first = await service.find_workflows(w.FindWorkflows(open=True, limit=1))
    second = await service.find_workflows(w.FindWorkflows(open=True, limit=1, cursor=first.next))
    assert [view.workflow_id for view in (*first.workflows, *second.workflows)] == ["w4", "w0"]
    assert second.next is None


async def test_a_start_brings_an_update_in_the_same_transaction(service: Service) -> None:
    """Its answer is asked for by its id; sent again, by either way, it is the same update."""
    update = w.Update("u1", "add", payload(b'"cup"'), {"trace": "x"})
    new = start(update=update, request_id="r", id_conflict="use_existing")
    reply = await service.start_workflow(new)
    assert await service.start_workflow(new) == reply
    hand = Hand(service)
    delivery = await hand.turn()
    assert delivery.turn is not None
    [asked] = delivery.turn.updates
    assert (asked.update_id, asked.name, asked.input, asked.header) == ("u1", "add", payload(b'"cup"'), {"trace": "x"})
    ask = w.UpdateWorkflow("w", "u1", "add", run_id=reply.run_id, wait=10)
    asking = asyncio.create_task(service.update_workflow(ask))
    accepted = t.AcceptUpdate(update_id="u1", task_id=asked.task_id, name="add")
    answered = t.CompleteUpdate(update_id="u1", task_id=asked.task_id, accepted_event_id=5, result=payload(b"1"))
    await hand.append(delivery, accepted, answered)
    answer = await asking
    assert (answer.stage, answer.result, answer.run_id) == ("completed", payload(b"1"), reply.run_id)
    onto = await service.start_workflow(start(update=w.Update("u2", "add"), id_conflict="use_existing"))
    assert (onto.run_id, onto.started) == (reply.run_id, False)
    await service.terminate_workflow(w.TerminateWorkflow("w"))
    assert (await service.update_workflow(ask)).result == payload(b"1"), "kept, like the run"


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (start(update=w.Update("", "add")), "update.update_id"),
        (start(update=w.Update("u", "\n")), "update.name"),
        (start(update=w.Update("u", "add", payload(b"x" * 300_000))), "update.input"),
        (start(update=w.Update("u", "add", headers={"a": "b" * 20_000})), "update.headers"),
        (start(update=w.Update("u", "add"), signal=w.Signal("s")), "update"),
    ],
    ids=["id", "name", "input", "headers", "signal"],
)
async def test_an_update_of_a_start_is_checked_before_anything_is_written(
    service: Service, bad: w.StartWorkflow, field: str
) -> None:
    with pytest.raises(InvalidArgument) as raised:
        await service.start_workflow(bad)
    assert raised.value.field == field
    assert (await service.find_workflows(w.FindWorkflows())).workflows == []


async def test_jobs_that_ask_queries_are_no_tasks_of_anybody(service: Service) -> None:
    await service.start_workflow(start())
    hand = Hand(service)
    await hand.play(timer())
    asking = asyncio.create_task(service.query_workflow(w.QueryWorkflow("w", "where", wait=10)))
    await hand.answer()
    await asking
    for find in (m.Find(), m.Find(type=w.QUERY), m.Find(state="SUCCEEDED")):
        assert (await service.find(find)).tasks == []
    assert sum(queue.ready + queue.running for queue in (await service.queues(m.ListQueues())).queues) == 0


async def test_what_people_have_done_about_a_closed_run_is_shown(service: Service) -> None:
    """SAGA-05, OPS-14: a compensation that failed was mended by hand. The last note counts."""
    reply = await service.start_workflow(start())
    with pytest.raises(IllegalMove):
        await service.resolve_workflow(w.ResolveWorkflow("w", "too early"))
    await service.terminate_workflow(w.TerminateWorkflow("w"))
    assert (await service.describe_workflow(w.DescribeWorkflow("w"))).resolution is None
    for note in ("refunded", "refunded by hand, ticket 17"):
        done_by = await service.resolve_workflow(w.ResolveWorkflow("w", note, identity="ann"))
        assert (done_by.run_id, done_by.state) == (reply.run_id, "TERMINATED")
    await service.start_workflow(start())
    assert (await service.describe_workflow(w.DescribeWorkflow("w"))).resolution is None, "that is another run"
    view = await service.describe_workflow(w.DescribeWorkflow("w", reply.run_id))
    assert view.resolution is not None and view.closed_at is not None
    assert (view.resolution.note, view.resolution.identity) == ("refunded by hand, ticket 17", "ann")
    assert view.resolution.at >= view.closed_at
    for note in ("", "  ", "\0", "x" * 100_000):
        with pytest.raises(InvalidArgument) as raised:
            await service.resolve_workflow(w.ResolveWorkflow("w", note, reply.run_id))
        assert raised.value.field == "note"
    with pytest.raises(NotFound):
        await service.resolve_workflow(w.ResolveWorkflow("nobody", "x"))


async def test_runs_of_other_names_are_not_found(service: Service) -> None:
    """A run id is good for its own workflow id only; ids of tasks are no run ids."""
    run_id = (await service.start_workflow(start())).run_id
    [task] = (await service.enqueue(m.Enqueue([m.NewTask("t")]))).tasks
    for id, run in (("other", run_id), ("w", task.task_id), ("other", None)):
        for call, body in (
            (service.describe_workflow, w.DescribeWorkflow(id, run)),
            (service.result_workflow, w.ResultWorkflow(id, run, wait=0)),
            (service.history, w.History(id, run)),
            (service.query_workflow, w.QueryWorkflow(id, "q", run_id=run, wait=0)),
            (service.signal_workflow, signal(id, run_id=run)),
            (service.terminate_workflow, w.TerminateWorkflow(id, run)),
        ):
            with pytest.raises(NotFound):
                await call(body)  # type: ignore[operator]
    with pytest.raises(InvalidArgument) as raised:
        await service.describe_workflow(w.DescribeWorkflow("w", "x"))
    assert raised.value.field == "run_id"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (start(), False),
        (start(request_id="r"), True),
        (signal(), False),
        (signal(request_id="r"), True),
        (w.CancelWorkflow("w"), False),
        (w.CancelWorkflow("w", "run"), True),
        (w.CancelWorkflow("w", request_id="r"), True),
        (w.TerminateWorkflow("w"), False),
        (w.TerminateWorkflow("w", "run"), True),
        (w.CompleteActivity("w", "1"), False),
        (w.UpdateWorkflow("w", "u", "n"), True),
        (w.QueryWorkflow("w", "n"), True),
        (w.Appends([]), True),
    ],
)
def test_what_may_be_sent_again(body: m.Body, expected: bool) -> None:
    """IDEM-05: only what the server knows again, or what changes nothing the second time."""
    assert repeatable(body) is expected
