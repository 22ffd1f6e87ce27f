"""How often something is done: singleton, throttle, debounce."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.core import commands as c
from perdure.core import keys
from perdure.core.model import SECOND
from perdure.core.states import State
from tests.clock import SteppedClock
from tests.engine.drive import Drive, enqueue


async def make(drive: Drive, kind: str, key: str = "k", *, life: float = 0, **fields: Any) -> c.Enqueued:
    command = enqueue(key=key, digest=b"", **fields)
    command.key_kind, command.key_life = kind, int(life * SECOND)
    made: c.Enqueued = await drive.one(command)
    return made


async def test_a_singleton_is_the_only_open_one(drive: Drive, clock: SteppedClock) -> None:
    """Whatever state it is in, and however long it takes; once it has closed, the next one is made at once."""
    first = await make(drive, keys.SINGLETON)
    assert not first.duplicate
    assert (await make(drive, keys.SINGLETON)).task_id == first.task_id
    leased = await drive.lease()
    clock.advance(3 * 3600)
    await drive.one(c.Trim(closed_before=0, limit=100))
    again = await make(drive, keys.SINGLETON)
    assert (again.task_id, again.duplicate) == (first.task_id, True)
    assert (await make(drive, keys.SINGLETON, "other")).task_id != first.task_id
    await drive.succeed(leased)
    assert (await make(drive, keys.SINGLETON)).task_id != first.task_id


async def test_many_singletons_at_once_are_one(drive: Drive) -> None:
    commands = [enqueue(key="k", digest=b"") for _ in range(20)]
    for command in commands:
        command.key_kind = keys.SINGLETON
    outcomes = await drive.engine.apply(commands)
    assert len({outcome.task_id for outcome in outcomes if isinstance(outcome, c.Enqueued)}) == 1


async def test_a_throttle_makes_one_in_a_period(drive: Drive, clock: SteppedClock) -> None:
    """Also while the one before is open."""
    first = await make(drive, keys.THROTTLE, life=60)
    clock.advance(59)
    again = await make(drive, keys.THROTTLE, life=60)
    assert (again.task_id, again.duplicate) == (first.task_id, True)
    clock.advance(2)
    second = await make(drive, keys.THROTTLE, life=60)
    assert (second.task_id != first.task_id, second.duplicate) == (True, False)
    clock.advance(61)
    await drive.one(c.Trim(closed_before=0, limit=100))
    assert not (await make(drive, keys.THROTTLE, life=60)).duplicate


async def test_a_debounce_leaves_the_last_one(drive: Drive, clock: SteppedClock) -> None:
    """The delay begins anew with each; the ones before say which took their place."""
    first = await make(drive, keys.DEBOUNCE, life=3600, delay=10)
    clock.advance(6)
    second = await make(drive, keys.DEBOUNCE, life=3600, delay=10)
    gone = await drive.read(first.task_id)
    assert gone.state == State.CANCELED
    assert str(gone.cancel_reason).startswith("debounced by ")
    clock.advance(6)
    await drive.ring()
    assert await drive.poll() == []
    clock.advance(5)
    await drive.ring()
    [leased] = await drive.poll()
    assert leased.id == second.task_id


async def test_a_debounce_does_not_stop_what_has_begun(drive: Drive, clock: SteppedClock) -> None:
    first = await make(drive, keys.DEBOUNCE, life=3600, delay=1)
    clock.advance(2)
    await drive.ring()
    leased = await drive.lease()
    second = await make(drive, keys.DEBOUNCE, life=3600, delay=1)
    assert second.task_id != first.task_id
    assert await drive.succeed(leased) == State.SUCCEEDED
    assert await drive.state(second.task_id) == State.ENQUEUED


async def test_debounces_that_come_together_leave_one(drive: Drive) -> None:
    commands = [enqueue(key="k", digest=b"", delay=60) for _ in range(5)]
    for command in commands:
        command.key_kind, command.key_life = keys.DEBOUNCE, 3600 * SECOND
    outcomes = [outcome for outcome in await drive.engine.apply(commands) if isinstance(outcome, c.Enqueued)]
    states = [await drive.state(outcome.task_id) for outcome in outcomes]
    assert sorted(states) == [State.ENQUEUED, *[State.CANCELED] * 4]


@pytest.mark.parametrize("kind", [keys.DEBOUNCE, keys.SINGLETON, keys.THROTTLE])
async def test_keys_of_one_kind_say_nothing_about_another(drive: Drive, kind: str) -> None:
    first = await make(drive, kind, life=3600, delay=1)
    plain = await drive.enqueue(key="k")
    assert plain != first.task_id
