"""Values arrive equal to what was sent, or are refused with the path of what is wrong."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import datetime
import decimal
import enum
import sys
import uuid
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import InvalidArgument
from perdure.core.model import Payload
from perdure.sdk.converter import MAX_DEPTH, from_payloads, to_payloads

Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Point:
    x: int


class Model(pydantic.BaseModel):
    x: int


class Colour(enum.Enum):
    RED = "red"


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@given(values | st.binary())
def test_what_is_accepted_comes_back_equal(value: Any) -> None:
    back = from_payloads(to_payloads(value, "payload"), "payload")
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("value", "encoding"),
    [(None, "binary/null"), (b"\x00\xff", "binary/plain"), ({"a": [1]}, "json/plain"), ("\x00", "json/plain")],
)
def test_encodings(value: Any, encoding: str) -> None:
    (payload,) = to_payloads(value, "payload")
    assert payload.metadata == {"encoding": encoding}


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (float("nan"), "payload"),
        ({"a": [0, float("inf")]}, "payload.a[1]"),
        ({"a": {"b": (1, 2)}}, "payload.a.b"),
        ([{1, 2}], "payload[0]"),
        ({"a": b"x"}, "payload.a"),
        ({1: 2}, "payload"),
        ({"a": "\ud800"}, "payload.a"),
        ({"\ud800": 1}, "payload"),
        ([2**64], "payload[0]"),
        ([-(2**63) - 1], "payload[0]"),
        ({"not a name": print}, "payload.'not a name'"),
        (Pair(1, 2), "payload"),
        (Point(1), "payload"),
        (Colour.RED, "payload"),
        (datetime.datetime(2026, 1, 1), "payload"),
        (uuid.UUID(int=1), "payload"),
        (decimal.Decimal("1.1"), "payload"),
        (object(), "payload"),
        ({"f": lambda: 1}, "payload.f"),
        ([sys.stdout], "payload[0]"),
        (Model(x=1), "payload"),
        ({"day": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)}, "payload.day"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_json_would_change_is_refused_by_path(value: Any, path: str) -> None:
    """B128, B130, B135."""
    with pytest.raises(InvalidArgument) as caught:
        to_payloads(value, "payload")
    assert caught.value.field == path
    assert str(caught.value).startswith(path)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 1_000, 5_000, 100_000])
def test_deep_nesting_is_refused(depth: int) -> None:
    """B132: and without a RecursionError."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    with pytest.raises(InvalidArgument, match="nested"):
        to_payloads(value, "result")


def test_nesting_within_the_limit_and_many_brackets_pass() -> None:
    value: list[Any] = []
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert from_payloads(to_payloads(value, "payload"), "payload") == value
    wide = [[] for _ in range(2 * MAX_DEPTH)]
    assert from_payloads(to_payloads(wide, "payload"), "payload") == wide


async def test_a_forgotten_await_is_named() -> None:
    """B119."""
    coroutine = asyncio.sleep(0)
    with pytest.raises(InvalidArgument, match="await"):
        to_payloads(coroutine, "result")
    await coroutine


@pytest.mark.parametrize(
    "payloads",
    [
        (Payload({"encoding": "json/plain"}, b"{"),),
        (Payload({"encoding": "json/plain"}, b"[" * 100_000),),
        (Payload({"encoding": "binary/encrypted"}, b"x"),),
        (Payload({}, b"1"),),
        (Payload({"encoding": "json/plain"}, b"1"), Payload({"encoding": "json/plain"}, b"2")),
    ],
    ids=["not JSON", "deep", "unknown", "no encoding", "two values"],
)
def test_what_cannot_be_read_is_refused(payloads: tuple[Payload, ...]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        from_payloads(payloads, "payload")
    assert caught.value.field == "payload"


def test_no_payload_is_none() -> None:
    assert from_payloads((), "payload") is None
