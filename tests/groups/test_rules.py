"""The rules of a group, as a machine of random events: STEP-20, STEP-22, STEP-25, STEP-26, STEP-28."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from perdure.core import decide, groups, pages
from perdure.core import turn_commands as t
from perdure.core.effects import Append, Arrive, Change, Close, Delete, Effect, Insert
from perdure.core.events import AnyAttributes, GroupCompleted, GroupFailed, GroupStarted
from perdure.core.group_events import CallResult
from perdure.core.groups import Step
from perdure.core.model import SECOND, Failure, Payload, Payloads, Task, pack
from perdure.core.run import Page
from perdure.core.states import Cause, Kind, State, is_closed
from tests.clock import START
from tests.core.tasks import new_mint, new_rounds
from tests.engine.runs import MINT

GROUP_ID = MINT.task_id(START)
RUN = Task(b"r" * 16, "default", "flow", State.WAITING, "default\x1fdefault\x1ft", START, START, kind=Kind.WORKFLOW)


def given(index: int) -> Payloads:
    return (Payload({"encoding": "json/plain"}, str(index).encode()),)


def start(count: int, policy: str = "collect", window: int = 0, size: int = 0) -> list[Effect]:
    inputs = [(*given(index), Payload({}, b"x" * size)) if size else given(index) for index in range(count)]
    command = t.StartGroup(
        task_id=GROUP_ID, group_id="g#1", activity_type="work", task_queue="default", inputs=inputs, policy=policy,
        window=window,
    )  # fmt: skip
    event = GroupStarted(
        group_id="g#1", activity_type="work", task_queue="default", count=count, task_id=GROUP_ID, policy=policy,
        window=window,
    )  # fmt: skip
    return groups.begin(command, event, RUN, 5, START)


class GroupLife(RuleBasedStateMachine):
    """One group, its calls, and whoever cancels it or closes its run."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.mint = new_mint()
        self.rounds = new_rounds()
        self.rounds.learn("default\x1fdefault\x1fw", 0, 0)
        self.calls: dict[bytes, Task] = {}
        self.ended: dict[int, str] = {}  #: how each call has ended
        self.inputs: list[Page] = []
        self.results: list[CallResult] = []
        self.news: list[AnyAttributes] = []
        self.made = 0
        self.row: Task
        self.over = self.canceled = False

    @initialize(
        count=st.integers(1, 8) | st.integers(1, 600),
        policy=st.sampled_from(["collect", "fail_fast"]),
        window=st.integers(0, 30),
        begun=st.booleans(),
    )
    def begin(self, count: int, policy: str, window: int, begun: bool) -> None:
        self.count, self.policy, self.window = count, policy, window
        self.apply(start(count, policy, window))
        if begun:
            self.ring(held=False)

    def apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Insert(task) if task.kind == Kind.GROUP:
                    self.row = task
                case Insert(task):
                    assert task.parent_event_id == self.made
                    assert not (self.over or self.canceled or any(isinstance(it, GroupFailed) for it in self.news))
                    assert task.payload == pack(given(self.made))  # STEP-28: each index has its own input
                    self.made += 1
                    self.calls[task.id] = task
                case Change(task) if task.kind == Kind.GROUP:
                    self.row = task
                case Change(task):
                    self.calls[task.id] = task
                case Append(page):
                    self.inputs.append(page)
                case Arrive(group_id, number, result):
                    assert group_id == GROUP_ID
                    self.results.append(result)
                    assert number == self.count + len(self.results)
                case Delete(task):
                    del self.calls[task.id]
                    self.ended[task.parent_event_id or 0] = task.state.name
                    self.apply(groups.ended(self.row, task, self.now))
                case Close(task):
                    assert task.kind == Kind.GROUP
                    self.row = task

    @property
    def group(self) -> groups.Group:
        return groups.group_of(self.row)

    @property
    def step(self) -> Step:
        return groups.step_of(self.group)

    @rule(held=st.booleans())
    def ring(self, held: bool) -> None:
        if is_closed(self.row.state):
            return
        self.now += 1
        match self.step:
            case Step.TELL:
                self.news.append(groups.news(self.row))
                self.apply(groups.told(self.row, self.now))
            case Step.INSERT:
                before = self.made
                page = next(it for it in self.inputs if it.first <= self.group.inserted + 1 < it.first + it.count)
                inputs = groups.inputs_from(page, self.group)
                self.apply(groups.insert(self.row, inputs, self.now, self.mint, self.rounds))
                assert 0 < self.made - before <= groups.PAGE_INPUTS
            case Step.STOP | Step.CLOSE as step:
                behind = b"" if step == Step.CLOSE else self.group.stopped
                calls = [call for i, call in sorted(self.calls.items()) if i > behind][:7]
                granted = calls[1:] if held else calls  # the first one is held elsewhere
                for call in granted:
                    self.apply(groups.stop(call, step, self.now))
                whole = granted == calls
                self.apply(groups.stopped(self.row, granted, whole=whole, last=len(calls) < 7, now=self.now))
            case Step.REST:
                assert self.row.wake_at is None

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), how=st.sampled_from(["succeed", "fail", "cancel"]), many=st.integers(1, 40))
    def end(self, data: st.DataObject, how: str, many: int) -> None:
        """Calls end in any order, by whoever has them."""
        for _ in range(min(many, len(self.calls))):
            call = self.calls[data.draw(st.sampled_from(sorted(self.calls)))]
            if call.state == State.ENQUEUED:
                call = decide.claim(call, 1, "w", 1, self.now, 1).task
            call, now = decide.own(call, self.now)
            if how == "succeed":
                call.result = pack(given(call.parent_event_id or 0))
                self.apply([decide.close(call, Cause.SUCCEED, now)])
            elif how == "fail":
                self.apply([decide.close(call, Cause.EXHAUST, now, pack(Failure(message="no")))])
            else:
                self.apply([decide.close(call, Cause.FORCE, now)])

    @precondition(lambda self: self.ended and not is_closed(self.row.state))
    @rule(data=st.data())
    def end_again(self, data: st.DataObject) -> None:
        """STEP-20: a bit that is set is not set again."""
        index = data.draw(st.sampled_from(sorted(self.ended)))
        call = Task(b"c" * 16, "default", "work", State.SUCCEEDED, "", 0, 0, parent_event_id=index)
        assert groups.ended(self.row, call, self.now) == []

    @precondition(lambda self: not is_closed(self.row.state))
    @rule()
    def cancel(self) -> None:
        self.canceled = self.canceled or not self.news
        self.apply(groups.cancel(self.row, self.now))

    @precondition(lambda self: not is_closed(self.row.state))
    @rule()
    def close_run(self) -> None:
        self.over = True
        self.apply(groups.sweep(self.row, self.now))

    @invariant()
    def counts_are_right(self) -> None:
        group = self.group
        assert group.inserted == self.made
        assert group.done == len(self.ended) == sum(byte.bit_count() for byte in group.ended)
        if self.window:
            assert len(self.calls) <= self.window
        if group.stopped_all:
            assert all(call.cancel_requested_at is not None for call in self.calls.values())
        assert len({result.index for result in self.results}) == len(self.results) == group.arrived

    @invariant()
    def the_alarm_is_due_when_there_is_something_to_do(self) -> None:
        if not is_closed(self.row.state):
            assert (self.row.wake_at is not None) == (self.step != Step.REST)

    @invariant()
    def the_run_hears_once(self) -> None:
        assert len(self.news) <= 1
        if self.news and isinstance(self.news[0], GroupFailed):
            assert self.policy == "fail_fast"
            assert self.ended[self.news[0].index] != "SUCCEEDED"
        elif self.news:
            assert isinstance(self.news[0], GroupCompleted)
            assert len(self.ended) == self.count
            assert {result.index for result in self.results} == set(range(self.count))
            assert self.news[0].failed == sum(how != "SUCCEEDED" for how in self.ended.values())
            assert self.policy == "collect" or not self.news[0].failed

    def teardown(self) -> None:
        """Left to itself, with all calls ending, it comes to rest, and has told the run unless that wants nothing."""
        if not hasattr(self, "row"):
            return
        for _ in range(3 * self.count + 100):
            if is_closed(self.row.state) or (self.step == Step.REST and not self.calls):
                break
            self.ring(held=False)
            for call in list(self.calls.values()):
                if self.step != Step.CLOSE:
                    ended, now = decide.own(call, self.now)
                    if ended.state == State.ENQUEUED:
                        ended = decide.claim(ended, 1, "w", 1, now, 1).task
                    self.apply([decide.close(ended, Cause.SUCCEED, now)])
        assert is_closed(self.row.state) if self.over else self.step == Step.REST
        assert self.over or self.canceled or len(self.news) == 1
        assert not self.calls
        self.counts_are_right()
        self.the_run_hears_once()


def test_random_lives_of_a_group() -> None:
    run_state_machine_as_test(GroupLife, settings=settings(max_examples=60, stateful_step_count=40, deadline=None))


def test_inputs_are_paged_by_number_and_by_bytes() -> None:
    def sizes(effects: list[Effect]) -> list[int]:
        found = [effect.page for effect in effects if isinstance(effect, Append)]
        assert [page.first for page in found] == [1 + sum(it.count for it in found[:n]) for n in range(len(found))]
        return [page.count for page in found]

    assert sizes(start(1)) == [1]
    assert sizes(start(450)) == [200, 200, 50]
    assert sizes(start(5, size=100_000)) == [2, 2, 1]
    assert sizes(start(2, size=300_000)) == [1, 1]


def test_a_group_that_was_reset_keeps_or_repeats() -> None:
    """RPLY-39: what has completed keeps its results, what has not is run anew."""
    row = next(effect.task for effect in start(9) if isinstance(effect, Insert))
    assert groups.step_of(groups.group_of(row)) == Step.INSERT
    assert row.wake_at == START
    assert row.ready_at == START
    assert not pages.unpack_results(pages.compressed(pack([])))
    assert START + groups.PAUSE < START + SECOND
