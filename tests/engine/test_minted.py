"""Ids that callers make: a request that comes again names the task that is there, whatever became of it (IDEM-05)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from perdure.core import commands as c
from perdure.core.errors import Conflict
from perdure.core.states import State
from tests.engine.drive import Drive, enqueue

FIRST, OTHER = (bytes.fromhex(f"0199e0f8b5c07abc8def01234567890{n}") for n in (1, 2))
AGAIN = c.Enqueued(FIRST, False)


async def waits(drive: Drive) -> State:
    return State.ENQUEUED


async def runs(drive: Drive) -> State:
    await drive.lease()
    return State.LEASED


async def succeeded(drive: Drive) -> State:
    return await drive.succeed(await drive.lease())


async def failed(drive: Drive) -> State:
    return await drive.fail(await drive.lease(), retryable=False)


async def canceled(drive: Drive) -> State:
    return (await drive.cancel(FIRST)).state


@pytest.mark.parametrize("became", [waits, runs, succeeded, failed, canceled])
async def test_a_repeat_finds_its_task(drive: Drive, became: Callable[[Drive], Awaitable[State]]) -> None:
    made = await drive.one(enqueue(minted=FIRST))
    assert (made.task_id, made.duplicate) == (FIRST, False)
    state = await became(drive)
    assert await drive.one(enqueue(minted=FIRST)) == AGAIN
    assert await drive.state(FIRST) == state
    assert [task.id for task in await drive.poll()] == ([FIRST] if became is waits else [])


async def test_among_others(drive: Drive) -> None:
    """The repeat costs its batch a second look, and nobody else anything."""
    await drive.one(enqueue(minted=FIRST))
    first, keyed, again, other = await drive.engine.apply(
        [enqueue(), enqueue(key="k"), enqueue(minted=FIRST), enqueue(minted=OTHER)]
    )
    assert again == AGAIN
    assert isinstance(first, c.Enqueued)
    assert isinstance(keyed, c.Enqueued)
    assert not keyed.duplicate
    assert isinstance(other, c.Enqueued)
    assert {task.id for task in await drive.poll()} == {FIRST, first.task_id, keyed.task_id, OTHER}


async def test_twice_in_one_batch(drive: Drive) -> None:
    made = await drive.engine.apply([enqueue(minted=FIRST, payload=b"a"), enqueue(minted=FIRST, payload=b"a")])
    assert {outcome.task_id for outcome in made if isinstance(outcome, c.Enqueued)} == {FIRST}
    assert len(await drive.poll()) == 1


async def test_beside_the_end_of_its_task(drive: Drive) -> None:
    """The repeat and the completion of the first one meet in a batch."""
    await drive.one(enqueue(minted=FIRST))
    task = await drive.lease()
    for outcome in ("succeeded", "failed"):
        done = c.Complete(lease=task.lease, outcome=outcome, failure=b"\x80", retryable=False)
        _, again = await asyncio.gather(drive.engine.apply([done]), drive.engine.apply([enqueue(minted=FIRST)]))
        assert again == [AGAIN]
    assert await drive.state(FIRST) == State.SUCCEEDED
    assert await drive.poll() == []


async def test_other_namespaces_keep_their_ids(drive: Drive) -> None:
    """Who names another namespace's id gets an error and changes nothing, before, beside or after it."""
    theirs = enqueue(minted=FIRST, namespace="theirs")
    with pytest.raises(Conflict) as caught:
        await drive.one(enqueue(minted=FIRST))
        await drive.one(theirs)
    assert caught.value.field == "minted"
    mine, refused = await drive.engine.apply([enqueue(minted=OTHER), enqueue(minted=OTHER, namespace="theirs")])
    assert isinstance(mine, c.Enqueued)
    assert isinstance(refused, Conflict)
    assert {(await drive.read(task_id)).namespace for task_id in (FIRST, OTHER)} == {"default"}
