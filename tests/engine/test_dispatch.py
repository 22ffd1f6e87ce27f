"""Parked polls by themselves: what wakes them, and that nothing is missed while a batch has them."""

from __future__ import annotations

import asyncio

from perdure.core.model import Task
from perdure.core.states import State
from perdure.engine.dispatch import Dispatch, Parked, PollRequest, assign, demands


def request(*lanes: str, capacity: int = 5, wait: float = 20.0) -> PollRequest:
    return PollRequest(lanes or ("a",), capacity, 1, "w", 1, wait, lambda: True)


async def parked(dispatch: Dispatch, *lanes: str, wait: float = 20.0) -> asyncio.Task[list[Task]]:
    polling = asyncio.create_task(dispatch.poll(request(*lanes, wait=wait)))
    await asyncio.sleep(0)
    return polling


async def test_what_becomes_ready_while_a_batch_has_the_poll_is_not_missed() -> None:
    """CLUS-09: the other batch in flight made a task ready; the poll is looked at again at once."""
    dispatch = Dispatch(lambda: None)
    polling = await parked(dispatch)
    (poll,) = dispatch.take(set())
    assert not dispatch
    dispatch.heat(["a"])
    assert not dispatch
    dispatch.park_again([poll], {"a"})
    assert dispatch
    assert dispatch.take(set()) == [poll]
    dispatch.park_again([poll], {"a"})
    assert not dispatch
    dispatch.close()
    assert await polling == []


async def test_a_poll_that_runs_out_while_a_batch_has_it_keeps_what_it_got() -> None:
    dispatch = Dispatch(lambda: None)
    polling = await parked(dispatch, wait=0.0)
    (poll,) = dispatch.take(set())
    await asyncio.sleep(0.01)
    assert not polling.done()
    task = Task(b"1", "default", "t", State.LEASED, "a", 0, 0)
    dispatch.release([poll])
    poll.future.set_result([task])
    assert await polling == [task]


async def test_a_lane_that_everybody_left_leaves_nothing_behind() -> None:
    dispatch = Dispatch(lambda: None)
    polling = await parked(dispatch)
    (poll,) = dispatch.take(set())
    dispatch.park_again([poll], {"a"})
    dispatch.heat(["a"])
    polling.cancel()
    await asyncio.gather(polling, return_exceptions=True)
    await asyncio.sleep(0.06)  # its repeat comes due
    assert not dispatch.waiting
    assert dispatch.take({"a"}) == []


async def test_a_repeat_looks_again_without_a_hint() -> None:
    """FAIL-37: a lost hint costs latency only."""
    woken = asyncio.Event()
    dispatch = Dispatch(woken.set)
    polling = await parked(dispatch)
    (poll,) = dispatch.take(set())
    woken.clear()
    dispatch.park_again([poll], {"a"})
    async with asyncio.timeout(5):
        await woken.wait()
    assert dispatch.take(set()) == [poll]
    dispatch.park_again([poll], set())
    dispatch.close()
    await polling


def test_demands_never_exceed_a_batch() -> None:
    loop = asyncio.new_event_loop()
    polls = [Parked(request("a", "b", capacity=300), False, loop.create_future()) for _ in range(3)]
    assert [(d.lane, d.limit) for d in demands(polls, lambda lane: None)] == [("a", 400), ("b", 400)]
    tasks = {lane: [Task(bytes([n]), "", "", State.ENQUEUED, lane, 0, 0) for n in range(4)] for lane in "ab"}
    given = assign([Parked(request("b", "a", capacity=5), False, loop.create_future())], tasks, {})
    assert [task.lane for _, task in given] == ["b"] * 4 + ["a"]
    assert len(tasks["a"]) == 3
    loop.close()


def test_a_run_goes_to_the_worker_that_has_it_in_memory() -> None:
    """RPLY-34: if that one asks; the others are given away in order."""
    loop = asyncio.new_event_loop()
    first, second = (
        Parked(PollRequest(("a",), 2, number, "w", 1, 0.0, lambda: True), False, loop.create_future())
        for number in (1, 2)
    )
    ids = [bytes([number]) for number in range(4)]
    tasks = {"a": [Task(i, "", "", State.ENQUEUED, "a", 0, 0) for i in ids]}
    given = assign([first, second], tasks, {ids[0]: 2, ids[1]: 3})
    assert [task.id for parked, task in given if parked is second] == [ids[0], ids[3]]
    assert [task.id for parked, task in given if parked is first] == [ids[1], ids[2]]
    loop.close()
