"""What people see of a run: every wait has a reason, in words."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.api.workflow_views import RUNNING, STATUSES, run_view
from perdure.core.ids import text
from perdure.core.model import SECOND, Failure, Progress, Task, pack
from perdure.core.run import Message, Run
from perdure.core.states import Kind, State, is_closed
from tests.api.calls import payload

RUN_ID, CHILD_ID = bytes(range(16)), bytes(range(1, 17))
NOW = 1_800_000_000 * SECOND


def task(state: State = State.WAITING, **fields: Any) -> Task:
    return Task(
        RUN_ID, "shop", "fulfil", state, "lane", NOW, NOW + SECOND, kind=Kind.WORKFLOW, queue="orders", **fields
    )


def run(**fields: Any) -> Run:
    return Run(RUN_ID, "order-1", RUN_ID, RUN_ID, root_workflow_id="order-1", event_count=9, **fields)


def child(kind: Kind, type: str = "print", **fields: Any) -> Task:
    state = fields.pop("state", State.WAITING)
    return Task(
        CHILD_ID, "shop", type, state, "lane", NOW, NOW, kind=kind, queue="q", parent_run_id=RUN_ID, parent_event_id=5,
        **fields,
    )  # fmt: skip


TIMER = child(Kind.TIMER, "timer", idempotency_key="nap", ready_at=NOW + 60 * SECOND, wake_at=NOW + 60 * SECOND)
ACTIVITY = child(
    Kind.ACTIVITY, state=State.RETRY_WAIT, idempotency_key="7", attempt=2, ready_at=NOW + 30 * SECOND,
    wake_at=NOW + 30 * SECOND, failure=pack(Failure(message="paper")), progress=pack(Progress(1, 2)),
)  # fmt: skip
CHILD = child(Kind.WORKFLOW, "invoice")


@pytest.mark.parametrize(
    ("row", "columns", "children", "pollers", "words"),
    [
        (task(State.ENQUEUED), run(), [], None, "its start time"),
        (task(State.ENQUEUED, place=1), run(), [], 0, "a worker: none is registered for queue 'orders'"),
        (task(State.ENQUEUED, place=1), run(), [], 2, "a free worker on queue 'orders'"),
        (task(State.LEASED, worker="w", session=1), run(), [], None, "worker w to acknowledge receipt"),
        (task(State.LEASED, worker="w", received=True), run(), [], None, "worker w, which runs its code"),
        (task(State.RETRY_WAIT), run(failures=4), [], None, "the next try of its turn, which failed 4 times in a row"),
        (task(), run(), [], None, "a signal, an update or a cancel request"),
        (task(), run(paused=True), [TIMER], None, "somebody to resume it: it is paused"),
        (task(State.ENQUEUED), run(paused=True), [], 2, "somebody to resume it: it is paused"),
        (task(State.RETRY_WAIT), run(paused=True, failures=4), [], None, "somebody to resume it: it is paused"),
        (task(State.LEASED, worker="w", received=True), run(paused=True), [], None, "worker w, which runs its code"),
        (task(), run(), [TIMER, ACTIVITY, CHILD], None, "timer 'nap', activity 'print', child workflow 'invoice'"),
        (task(), run(), [ACTIVITY] * 4, None, "4 activities"),
        (task(), run(), [child(Kind.UPDATE)], None, "a signal, an update or a cancel request"),
        (task(State.SUCCEEDED, closed_at=NOW), run(), [], None, ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_wait_has_a_reason(
    row: Task, columns: Run, children: list[Task], pollers: int | None, words: str
) -> None:
    assert run_view(row, columns, children=children, pollers=pollers).waiting_for == words


def test_statuses_are_those_of_workflows() -> None:
    """RPLY-07, X-06, X-07: open states are RUNNING, closed ones have a word each, all but that of jobs alone."""
    for state in State:
        view = (
            run_view(task(state, closed_at=NOW if is_closed(state) else None), run())
            if state != State.EXPIRED
            else None
        )
        if view is not None:
            assert view.status == (STATUSES[state] if is_closed(state) else RUNNING)
            assert view.state == state.name
    assert set(STATUSES.values()) == {
        "COMPLETED", "FAILED", "CANCELLED", "TERMINATED", "TIMED_OUT", "CONTINUED_AS_NEW",
    }  # fmt: skip


def test_what_is_pending_is_shown() -> None:
    """RPLY-41."""
    messages = [Message(RUN_ID, n, 1, NOW, b"") for n in (1, 2)]
    invoice = Run(CHILD_ID, "invoice-1", CHILD_ID, CHILD_ID)
    view = run_view(
        task(), run(memo=pack({"a": payload()}), search_attributes=pack({"b": 1})),
        children=[TIMER, ACTIVITY, CHILD], child_runs={CHILD_ID: invoice}, messages=messages,
    )  # fmt: skip
    [activity], [timer], [started] = view.pending_activities, view.pending_timers, view.pending_children
    assert (activity.activity_id, activity.type, activity.state, activity.attempt) == ("7", "print", "RETRY_WAIT", 2)
    assert activity.failure == Failure(message="paper") and activity.progress == Progress(1, 2)
    assert activity.next_attempt_at is not None and timer.fires_at > activity.next_attempt_at
    assert (timer.timer_id, timer.started_event_id) == ("nap", 5)
    assert (started.workflow_id, started.type, started.run_id) == ("invoice-1", "invoice", text(CHILD_ID))
    assert view.pending_signals == 2
    assert view.next_event_at == activity.next_attempt_at, "the first of all alarms"
    assert (view.memo, view.search_attributes) == ({"a": payload()}, {"b": 1})


def test_a_failure_is_shown_of_a_closed_run_and_of_a_stuck_one() -> None:
    failed = pack(Failure(message="m", code="non_determinism"))
    stuck = run_view(task(State.RETRY_WAIT, failure=failed), run(failures=3))
    assert (stuck.stuck, stuck.failed_turns, stuck.failure and stuck.failure.code) == (True, 3, "non_determinism")
    lost = run_view(task(State.ENQUEUED, place=1), run(failures=1))
    assert (lost.stuck, lost.failed_turns, lost.failure) == (False, 1, None), "its worker was lost: nobody's fault"
    closed = run_view(task(State.FAILED, failure=failed, closed_at=NOW), run())
    assert (closed.stuck, closed.failure and closed.failure.message) == (False, "m")
