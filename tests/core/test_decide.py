"""Single decisions, each at its bounds. Whole lives are in test_life.py."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core import commands, decide
from perdure.core.errors import IllegalMove, InvalidArgument, LeaseLost
from perdure.core.model import SECOND, Failure, Lease, RetryPolicy, Task, Timeouts, unpack
from perdure.core.policy import backoff
from perdure.core.states import State
from tests.clock import START
from tests.core.tasks import (
    after,
    attempts,
    claimed,
    complete,
    completion,
    new_mint,
    new_rounds,
    new_task,
    received,
    ring,
    running,
)

LATER = START + 100 * SECOND


def cancel(task: Task, now: int = START) -> Task:
    return after(decide.cancel(task, commands.Cancel(namespace="default", task_id=task.id, reason="why"), now))


def abandon(task: Task, now: int = START) -> Task:
    return after(decide.abandon(task, "it died", now, new_mint(), new_rounds()))


def failure_of(task: Task) -> Failure:
    assert task.failure is not None
    failure: Failure = unpack(task.failure, Failure)
    return failure


# enqueue -------------------------------------------------------------------------------------------------------------
def test_a_delay_counts_from_now_and_its_time_outs_from_its_end() -> None:
    """TMO-02: a delayed task does not grow stale while it is not due."""
    task = new_task(delay=60.0, timeouts=Timeouts(schedule_to_start=5.0, schedule_to_close=9.0))
    assert (task.place, task.ready_at, task.wake_at) == (None, START + 60 * SECOND, START + 60 * SECOND)
    assert (task.expires_at, task.deadline) == (START + 65 * SECOND, START + 69 * SECOND)


@pytest.mark.parametrize("run_at", [0, START - SECOND, START])
def test_a_start_in_the_past_is_now(run_at: int) -> None:
    task = new_task(run_at=run_at)
    assert task.place == 1 and task.ready_at is None and task.wake_at is None


def test_a_delayed_task_gets_its_place_when_its_alarm_rings() -> None:
    task = new_task(run_at=LATER)
    assert task.place is None
    task = ring(task, LATER)
    assert task.state == State.ENQUEUED and task.place is not None and task.ready_at is None


# retries -------------------------------------------------------------------------------------------------------------
@given(st.integers(1, 10_000), st.sampled_from([1.0, 2.0, 100.0]), st.sampled_from([0.001, 1.0, 86_400.0]))
def test_b046_back_off_stays_within_its_bounds(spent: int, factor: float, base: float) -> None:
    """RETRY-01."""
    policy = RetryPolicy(base=base, factor=factor, cap=31 * 86_400.0)
    wait = backoff(policy, spent, new_mint(spent))
    assert 0 <= wait <= policy.cap * SECOND
    if spent == 1:
        assert wait <= base * SECOND


def test_a_mass_failure_spreads() -> None:
    """RETRY-04: 10,000 attempts that fail at once come back evenly over the whole bound."""
    mint, policy = new_mint(), RetryPolicy(base=10.0)
    tenths = Counter(backoff(policy, 1, mint) // SECOND for _ in range(10_000))
    assert set(tenths) == set(range(10))
    assert all(800 < count < 1_200 for count in tenths.values())


def test_attempts_are_spent_until_none_is_left() -> None:
    """RETRY-06: then the task rests in FAILED with its final error."""
    task, now = new_task(retry=RetryPolicy(max_attempts=3)), START
    for spent in (1, 2):
        task = complete(received(claimed(task, now), now), "failed", now)
        assert (task.state, task.attempt) == (State.RETRY_WAIT, spent)
        now = task.ready_at or now
        task = ring(task, now)
    task = complete(received(claimed(task, now), now), "failed", now)
    assert (task.state, task.attempt, failure_of(task).message) == (State.FAILED, 3, "boom")


@pytest.mark.parametrize("fields", [{"retryable": False}, {"failure_type": "BadPayload"}])
def test_a_fatal_error_ends_the_task_at_once(fields: dict[str, Any]) -> None:
    """RETRY-03."""
    task = running(retry=RetryPolicy(max_attempts=5, fatal_types=("BadPayload",)))
    task = complete(task, "failed", **fields)
    assert (task.state, task.attempt) == (State.FAILED, 1)


def test_the_worker_may_say_when() -> None:
    task = complete(running(), "failed", retry_after=90 * SECOND)
    assert (task.ready_at, task.wake_at) == (START + 90 * SECOND, START + 90 * SECOND)


def test_no_attempt_follows_that_would_begin_after_the_end() -> None:
    """TMO-04: and the failure says both what is over and what went wrong."""
    task = running(timeouts=Timeouts(schedule_to_close=10.0))
    task = complete(task, "failed", retry_after=10 * SECOND)
    failure = failure_of(task)
    assert (task.state, failure.code) == (State.FAILED, "schedule_to_close_timeout")
    assert failure.cause is not None and failure.cause.message == "boom"


# cancel --------------------------------------------------------------------------------------------------------------
def test_a_waiting_task_is_canceled_at_once() -> None:
    """CANC-01."""
    backing_off = complete(running(), "failed")
    for task in (new_task(), new_task(delay=5.0), backing_off):
        assert cancel(task).state == State.CANCELED


def test_a_running_task_has_its_grace() -> None:
    """CANC-02, CANC-03."""
    task = cancel(running(now=START, timeouts=Timeouts(lease=3600)))
    assert (task.state, task.cancel_reason) == (State.LEASED, "why")
    grace = START + 30 * SECOND
    assert task.wake_at is not None and task.wake_at <= grace
    assert ring(task, grace - 1).state == State.LEASED
    assert ring(task, grace).state == State.CANCELED


def test_a_result_within_the_grace_wins() -> None:
    """CANC-08."""
    assert complete(cancel(running()), "succeeded", result=b"r").state == State.SUCCEEDED


@pytest.mark.parametrize("outcome", ["canceled", "failed", "released"])
def test_any_other_end_within_the_grace_is_canceled(outcome: str) -> None:
    assert complete(cancel(running()), outcome).state == State.CANCELED


@pytest.mark.parametrize("is_received", [True, False])
def test_a_worker_that_dies_within_the_grace_leaves_it_canceled(is_received: bool) -> None:
    task = claimed(new_task())
    if is_received:
        task = received(task)
    assert abandon(cancel(task)).state == State.CANCELED


def test_nobody_cancels_but_who_was_asked_to() -> None:
    with pytest.raises(InvalidArgument):
        complete(running(), "canceled")


def test_an_unknown_outcome_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(InvalidArgument) as refused:
        complete(running(), "exploded")
    assert refused.value.limit is not None and "released" in refused.value.limit


# leases --------------------------------------------------------------------------------------------------------------
def test_receipt_turns_a_delivery_lease_into_a_whole_one() -> None:
    task = claimed(new_task())
    assert (task.lease_until, task.wake_at) == (START + 10 * SECOND, START + 10 * SECOND)
    assert received(task, START + SECOND).lease_until == START + 31 * SECOND


def test_a_lease_shorter_than_a_delivery_stays_short() -> None:
    assert claimed(new_task(timeouts=Timeouts(lease=2.0))).lease_until == START + 2 * SECOND


def test_two_undelivered_leases_in_a_row_are_free() -> None:
    """LEASE-04."""
    task = new_task()
    for lost in (1, 2):
        task = abandon(claimed(task))
        assert (task.state, task.attempt, task.lost_deliveries) == (State.ENQUEUED, 0, lost)
    task = abandon(claimed(task))
    assert (task.state, task.attempt, task.lost_deliveries) == (State.RETRY_WAIT, 1, 3)


def test_a_completion_is_a_receipt_and_ends_the_row_of_undelivered_leases() -> None:
    task = new_task(retry=RetryPolicy(max_attempts=100))
    for _ in range(5):
        task = abandon(claimed(abandon(claimed(task))))
        task = complete(claimed(task), "released")
    assert (task.attempt, task.lost_deliveries) == (0, 0)


def test_a_release_never_spends_an_attempt() -> None:
    task = new_task(retry=RetryPolicy(max_attempts=1))
    for number in range(1, 50):
        effects, state = decide.complete(
            claimed(task), completion(claimed(task), "released"), START, new_mint(), new_rounds()
        )
        task = after(effects)
        [record] = attempts(effects)
        assert (state, task.attempt, record.outcome, record.lease_number) == (State.ENQUEUED, 0, "released", number)


def test_expiry_is_an_event_and_not_a_time() -> None:
    """A late heartbeat or completion is accepted until the expiry was processed."""
    task = running()
    assert received(task, LATER).lease_until == LATER + 30 * SECOND
    assert complete(task, "succeeded", LATER).state == State.SUCCEEDED


def test_an_alarm_that_a_heartbeat_outran_is_set_anew() -> None:
    """Heartbeats write no indexed column, so the alarm of a living lease rings and finds nothing to do."""
    task = received(running(), START + 29 * SECOND)
    assert task.wake_at == START + 10 * SECOND
    assert ring(task, START + 30 * SECOND).wake_at == START + 59 * SECOND


def test_a_heartbeat_time_out_counts_from_the_last_sign_of_life() -> None:
    """TMO-05."""
    task = running(timeouts=Timeouts(heartbeat=5.0, lease=60.0))
    task = received(task, START + 4 * SECOND)
    assert ring(task, START + 9 * SECOND - 1).state == State.LEASED
    lost = ring(task, START + 9 * SECOND)
    assert (lost.state, failure_of(lost).code) == (State.RETRY_WAIT, "heartbeat_timeout")


def test_start_to_close_ends_the_attempt_of_a_living_worker() -> None:
    task = running(timeouts=Timeouts(start_to_close=20.0))
    task = received(task, START + 19 * SECOND)
    lost = ring(task, START + 20 * SECOND)
    assert (lost.state, lost.attempt, failure_of(lost).code) == (State.RETRY_WAIT, 1, "start_to_close_timeout")


def test_the_answer_to_a_completion_lasts_until_the_next_one() -> None:
    first = running()
    waiting = complete(first, "failed")
    again = claimed(ring(waiting, waiting.ready_at or 0), LATER)
    assert decide.recorded(again, completion(first, "failed")) == State.RETRY_WAIT
    with pytest.raises(LeaseLost, match="leased again, to w1"):
        decide.recorded(again, commands.Complete(lease=Lease(first.id, 1, 12345), outcome="failed"))
    closed = complete(again, "succeeded", LATER)
    with pytest.raises(LeaseLost, match="the task is SUCCEEDED"):
        decide.recorded(closed, completion(first, "failed"))


# holding expiry back -------------------------------------------------------------------------------------------------
def test_a_hold_saves_the_silent_but_no_other_deadline_waits_for_it() -> None:
    """B008: after an outage the living must be heard before anyone is declared dead."""
    task = running(timeouts=Timeouts(start_to_close=33.0, heartbeat=5.0))
    hold = START + 40 * SECOND
    held = ring(task, START + 31 * SECOND, hold)
    assert (held.state, held.wake_at) == (State.LEASED, START + 33 * SECOND)
    assert ring(held, START + 33 * SECOND, hold).state == State.RETRY_WAIT


def test_after_the_hold_the_silent_are_lost() -> None:
    task = running()
    hold = START + 40 * SECOND
    held = ring(task, START + 31 * SECOND, hold)
    assert held.wake_at == hold
    assert ring(held, hold, hold).state == State.RETRY_WAIT


# expiry before the start ---------------------------------------------------------------------------------------------
def test_a_task_that_waited_too_long_expires() -> None:
    """TMO-02."""
    task = new_task(timeouts=Timeouts(schedule_to_start=5.0))
    assert ring(task, START + 5 * SECOND - 1).state == State.ENQUEUED
    expired = ring(task, START + 5 * SECOND)
    assert (expired.state, failure_of(expired).code) == (State.EXPIRED, "schedule_to_start_timeout")


def test_a_task_that_started_never_expires() -> None:
    """TMO-06: the guard ends with the first start; the cap on the whole does not."""
    task = complete(running(timeouts=Timeouts(schedule_to_start=5.0, schedule_to_close=90.0)), "released")
    assert ring(task, START + 6 * SECOND).state == State.ENQUEUED
    over = ring(task, START + 90 * SECOND)
    assert (over.state, failure_of(over).code) == (State.FAILED, "schedule_to_close_timeout")


def test_what_never_started_expires_also_when_the_whole_is_over() -> None:
    task = new_task(timeouts=Timeouts(schedule_to_close=9.0))
    assert ring(task, START + 9 * SECOND).state == State.EXPIRED


# retry by an operator ------------------------------------------------------------------------------------------------
def test_a_back_off_may_be_cut_short() -> None:
    task = complete(running(), "failed", retry_after=3600 * SECOND)
    task = after(decide.retry(task, START, new_rounds()))
    assert (task.state, task.ready_at, task.attempt) == (State.ENQUEUED, None, 1)


def test_a_success_is_not_repeated() -> None:
    """RETRY-08."""
    with pytest.raises(IllegalMove):
        decide.repeat(complete(running(), "succeeded"))


def test_asking_twice_for_a_repeat_makes_one_task() -> None:
    failed = complete(running(retry=RetryPolicy(max_attempts=1)), "failed")
    one, other = decide.repeat(failed), decide.repeat(failed)
    assert (one.key_kind, one.key) == (other.key_kind, other.key) == ("retry", failed.id.hex())
