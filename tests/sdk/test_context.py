"""What a handler may say and ask."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from perdure.core.errors import Cancelled, InvalidArgument, PayloadTooLarge
from perdure.core.limits import progress as checked
from perdure.core.messages import Delivery
from perdure.core.model import Progress
from perdure.sdk.context import Context
from perdure.sdk.converter import to_payloads


def context(**fields: Any) -> tuple[Context, list[str]]:
    delivery = Delivery(
        task_id="id", lease=b"lease", type="t", queue="q", attempt=2, max_attempts=5, headers={"a": "b"}, **fields
    )
    calls: list[str] = []
    return Context(delivery, lambda: calls.append("changed")), calls


def test_facts() -> None:
    ctx, _ = context()
    assert (ctx.task_id, ctx.attempt, ctx.max_attempts, ctx.type, ctx.queue) == ("id", 2, 5, "t", "q")
    assert ctx.headers == {"a": "b"}
    assert ctx.idempotency_key("charge") == "id/charge"
    assert ctx.last_checkpoint is None


def test_checkpoint_of_an_earlier_attempt_and_of_this_one() -> None:
    """TASK-22."""
    ctx, calls = context(checkpoint=to_payloads([1], "checkpoint"))
    assert ctx.last_checkpoint == [1]
    ctx.checkpoint([2])
    assert ctx.last_checkpoint == [2]
    assert calls == ["changed"]


def test_progress_never_goes_back() -> None:
    """JOB-10: also not below what an earlier attempt reported."""
    ctx, _ = context(progress=Progress(5.0))
    ctx.progress(3, 10, "again")
    assert ctx.pending_progress == Progress(5.0, 10, "again")
    ctx.progress(7, 10)
    ctx.progress(6, 10)
    assert ctx.pending_progress == Progress(7, 10)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1])
def test_progress_is_a_number(number: float) -> None:
    """B130."""
    ctx, _ = context()
    with pytest.raises(InvalidArgument, match="done"):
        ctx.progress(number)


def test_a_large_checkpoint_is_refused_at_the_call() -> None:
    """B133."""
    ctx, _ = context()
    with pytest.raises(PayloadTooLarge):
        ctx.checkpoint("x" * 300_000)
    assert ctx.last_checkpoint is None


def test_stopping() -> None:
    ctx, _ = context()
    assert not ctx.cancelled()
    ctx.raise_if_cancelled()
    ctx.stop = "cancel"
    assert ctx.cancelled()
    with pytest.raises(Cancelled):
        ctx.raise_if_cancelled()
    with pytest.raises(Cancelled):
        ctx.checkpoint("kept")
    assert ctx.last_checkpoint == "kept"
    ctx.stop = "drain"
    assert ctx.stop == "cancel"
    ctx.stop = "lost"
    assert ctx.stop == "lost"


class Whole(int):
    pass


@pytest.mark.parametrize("number", [Decimal("1.5"), True, 2**70, 10**400, -1, float("nan"), float("inf"), "3", None])
def test_progress_that_no_server_takes_is_refused_at_the_call(number: Any) -> None:
    """LEASE-07: else the heartbeat of every lease of the worker would be refused."""
    ctx, calls = context()
    with pytest.raises(InvalidArgument):
        ctx.progress(number, 10)
    if number is not None:
        with pytest.raises(InvalidArgument):
            ctx.progress(1, number)
    assert (ctx.pending_progress, calls) == (None, [])


def test_what_progress_says_can_be_stored() -> None:
    ctx, _ = context()
    ctx.progress(Whole(2), 10, "a\x00" + 2_000 * "\ud800")
    assert ctx.pending_progress is not None
    assert type(ctx.pending_progress.done) is int
    assert checked(ctx.pending_progress).message.startswith("a\N{REPLACEMENT CHARACTER}\\ud800")
    with pytest.raises(InvalidArgument, match="message"):
        ctx.progress(1, 2, 3)  # type: ignore[arg-type]


def test_idem_09_a_key_differs_by_task_and_step_and_not_by_attempt() -> None:
    first, _ = context()
    later = Context(Delivery(task_id="id", lease=b"2", type="t", queue="q", attempt=3, max_attempts=5), lambda: None)
    other = Context(Delivery(task_id="di", lease=b"3", type="t", queue="q", attempt=2, max_attempts=5), lambda: None)
    assert first.idempotency_key("charge") == later.idempotency_key("charge")
    keys = {ctx.idempotency_key(step) for ctx in (first, other) for step in ("charge", "mail", "charge/mail")}
    assert len(keys) == 6


@pytest.mark.parametrize("step", ["", None, 1, "a\x00", "x" * 256], ids=repr)
def test_a_step_without_a_name_has_no_key(step: Any) -> None:
    ctx, _ = context()
    with pytest.raises(InvalidArgument) as caught:
        ctx.idempotency_key(step)
    assert caught.value.field == "step"


@pytest.mark.parametrize(("reason", "over"), [("cancel", False), ("drain", False), ("timeout", True), ("lost", True)])
def test_what_counts_for_nothing_is_not_begun(reason: str, over: bool) -> None:
    """TASK-24, B023: once an attempt is over; one that winds up may still say how far it is."""
    ctx, _ = context()
    ctx.stop = reason
    for call in (lambda: ctx.progress(1), lambda: ctx.idempotency_key("charge")):
        if over:
            with pytest.raises(Cancelled, match=reason):
                call()
        else:
            call()
    assert ctx.cancelled()
