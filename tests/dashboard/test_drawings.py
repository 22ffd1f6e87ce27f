"""What is drawn, told from events and times: spans, graphs, time lines, trends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from perdure.core import events as e
from perdure.core.event_types import event_name
from perdure.core.events import Event
from perdure.core.history_json import _TYPES
from perdure.core.model import Failure
from perdure.dashboard import graph, spans
from perdure.dashboard.render import duration
from perdure.dashboard.spans import Span, Story
from perdure.dashboard.timeline import LABELS, WIDTH, Bar, Timeline
from perdure.dashboard.trends import GAP_SECONDS, POINTS, Point, Trends

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def told(*attributes: e.AnyAttributes) -> list[Span]:
    """The spans of a history of these events, one a millisecond."""
    story = Story()
    story.tell(Event(number, number * 1000, one) for number, one in enumerate(attributes, 1))
    return list(story.spans.values())


@pytest.mark.parametrize("kind", sorted({*spans._BEGINS, *spans._ENDS}), ids=event_name)
def test_events_have_what_the_tables_say(kind: e.EventType) -> None:
    """An event whose attribute was renamed would be drawn no more."""
    field = (spans._BEGINS.get(kind) or ("", ""))[1] or spans._ENDS[kind][0]
    names = {one.name for one in msgspec.structs.fields(_TYPES[event_name(kind)])}
    assert field in names


def test_what_is_begun_together_comes_after_the_same() -> None:
    first, left, right, last = told(
        e.StepStarted(step_id=1, name="first"),
        e.StepCompleted(step_id=1),
        e.ActivityTaskScheduled(activity_id="1", activity_type="left", task_queue="q"),
        e.ActivityTaskScheduled(activity_id="2", activity_type="right", task_queue="q"),
        e.ActivityTaskStarted(scheduled_event_id=4, identity="w", attempt=3),
        e.ActivityTaskCompleted(scheduled_event_id=4),
        e.ActivityTaskFailed(scheduled_event_id=3, failure=Failure(message="no")),
        e.TimerStarted(timer_id="t", start_to_fire=1.0),
    )
    assert left.after == right.after == (first.begun,)
    assert last.after == (right.begun, left.begun)
    assert (right.attempt, right.worker, right.outcome) == (3, "w", "completed")
    assert (left.outcome, left.why, left.ended, left.ended_at) == ("failed", "no", 7, 7000)
    assert (last.kind, last.outcome, last.ended) == ("timer", "running", None)


def test_a_step_that_is_tried_again_is_one_span() -> None:
    [step] = told(
        e.StepStarted(step_id=1, name="charge"),
        e.StepFailed(step_id=1, failure=Failure(message="busy"), retry_in=1.0),
        e.StepStarted(step_id=1, name="charge", attempt=2, identity="w"),
    )
    assert (step.attempt, step.outcome, step.why, step.worker) == (2, "running", "busy", "w")


def test_children_updates_signals_and_groups_are_spans() -> None:
    run_id = bytes(range(16))
    found = told(
        e.StartChildWorkflowExecutionInitiated(workflow_type="ship", workflow_id="ship-1", task_queue="q"),
        e.ChildWorkflowExecutionStarted(
            workflow_id="ship-1", run_id=run_id, workflow_type="ship", initiated_event_id=1
        ),
        e.WorkflowExecutionSignaled(signal_name="go"),
        e.WorkflowExecutionUpdateAccepted(update_id="u", name="move"),
        e.WorkflowExecutionUpdateCompleted(update_id="u", accepted_event_id=4, failure=Failure(message="no")),
        e.GroupStarted(group_id="g", activity_type="shrink", task_queue="q", count=9),
        e.GroupCompleted(started_event_id=6),
    )
    assert [(one.kind, one.name, one.outcome) for one in found] == [
        ("child", "ship", "running"),
        ("signal", "go", "completed"),
        ("update", "move", "failed"),
        ("group", "shrink", "completed"),
    ]
    assert found[0].child == ("ship-1", "00010203-0405-0607-0809-0a0b0c0d0e0f")


def test_an_end_without_a_beginning_is_no_span() -> None:
    """A run that was begun again from an event, or an event of a newer version."""
    assert told(e.TimerFired(timer_id="t", started_event_id=99), e.StepCompleted(step_id=7)) == []


def test_a_graph_of_many_at_once_wraps() -> None:
    many = [Span("activity", f"a{number}", number, 0, (1,)) for number in range(2, 14)]
    part = graph.Part([Span("step", "s", 1, 0), *many], 1, 1, 13)
    drawn = graph._graph(part)
    assert len({(box.x, box.y) for box in drawn.boxes}) == 13
    assert all(box.x < drawn.width and box.y < drawn.height for box in drawn.boxes)
    assert len(drawn.lines) == 12 and all(line.y1 < line.y2 for line in drawn.lines)


def test_bars_stay_inside_their_drawing() -> None:
    bars = [
        Bar("still", "", NOW - timedelta(seconds=10), None, "running", "#"),
        Bar("short", "", NOW, NOW, "failed", "#"),
        Bar("early end", "", NOW - timedelta(seconds=5), NOW - timedelta(seconds=6), "lost", "#"),
    ]
    drawing = Timeline.of(bars, NOW)
    assert drawing is not None
    for drawn in drawing.bars:
        assert drawn.x >= LABELS and drawn.x + drawn.width <= LABELS + WIDTH and drawn.width >= 1
    assert drawing.bars[0].lasted == "10 s"
    assert Timeline.of([], NOW) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.25, "250 ms"),
        (1.5, "1.5 s"),
        (59.96, "60 s"),
        (61, "1 min 1 s"),
        (3600, "1 h 0 min"),
        (1e6, "11 d 13 h"),
    ],
)
def test_lengths_of_time_in_words(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_trends_are_short_and_begin_anew_after_a_gap() -> None:
    trends = Trends()
    for second in range(0, 1000, 2):
        drawn = trends.add("default", Point(second, {"ready": second}))
    assert len(drawn["ready"].split()) == POINTS
    assert len(trends.add("default", Point(999.0, {"ready": 1}))["ready"].split()) == POINTS, "many looks, one point"
    assert trends.add("other", Point(0, {"ready": 0})) == {"ready": "0.0,29.0"}
    assert len(trends.add("default", Point(1000 + 2 * GAP_SECONDS, {"ready": 1}))["ready"].split()) == 1
