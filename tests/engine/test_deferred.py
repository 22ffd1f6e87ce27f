"""Attempts that somebody else ends: the worker is done, the lease has no end, the deadlines count."""

from __future__ import annotations

import pytest

from perdure.core import commands as c
from perdure.core.describe import waiting_for
from perdure.core.errors import LeaseLost
from perdure.core.model import Timeouts
from perdure.core.states import State
from tests.clock import SteppedClock
from tests.engine.drive import Drive


async def test_no_lease_runs_out_and_the_token_ends_it(drive: Drive, clock: SteppedClock) -> None:
    task = await drive.lease_new()
    assert await drive.complete(task, "deferred") == State.LEASED
    assert await drive.complete(task, "deferred") == State.LEASED
    await drive.one(c.CloseSession(incarnation=drive.incarnation))
    await drive.one(c.Reap(limit=10))
    await drive.elapse(clock, 300)
    open_ = await drive.read(task.id)
    assert (open_.state, open_.lease_until, open_.wake_at) == (State.LEASED, None, None)
    assert "outside" in waiting_for(open_)
    assert await drive.beat(task) is False  # a sign of life from whoever has the token gives it no end either
    assert (await drive.read(task.id)).lease_until is None
    assert await drive.succeed(task) == State.SUCCEEDED


async def test_its_deadline_still_counts(drive: Drive, clock: SteppedClock) -> None:
    await drive.enqueue(timeouts=Timeouts(start_to_close=60))
    task = await drive.lease()
    await drive.complete(task, "deferred")
    await drive.elapse(clock, 62)
    after = await drive.read(task.id)
    assert (after.attempt, after.state in (State.RETRY_WAIT, State.ENQUEUED)) == (1, True)
    with pytest.raises(LeaseLost):
        await drive.succeed(task)


async def test_it_can_fail_and_be_canceled(drive: Drive, clock: SteppedClock) -> None:
    failing, canceled = await drive.lease_new(), await drive.lease_new()
    for task in (failing, canceled):
        await drive.complete(task, "deferred")
    assert await drive.fail(failing) == State.RETRY_WAIT
    await drive.cancel(canceled.id)
    assert await drive.beat(canceled) is True
    await drive.elapse(clock, 31)
    assert await drive.state(canceled.id) == State.CANCELED
