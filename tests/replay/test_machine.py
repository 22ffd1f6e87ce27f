"""The machine, driven by a list of what the code does at each activation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perdure.core import events as e
from perdure.core import turn_commands as c
from perdure.core.events import Event
from perdure.core.model import Failure
from perdure.core.run import UpdateRequest
from perdure.sdk.workflow_errors import ForbiddenError, NonDeterminismError
from perdure.worker.machine import Machine, Pending
from tests.replay.history import START, History, started, values

FAILURE = Failure(message="no")


class Script:
    """Code that notes what it is told, and runs a function at each activation."""

    def __init__(self, *activations: Callable[[Script], object]) -> None:
        self.machine = Machine(self)
        self.told: list[str] = []
        self.activations = list(activations)
        self.pending: dict[str, Pending] = {}

    def start(self, event: Event) -> None:
        self.told.append("start")

    def signal(self, event: Event) -> None:
        assert isinstance(event.attributes, e.WorkflowExecutionSignaled)
        self.told.append(event.attributes.signal_name)

    def cancel(self, event: Event) -> None:
        self.told.append("cancel")

    def update(self, request: UpdateRequest, accepted: Event | None) -> None:
        self.told.append(f"update {request.name}" + (" again" if accepted else ""))
        if request.name == "bad":
            self.machine.issue(c.RejectUpdate(update_id=request.update_id, task_id=request.task_id, failure=FAILURE))
            return
        self.machine.issue(
            c.AcceptUpdate(
                update_id=request.update_id,
                task_id=request.task_id,
                name=request.name,
                sequencing_event_id=self.machine.activation,
            )
        )

    def run(self) -> Script:
        while self.machine.advance():
            if self.activations:
                self.activations.pop(0)(self)
        return self

    def feed(self, history: History, after: int = 0, *updates: UpdateRequest) -> Script:
        self.machine.feed(history.events[after:], updates)
        return self.run()


def activity(number: int = 1, type: str = "charge") -> c.ScheduleActivity:
    return c.ScheduleActivity(task_id=b"mine", activity_id=str(number), activity_type=type, task_queue="default")


def scheduled(number: int = 1, type: str = "charge") -> e.ActivityTaskScheduled:
    return e.ActivityTaskScheduled(activity_id=str(number), activity_type=type, task_queue="default", task_id=b"theirs")


def issue(name: str, command: c.TurnCommand) -> Callable[[Script], object]:
    def do(script: Script) -> None:
        script.pending[name] = script.machine.issue(command)

    return do


def nothing(script: Script) -> None: ...


def step(number: int = 1, name: str = "one") -> c.StartStep:
    return c.StartStep(step_id=number, name=name)


def test_a_new_command_gets_the_id_of_the_event_that_it_becomes() -> None:
    history = History().prepare(started())
    script = Script(issue("a", activity())).feed(history)
    assert not script.machine.replaying
    assert script.pending["a"].event_id == history.last + 2
    after, commands = script.machine.take()
    assert (after, len(commands)) == (history.last, 1)
    script.machine.accepted()
    assert script.machine.last_event_id == history.last + 2


def test_an_append_without_commands_writes_the_frame_of_the_turn() -> None:
    history = History().prepare(started())
    script = Script().feed(history)
    assert script.machine.take() == (history.last, [])
    script.machine.accepted()
    assert script.machine.last_event_id == history.last + 1


def test_a_recorded_command_is_matched_and_resolved_by_its_event_id() -> None:
    history = History().turn(started()).add(scheduled())
    history.prepare(
        e.ActivityTaskStarted(scheduled_event_id=5), e.ActivityTaskCompleted(scheduled_event_id=5, result=values(7))
    )
    script = Script(issue("a", activity())).feed(history)
    pending = script.pending["a"]
    assert pending.recorded == history.events[4]
    assert pending.command.task_id == b"theirs"
    assert pending.outcome is not None and pending.outcome.result == values(7)
    assert script.machine.now == history.now
    assert script.machine.take() == (history.last, [])


def test_RPLY_10_another_command_than_the_recorded_one_is_told_with_both_and_the_place() -> None:
    history = History().turn(started()).add(scheduled()).prepare()
    script = Script(issue("a", c.StartTimer(task_id=b"t", timer_id="1", start_to_fire=1.0)))
    with pytest.raises(NonDeterminismError) as caught:
        script.feed(history)
    error = caught.value
    assert error.event_id == 5
    assert error.expected == "ActivityTaskScheduled (activity_type 'charge', activity_id '1')"
    assert error.found == "TimerStarted (timer_id '1')"
    assert error.file == __file__ and error.line > 0
    with pytest.raises(NonDeterminismError):
        script.machine.issue(activity())
    assert script.machine.error is error


@pytest.mark.parametrize(
    ("command", "event"),
    [
        (activity(2), scheduled(1)),
        (activity(1, "refund"), scheduled(1)),
        (step(1, "two"), e.StepStarted(step_id=1, name="one")),
        (c.RecordMarker(marker_name="a"), e.MarkerRecorded(marker_name="b")),
        (c.CompleteWorkflow(), e.WorkflowExecutionFailed(failure=FAILURE)),
    ],
)
def test_the_identity_of_a_command_is_compared(command: c.TurnCommand, event: e.AnyAttributes) -> None:
    history = History().turn(started()).add(event).prepare()
    with pytest.raises(NonDeterminismError):
        Script(issue("a", command)).feed(history)


def test_a_command_that_the_history_has_and_the_code_does_not_issue() -> None:
    history = History().turn(started()).add(scheduled()).prepare()
    with pytest.raises(NonDeterminismError) as caught:
        Script().feed(history)
    assert caught.value.event_id == 5


def test_a_command_too_many_before_the_next_turn() -> None:
    history = History().turn(started()).prepare()
    with pytest.raises(NonDeterminismError) as caught:
        Script(issue("a", activity())).feed(history)
    assert caught.value.expected == "WorkflowTaskScheduled"


def test_a_command_too_many_at_the_end_of_a_history_without_a_turn_in_hand() -> None:
    history = History().turn(started()).add(scheduled())
    with pytest.raises(NonDeterminismError) as caught:
        Script(lambda s: (issue("a", activity())(s), issue("b", activity(2))(s))).feed(history)
    assert (caught.value.event_id, caught.value.expected) == (6, "nothing more before the next turn")


def test_messages_are_told_in_order_and_updates_after_them() -> None:
    """B088, B092."""
    history = History().prepare(
        started(), e.WorkflowExecutionSignaled(signal_name="one"), e.WorkflowExecutionSignaled(signal_name="two")
    )
    request = UpdateRequest(update_id="u1", task_id=b"u", name="set")
    script = Script().feed(history, 0, request, UpdateRequest(update_id="u2", task_id=b"v", name="bad"))
    assert script.told == ["start", "one", "two", "update set", "update bad"]
    after, commands = script.machine.take()
    assert [type(command) for command in commands] == [c.AcceptUpdate, c.RejectUpdate]
    script.machine.accepted()
    assert script.machine.last_event_id == after + 2, "a rejection becomes no event"
    accepted = e.WorkflowExecutionUpdateAccepted(
        update_id="u1", name="set", task_id=b"u", sequencing_event_id=history.last
    )
    history.add(e.WorkflowTaskCompleted(scheduled_event_id=4, started_event_id=5)).add(accepted).prepare()
    cold = Script().feed(history)
    assert cold.told == ["start", "one", "two", "update set again"]


def test_an_accepted_update_is_shown_at_the_turn_that_saw_it_before_the_code_runs() -> None:
    history = History().turn(started()).add(scheduled())
    history.turn(e.ActivityTaskCompleted(scheduled_event_id=5))
    accepted = e.WorkflowExecutionUpdateAccepted(update_id="u1", name="set", sequencing_event_id=history.last - 1)
    history.add(accepted, scheduled(2)).prepare()
    order: list[str] = []
    script = Script(issue("a", activity()), lambda s: (order.extend(s.told), issue("b", activity(2))(s)))
    script.feed(history)
    assert order == ["start", "update set again"]


def test_a_turn_that_failed_is_no_activation_and_its_events_count_for_the_next_one() -> None:
    history = History().failed_turn(started(), e.WorkflowExecutionSignaled(signal_name="one"))
    history.prepare(e.WorkflowExecutionSignaled(signal_name="two"))
    script = Script(issue("a", activity())).feed(history)
    assert script.told == ["start", "one", "two"]
    assert script.machine.now == history.now
    assert script.pending["a"].event_id == history.last + 2


def test_a_warm_machine_goes_on_with_the_new_events_only() -> None:
    history = History().prepare(started())
    script = Script(issue("a", activity()), issue("b", activity(2))).feed(history)
    script.machine.take()
    script.machine.accepted()
    history.add(e.WorkflowTaskCompleted(scheduled_event_id=2, started_event_id=3), scheduled())
    known = history.last
    history.prepare(e.ActivityTaskCompleted(scheduled_event_id=5, result=values(1)))
    script.feed(history, known)
    assert script.pending["a"].outcome is not None
    assert script.pending["b"].event_id == history.last + 2
    with pytest.raises(ValueError, match="is next"):
        script.machine.feed(history.events[2:])


def test_what_others_did_in_between_is_replayed_by_a_warm_machine() -> None:
    history = History().turn(started()).add(scheduled())
    script = Script(issue("a", activity()), issue("b", activity(2))).feed(history)
    known = history.last
    history.turn(e.ActivityTaskCompleted(scheduled_event_id=5)).add(scheduled(2)).prepare()
    script.feed(history, known)
    assert script.pending["b"].recorded is not None and not script.machine.replaying


# ------------------------------------------------------------------------------------------------------------- steps
def test_a_step_that_ends_is_an_activation_of_its_own_and_goes_into_one_append_with_the_next_claim() -> None:
    history = History().prepare(started())
    script = Script(issue("1", step()), issue("2", step(2, "two"))).feed(history)
    assert script.machine.take()[1] == [step()]
    script.machine.accepted()
    known = script.machine.last_event_id
    script.machine.step_ended(1, values("x"), None, None)
    script.run()
    assert script.machine.take() == (known, [c.CompleteStep(step_id=1, result=values("x")), step(2, "two")])
    assert script.pending["1"].outcome is not None and script.pending["1"].outcome.result == values("x")
    assert script.machine.activation == known + 1
    script.machine.accepted()
    assert script.machine.last_event_id == known + 2
    assert script.machine.open_steps() == [], "its own claims run"


def test_two_steps_that_end_at_once_are_seen_one_after_the_other_live_and_on_replay() -> None:
    """B084."""
    both = lambda s: (issue("1", step())(s), issue("2", step(2, "two"))(s))  # noqa: E731
    script = Script(both, issue("a", activity(1)), issue("b", activity(2))).feed(History().prepare(started()))
    script.machine.take()
    script.machine.accepted()
    script.machine.step_ended(2, values("y"), None, None)
    script.machine.step_ended(1, values("x"), None, None)
    script.run()
    kinds = [type(command) for command in script.machine.take()[1]]
    assert kinds == [c.CompleteStep, c.ScheduleActivity, c.CompleteStep, c.ScheduleActivity]

    history = History().turn(started())
    history.add(e.StepStarted(step_id=1, name="one"), e.StepStarted(step_id=2, name="two"))
    history.add(e.StepCompleted(step_id=2), scheduled(1), e.StepCompleted(step_id=1), scheduled(2)).prepare()
    seen: list[bool] = []
    cold = Script(
        both,
        lambda s: (seen.append(s.pending["1"].outcome is None), issue("a", activity(1))(s)),
        issue("b", activity(2)),
    )
    cold.feed(history)
    assert seen == [True]


def test_STEP_12_a_claim_without_an_end_is_claimed_again_with_the_next_attempt() -> None:
    history = History().turn(started()).add(e.StepStarted(step_id=1, name="one")).prepare()
    script = Script(issue("1", step())).feed(history)
    claim = c.StartStep(step_id=1, name="one", attempt=2)
    assert script.machine.open_steps() == [claim]
    assert script.machine.open_steps() == []
    assert script.machine.take() == (history.last, [claim])
    history.add(e.WorkflowTaskCompleted(scheduled_event_id=6, started_event_id=7))
    history.add(e.StepStarted(step_id=1, name="one", attempt=2)).prepare()
    again = Script(issue("1", step())).feed(history)
    assert again.machine.open_steps() == [c.StartStep(step_id=1, name="one", attempt=3)]


def test_a_failed_attempt_waits_by_a_timer_and_is_claimed_again_when_it_has_fired() -> None:
    history = History().prepare(started())
    script = Script(issue("1", step()), nothing).feed(history)
    script.machine.take()
    script.machine.accepted()
    script.machine.step_ended(1, None, FAILURE, 2.0)
    script.run()
    _, (failed, timer) = script.machine.take()
    assert failed == c.FailStep(step_id=1, failure=FAILURE, attempt=1, retry_in=2.0)
    assert isinstance(timer, c.StartTimer) and (timer.timer_id, timer.start_to_fire) == ("step:1:1", 2.0)
    assert script.pending["1"].outcome is None
    script.machine.accepted()

    history.add(e.WorkflowTaskCompleted(scheduled_event_id=2, started_event_id=3), e.StepStarted(step_id=1, name="one"))
    history.add(e.StepFailed(step_id=1, failure=FAILURE, retry_in=2.0))
    history.add(e.TimerStarted(timer_id="step:1:1", start_to_fire=2.0))
    assert history.last == script.machine.last_event_id
    known = history.last
    history.prepare(e.TimerFired(timer_id="step:1:1", started_event_id=known))
    for machine in (script.feed(history, known).machine, Script(issue("1", step()), nothing).feed(history).machine):
        assert machine.open_steps() == []
        assert machine.take() == (history.last, [c.StartStep(step_id=1, name="one", attempt=2)])

    history.add(e.WorkflowTaskCompleted(scheduled_event_id=8, started_event_id=9))
    history.add(e.StepStarted(step_id=1, name="one", attempt=2))
    history.add(e.StepFailed(step_id=1, failure=FAILURE, attempt=2), scheduled()).prepare()
    cold = Script(issue("1", step()), nothing, issue("a", activity())).feed(history)
    assert cold.pending["1"].outcome is not None and cold.pending["1"].outcome.failure == FAILURE


def test_a_step_that_nobody_waits_for_any_more_is_not_tried_again() -> None:
    script = Script(issue("1", step())).feed(History().prepare(started()))
    script.machine.take()
    script.machine.accepted()
    script.pending["1"].abandoned = True
    script.machine.step_ended(1, None, FAILURE, 2.0)
    script.run()
    assert script.machine.take()[1] == [c.FailStep(step_id=1, failure=FAILURE)]


# --------------------------------------------------------------------------------------------------- timers, versions
def test_a_timer_that_was_canceled_may_fire_and_nobody_cares() -> None:
    def cancel(script: Script) -> None:
        timer = script.machine.issue(c.StartTimer(task_id=b"t", timer_id="1", start_to_fire=9.0))
        script.machine.issue(c.CancelTimer(task_id=b"t", timer_id="1", started_event_id=timer.event_id))
        script.pending["t"] = timer

    history = History().turn(started()).add(e.TimerStarted(timer_id="1", start_to_fire=9.0))
    history.add(e.TimerCanceled(timer_id="1", started_event_id=5)).prepare(
        e.TimerFired(timer_id="1", started_event_id=5)
    )
    assert Script(cancel).feed(history).pending["t"].outcome is None


def marker(name: str, number: int) -> e.MarkerRecorded:
    return e.MarkerRecorded(marker_name="version", details={"id": values(name), "version": values(number)})


def test_RPLY_18_a_version_is_recorded_live_and_read_on_replay() -> None:
    answers: list[int | None] = []
    ask = lambda s: answers.append(s.machine.version("fraud", 2))  # noqa: E731
    script = Script(ask).feed(History().prepare(started()))
    (command,) = script.machine.take()[1]
    assert command == c.RecordMarker(marker_name="version", details=marker("fraud", 2).details)
    Script(ask).feed(History().turn(started()).add(marker("fraud", 1)).prepare())
    Script(ask).feed(History().turn(started()).prepare())
    Script(nothing, ask).feed(History().turn(started()).add(marker("fraud", 1)).turn().prepare())
    assert answers == [2, 1, None, None]


def test_RPLY_21_a_marker_whose_question_is_gone_is_passed_over() -> None:
    history = History().turn(started()).add(marker("fraud", 1), scheduled(), marker("other", 1)).prepare()
    assert Script(issue("a", activity())).feed(history).pending["a"].recorded is not None


def test_a_closing_command_closes_and_queries_may_issue_nothing() -> None:
    script = Script(issue("end", c.CompleteWorkflow())).feed(History().prepare(started()))
    assert script.machine.closed
    script.machine.read_only = "a query"
    with pytest.raises(ForbiddenError, match="a query only reads"):
        script.machine.issue(activity())


def test_children_start_and_end() -> None:
    child = c.StartChildWorkflow(task_id=b"c", workflow_type="child", workflow_id="c1", task_queue="default")
    history = History().turn(started())
    history.add(
        e.StartChildWorkflowExecutionInitiated(workflow_type="child", workflow_id="c1", task_queue="default")
    ).turn(e.ChildWorkflowExecutionStarted(workflow_id="c1", run_id=b"r", workflow_type="child", initiated_event_id=5))
    script = Script(issue("c", child)).feed(history)
    assert script.pending["c"].started is not None and script.pending["c"].outcome is None
    known = history.last
    history.prepare(e.ChildWorkflowExecutionTerminated(workflow_id="c1", run_id=b"r", initiated_event_id=5))
    script.feed(history, known)
    outcome = script.pending["c"].outcome
    assert outcome is not None and outcome.status == "terminated" and outcome.failure is not None


def test_now_is_the_time_of_the_turn() -> None:
    """RPLY-11."""
    history = History().turn(started()).add(scheduled()).prepare()
    script = Script(lambda s: (s.told.append(str(s.machine.now - START)), issue("a", activity())(s)))
    script.feed(history)
    assert script.told == ["start", "1000000"] and script.machine.now == START + 2_000_000


def test_a_step_that_ended_in_an_activation_that_was_undone_counts_for_the_next_turn() -> None:
    """The code closed the run while a message came that it had not seen; or the run was reset to there."""
    history = History().turn(started()).add(e.StepStarted(step_id=1, name="one"), e.StepCompleted(step_id=1))
    history.add(e.WorkflowTaskFailed(scheduled_event_id=2, started_event_id=3, cause="unhandled_messages"))
    history.prepare(e.WorkflowExecutionSignaled(signal_name="late"))
    seen: list[object] = []
    script = Script(
        issue("1", step()),
        lambda s: (seen.append(s.pending["1"].outcome), seen.extend(s.told), issue("a", activity())(s)),
    )
    script.feed(history)
    assert seen[0] is not None and seen[1:] == ["start", "late"]
    assert script.machine.take() == (history.last, [activity()]) and script.machine.open_steps() == []


def test_a_completed_turn_of_which_nothing_was_kept_is_done_again() -> None:
    history = History().turn(started())
    history.add(e.WorkflowTaskFailed(scheduled_event_id=2, started_event_id=3, cause="reset")).prepare()
    script = Script(issue("a", activity())).feed(history)
    assert script.told == ["start"] and script.machine.take() == (history.last, [activity()])


def test_steps_that_end_after_the_code_has_closed_the_run_count_for_nothing() -> None:
    both = lambda s: (issue("1", step())(s), issue("2", step(2, "two"))(s))  # noqa: E731
    script = Script(both, issue("end", c.CompleteWorkflow())).feed(History().prepare(started()))
    script.machine.take()
    script.machine.accepted()
    script.machine.step_ended(1, (), None, None)
    script.machine.step_ended(2, (), None, None)
    script.run()
    assert [type(command) for command in script.machine.take()[1]] == [c.CompleteStep, c.CompleteWorkflow]
