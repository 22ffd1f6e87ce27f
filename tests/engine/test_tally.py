"""What a server counts of its batches (OBS-10 to OBS-14), on every store and a clock that only the test moves."""

from __future__ import annotations

import logging

import pytest

from perdure.core import turn_commands as t
from perdure.core.figures import OTHER, Distribution, Histogram, Names
from perdure.core.model import Failure, RetryPolicy, pack
from perdure.engine.tally import Tally
from tests.clock import SteppedClock
from tests.engine.drive import Drive
from tests.engine.runs import DONE, Flows, activity, payload, timer

T, QUEUE = ("default", "t"), ("default", "default")
FLOW, WORK = ("default", "flow"), ("default", "work")


def waits(histogram: Histogram, labels: tuple[str, ...]) -> tuple[int, float]:
    row = histogram.rows[labels]
    return row.count, row.sum


async def test_jobs_are_counted_from_their_beginning_to_their_end(drive: Drive, clock: SteppedClock) -> None:
    """OBS-13: schedule-to-start is the time from ready to the worker; OBS-14: how often a job was handed out."""
    tally = drive.engine.tally
    for _ in range(3):
        await drive.enqueue()
    clock.advance(2)
    for task in await drive.poll():
        await drive.beat(task)
        clock.advance(1)
        await drive.succeed(task)
    assert tally.jobs_enqueued == {T: 3}
    assert tally.jobs_completed == {(*T, "SUCCEEDED"): 3}
    assert tally.dispatched == {(*QUEUE, "job"): 3}
    assert tally.matched == {}
    assert waits(tally.schedule_to_start, QUEUE) == (3, 6.0)
    assert waits(tally.job_seconds, T) == (3, 1.0 + 2.0 + 3.0)
    assert tally.receive_count.rows[T].counts[0] == 3
    assert tally.transactions.rows[()].count > 0


async def test_a_delay_is_no_wait_for_a_worker(drive: Drive, clock: SteppedClock) -> None:
    await drive.enqueue(delay=60)
    await drive.elapse(clock, 61)
    clock.advance(3)
    await drive.lease()
    count, seconds = waits(drive.engine.tally.schedule_to_start, QUEUE)
    assert count == 1
    assert 3 <= seconds <= 8
    assert waits(drive.engine.tally.alarm_lag, ())[0] == 1


async def test_failures_and_retries(drive: Drive, clock: SteppedClock) -> None:
    """OBS-14, OBS-19: an attempt that another one follows is a retry, the last one is an end."""
    tally = drive.engine.tally
    await drive.enqueue(retry=RetryPolicy(max_attempts=2, base=1, cap=1))
    await drive.fail(await drive.lease())
    await drive.elapse(clock, 2)
    await drive.fail(await drive.lease())
    assert tally.job_retries == {T: 1}
    assert tally.jobs_completed == {(*T, "FAILED"): 1}
    assert tally.duplicate_starts == {}
    assert tally.receive_count.rows[T].counts[:2] == [0, 1]


async def test_a_lost_lease_is_a_duplicate_start(drive: Drive, clock: SteppedClock) -> None:
    """OBS-13, OBS-14, FAIL-31: its worker may still be at it when the next one begins."""
    tally = drive.engine.tally
    await drive.enqueue(retry=RetryPolicy(max_attempts=2, base=0.001, cap=0.001))
    await drive.beat(await drive.lease())
    await drive.elapse(clock, 40)
    assert tally.leases_lost == {(*QUEUE, "received"): 1}
    assert tally.duplicate_starts == tally.job_retries == {T: 1}
    await drive.beat(await drive.lease())
    await drive.elapse(clock, 40)
    assert tally.leases_lost == {(*QUEUE, "received"): 2}
    assert tally.duplicate_starts == {T: 1}
    assert tally.jobs_completed == {(*T, "FAILED"): 1}


async def test_an_undelivered_lease_is_told_apart(drive: Drive, clock: SteppedClock) -> None:
    await drive.lease_new()
    await drive.elapse(clock, 20)
    assert drive.engine.tally.leases_lost == {(*QUEUE, "undelivered"): 1}
    assert drive.engine.tally.job_retries == {}


async def test_a_run_is_counted_with_its_turns_and_what_it_waits_for(drive: Drive, clock: SteppedClock) -> None:
    """OBS-10, OBS-11, OBS-12."""
    tally, flows = drive.engine.tally, Flows(drive)
    await flows.start()
    clock.advance(2)
    await (await flows.turn()).append(activity("a"), timer("t", 30))
    (work,) = await drive.poll()
    await drive.fail(work)
    await drive.elapse(clock, 34)
    (work,) = await drive.poll()
    await drive.complete(work, "succeeded", result=pack(payload("5")))
    await (await flows.turn()).append(DONE)
    assert tally.workflows_started == {FLOW: 1}
    assert tally.workflows_completed == {(*FLOW, "SUCCEEDED"): 1}
    assert tally.activity_retries == {WORK: 1}
    assert tally.activities_completed == {(*WORK, "SUCCEEDED"): 1}
    assert tally.turn_wait.rows[QUEUE].count == 2
    assert tally.turn_wait.rows[QUEUE].sum >= 2
    assert tally.activity_wait.rows[WORK].count == 2
    assert tally.history_events.rows[FLOW].count == 2
    count, seconds = waits(tally.timer_lag, ("default",))
    assert count == 1
    assert 0 <= seconds <= 4
    assert tally.dispatched == {(*QUEUE, "turn"): 2, (*QUEUE, "activity"): 2}


async def test_why_turns_fail_is_counted_in_few_words(drive: Drive, clock: SteppedClock) -> None:
    """OBS-14, OBS-15, OBS-16: nondeterminism and time-outs have their own; whatever else a worker says is one of the
    others."""
    flows = Flows(drive)
    await flows.start()
    for code in ("non_determinism", "deadlock", "as_you_like"):
        task = (await flows.turn()).task
        await drive.complete(task, "failed", failure=pack(Failure(message="no", code=code)))
        await drive.elapse(clock, 10)
    await drive.beat((await flows.turn()).task)
    await drive.elapse(clock, 40)
    assert drive.engine.tally.turn_failures == {
        (*FLOW, "nondeterminism"): 1, (*FLOW, "deadlock"): 1, (*FLOW, OTHER): 1, (*FLOW, "timeout"): 1,
    }  # fmt: skip


async def test_ends_of_runs_by_how_they_ended(drive: Drive) -> None:
    flows = Flows(drive)
    for workflow_id, command in (("a", t.FailWorkflow(failure=Failure(message="no"))), ("b", t.CancelWorkflow())):
        await flows.start(workflow_id)
        await (await flows.turn()).append(command)
    ends = drive.engine.tally.workflows_completed
    assert ends == {(*FLOW, "FAILED"): 1, (*FLOW, "CANCELED"): 1}


async def test_what_another_server_handed_out_has_no_type_here(drive: Drive) -> None:
    task = await drive.lease_new()
    drive.engine.tally._begun.clear()
    await drive.succeed(task)
    assert drive.engine.tally.jobs_completed == {(OTHER, OTHER, "SUCCEEDED"): 1}


async def test_a_fault_in_counting_costs_no_batch(
    drive: Drive, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("cannot count")

    monkeypatch.setattr(Tally, "_settled", broken)
    with caplog.at_level(logging.ERROR):
        await drive.succeed(await drive.lease_new())
    assert "could not be counted" in caplog.text


async def test_recent_figures_look_five_minutes_back(drive: Drive, clock: SteppedClock) -> None:
    tally = drive.engine.tally
    for minute in range(10):
        await drive.succeed(await drive.lease_new())
        clock.advance(60)
        assert len(tally._epochs) == min(minute + 1, 5)
    await drive.lease_new()
    before = tally.recent()
    since = tally.dispatched - before.dispatched
    assert since == {(*QUEUE, "job"): 5}
    assert tally.schedule_to_start.rows[QUEUE].since(before.schedule_to_start.rows[QUEUE]).count == 5


def test_names_are_bounded_and_keep_what_they_have() -> None:
    """OBS-24: a caller who makes up names costs a bounded number of series."""
    names = Names(most=3, namespaces=2)
    assert [names.labels(("a", str(n))) for n in range(4)] == [("a", "0"), ("a", "1"), ("a", "2"), ("a", OTHER)]
    assert names.labels(("b", "0")) == ("b", OTHER)
    assert names.labels(("c", "0")) == (OTHER, OTHER)
    assert names.labels(("a", "1")) == ("a", "1")


def test_quantiles_lie_within_their_bucket() -> None:
    histogram = Histogram((1.0, 2.0, 4.0))
    histogram.add((), [0.5] * 50 + [1.5] * 49 + [9.0])
    row = histogram.rows[()]
    assert row.quantile(0.25) == 0.5
    assert row.quantile(0.5) == 1.0
    assert row.quantile(0.745) == 1.5
    assert row.quantile(1.0) == 4.0
    assert Distribution((1.0,)).quantile(0.5) is None
    assert row.since(row.since(None)).count == 0
