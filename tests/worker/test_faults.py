"""What a worker does about faults of its server, of its own threads, and of deliveries."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from perdure import Context, Unauthenticated, Unavailable, task
from perdure.core.errors import Internal, InvalidArgument
from perdure.core.messages import Complete, Completed, HeartbeatReply
from perdure.core.model import Progress
from perdure.worker import heartbeat, worker
from perdure.worker.worker import Worker
from tests.worker.fake import FakeService, Gate

pytestmark = pytest.mark.usefixtures("no_pauses")


def leases(body: Complete) -> list[bytes]:
    return [completion.lease for completion in body.completions]


# ---------------------------------------------------------------------------------------------------------------- polls
@pytest.mark.parametrize("fault", [Internal("a bug"), ValueError("a delivery that cannot be read")])
@pytest.mark.parametrize("faults", ["poll_faults", "session_faults"])
async def test_a_fault_of_the_server_does_not_end_the_worker(
    service: FakeService, faults: str, fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    setattr(service, faults, [fault, fault])
    async with Worker(service, slots=1):
        assert await service.result(await service.give("echo", 1)) == 1
    assert [str(fault) in record.getMessage() for record in caplog.records] == [True, True]


# ----------------------------------------------------------------------------------------------------------- heartbeats
@pytest.mark.parametrize("fault", [ValueError("odd"), RuntimeError("closed"), asyncio.CancelledError(), None])
async def test_no_fault_of_a_heartbeat_ends_the_thread(
    service: FakeService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: BaseException | None
) -> None:
    """LEASE-02: else leases end under handlers that run. None is a reply for other beats than were sent."""
    monkeypatch.setattr(heartbeat, "_RETRY_SECONDS", 0.01)
    gate = Gate()
    faults = [fault, fault]
    real = service.heartbeat

    async def flaky(body: Any) -> Any:
        if not faults:
            return await real(body)
        if (fault := faults.pop()) is not None:
            raise fault
        return HeartbeatReply([])

    monkeypatch.setattr(service, "heartbeat", flaky)
    async with Worker(service, slots=2):
        lease = await service.give("at_gate", 1)
        await service.beaten_for(lease, 2)
        gate.open.set()
        assert await service.result(lease) == 1
    assert "heartbeat" in caplog.text


async def test_a_worker_without_its_heartbeat_thread_drains(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot keep leases: no new ones, what runs may end, and leaving says why."""
    gate = Gate()

    async def deadly(body: Any) -> Any:
        raise SystemExit

    monkeypatch.setattr(service, "heartbeat", deadly)
    with pytest.raises(Internal, match="heartbeat"):
        async with Worker(service, slots=2) as broken, asyncio.timeout(20):
            lease = await service.give("at_gate", 1)
            await broken.draining()
            await broken.open_session()  # a connection may still break
            gate.open.set()
    assert await service.result(lease) == 1
    assert len(service.closed) == 1


# -------------------------------------------------------------------------------------------------------------- reports
@pytest.mark.parametrize("fault", [Internal("a bug"), Unauthenticated("no such key"), ValueError("odd")])
async def test_a_fault_of_the_server_changes_no_outcome(service: FakeService, fault: Exception) -> None:
    """SDK-19: only what is said about the outcome itself may replace it."""
    service.complete_faults = [fault, fault]
    async with Worker(service, slots=1):
        assert await service.result(await service.give("echo", 1)) == 1
    assert len(service.requests) == 3


async def test_a_report_that_the_server_cannot_store_holds_up_no_other(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is repeated until the drain is over, and its outcome stays what it was."""
    monkeypatch.setattr(worker, "_FLUSH_SECONDS", 0.05)
    service.judge = lambda completion: (
        Completed(error=Internal("a bug").problem()) if completion.lease == b"lease-1" else Completed("SUCCEEDED")
    )
    async with Worker(service, slots=1, drain_seconds=0.0), asyncio.timeout(20):
        first = await service.give("echo", 1)
        assert await service.result(await service.give("echo", 2)) == 2
        await service.until(lambda: sum(first in leases(request) for request in service.requests) > 2)
    sent = [item for request in service.requests for item in request.completions if item.lease == first]
    assert {item.outcome for item in sent} == {"succeeded"}
    assert first not in service.reports


async def test_a_report_that_spoils_its_request_holds_up_no_other(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_FLUSH_SECONDS", 0.05)
    service.gate.clear()
    real = service.complete

    async def spoiled(body: Any) -> Any:
        if b"lease-3" in leases(body):
            service.requests.append(body)
            raise Internal("a bug")
        return await real(body)

    monkeypatch.setattr(service, "complete", spoiled)
    async with Worker(service, slots=10, drain_seconds=0.0), asyncio.timeout(20):
        given = [await service.give("echo", 0)]
        await service.until(lambda: len(service.requests) == 1)
        given += [await service.give("echo", n) for n in range(1, 6)]
        await service.until(lambda: service.running.issuperset(given))
        service.gate.set()
        assert [await service.result(lease) for lease in given if lease != b"lease-3"] == [0, 1, 3, 4, 5]
    sent = [item for request in service.requests for item in request.completions]
    assert {item.outcome for item in sent} == {"succeeded"}


async def test_a_report_is_given_up_when_its_lease_is_lost(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heartbeats hear of it although the server has no answer to the report."""
    monkeypatch.setattr(heartbeat, "UNREPORTED_SECONDS", 0.01)
    service.judge = lambda completion: Completed(error=Internal("a bug").problem())
    service.actions[b"lease-1"] = "lost"
    async with asyncio.timeout(20), Worker(service, slots=1):
        await service.give("echo", 1)
        await service.until(lambda: bool(service.requests))
    assert not service.reports


# ---------------------------------------------------------------------------------------------------------------- drain
@pytest.mark.parametrize("silent", [("open_session",), ("poll", "heartbeat", "complete", "close_session")])
async def test_leaving_does_not_wait_for_a_server_that_never_answers(
    service: FakeService, monkeypatch: pytest.MonkeyPatch, silent: tuple[str, ...]
) -> None:
    """B123: whichever call is open, with the default drain."""
    _hurry(monkeypatch)
    asked: set[str] = set()
    real = service.poll

    async def poll(body: Any) -> Any:
        return await real(body) if body.poll == 1 else await never("poll")

    async def never(op: str) -> None:
        asked.add(op)
        await service.until(lambda: False)

    for op in silent:
        monkeypatch.setattr(service, op, poll if op == "poll" else lambda body, op=op: never(op))
    gate = Gate()
    async with asyncio.timeout(20), Worker(service, slots=100):
        if "poll" in silent:
            await service.give("echo")
            await service.give("at_gate")
            await gate.holds(1)
    assert asked <= {*silent}


async def test_leaving_does_not_wait_for_a_heartbeat_thread_that_hangs(
    service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B123: nor for a poll that cannot be called back."""
    _hurry(monkeypatch)
    hung, go_on = threading.Event(), threading.Event()
    end = asyncio.Event()
    real = service.poll

    async def hang(body: Any) -> Any:
        hung.set()
        go_on.wait()
        return HeartbeatReply(["continue"] * len(body.beats))

    async def stubborn(body: Any) -> Any:
        if body.poll == 1:
            return await real(body)
        while not end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await end.wait()
        raise Unavailable("gone")

    monkeypatch.setattr(service, "heartbeat", hang)
    monkeypatch.setattr(service, "poll", stubborn)
    gate = Gate()
    async with asyncio.timeout(20), Worker(service, slots=100) as leaving:
        lease = await service.give("at_gate")
        await asyncio.to_thread(hung.wait, 20)
    assert service.reports[lease].outcome == "released"
    assert len(service.closed) == 1
    assert gate.left == 0
    end.set()
    go_on.set()
    await asyncio.wait(leaving._pollers)
    await asyncio.to_thread(leaving._heartbeats._thread.join)


def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "DRAIN_SECONDS", 0.05)
    monkeypatch.setattr(worker, "_FLUSH_SECONDS", 0.05)
    monkeypatch.setattr(worker, "_GOODBYE_SECONDS", 0.05)
    monkeypatch.setattr(heartbeat, "_JOIN_SECONDS", 0.05)


async def test_a_beat_that_is_refused_costs_no_other_lease(
    service: FakeService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """LEASE-07: it is found by halving, and its lease goes on without what was refused."""
    gate = Gate()
    bad = Progress(-1.0)
    real = service.heartbeat

    async def strict(body: Any) -> Any:
        if any(beat.progress is bad for beat in body.beats):
            raise InvalidArgument("progress.done is -1.0")
        return await real(body)

    @task(name="odd_progress")
    async def odd_progress(ctx: Context, payload: Any) -> None:
        ctx.pending_progress = bad
        gate.inside += 1
        await gate.open.wait()

    monkeypatch.setattr(service, "heartbeat", strict)
    async with Worker(service, slots=5), asyncio.timeout(20):
        leases = [await service.give(name, 1) for name in ("at_gate", "odd_progress", "at_gate", "at_gate")]
        for lease in leases:
            await service.beaten_for(lease, 2)
        gate.open.set()
        reports = [await service.reported(lease) for lease in leases]
    assert [(report.outcome, report.progress) for report in reports] == [("succeeded", None)] * 4
    assert [record.levelname for record in caplog.records] == ["ERROR"]
