"""Histories as JSON: nothing is lost on the way, and people can read it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core import events as e
from perdure.core.errors import InvalidArgument
from perdure.core.event_types import Attributes
from perdure.core.history_json import from_json, to_json
from perdure.core.model import Failure, Payload, RetryPolicy

JSON = {"encoding": "json/plain"}
ID = bytes(range(16))


def filled(kind: type[Attributes]) -> Attributes:
    """Attributes with something in every field."""
    return kind(**{field.name: _value(field.name, field.type) for field in msgspec.structs.fields(kind)})


def _value(name: str, kind: Any) -> Any:
    values = (Payload(JSON, b'{"a":[1,"\xc3\xa9"]}'), Payload({"encoding": "binary/plain"}, b"\x00\xff"))
    known = {
        "input": values, "result": values, "details": values, "last_result": values, "header": {"a": "b"},
        "memo": {"m": values}, "search_attributes": {"a": 1, "b": ["x"], "c": 1.5}, "retry": RetryPolicy(base=2),
        "failure": Failure(message="m", cause=Failure(message="n", details=values)),
        "last_failure": Failure(message="l", retryable=False),
    }  # fmt: skip
    if name in known:
        return {"d": values} if "dict" in str(kind) and name == "details" else known[name]
    text = str(kind)
    if "bytes" in text:
        return ID
    if "float" in text:
        return 1.5
    if "int" in text:
        return 7
    if "bool" in text:
        return True
    return "text"


@pytest.mark.parametrize("kind", e.AnyAttributes.__args__, ids=lambda kind: kind.__name__)
def test_every_event_comes_back(kind: type[Attributes]) -> None:
    event = e.Event(3, 1_700_000_000_123_456, filled(kind))  # type: ignore[arg-type]
    shown = json.loads(json.dumps(to_json([event]), indent=2))
    assert shown[0]["type"] == kind.__name__, "the name that documents write"
    assert shown[0]["attributes"].keys() == set(kind.__struct_fields__)
    assert from_json(shown) == [event]


def test_values_are_readable_and_defaults_left_out() -> None:
    started = e.WorkflowExecutionStarted(workflow_type="a", workflow_id="w", task_queue="q", first_run_id=ID)
    step = e.StepCompleted(step_id=1, result=(Payload(JSON, b'{"id":7}'),))
    assert to_json([e.Event(1, 0, started), e.Event(2, 1, step)]) == [
        {
            "id": 1,
            "time": "1970-01-01T00:00:00Z",
            "type": "WorkflowExecutionStarted",
            "attributes": {
                "workflow_type": "a",
                "workflow_id": "w",
                "task_queue": "q",
                "first_run_id": "00010203-0405-0607-0809-0a0b0c0d0e0f",
            },
        },
        {
            "id": 2,
            "time": "1970-01-01T00:00:00.000001Z",
            "type": "StepCompleted",
            "attributes": {"step_id": 1, "result": [{"id": 7}]},
        },
    ]


def encodable(value: object) -> bool:
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


@given(
    st.lists(
        st.builds(Payload, st.sampled_from([JSON, {"encoding": "json/plain", "x": "y"}, {}]), st.binary(max_size=8))
        | st.builds(
            lambda value: Payload(JSON, msgspec.json.encode(value)),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
                lambda inner: (
                    st.lists(inner, max_size=3)
                    | st.dictionaries(st.sampled_from(["metadata", "data", "a"]), inner, max_size=3)
                ),
                max_leaves=6,
            ).filter(encodable),
        ),
        max_size=3,
    )
)
def test_payloads_come_back_byte_for_byte(payloads: list[Payload]) -> None:
    """Also such as look like the form in which others are written, and what is no JSON at all."""
    event = e.Event(1, 5, e.StepCompleted(step_id=1, result=tuple(payloads)))
    assert from_json(json.loads(json.dumps(to_json([event])))) == [event]


@pytest.mark.parametrize(
    "bad",
    [
        3,
        [3],
        [{}],
        [{"id": 1, "time": "1970-01-01T00:00:00Z", "type": "Odd", "attributes": {}}],
        [{"id": 1, "time": "now", "type": "TimerFired", "attributes": {"timer_id": "a", "started_event_id": 1}}],
        [{"id": 1, "time": "1970-01-01T00:00:00Z", "type": "TimerFired", "attributes": {"timer_id": 1}}],
        [{"id": 1, "time": "1970-01-01T00:00:00Z", "type": "TimerFired", "attributes": {"odd": 1}}],
        [{"id": 1, "time": "1970-01-01T00:00:00Z", "type": "StepCompleted", "attributes": {"step_id": 1, "result": 5}}],
    ],
)
def test_what_is_no_history_is_refused(bad: object) -> None:
    with pytest.raises(InvalidArgument) as raised:
        from_json(bad)
    assert (raised.value.field or "").startswith("events")
