"""Slots, polls, heartbeats and reports of a worker, against a server that a test can hold and break."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from perdure import Context, Unauthenticated, Unavailable, task
from perdure.core.errors import Conflict, InvalidArgument, LeaseLost
from perdure.core.messages import Completed
from perdure.core.model import Progress
from perdure.sdk.converter import from_payloads, to_payloads
from perdure.sdk.task import REGISTRY
from perdure.worker import heartbeat, worker
from perdure.worker.worker import Worker
from tests.worker.fake import FakeService, Gate, echo

pytestmark = pytest.mark.usefixtures("no_pauses")


# ---------------------------------------------------------------------------------------------------------------- slots
@pytest.mark.parametrize("kind", ["", "_plain"])
async def test_never_more_tasks_than_slots(service: FakeService, kind: str) -> None:
    """WORK-09: running handlers and polls under way never ask for more than there is."""
    gate = Gate()
    service.busy = lambda: gate.inside - gate.left
    async with Worker(service, slots=3):
        leases = [await service.give("at_gate" + kind, n) for n in range(10)]
        await gate.holds(3)
        assert gate.inside == 3
        gate.open.set()
        gate.open_plain.set()
        assert [await service.result(lease) for lease in leases] == list(range(10))
    assert service.most_out == 3


async def test_polls_ask_in_batches_for_what_is_free(service: FakeService) -> None:
    async with Worker(service, slots=100, tasks=[echo]):
        await service.until(lambda: len(service.polls) == 2)
        assert [poll.capacity for poll in service.polls] == [50, 50]
        await service.result(await service.give("echo"))


async def test_slots_that_a_short_answer_left_free_are_asked_for(service: FakeService) -> None:
    """WORK-09: also by the poll that waits, where they are less than the batch that the answered one needs."""
    gate = Gate()
    async with Worker(service, slots=100, tasks=[REGISTRY["at_gate"]]), asyncio.timeout(20):
        await service.until(lambda: len(service.polls) == 2)
        await service.give_many("at_gate", 50)
        await gate.holds(50)
        await service.give_many("at_gate", 10)
        await gate.holds(60)
        await service.until(lambda: len(service.polls) == 3)
        assert service.asked == 40
        gate.open.set()


async def test_queues_and_identity_are_passed_on(service: FakeService) -> None:
    async with Worker(service, queues=["a", "b"], slots=7, identity="me", build="v1", incarnation=5):
        await service.until(lambda: bool(service.polls))
    session = service.sessions[0]
    assert (session.incarnation, session.epoch, session.identity, session.slots) == (5, 1, "me", 7)
    assert (session.queues, session.build, service.polls[0].queues) == (["a", "b"], "v1", ["a", "b"])
    assert [(closed.incarnation, closed.reason) for closed in service.closed] == [(5, "goodbye")]


async def test_without_queues_it_polls_those_that_its_tasks_declare(
    service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    @task(name="letter", queue="mail")
    def letter(ctx: Context, payload: Any) -> None: ...

    caplog.set_level("INFO")
    async with Worker(service, tasks=[letter], workflows=[]):
        await service.until(lambda: bool(service.polls))
    assert service.polls[0].queues == service.sessions[0].queues == ["default", "mail"]
    assert "works on default, mail" in caplog.text
    caplog.clear()
    async with Worker(service, tasks=[letter], workflows=[], queues=["default"]):
        await service.until(lambda: len(service.sessions) == 2)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ["queue 'mail' is not polled; tasks declared on it: letter"]


async def test_only_the_tasks_given_are_run(service: FakeService) -> None:
    async with Worker(service, tasks=[]):
        report = await service.reported(await service.give("echo"))
    assert report.failure is not None
    assert report.failure.code == "unknown_handler"


async def test_an_unknown_option_is_an_error(service: FakeService) -> None:
    with pytest.raises(TypeError, match="slotz"):
        Worker(service, slotz=1)  # type: ignore[call-arg]


async def test_a_worker_without_slots_is_an_error(service: FakeService) -> None:
    with pytest.raises(InvalidArgument, match="slots"):
        Worker(service, slots=0)


async def test_a_poll_is_repeated_under_its_number_until_it_is_answered(service: FakeService) -> None:
    """So the leases of a lost answer come again; and each try is a session of a higher epoch."""
    service.poll_faults = [Unavailable("away"), Unavailable("away")]
    async with Worker(service, slots=1):
        assert await service.result(await service.give("echo", 1)) == 1
    assert [poll.poll for poll in service.polls][:4] == [1, 1, 1, 2]
    assert [session.epoch for session in service.sessions] == [1, 2, 3]


async def test_a_session_that_is_refused_as_old_is_opened_again(service: FakeService) -> None:
    service.session_faults = [Conflict("epoch"), Unavailable("away")]
    async with Worker(service, slots=1):
        assert await service.result(await service.give("echo", 1)) == 1
    assert [session.epoch for session in service.sessions] == [1, 2, 3]


async def test_what_makes_working_impossible_ends_the_worker(service: FakeService) -> None:
    service.session_faults = [Unauthenticated("who?")]
    with pytest.raises(Unauthenticated):
        async with Worker(service, slots=1) as broken:
            await broken.draining()


# ----------------------------------------------------------------------------------------------------------- heartbeats
async def test_receipt_of_what_still_runs_is_acknowledged(service: FakeService) -> None:
    """LEASE-02: one request a moment after the delivery; what is over by then needs none."""
    service = FakeService(heartbeat=10.0)
    gate = Gate()
    async with Worker(service, slots=10):
        short = await service.give("echo")
        long = [await service.give("at_gate") for _ in range(3)]
        await service.result(short)
        for lease in long:
            await service.beaten_for(lease)
        gate.open.set()
    assert [len(service.beats_of(lease)) for lease in (short, *long)] == [0, 1, 1, 1]


async def test_heartbeats_go_on_while_a_handler_holds_the_loop(service: FakeService) -> None:
    """B003: they come from a thread of their own."""
    heard: list[bool] = []

    @task(name="hog")
    async def hog(ctx: Context, payload: Any) -> None:
        heard.append(service.wait_for_beats(b"lease-1", 5))

    async with Worker(service, slots=2):
        await service.result(await service.give("hog"))
    assert heard == [True]


async def test_short_leases_are_beaten_for_three_times_in_their_life(service: FakeService) -> None:
    service = FakeService(heartbeat=1000.0)
    gate = Gate()
    async with Worker(service, slots=2):
        lease = await service.give("at_gate", lease_seconds=0.06)
        await service.beaten_for(lease, 5)
        gate.open.set()


async def test_progress_and_checkpoint_ride_on_heartbeats_once(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TASK-22: soon after they were given, and not again with the next one or the report."""
    monkeypatch.setattr(heartbeat, "NEWS_SECONDS", 0.01)
    service = FakeService(heartbeat=1000.0)
    gate = Gate()

    @task(name="long_work")
    async def long_work(ctx: Context, payload: Any) -> Any:
        before = ctx.last_checkpoint
        gate.inside += 1
        await gate.open.wait()
        ctx.progress(1, 2)
        ctx.checkpoint([1])
        gate.open.clear()
        await gate.open.wait()
        ctx.checkpoint([2])
        return before

    async with Worker(service, slots=2):
        lease = await service.give("long_work", checkpoint=to_payloads([0], ""))
        await service.beaten_for(lease, 1)
        await gate.holds(1)
        gate.open.set()
        await service.beaten_for(lease, 2)
        gate.open.set()
        assert await service.result(lease) == [0]
    first, second = service.beats_of(lease)
    assert (first.progress, first.checkpoint) == (None, None)
    assert (second.progress, second.checkpoint) == (Progress(1, 2), to_payloads([1], ""))
    last = service.reports[lease]
    assert (last.progress, last.checkpoint) == (None, to_payloads([2], ""))


async def test_large_checkpoints_are_spread_over_requests(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A heartbeat that is too large for the server would lose all leases."""
    monkeypatch.setattr(heartbeat, "NEWS_SECONDS", 0.01)
    monkeypatch.setattr(heartbeat, "_REQUEST_BYTES", 250_000)
    service = FakeService(heartbeat=1000.0)
    sizes: list[int] = []
    real = service.heartbeat

    async def weigh(body: Any) -> Any:
        sizes.append(sum(len(beat.checkpoint[0].data) for beat in body.beats if beat.checkpoint))
        return await real(body)

    monkeypatch.setattr(service, "heartbeat", weigh)
    end = asyncio.Event()

    @task(name="large")
    async def large(ctx: Context, payload: Any) -> None:
        ctx.checkpoint("x" * 100_000)
        await end.wait()

    async with Worker(service, slots=10):
        leases = [await service.give("large") for _ in range(6)]
        for lease in leases:
            await service.beaten_for(lease)
        end.set()
    assert max(sizes) <= 250_000
    assert sum(sizes) == 6 * 100_002


async def test_missed_heartbeats_are_tried_again_and_stop_nothing(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a lease is lost is for the server to say."""
    monkeypatch.setattr(heartbeat, "_RETRY_SECONDS", 0.01)
    gate = Gate()
    faults = 3
    real = service.heartbeat

    async def flaky(body: Any) -> Any:
        nonlocal faults
        if faults:
            faults -= 1
            raise Unavailable("away")
        return await real(body)

    monkeypatch.setattr(service, "heartbeat", flaky)
    async with Worker(service, slots=2):
        lease = await service.give("at_gate", 1)
        await service.beaten_for(lease)
        gate.open.set()
        assert await service.result(lease) == 1


# -------------------------------------------------------------------------------------------------------------- reports
async def test_reports_gather_behind_the_one_in_flight(service: FakeService) -> None:
    service.gate.clear()
    async with Worker(service, slots=100):
        first = await service.give("echo")
        await service.until(lambda: len(service.requests) == 1)
        rest = [await service.give("echo", n) for n in range(30)]
        for lease in rest:
            while lease not in service.running:
                await asyncio.sleep(0)
        service.gate.set()
        await service.reported(first)
        for lease in rest:
            await service.reported(lease)
    assert len(service.requests) <= 3
    assert len(service.requests[0].completions) == 1


async def test_a_report_is_repeated_until_it_is_answered_and_its_lease_kept(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SDK-19."""
    monkeypatch.setattr(heartbeat, "UNREPORTED_SECONDS", 0.01)
    service.complete_faults = [Unavailable("away"), Unavailable("away")]
    service.gate.clear()
    async with Worker(service, slots=1):
        lease = await service.give("echo", 1)
        await service.beaten_for(lease, 2)
        service.gate.set()
        assert await service.result(lease) == 1
        assert await service.result(await service.give("echo", 2)) == 2
    assert len(service.requests) == 4


async def test_items_that_the_server_cannot_take_now_are_sent_again(service: FakeService) -> None:
    answers = [Completed(error=Unavailable("full").problem()), Completed("SUCCEEDED")]
    service.judge = lambda completion: answers.pop(0)
    async with Worker(service, slots=1):
        assert await service.result(await service.give("echo", 1)) == 1


async def test_a_refused_outcome_becomes_a_failure(service: FakeService) -> None:
    """B133: the task must not hang because its outcome cannot be stored."""
    service.judge = lambda completion: (
        Completed(error=InvalidArgument("too odd").problem())
        if completion.outcome == "succeeded"
        else Completed("FAILED")
    )
    async with Worker(service, slots=1):
        report = await service.reported(await service.give("echo", 1))
    assert report.failure is not None
    assert (report.outcome, report.failure.code) == ("failed", "unencodable_result")
    assert "too odd" in report.failure.message


async def test_a_lost_lease_ends_the_matter(service: FakeService) -> None:
    asked = 0

    def judge(completion: Any) -> Completed:
        nonlocal asked
        asked += 1
        return Completed(error=LeaseLost("gone").problem()) if asked == 1 else Completed("SUCCEEDED")

    service.judge = judge
    async with Worker(service, slots=1):
        await service.give("echo", 1)
        assert await service.result(await service.give("echo", 2)) == 2
    assert asked == 2


async def test_one_bad_report_does_not_spoil_its_request(service: FakeService) -> None:
    service.gate.clear()
    real = service.complete

    async def picky(body: Any) -> Any:
        reply = await real(body) if len(body.completions) == 1 else None
        if reply is None:
            service.requests.append(body)
            raise InvalidArgument("one of them")
        return reply

    service.complete = picky  # type: ignore[method-assign]
    async with Worker(service, slots=10):
        first = await service.give("echo", 0)
        await service.until(lambda: len(service.requests) == 1)
        rest = [await service.give("echo", n) for n in range(1, 4)]
        for lease in rest:
            while lease not in service.running:
                await asyncio.sleep(0)
        service.gate.set()
        assert [await service.result(lease) for lease in (first, *rest)] == [0, 1, 2, 3]


# ---------------------------------------------------------------------------------------------------------------- drain
@pytest.mark.parametrize("kind", ["", "_plain"])
async def test_drain_lets_handlers_end(service: FakeService, kind: str) -> None:
    """B124: and every report is answered before the goodbye (B122)."""
    gate = Gate()
    async with Worker(service, slots=5) as leaving:
        leases = [await service.give("at_gate" + kind, n) for n in range(5)]
        await gate.holds(5)
        leaving.drain()
        gate.open.set()
        gate.open_plain.set()
    assert [await service.result(lease) for lease in leases] == list(range(5))
    assert len(service.closed) == 1


async def test_a_handler_that_does_not_end_in_time_is_released_with_its_checkpoint(service: FakeService) -> None:
    """B030: no attempt is spent."""

    @task(name="endless")
    async def endless(ctx: Context, payload: Any) -> None:
        ctx.checkpoint("so far")
        started.set()
        await asyncio.Event().wait()

    started = asyncio.Event()
    async with Worker(service, slots=1, drain_seconds=0.0):
        lease = await service.give("endless")
        await started.wait()
    report = service.reports[lease]
    assert (report.outcome, from_payloads(report.checkpoint or (), "")) == ("released", "so far")


@pytest.mark.parametrize("kind", ["stuck", "stuck_plain"])
async def test_a_handler_that_hears_nothing_does_not_keep_the_worker(service: FakeService, kind: str) -> None:
    """B123: a stuck thread, and a handler that swallows the cancel."""
    end, end_plain = asyncio.Event(), threading.Event()

    @task(name="stuck")
    async def stuck(ctx: Context, payload: Any) -> None:
        started.set()
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue

    @task(name="stuck_plain")
    def stuck_plain(ctx: Context, payload: Any) -> None:
        loop.call_soon_threadsafe(started.set)
        end_plain.wait()

    loop = asyncio.get_running_loop()
    started = asyncio.Event()
    async with Worker(service, slots=1, drain_seconds=0.0):
        lease = await service.give(kind)
        await started.wait()
    assert service.reports[lease].outcome == "released"
    end.set()
    end_plain.set()
    await asyncio.sleep(0)


async def test_what_arrives_during_a_drain_is_handed_back_at_once(service: FakeService) -> None:
    gate = Gate()
    async with Worker(service, slots=2) as leaving:
        running = await service.give("at_gate")
        await gate.holds(1)
        await service.until(lambda: service.asked > 0)
        leaving.drain()
        late = await service.give("echo")
        assert (await service.reported(late)).outcome == "released"
        gate.open.set()
    assert service.reports[running].outcome == "succeeded"


async def test_leaving_does_not_wait_for_a_dead_server(service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    """B123."""
    monkeypatch.setattr(worker, "_FLUSH_SECONDS", 0.05)
    monkeypatch.setattr(worker, "_GOODBYE_SECONDS", 0.05)

    async def silent(body: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(service, "close_session", silent)
    service.gate.clear()
    async with Worker(service, slots=1, drain_seconds=0.0):
        await service.give("echo")
        await service.until(lambda: bool(service.requests))
    assert not service.reports


# ---------------------------------------------------------------------------------------------------------- suspensions
async def test_deliveries_that_outlived_their_lease_in_a_suspension_are_handed_back(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B052: another worker may have them. Those with a longer lease, and all that come later, are begun."""
    monkeypatch.setattr(worker, "_WATCH_SECONDS", 0.1)
    async with Worker(service, slots=10) as asleep:
        await service.until(lambda: len(service.polls) == 1)
        asleep._suspension._awake_at -= 5
        short = await service.give("echo", lease_seconds=2.0)
        long = await service.give("echo", lease_seconds=30.0)
        assert (await service.reported(short)).outcome == "released"
        assert (await service.reported(long)).outcome == "succeeded"
        await asyncio.sleep(0.3)
        assert (await service.reported(await service.give("echo", lease_seconds=2.0))).outcome == "succeeded"


async def test_an_older_attempt_ends_before_the_next_one_of_its_task_begins(service: FakeService) -> None:
    """B052: both were delivered to this worker; the older one has lost its lease, and the newer one waits for it."""
    gate = Gate()
    async with Worker(service, slots=10):
        (old,) = await service.give_many("at_gate_plain", 1)
        await gate.holds(1)
        new = service._delivery("at_gate_plain", None, None)
        new.task_id = "task-1"
        await service._give([new])
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert gate.inside == 1
        gate.open_plain.set()
        assert (await service.reported(new.lease)).outcome == "succeeded"
    assert old not in service.reports
    assert gate.inside == 2
