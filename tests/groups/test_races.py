"""Groups whose calls, alarms and runs meet, in two engines: every order on the memory store, drawn orders on
PostgreSQL, and both in one batch. The run hears once, whoever set the last bit (STEP-20)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from perdure.core import commands as c
from perdure.core import groups, pages
from perdure.core import turn_commands as t
from perdure.core.errors import LeaseLost
from perdure.core.events import GroupCompleted, GroupFailed
from perdure.core.model import RetryPolicy, Task
from perdure.core.states import is_closed
from tests.clock import SteppedClock
from tests.engine import interleave, soundness
from tests.engine.drive import Drive
from tests.engine.interleave import Race
from tests.engine.runs import DONE, MINT, Flows, Turn, payload

MOST = 60
"""Orders of one race that are tried on the memory store one after another; as many again are drawn."""
DRAWN = 4
"""Orders of one race that are tried on PostgreSQL."""

CLOCK = SteppedClock()
Made = tuple[t.StartGroup, list[Task], Turn]
"""The group, its leased calls, and a turn of its run in hand."""


def begun(count: int, leased: int, **fields: Any) -> Callable[[Drive], Awaitable[Made]]:
    """A group of so many calls, of which a worker has some."""

    async def setup(drive: Drive) -> Made:
        flows = Flows(drive)
        await flows.start()
        command = t.StartGroup(
            task_id=MINT.task_id(CLOCK.now()), group_id="g#1", activity_type="work", task_queue="default",
            inputs=[payload(str(index)) for index in range(count)], retry=RetryPolicy(max_attempts=1), **fields,
        )  # fmt: skip
        await (await flows.turn()).append(command)
        while await drive.ring():
            pass
        tasks = await drive.poll(leased)
        await flows.signal("early")
        return command, tasks, await flows.turn()

    return setup


async def all_but_told(drive: Drive) -> Made:
    """Every call has ended, and the run has not heard of it."""
    made = await begun(2, 2)(drive)
    for number in range(2):
        await ends(number)(drive, made)
    return made


# ------------------------------------------------------------------------------------------------------------- sides
def ends(number: int) -> Callable[[Drive, Made], Any]:
    return lambda drive, made: drive.complete(made[1][number], "succeeded", result=made[1][number].payload)


def fails(number: int) -> Callable[[Drive, Made], Any]:
    return lambda drive, made: drive.fail(made[1][number])


def ring(drive: Drive, made: Made) -> Any:
    return drive.ring()


def appends(*commands: Any) -> Callable[[Drive, Made], Any]:
    return lambda drive, made: drive.one(made[2].command(*commands))


def cancels(drive: Drive, made: Made) -> Any:
    return drive.one(made[2].command(t.CancelGroup(task_id=made[0].task_id, started_event_id=5)))


def terminates(drive: Drive, made: Made) -> Any:
    return drive.one(c.Terminate(namespace="default", workflow_id="wf"))


# ------------------------------------------------------------------------------------------------------------ checks
async def settle(drive: Drive, made: Made) -> list[Any]:
    """Let all that is due happen; the events that the run has heard of its group."""
    [*_, (task, _)] = await soundness.chain(drive, "wf")
    for number in range(len(made[1])):
        with suppress(LeaseLost):  # if it has not ended yet
            await ends(number)(drive, made)
    for _ in range(12):
        CLOCK.advance(0.05)
        while await drive.ring():
            pass
        for call in await drive.poll(100):
            await drive.complete(call, "succeeded", result=call.payload)
    with suppress(LeaseLost):  # if that has not ended yet
        await made[2].append()
    for turn in await Flows(drive).turns():
        await turn.append()
    await soundness.check(drive)
    events = [event.attributes for event in await Flows(drive).history(task.id)]
    return [attributes for attributes in events if isinstance(attributes, (GroupCompleted, GroupFailed))]


async def told_once(drive: Drive, made: Made, left: Any, right: Any) -> None:
    assert not isinstance(left, Exception), left
    assert not isinstance(right, Exception), right
    assert [type(news) for news in await settle(drive, made)] == [GroupCompleted]
    group = groups.group_of(await drive.read(made[0].task_id))
    assert group.done == group.inserted == group.arrived == group.count
    found = await drive.engine.store.histories({made[0].task_id: made[0].count}, 100)
    results = [one for page in found[made[0].task_id] for one in pages.unpack_results(page.data)]
    assert sorted(one.index for one in results) == list(range(group.count))
    assert all(one.result == payload(str(one.index)) for one in results)


async def failed_once(drive: Drive, made: Made, left: Any, right: Any) -> None:
    assert [type(news) for news in await settle(drive, made)] == [GroupFailed]
    assert (await drive.engine.store.pending(made[0].task_id, 100))[0] == []


async def told_or_canceled(drive: Drive, made: Made, left: Any, right: Any) -> None:
    """A cancel comes before the news or after it; nothing is left over either way."""
    assert len(await settle(drive, made)) <= 1
    assert (await drive.engine.store.pending(made[0].task_id, 100))[0] == []


async def gone(drive: Drive, made: Made, left: Any, right: Any) -> None:
    await settle(drive, made)
    [(task, _)] = await soundness.chain(drive, "wf")
    assert is_closed(task.state)
    assert (await drive.engine.store.pending(made[0].task_id, 100))[0] == []
    assert (await drive.engine.store.pending(task.id, 100))[0] == []
    assert is_closed((await drive.read(made[0].task_id)).state)


RACES: dict[str, Race] = {
    "call/call": Race(begun(2, 2), ends(0), ends(1), told_once),
    "call/call of a window": Race(begun(6, 2, window=2), ends(0), ends(1), told_once),
    "call/insert": Race(begun(5, 2, window=2), ends(0), ring, told_once),
    "call/tell": Race(begun(1, 1), ends(0), ring, told_once),
    "tell/tell": Race(all_but_told, ring, ring, told_once),
    "tell/turn": Race(all_but_told, ring, appends(), told_once),
    "failure/failure": Race(begun(4, 2), fails(0), fails(1), failed_once),
    "failure/call": Race(begun(2, 2), fails(0), ends(1), failed_once),
    "call/cancel": Race(begun(3, 1), ends(0), cancels, told_or_canceled),
    "tell/cancel": Race(all_but_told, ring, cancels, told_or_canceled),
    "call/terminate": Race(begun(3, 1), ends(0), terminates, gone),
    "tell/terminate": Race(all_but_told, ring, terminates, gone),
    "insert/terminate": Race(begun(9, 2, window=2), ring, terminates, gone),
    "tell/complete": Race(all_but_told, ring, appends(DONE), gone),
    "call/complete": Race(begun(2, 2), ends(0), appends(DONE), gone),
}


@pytest.mark.parametrize("name", sorted(RACES))
async def test_every_order(name: str) -> None:
    assert await interleave.every_order(name, RACES[name], CLOCK, MOST) > 1


@pytest.mark.parametrize("name", sorted(RACES))
async def test_drawn_orders_on_postgres(name: str, migrated_database: str) -> None:
    await interleave.drawn_orders(name, RACES[name], CLOCK, migrated_database, DRAWN)


@pytest.mark.parametrize("swapped", [False, True], ids=["as written", "swapped"])
@pytest.mark.parametrize("name", sorted(RACES))
async def test_in_one_batch(name: str, swapped: bool) -> None:
    await interleave.in_one_batch(RACES[name], CLOCK, swapped=swapped)
