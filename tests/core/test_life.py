"""Random lives of a task through decide.py: what must hold after every decision, and that all moves are taken."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from perdure.core import commands, decide, states
from perdure.core.describe import attempts_begun, waiting_for
from perdure.core.effects import Close, Effect
from perdure.core.errors import IllegalMove, InvalidArgument, LeaseLost
from perdure.core.model import SECOND, Lease, RetryPolicy, Task, Timeouts
from perdure.core.states import MOVES, Cause, State, is_closed
from tests.clock import START
from tests.core.tasks import after, attempts, completion, enqueue_command, new_mint, new_rounds

RUNS_ONLY = {
    Cause.WAIT, Cause.GO_ON, Cause.CONTINUE, Cause.WAKE, Cause.ANSWER, Cause.REFUSE, Cause.TERMINATE, Cause.TIME_OUT,
}  # fmt: skip
"""Causes that only runs and their children know: test_run_life.py."""

OWNED = (
    "id", "namespace", "type", "lane", "created_at", "app", "kind", "queue", "payload", "headers", "idempotency_key",
    "retry_policy", "timeouts", "max_attempts", "identity", "retry_of", "priority", "fairness_key", "run_at",
    "expires_at", "deadline", "lease_length",
)  # fmt: skip
"""What nothing changes after the enqueue."""

seldom = st.sampled_from([None, None, None, 5.0])
often = st.sampled_from([None, 20.0, 60.0])
maybe = st.none() | st.sampled_from([0.5, 5.0, 20.0, 60.0])
limits_given = st.builds(
    Timeouts, schedule_to_start=seldom, start_to_close=maybe, schedule_to_close=often, heartbeat=maybe, lease=maybe
)
limits = limits_given | limits_given | st.none()
policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 4),
    base=st.sampled_from([0.001, 1.0, 30.0]),
    cap=st.sampled_from([30.0, 60.0]),
)


def counting_deadlines(task: Task, hold_until: int) -> list[int]:
    """Written apart from policy.wake_at: when something must happen to an open task by itself."""
    found: list[int | None] = [task.deadline]
    if task.state == State.LEASED:
        found += [task.attempt_deadline, task.cancel_deadline]
        for silence in (task.lease_until, task.heartbeat_deadline):
            found.append(None if silence is None else max(silence, hold_until))
    if task.state == State.RETRY_WAIT or (task.state == State.ENQUEUED and task.place is None):
        found.append(task.ready_at)
    if task.state == State.ENQUEUED and task.started_at is None:
        found.append(task.expires_at)
    return [moment for moment in found if moment is not None]


class TaskLife(RuleBasedStateMachine):
    """One task after another, their worker, and a clock that also goes back."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.mint = new_mint()
        self.rounds = new_rounds()
        self.hold_until = 0

    @initialize(retry=policies, limits=limits, delay=st.sampled_from([0.0, 0.0, 10.0]))
    def enqueue(self, retry: RetryPolicy, limits: Timeouts | None, delay: float) -> None:
        command = enqueue_command(retry=retry, timeouts=limits, delay=delay, task_id=self.mint.task_id(self.now))
        draft = copy(command.draft)
        self.task = decide.enqueue(command, self.now, self.rounds).task
        assert command.draft == draft
        self.policy = retry
        self.old_leases: list[Lease] = []
        self.done: tuple[commands.Complete, State] | None = None
        self.lease_numbers: set[int] = set()
        self.check_shape(self.task)

    # time ------------------------------------------------------------------------------------------------------
    @rule(seconds=st.sampled_from([-3600.0, -5.0, 0.0, 0.4, 3.0, 9.0, 25.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)

    @precondition(lambda self: self.task.wake_at is not None)
    @rule()
    def alarm_comes(self) -> None:
        self.now = max(self.now, self.task.wake_at or 0)

    @precondition(lambda self: is_closed(self.task.state))
    @rule(data=st.data())
    def next_task(self, data: st.DataObject) -> None:
        self.enqueue(data.draw(policies), data.draw(limits), data.draw(st.sampled_from([0.0, 0.0, 10.0])))

    # what may happen -------------------------------------------------------------------------------------------
    @precondition(lambda self: not is_closed(self.task.state))
    @rule(hold=st.sampled_from([0, 0, 0, 8]))
    def ring(self, hold: int) -> None:
        if hold:
            self.hold_until = self.now + hold * SECOND
        before = self.task
        effects = self.decide(lambda: decide.ring(self.task, self.now, self.mint, self.rounds, self.hold_until))
        now = max(self.now, before.updated_at)
        if now < self.hold_until:
            assert not [record for record in attempts(effects) if record.outcome in ("lost", "undelivered")]
        if self.task.state == before.state:
            assert self.task.wake_at is None or self.task.wake_at > now, "it would ring for ever"

    @precondition(lambda self: self.task.deadline is not None and not is_closed(self.task.state))
    @rule()
    def ring_late(self) -> None:
        """Everything about the task is over when its alarm rings."""
        self.now = max(self.now, self.task.deadline or 0)
        before = self.task
        self.ring(0)
        assert is_closed(self.task.state)
        assert self.task.attempt == before.attempt + (before.state == State.LEASED), "what ran was an attempt"

    @precondition(lambda self: self.task.state == State.ENQUEUED and self.task.place is not None)
    @rule(session=st.integers(1, 3))
    def claim(self, session: int) -> None:
        number = self.task.lease_number
        self.decide(lambda: [decide.claim(self.task, session, f"w{session}", 1, self.now, self.mint.lease_bits())])
        assert self.task.lease_number == number + 1
        assert self.task.session == session and not self.task.received

    @precondition(lambda self: self.task.state != State.ENQUEUED)
    @rule()
    def claim_of_another_state_is_illegal(self) -> None:
        """LEASE-08."""
        self.refused(IllegalMove, lambda: decide.claim(self.task, 1, "w1", 1, self.now, self.mint.lease_bits()))

    @precondition(lambda self: self.task.state == State.LEASED)
    @rule(progress=st.none() | st.just(b"progress"))
    def beat(self, progress: bytes | None) -> None:
        before = copy(self.task)
        command = commands.Heartbeat(lease=self.task.lease, progress=progress)
        task = decide.beat(self.task, command, self.now)
        assert self.task == before
        self.check_step(before, task)
        assert task.received and task.lost_deliveries == 0 and task.wake_at == before.wake_at
        self.task = task

    @precondition(lambda self: self.task.state == State.LEASED)
    @rule(
        outcome=st.sampled_from(["succeeded", "failed", "failed", "released"]),
        retryable=st.sampled_from([True, True, True, False]),
        retry_after=st.none() | st.integers(0, 40 * SECOND),
    )
    def complete(self, outcome: str, retryable: bool, retry_after: int | None) -> None:
        before = self.task
        command = completion(before, outcome, retryable=retryable, retry_after=retry_after, result=b"result")
        effects, state = self.complete_with(command)
        assert self.done is not None and self.done[1] == state
        if outcome == "succeeded":
            assert (state, self.task.result) == (State.SUCCEEDED, b"result"), "CANC-08: also after a cancel request"
        if outcome == "released":
            assert self.task.attempt == before.attempt, "a release spends no attempt"
        if state == State.RETRY_WAIT:
            self.check_backoff(retry_after)
        assert len(attempts(effects)) == (not is_closed(state))

    @precondition(lambda self: self.task.state == State.ENQUEUED and self.task.place is not None)
    @rule()
    def run_and_fail(self) -> None:
        """The way to most other states, made shorter."""
        self.claim(1)
        self.beat(None)
        self.complete("failed", True, None)

    @precondition(lambda self: self.task.state == State.LEASED)
    @rule(number=st.sampled_from([-1, 0, 1]), bits=st.sampled_from([1, -1]), outcome=st.sampled_from(commands.OUTCOMES))
    def complete_with_a_forged_lease(self, number: int, bits: int, outcome: str) -> None:
        """LEASE-05: the lease is compared whole."""
        lease = Lease(self.task.id, self.task.lease_number + number, self.task.lease_bits ^ bits)
        command = commands.Complete(lease=lease, outcome=outcome)
        self.refused(LeaseLost, lambda: self.decide_completion(command))

    @precondition(lambda self: self.task.state == State.LEASED)
    @rule()
    def yield_to_a_cancel(self) -> None:
        command = completion(self.task, "canceled")
        if self.task.cancel_requested_at is None:
            self.refused(InvalidArgument, lambda: self.decide_completion(command))
        else:
            assert self.complete_with(command)[1] == State.CANCELED

    def complete_with(self, command: commands.Complete) -> tuple[list[Effect], State]:
        answer: list[State] = []

        def decided() -> list[Effect]:
            effects, state = self.decide_completion(command)
            answer.append(state)
            return effects

        effects = self.decide(decided)
        assert answer == [self.task.state]
        self.done = (command, answer[0])
        return effects, answer[0]

    def decide_completion(self, command: commands.Complete) -> tuple[list[Effect], State]:
        return decide.complete(self.task, command, self.now, self.mint, self.rounds)

    @precondition(lambda self: self.done is not None)
    @rule()
    def complete_once_more(self) -> None:
        """The answer got lost and the worker asks again: the recorded one, and nothing happens."""
        assert self.done is not None
        command, answer = self.done
        before = copy(self.task)
        assert self.decide_completion(command) == ([], answer)
        assert self.task == before

    @precondition(lambda self: self.old_leases)
    @rule(data=st.data(), outcome=st.sampled_from(commands.OUTCOMES), bits=st.sampled_from([0, 1]))
    def complete_with_a_stale_lease(self, data: st.DataObject, outcome: str, bits: int) -> None:
        """LEASE-05: refused by the token, and nothing changes."""
        old = data.draw(st.sampled_from(self.old_leases))
        lease = Lease(old.task_id, old.number, old.bits ^ bits)
        if self.done is not None and lease == self.done[0].lease:
            return
        command = commands.Complete(lease=lease, outcome=outcome)
        self.refused(LeaseLost, lambda: self.decide_completion(command))

    @precondition(lambda self: self.task.lease_number > 0)
    @rule(reason=st.sampled_from(["", "not needed"]))
    def cancel(self, reason: str) -> None:
        before = copy(self.task)
        command = commands.Cancel(namespace="default", task_id=self.task.id, reason=reason)
        if is_closed(before.state) or before.cancel_requested_at is not None:
            assert decide.cancel(self.task, command, self.now) == [], "CANC-12"
            assert self.task == before
            return
        self.decide(lambda: decide.cancel(self.task, command, self.now))
        assert self.task.cancel_reason == (reason or None)
        if before.state == State.LEASED:
            assert self.task.cancel_deadline == self.task.updated_at + 30 * SECOND, "CANC-03"
        else:
            assert self.task.state == State.CANCELED, "CANC-01"

    @rule()
    def retry(self) -> None:
        if self.task.state == State.RETRY_WAIT:
            self.decide(lambda: decide.retry(self.task, self.now, self.rounds))
            assert self.task.place is not None
        else:
            self.refused(IllegalMove, lambda: decide.retry(self.task, self.now, self.rounds))

    @precondition(lambda self: self.task.state == State.LEASED)
    @rule()
    def abandon(self) -> None:
        before = self.task
        self.decide(lambda: decide.abandon(self.task, "it died", self.now, self.mint, self.rounds))
        spent = before.received or (before.cancel_requested_at is None and before.lost_deliveries >= 2)
        assert self.task.attempt == before.attempt + spent

    @precondition(lambda self: is_closed(self.task.state))
    @rule()
    def repeat(self) -> None:
        """RETRY-08: a closed task stays closed; a new one is linked to it."""
        if self.task.state == State.SUCCEEDED:
            self.refused(IllegalMove, lambda: decide.repeat(self.task))
            return
        before = copy(self.task)
        command = decide.repeat(self.task)
        assert self.task == before
        command.task_id = self.mint.task_id(self.now)
        new = decide.enqueue(command, self.now, self.rounds).task
        assert (new.retry_of, new.attempt, new.lease_number, new.state) == (before.id, 0, 0, State.ENQUEUED)
        assert (new.payload, new.headers, new.checkpoint) == (before.payload, before.headers, before.checkpoint)
        assert (new.lease_length, new.max_attempts) == (before.lease_length, before.max_attempts)
        self.check_shape(new)

    # what must hold --------------------------------------------------------------------------------------------
    def decide(self, decision: Callable[[], list[Any]]) -> list[Effect]:
        """Make a decision about the task and keep what it says."""
        before = copy(self.task)
        effects = decision()
        assert self.task == before, "a decision changed its input"
        task = after(effects)
        self.check_step(before, task)
        assert isinstance(effects[-1], Close) == is_closed(task.state)
        for record in attempts(effects):
            assert record.lease_number not in self.lease_numbers, "an attempt is recorded once"
            self.lease_numbers.add(record.lease_number)
            assert (record.task_id, record.lease_number) == (before.id, before.lease_number)
            assert record.started_at <= record.finished_at
        if before.state == State.LEASED and task.state != State.LEASED:
            self.old_leases.append(before.lease)
        self.task = task
        return effects

    def refused(self, error: type[Exception], decision: Callable[[], object]) -> None:
        before = copy(self.task)
        with pytest.raises(error):
            decision()
        assert self.task == before, "a refused command changed something"

    def check_step(self, before: Task, task: Task) -> None:
        for name in OWNED:
            assert getattr(task, name) == getattr(before, name), name
        assert not is_closed(before.state)
        assert before.attempt <= task.attempt <= task.max_attempts
        assert before.lease_number <= task.lease_number <= before.lease_number + 1
        assert task.updated_at == max(self.now, before.updated_at), "a row's time never goes back"
        assert before.started_at is None or task.started_at == before.started_at
        self.check_shape(task)

    def check_shape(self, task: Task) -> None:
        if is_closed(task.state):
            assert (task.closed_at, task.place, task.wake_at) == (task.updated_at, None, None)
            assert (task.failure is None) == (task.state == State.SUCCEEDED) or task.state == State.CANCELED
            assert waiting_for(task) == ""
            return
        assert task.closed_at is None and task.attempt < task.max_attempts
        deadlines = counting_deadlines(task, self.hold_until)
        assert (task.wake_at is None) == (not deadlines)
        assert task.wake_at is None or task.wake_at <= min(deadlines), "a deadline would be missed"
        leased = task.state == State.LEASED
        assert leased == (task.session is not None) == (task.lease_until is not None)
        assert leased or (task.place is None) == (task.ready_at is not None)
        assert task.place is None or task.state == State.ENQUEUED
        assert leased or task.cancel_requested_at is None
        assert waiting_for(task), "every wait has a reason"
        assert attempts_begun(task) <= task.max_attempts

    def check_backoff(self, retry_after: int | None) -> None:
        assert self.task.ready_at is not None
        wait = self.task.ready_at - self.task.updated_at
        bound = min(self.policy.cap, self.policy.base * self.policy.factor ** (self.task.attempt - 1))
        assert wait == retry_after if retry_after is not None else 0 <= wait <= bound * SECOND, "full jitter"
        assert self.task.deadline is None or self.task.ready_at < self.task.deadline, "no attempt would fit"


def test_every_move_is_taken_by_a_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """TASK-02: the table has no move that the rules never make, and all lives above really reached all of it."""
    taken: set[tuple[State, Cause]] = set()

    def recording(state: State, cause: Cause) -> State:
        to = states.move(state, cause)
        taken.add((state, cause))
        return to

    monkeypatch.setattr(decide, "move", recording)
    run_state_machine_as_test(
        TaskLife,
        settings=settings(
            derandomize=True, database=None, max_examples=800, stateful_step_count=60, deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
    missing = {(state, cause) for state, cause in MOVES if state != State.WAITING and cause not in RUNS_ONLY} - taken
    assert not missing, sorted(f"{state.name} {cause.name}" for state, cause in missing)
