"""What is written is read again, and what was never written is refused by a typed error: bodies, frames, ids, leases,
durations, and what lies in columns."""

from __future__ import annotations

import math
import re
import uuid
from datetime import timedelta
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.api import wire
from perdure.api.codec import JSON, MSGPACK, Codec
from perdure.client import websocket
from perdure.client.packing import packed
from perdure.client.transport import read_reply
from perdure.core import durations, ids
from perdure.core import messages as m
from perdure.core.errors import InvalidArgument, PerdureError, Problem, from_problem
from perdure.core.model import Failure, Lease, Payloads, Progress, RetryPolicy, Timeouts, pack, unpack
from tests.fuzz.effort import effort
from tests.fuzz.values import of

OPS = sorted(m.OPS)
BODIES = st.sampled_from(OPS).flatmap(lambda op: of(m.OPS[op][0]).map(lambda body: (op, body)))
REPLIES = st.sampled_from(OPS).flatmap(lambda op: of(m.OPS[op][1]).map(lambda reply: (op, reply)))
BYTES = st.binary(max_size=40)


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Bytes that were right once: some changed, cut off, or doubled."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 3))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    start = draw(st.sampled_from((0, 0, 1)))
    end = draw(st.integers(0, len(data)) | st.just(len(data)))
    return bytes(data[start:end]) * draw(st.sampled_from((1, 1, 2)))


# -------------------------------------------------------------------------------------------------------------- bodies
@pytest.mark.parametrize("codec", [MSGPACK, JSON], ids=["msgpack", "json"])
def test_a_body_arrives_as_it_was_sent(codec: Codec) -> None:
    @effort(60)
    @given(BODIES)
    def check(sent: tuple[str, m.Body]) -> None:
        op, body = sent
        assert codec.decode(op, codec.encode(body)) == body

    check()


@pytest.mark.parametrize("codec", [MSGPACK, JSON], ids=["msgpack", "json"])
def test_a_damaged_body_is_another_one_or_refused(codec: Codec) -> None:
    @effort(100)
    @given(BODIES, st.data())
    def check(sent: tuple[str, m.Body], data: st.DataObject) -> None:
        op, body = sent
        try:
            found = codec.decode(op, data.draw(damaged(codec.encode(body))))
        except InvalidArgument as error:
            assert error.detail
        else:
            assert isinstance(found, m.OPS[op][0])

    check()


@effort(60)
@given(BODIES)
def test_the_client_packs_every_body(sent: tuple[str, m.Body]) -> None:
    """Or says which field cannot travel."""
    op, body = sent
    try:
        data = packed(body)
    except InvalidArgument as error:
        assert error.field
    else:
        assert MSGPACK.decode(op, data) == body


# -------------------------------------------------------------------------------------------------------------- frames
@effort(60)
@given(REPLIES, st.sampled_from((0, 200)))
def test_a_client_reads_every_reply(sent: tuple[str, m.Body], status: int) -> None:
    op, reply = sent
    assert read_reply(op, status, MSGPACK.encode(reply)) == reply


@effort(100)
@given(REPLIES, st.sampled_from((0, 200, 302, 400, 404, 500, 502, 599)), st.data())
def test_a_damaged_reply_is_an_error_of_ours(sent: tuple[str, m.Body], status: int, data: st.DataObject) -> None:
    """A proxy's page, half an answer: whoever asked gets a PerdureError, as for any other failure."""
    op, reply = sent
    try:
        found = read_reply(op, status, data.draw(damaged(MSGPACK.encode(reply)) | BYTES))
    except PerdureError as error:
        assert error.code
    else:
        assert isinstance(found, m.OPS[op][1])


@effort(100)
@given(st.lists(st.tuples(st.integers(), st.integers(0, 599), of(Any)), max_size=3), st.data())
def test_damaged_frames_are_frames_or_a_decode_error(frames: list[Any], data: st.DataObject) -> None:
    """Both ends catch that one error, and what it is made of."""
    for read, caught in (
        (websocket._frames, msgspec.DecodeError),
        (wire._frames, (msgspec.DecodeError, UnicodeDecodeError, RecursionError)),
    ):
        try:
            whole = msgspec.msgpack.encode([(n % 2**63, status, body) for n, status, body in frames])
            assert isinstance(read(data.draw(damaged(whole) | BYTES)), list)
        except caught:
            continue


@effort(100)
@given(of(Problem))
def test_every_problem_is_an_error(problem: Problem) -> None:
    """Also one with a code that this client does not know."""
    error = from_problem(problem)
    assert isinstance(error, PerdureError)
    assert not problem.detail or error.problem().detail == problem.detail


# ----------------------------------------------------------------------------------------------------------------- ids
@effort(200)
@given(st.binary(min_size=16, max_size=16))
def test_an_id_is_read_as_it_is_written(task_id: bytes) -> None:
    text = ids.text(task_id)
    assert text == str(uuid.UUID(bytes=task_id))
    assert ids.parse(text) == ids.parse(text.upper()) == task_id
    assert 0 <= ids.slot(task_id) < ids.SLOTS


@effort(100)
@given(st.text(max_size=40) | st.from_regex(r"[0-9a-fA-F_+ -]{30,40}", fullmatch=True) | st.uuids().map(str))
def test_what_is_no_id_is_refused(text: str) -> None:
    exact = re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text, re.IGNORECASE | re.ASCII)
    try:
        found = ids.parse(text)
    except InvalidArgument:
        assert exact is None
    else:
        assert exact and ids.text(found) == text.lower()


@effort(200)
@given(st.binary(min_size=16, max_size=16), st.integers(0, 2**31 - 1), st.integers(-(2**63), 2**63 - 1), st.booleans())
def test_a_lease_is_read_as_it_is_written(task_id: bytes, number: int, bits: int, job: bool) -> None:
    lease = Lease(task_id, number, bits, job)
    assert ids.parse_lease(ids.lease_token(lease)) == lease


@effort(200)
@given(BYTES)
def test_no_two_tokens_are_one_lease(token: bytes) -> None:
    try:
        lease = ids.parse_lease(token)
    except InvalidArgument:
        assert len(token) != 28
    else:
        assert ids.lease_token(lease) == token


@effort(100)
@given(st.lists(st.integers(0, 2**47) | st.integers(10**15, 10**15 + 5_000), min_size=1, max_size=50), st.integers())
def test_minted_ids_rise_and_carry_what_they_are_given(clock: list[int], seed: int) -> None:
    """B054: the clock may go wherever it likes."""
    mint = ids.Mint(Random(seed))
    made = [mint.task_id(now, slot=now % ids.SLOTS) for now in clock]
    assert made == sorted(set(made))
    assert [ids.slot(task_id) for task_id in made] == [now % ids.SLOTS for now in clock]
    assert all(uuid.UUID(bytes=task_id).version == 7 for task_id in made)
    assert ids.made_at(made[0]) == clock[0] // 1000 * 1000


# ----------------------------------------------------------------------------------------------------------- durations
UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
PARTS = st.lists(st.tuples(st.integers(0, 999), st.sampled_from(sorted(UNITS))), min_size=1, max_size=6)


@effort(200)
@given(PARTS)
def test_a_duration_is_the_sum_of_its_parts(parts: list[tuple[int, str]]) -> None:
    text = "".join(f"{amount}{unit}" for amount, unit in parts)
    milliseconds = sum(amount * UNITS[unit] for amount, unit in parts)
    if milliseconds / 1000 > durations.MAX_SECONDS:
        with pytest.raises(InvalidArgument):
            durations.seconds(text, "delay")
    else:
        assert math.isclose(durations.seconds(text, "delay"), milliseconds / 1000, abs_tol=1e-9)


@effort(200)
@given(st.timedeltas(timedelta(0), timedelta(seconds=durations.MAX_SECONDS)))
def test_iso_durations_are_read_in_full(span: timedelta) -> None:
    text = msgspec.to_builtins(span)
    assert durations.seconds(text, "delay") == span.total_seconds()


@effort(300)
@given(
    st.text(max_size=12)
    | st.from_regex(r"[0-9.eE+_ -]{1,8}(ms|s|m|h|d|w)?", fullmatch=True)
    | st.from_regex(r"P[0-9YMWDTHS.,-]{0,12}", fullmatch=True)
    | st.floats()
    | st.integers()
)
def test_any_duration_is_in_range_or_refused(value: Any) -> None:
    """B047: nothing is read as another time than what it says."""
    try:
        found = durations.seconds(value, "delay", least=0.0, most=3600.0)
    except InvalidArgument as error:
        assert error.field == "delay"
    else:
        assert 0.0 <= found <= 3600.0
        if isinstance(value, str):
            assert value.isascii() and not re.search(r"[\s_eE+-]", value)
        else:
            assert found == value


# ------------------------------------------------------------------------------------------------------------- columns
KINDS: list[Any] = [Payloads, Failure, RetryPolicy, Timeouts, Progress, dict[str, str]]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_column_is_read_as_it_was_written(kind: Any) -> None:
    @effort(60)
    @given(of(kind))
    def check(value: Any) -> None:
        assert unpack(pack(value), kind) == value

    check()


@pytest.mark.parametrize("kind", [Failure, RetryPolicy, Timeouts, Progress], ids=str)
def test_a_column_of_a_newer_version_is_read(kind: Any) -> None:
    """An old server beside a new one reads what that wrote, without the fields that it does not know."""

    @effort(60)
    @given(of(kind), st.dictionaries(st.text(min_size=1, max_size=5).map("new_{}".format), of(Any), max_size=2))
    def check(value: Any, more: dict[str, Any]) -> None:
        assert unpack(pack(msgspec.to_builtins(value, builtin_types=(bytes,)) | more), kind) == value

    check()
