"""Random lives of workflow runs through runs.py and turns.py: what must hold after every decision, and that all their
moves are taken. The machine is a small world of its own: rows, inboxes and histories as the effects say."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from perdure.core import commands as c
from perdure.core import decide, pages, runs, states, turns
from perdure.core import turn_commands as t
from perdure.core.effects import (
    Append,
    Change,
    Close,
    Delete,
    Effect,
    Insert,
    Lease,
    PassOn,
    Post,
    PutRun,
    Take,
)
from perdure.core.errors import LeaseLost, UnhandledMessages
from perdure.core.events import (
    Event,
    WorkflowExecutionCancelRequested,
    WorkflowExecutionSignaled,
    WorkflowExecutionStarted,
)
from perdure.core.model import SECOND, Failure, RetryPolicy, Task, pack
from perdure.core.run import Message, Run, UpdateRequest
from perdure.core.states import Cause, Kind, State, is_closed
from tests.clock import START
from tests.core.tasks import new_mint, new_rounds
from tests.core.test_life import RUNS_ONLY


class RunLife(RuleBasedStateMachine):
    """One run after another, its children, its worker, and others that signal, cancel and terminate it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.mint = new_mint()
        self.rounds = new_rounds()
        self.rounds.learn("default\x1fdefault\x1fw", 0, 0)
        self.rounds.learn("default\x1fdefault\x1ft", 0, 0)
        self.rows: dict[bytes, Task] = {}
        self.closed: dict[bytes, Task] = {}
        self.runs: dict[bytes, Run] = {}
        self.inboxes: dict[bytes, list[Message]] = {}
        self.histories: dict[bytes, list[Event]] = {}
        self.key = b""
        self.after = 0
        self.stale: list[c.Append] = []
        self.signals = 0

    # the world ---------------------------------------------------------------------------------------------------
    def apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Insert(task):
                    assert task.id not in self.rows
                    self.rows[task.id] = task
                case Lease(task) | Change(task):
                    assert task.id in self.rows
                    self.rows[task.id] = task
                case Close(task) | Delete(task):
                    del self.rows[task.id]
                    if isinstance(effect, Close):
                        self.closed[task.id] = task
                case PutRun(run):
                    self.runs[run.id] = run
                case Append(page):
                    history = self.histories.setdefault(page.run_id, [])
                    assert page.first == len(history) + 1, "event ids have no gaps"
                    history += pages.unpack(page.data)
                    assert [event.time for event in history] == sorted(event.time for event in history)
                case Post(message):
                    inbox = self.inboxes.setdefault(message.run_id, [])
                    assert not inbox or message.seq == inbox[-1].seq + 1
                    inbox.append(message)
                case Take(run_id, seq):
                    self.inboxes[run_id] = [m for m in self.inboxes.get(run_id, []) if m.seq > seq]
                case PassOn(old, new):
                    assert old.task_id == self.key
                    self.key = new.task_id
        for effect in effects:
            if isinstance(effect, (Close, Delete)) and not (isinstance(effect, Close) and effect.continued):
                parent = self.rows.get(effect.task.parent_run_id or b"")
                if parent is not None:
                    child_run = self.runs.get(effect.task.id)
                    self.apply(runs.ended(parent, self.runs[parent.id], effect.task, child_run, self.now, self.rounds))
        self.check()

    def check(self) -> None:
        for row in self.rows.values():
            if row.kind != Kind.WORKFLOW:
                continue
            run = self.runs[row.id]
            children = [child for child in self.rows.values() if child.parent_run_id == row.id]
            assert run.children == len(children), "parent and child agree"
            assert run.event_count == len(self.histories[row.id])
            inbox = self.inboxes.get(row.id, [])
            assert [m.seq for m in inbox] == list(range(run.inbox_taken + 1, run.inbox_count + 1)), "none lost"
            if row.state == State.WAITING:
                assert not inbox, "a run that has messages is ready for its turn"
            assert (row.state == State.LEASED) == (run.turn_prepared_at is not None)
            assert row.place is None or row.state == State.ENQUEUED
            reason = row.place is not None or row.wake_at is not None or row.state == State.WAITING or run.paused
            assert reason, "what does not run has a place, an alarm, or waits"
        for run_id, closed in self.closed.items():
            if closed.kind == Kind.WORKFLOW:
                assert not self.inboxes.get(run_id), "a closed run keeps no messages"

    @property
    def task(self) -> Task:
        return self.rows.get(self.key) or self.closed[self.key]

    @property
    def run(self) -> Run:
        return self.runs[self.key]

    @property
    def turn(self) -> bool:
        return self.task.state == State.LEASED

    @initialize(retry=st.booleans(), timeout=st.sampled_from([None, 50.0]))
    def start(self, retry: bool, timeout: float | None) -> None:
        policy = RetryPolicy(max_attempts=3) if retry else None
        self.key = self.mint.task_id(self.now)
        draft = Task(
            b"", "default", "flow", State.ENQUEUED, "default\x1fdefault\x1ft", 0, 0, kind=Kind.WORKFLOW,
            retry_policy=pack(policy) if policy else None,
        )  # fmt: skip
        event = WorkflowExecutionStarted(
            workflow_type="flow", workflow_id="wf", task_queue="default", run_timeout=timeout, retry=policy
        )
        begun = c.Start(run=Run(b"", "wf", b"", b""), event=event)
        self.apply(runs.start(c.Enqueue(draft=draft, task_id=self.key, start=begun), self.now, self.rounds))

    @precondition(lambda self: is_closed(self.task.state))
    @rule(retry=st.booleans(), timeout=st.sampled_from([None, 50.0]))
    def start_another(self, retry: bool, timeout: float | None) -> None:
        self.start(retry, timeout)

    # what may happen ---------------------------------------------------------------------------------------------
    @rule(seconds=st.sampled_from([0.0, 0.5, 3.0, 20.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)
        self.alarms_ring()

    @precondition(lambda self: self.task.deadline is not None and not is_closed(self.task.state))
    @rule(seldom=st.integers(0, 3))
    def its_time_is_over(self, seldom: int) -> None:
        if not seldom or self.task.state == State.RETRY_WAIT:
            self.now = max(self.now, self.task.deadline or 0)
            self.ring(self.task)
            assert self.task.state == State.TIMED_OUT

    @rule()
    def alarms_ring(self) -> None:
        for task in list(self.rows.values()):
            if task.id in self.rows and task.wake_at is not None and task.wake_at <= self.now:
                self.ring(self.rows[task.id])

    def ring(self, task: Task) -> None:
        match task.kind:
            case Kind.WORKFLOW:
                self.apply(runs.ring(task, self.runs[task.id], self.now, self.mint, self.rounds, 0))
            case Kind.TIMER:
                own, now = decide.own(task, self.now)
                self.apply([decide.close(own, Cause.ANSWER, now)])
            case Kind.ACTIVITY:
                self.apply(decide.ring(task, self.now, self.mint, self.rounds, 0))
            case Kind.SWEEP:
                for child in [r for r in self.rows.values() if r.parent_run_id == task.parent_run_id and r is not task]:
                    child_run = self.runs.get(child.id)
                    self.apply(runs.swept(child, child_run, self.now, self.mint, self.rounds))
                own, now = decide.own(task, self.now)
                self.apply([decide.close(own, Cause.ANSWER, now)])

    @precondition(lambda self: self.task.state == State.ENQUEUED and self.task.place is not None)
    @rule()
    def claim(self) -> None:
        task = self.task
        self.apply(
            [
                decide.claim(task, 1, "w", 1, self.now, self.mint.lease_bits()),
                PutRun(turns.begin(task, self.run, self.inboxes.get(self.key, []), self.now)),
            ]
        )
        events, _ = turns.prepared(self.task, self.run, self.inboxes.get(self.key, []))
        again, _ = turns.prepared(self.task, self.run, self.inboxes.get(self.key, []))
        assert events == again
        self.after = events[-1].id

    @precondition(lambda self: self.turn)
    @rule()
    def beat(self) -> None:
        self.rows[self.key] = decide.beat(self.task, c.Heartbeat(lease=self.task.lease), self.now)

    def append(self, *commands: Any, final: bool = True) -> None:
        command = c.Append(lease=self.task.lease, after=self.after, commands=list(commands), final=final)
        task, run, before = self.task, copy(self.run), copy(self.task)
        effects, outcome = turns.append(
            task, run, self.inboxes.get(self.key, []), command, rows=self.rows, taken=(),
            first=lambda: self.histories[run.id][0].attributes,  # type: ignore[return-value, arg-type]
            now=self.now, mint=self.mint, rounds=self.rounds,
        )  # fmt: skip
        assert task == before, "a decision changed its input"
        self.apply(effects)
        if isinstance(outcome, UnhandledMessages):
            assert len(self.inboxes[run.id]) > 0
            return
        assert isinstance(outcome, c.Appended)
        assert outcome.last == len(self.histories[run.id])
        self.after = outcome.last
        self.stale.append(command)
        if not final:
            repeated = self.decide_append(command)
            assert repeated == ([], outcome), "a repeated append is answered the same and changes nothing"

    def decide_append(self, command: c.Append) -> Any:
        return turns.append(
            self.task, self.run, self.inboxes.get(self.key, []), command, rows=self.rows, taken=(),
            first=lambda: None, now=self.now, mint=self.mint, rounds=self.rounds,  # type: ignore[arg-type, return-value]
        )  # fmt: skip

    @precondition(lambda self: self.turn)
    @rule(final=st.booleans(), kind=st.sampled_from(["step", "timer", "activity", "marker", "nothing", "unmade"]))
    def work(self, final: bool, kind: str) -> None:
        new = self.mint.task_id(self.now)
        timer = t.StartTimer(task_id=new, timer_id=new.hex(), start_to_fire=5.0)
        wanted: dict[str, list[Any]] = {
            "step": [t.StartStep(step_id=1, name="s")],
            "timer": [timer],
            "activity": [
                t.ScheduleActivity(task_id=new, activity_id=new.hex(), activity_type="a", task_queue="default")
            ],
            "marker": [t.RecordMarker(marker_name="m")],
            "nothing": [],
            "unmade": [timer, t.CancelTimer(task_id=new, timer_id=new.hex(), started_event_id=1)],
        }
        if final or wanted[kind]:
            self.append(*wanted[kind], final=final)

    @precondition(lambda self: self.turn)
    @rule(how=st.sampled_from(["complete", "fail", "cancel", "continue", "fatal"]))
    def end(self, how: str) -> None:
        failure = Failure(message="boom", retryable=how != "fatal")
        self.append(
            {
                "complete": t.CompleteWorkflow(),
                "fail": t.FailWorkflow(failure=failure),
                "fatal": t.FailWorkflow(failure=failure),
                "cancel": t.CancelWorkflow(),
                "continue": t.ContinueAsNew(task_id=self.mint.task_id(self.now)),
            }[how]
        )

    @precondition(lambda self: self.task.state == State.ENQUEUED and self.task.place is not None)
    @rule(kind=st.sampled_from(["step", "timer", "activity", "nothing"]))
    def a_whole_turn(self, kind: str) -> None:
        """The way to most other states, made shorter."""
        self.claim()
        self.work(True, kind)

    @precondition(lambda self: self.turn)
    @rule(outcome=st.sampled_from(["failed", "released"]))
    def give_up(self, outcome: str) -> None:
        command = c.Complete(lease=self.task.lease, outcome=outcome, failure=pack(Failure(message="no", code="x")))
        if outcome == "failed":
            effects, _ = turns.fail(self.task, self.run, self.inboxes.get(self.key, []), command, self.now)
        else:
            effects, _ = turns.release(self.task, self.run, command, self.now, self.rounds)
        self.apply(effects)

    @precondition(lambda self: self.turn)
    @rule()
    def lose(self) -> None:
        own, now = decide.own(self.task, self.now)
        self.apply(runs.lose(own, self.run, "it died", now, self.rounds))

    @precondition(lambda self: self.stale)
    @rule(data=st.data())
    def a_stale_append(self, data: st.DataObject) -> None:
        """STEP-14: whatever an old lease sends changes nothing."""
        command = data.draw(st.sampled_from(self.stale))
        if is_closed(self.task.state) or command.lease == self.task.lease:
            return
        if command.lease.number == self.task.done_number and command.lease.task_id == self.task.id:
            return
        with pytest.raises(LeaseLost):
            self.decide_append(command)

    @precondition(lambda self: not is_closed(self.task.state))
    @rule(kind=st.sampled_from(["signal"] * 4 + ["cancel", "update", "update"]))
    def tell(self, kind: str) -> None:
        task, run = self.task, self.run
        match kind:
            case "signal":
                self.signals += 1
                signal = WorkflowExecutionSignaled(signal_name=str(self.signals))
                self.apply(runs.post(task, run, [signal], self.now, self.rounds))
            case "cancel":
                request = WorkflowExecutionCancelRequested()
                self.apply(runs.cancel(task, run, request, self.now, self.mint, self.rounds))
                task = self.task
                if not is_closed(task.state):
                    assert runs.cancel(task, self.run, request, self.now, self.mint, self.rounds) == []
            case "update":
                row = Task(
                    self.mint.task_id(self.now), "default", "u", State.WAITING, task.lane, self.now, self.now,
                    kind=Kind.UPDATE, parent_run_id=task.id,
                )  # fmt: skip
                effects = runs.post(
                    task, run, UpdateRequest(update_id="u", task_id=row.id, name="u"), self.now, self.rounds
                )
                for effect in effects:
                    if isinstance(effect, PutRun):
                        effect.run.children += 1
                self.apply([Insert(row), *effects])

    @precondition(lambda self: self.turn and any(row.kind == Kind.UPDATE for row in self.rows.values()))
    @rule(accept=st.booleans())
    def answer(self, accept: bool) -> None:
        row = next(row for row in self.rows.values() if row.kind == Kind.UPDATE)
        if row.parent_run_id != self.key:
            return
        rejected = t.RejectUpdate(update_id="u", task_id=row.id, failure=Failure(message="no"))
        completed = t.CompleteUpdate(update_id="u", task_id=row.id, accepted_event_id=1)
        self.append(completed if accept else rejected)

    @precondition(lambda self: not is_closed(self.task.state))
    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.apply(runs.pause(self.task, self.run, paused, self.now, self.rounds))
        assert not paused or self.task.place is None

    @precondition(lambda self: not is_closed(self.task.state))
    @rule(seldom=st.integers(0, 9))
    def terminate(self, seldom: int) -> None:
        if seldom:
            return
        self.apply(runs.terminate(self.task, self.run, "enough", "", self.now, self.mint))

    @rule(data=st.data())
    def an_activity_ends(self, data: st.DataObject) -> None:
        open_ = [row for row in self.rows.values() if row.kind == Kind.ACTIVITY and row.place is not None]
        if not open_:
            return
        task = data.draw(st.sampled_from(open_))
        self.apply([decide.claim(task, 2, "w2", 1, self.now, self.mint.lease_bits())])
        task = self.rows[task.id]
        outcome = data.draw(st.sampled_from(["succeeded", "failed"]))
        command = c.Complete(lease=task.lease, outcome=outcome, result=pack(()), failure=pack(Failure(message="no")))
        effects, _ = decide.complete(task, command, self.now, self.mint, self.rounds)
        self.apply(effects)


def live(examples: int) -> None:
    run_state_machine_as_test(
        RunLife,
        settings=settings(
            max_examples=examples, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck),
            derandomize=True, database=None,
        ),
    )  # fmt: skip


def test_every_move_of_runs_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """TASK-02: and whatever happens on the way, what `check` says holds. Rare moves may take more lives."""
    taken: set[tuple[State, Cause]] = set()
    real = states.move

    def noted(state: State, cause: Cause) -> State:
        to = real(state, cause)
        taken.add((state, cause))
        return to

    for module in (decide, runs, turns):
        monkeypatch.setattr(module, "move", noted)
    wanted = {(state, cause) for state, cause in states.MOVES if cause in RUNS_ONLY}
    for examples in (300, 600, 1200):
        live(examples)
        if wanted <= taken:
            return
    missing = sorted(f"{state.name} {cause.name}" for state, cause in wanted - taken)
    assert not missing
