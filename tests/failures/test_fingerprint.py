"""RETRY-06: which failures are alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import InvalidArgument
from perdure.core.failures import MAX_MESSAGE, fingerprint, group_text, is_dead, normalized, parse_group
from perdure.core.model import Failure, Task, pack
from perdure.core.states import Kind, State


def failed(message: str = "boom", kind: str = "ValueError", type_: str = "mail", **fields: object) -> Task:
    failure = pack(Failure(message=message, type=kind))
    return Task(b"1" * 16, "default", type_, State.FAILED, "lane", 0, 0, failure=failure, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("order 17 is gone", "order <n> is gone"),
        ("order17: 3.5 of 10,000 at 10:30:01", "order<n>: <n> of <n> at <n>"),
        ("no task 01a22c60-3b9a-7000-9de6-012d84a3cb20", "no task <id>"),
        ("no task 01a22c603b9a70009de6012d84a3cb20", "no task <id>"),
        ("object at 0x7f3a2B00", "object at <hex>"),
        ("commit d99a3b4c is missing", "commit <hex> is missing"),
        ("cannot open '/srv/a b/17.png'", "cannot open <text>"),
        ('column "a_1" of `b`', "column <text> of <text>"),
        ("can't read what isn't there", "can't read what isn't there"),
        ("no such file: /srv/in/a.png", "no such file: <path>"),
        (r"no such file: C:\in\a.png", "no such file: <path>"),
        ("either/or of N/A", "either/or of N/A"),
        ("GET https://shop.example/orders/17?x=1 failed", "GET <url> failed"),
        ("two  lines\n\tof text", "two lines of text"),
        ("a\0b", "ab"),
        ("", ""),
    ],
)  # fmt: skip
def test_what_differs_each_time_has_a_name(message: str, found: str) -> None:
    assert normalized(message) == found


@given(st.text(max_size=3_000))
def test_any_message_is_normalized_to_a_short_text(message: str) -> None:
    found = normalized(message)
    assert len(found) <= MAX_MESSAGE
    assert "\0" not in found
    assert found == " ".join(found.split())


def test_b162_long_messages_cost_little() -> None:
    """No text makes the pattern go over it again and again."""
    for text in ("'" * 100_000, "/a" * 100_000, "a-" * 100_000, "0" * 100_000, "\\" * 100_000, "ab" * 100_000):
        normalized(text)


def test_a_group_is_type_error_and_message() -> None:
    one = fingerprint(failed("order 1"))
    assert fingerprint(failed("order 2")) == one
    others = [failed("orders 1"), failed("order 1", "KeyError"), failed("order 1", type_="sms")]
    assert len({one.group, *(fingerprint(other).group for other in others)}) == 4
    assert (one.error, one.message) == ("ValueError", "order <n>")


def test_a_failure_without_a_type_or_without_words_has_a_group() -> None:
    assert fingerprint(failed(kind="")).error == "handler_error"
    nothing = Task(b"1" * 16, "default", "mail", State.TIMED_OUT, "lane", 0, 0)
    assert fingerprint(nothing).error == "TIMED_OUT"
    broken = Task(b"1" * 16, "default", "mail", State.FAILED, "lane", 0, 0, failure=b"\xc1")
    assert fingerprint(broken).error == "unreadable"


def test_dead_letters_are_jobs_and_runs_that_failed_for_good() -> None:
    assert is_dead(failed())
    assert is_dead(failed(kind=""))
    run = failed()
    run.kind, run.state = Kind.WORKFLOW, State.TIMED_OUT
    assert is_dead(run)
    for kind, state in ((Kind.UPDATE, State.FAILED), (Kind.JOB, State.CANCELED), (Kind.JOB, State.EXPIRED)):
        run.kind, run.state = kind, state
        assert not is_dead(run)


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_group_is_16_digits_for_callers(group: int) -> None:
    assert parse_group(group_text(group)) == group
    assert len(group_text(group)) == 16


@pytest.mark.parametrize("text", ["", "1", "g" * 16, "A" * 16, "1" * 17, "٣" * 16])
def test_other_text_is_no_group(text: str) -> None:
    with pytest.raises(InvalidArgument, match="failure_group"):
        parse_group(text)
