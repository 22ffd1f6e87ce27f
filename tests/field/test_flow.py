"""Field cases about slots, order, fairness and starvation, on every store."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from perdure import AsyncPerdure, task, workflow
from perdure.core import commands as c
from perdure.core.keys import SINGLETON
from perdure.core.messages import TimeoutOptions
from perdure.core.model import RetryPolicy, Task, Timeouts
from perdure.core.states import State
from tests.clock import SteppedClock
from tests.engine.drive import Drive, enqueue
from tests.flow.limited import complete, look, occupied, poll_all, put
from tests.flow.test_pace import make


@task(queue="field-flow")
async def field_flow_leaf(ctx: Any, number: int) -> int:
    return number


@workflow(queue="field-flow")
async def field_flow_parent(ctx: Any, depth: int) -> int:
    if depth == 0:
        leaf: int = await ctx.execute_activity(field_flow_leaf, 1)
        return leaf
    children = [await ctx.start_child(field_flow_parent, depth - 1, queue="field-flow") for _ in range(2 - depth // 4)]
    return sum([await child.result() for child in children])


async def test_b018_the_slots_of_dead_workers_come_back(drive: Drive, clock: SteppedClock) -> None:
    """A limit of 2, both workers die, ten jobs wait: all of them run."""
    await put(drive, "queue", "default", max_running=2)
    ids = {await drive.enqueue(timeouts=Timeouts(lease=5)) for _ in range(10)}
    for task_ in await poll_all(drive):
        await drive.beat(task_)
    await drive.elapse(clock, 6)
    await look(drive, clock, 10)
    done: set[bytes] = set()
    for _ in range(40):
        await drive.elapse(clock, 4)
        for task_ in await poll_all(drive):
            await complete(drive, task_)
            done.add(task_.id)
    assert done == ids
    assert not any((await occupied(drive)).values())


async def test_b018_a_kill_between_claim_and_start_leaks_nothing(drive: Drive, clock: SteppedClock) -> None:
    """B027: claimed, and never acknowledged."""
    await put(drive, "queue", "default", max_running=1)
    task_id = await drive.enqueue()
    for _ in range(3):
        [leased] = await poll_all(drive)
        assert leased.id == task_id
        await drive.elapse(clock, 12)
        await look(drive)


async def test_b016_a_serial_key_is_free_once_its_job_is_dead(drive: Drive, clock: SteppedClock) -> None:
    """It dies on its last attempt with its worker; the other five of the key run in order."""
    await put(drive, "key", "serial", max_running=1)
    once = RetryPolicy(max_attempts=1)
    ids = [await drive.enqueue(concurrency_key="serial:a", retry=once, timeouts=Timeouts(lease=5)) for _ in range(6)]
    [first] = await poll_all(drive)
    await drive.beat(first)
    await drive.elapse(clock, 6)
    assert (first.id, await drive.state(first.id)) == (ids[0], State.FAILED)
    for task_id in ids[1:]:
        [leased] = await poll_all(drive)
        assert leased.id == task_id
        await complete(drive, leased)


async def test_b028_a_unique_key_does_not_outlive_its_job(drive: Drive, clock: SteppedClock) -> None:
    """Its worker dies for good, or the closed job is deleted: the next one is made. A refusal names the holder."""
    first = await make(drive, SINGLETON, retry=RetryPolicy(max_attempts=1), timeouts=Timeouts(lease=5))
    await drive.beat(await drive.lease())
    assert (await make(drive, SINGLETON)).task_id == first.task_id
    await drive.elapse(clock, 6)
    second = await make(drive, SINGLETON)
    assert (second.task_id != first.task_id, second.duplicate) == (True, False)
    await drive.succeed(await drive.lease())
    await drive.one(c.Erase(task_ids=[second.task_id]))
    assert not (await make(drive, SINGLETON)).duplicate


async def test_b019_parents_and_children_under_a_limit_of_one(url: str) -> None:
    """A run that waits holds no slot: a child, several children, and five levels of them, all in one queue."""
    async with AsyncPerdure(url) as app:
        await app.set_limit("queue", "field-flow", max_running=1)
        async with app.worker(queues=["field-flow"], slots=4):
            async with asyncio.timeout(120):
                run = await app.start_workflow(field_flow_parent, 5)
                assert await run.result() == 8


async def test_b054_bulk_inserts_start_in_their_order(drive: Drive) -> None:
    """One bulk insert, and one at a time."""
    await put(drive, "queue", "default", max_running=1)
    made = await drive.engine.apply([enqueue() for _ in range(150)])
    wanted = [outcome.task_id for outcome in made if isinstance(outcome, c.Enqueued)]
    started: list[bytes] = []
    while len(started) < len(wanted):
        [leased] = await drive.poll(5, wait=5.0)
        started.append(leased.id)
        await complete(drive, leased)
    assert started == wanted


async def test_b055_tenants_take_turns_however_much_one_has(drive: Drive) -> None:
    """Ten tasks of a second key start before twenty more of a noisy one with thousands waiting, also under a limit."""
    await put(drive, "queue", "default", max_running=4)
    for _ in range(10):
        await drive.engine.apply([enqueue(fairness_key="noisy", payload=b"x") for _ in range(400)])
    running = await drive.poll(4, wait=10.0)
    await drive.engine.apply([enqueue(fairness_key="quiet") for _ in range(10)])
    noisy = quiet = 0
    while quiet < 10:
        await complete(drive, running.pop())
        got = await drive.poll(4, wait=10.0)
        running += got
        quiet += sum(each.fairness_key == "quiet" for each in got)
        noisy += sum(each.fairness_key == "noisy" for each in got)
        assert noisy <= 20


async def test_b036_a_full_key_at_the_head_stops_nobody(drive: Drive) -> None:
    await put(drive, "key", "customer", max_running=1)
    for _ in range(8):
        await drive.engine.apply([enqueue(concurrency_key="customer:1", payload=b"x") for _ in range(400)])
    other = await drive.enqueue(concurrency_key="customer:2")
    async with asyncio.timeout(60):
        got: list[Task] = []
        while len(got) < 2:
            got += await drive.poll(1, wait=20.0)
    assert got[1].id == other


async def test_b056_a_queue_whose_tasks_are_all_blocked_costs_little(drive: Drive) -> None:
    """A worker that polls it looks no oftener than one with nothing to do."""
    await put(drive, "queue", "default", max_running=0)
    await drive.engine.apply([enqueue() for _ in range(50)])
    assert await poll_all(drive) == []
    looks = 0
    take = drive.engine.dispatch.take

    def counted(touched: set[str]) -> Any:
        nonlocal looks
        found = take(touched)
        looks += bool(found)
        return found

    drive.engine.dispatch.take = counted  # type: ignore[method-assign]
    assert await drive.poll(10, wait=1.5) == []
    assert looks <= 8


async def test_b157_what_is_shown_is_what_runs(tmp_path: Path) -> None:
    """Concurrency 2 and ten jobs: two run, eight say why they wait."""
    async with AsyncPerdure(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        await app.set_limit("queue", "field-held", max_running=2)
        ids = [(await app.enqueue("field_held", n, queue="field-held")).id for n in range(10)]
        process = await _holder(tmp_path)
        try:
            async with asyncio.timeout(60):
                while sum([(await app.get(i)).state == State.LEASED.name for i in ids]) < 2:
                    await asyncio.sleep(0.05)
                while not all([_says_why(await app.get(i)) for i in ids[2:]]):
                    await asyncio.sleep(0.05)
            [limit] = await app.limits()
            assert limit.running == 2
            assert limit.blocked <= 8
        finally:
            process.send_signal(signal.SIGKILL)
            await process.wait()


def _says_why(view: Any) -> bool:
    return bool(view.state == "ENQUEUED" and view.waiting_for)


async def _holder(tmp_path: Path) -> asyncio.subprocess.Process:
    """A worker in a process of its own, whose tasks never end."""
    code = (
        "import asyncio\nfrom perdure import AsyncPerdure, task\n"
        "@task(queue='field-held')\nasync def field_held(ctx, n):\n    await asyncio.Event().wait()\n"
        "async def main():\n"
        f"    async with AsyncPerdure('sqlite:///{tmp_path / 'jobs.db'}') as app, app.worker(queues=['field-held']):\n"
        "        await asyncio.Event().wait()\nasyncio.run(main())\n"
    )
    return await asyncio.create_subprocess_exec(sys.executable, "-c", code, env=dict(os.environ))


@pytest.mark.parametrize("seed", range(3))
async def test_b018_a_cap_is_never_exceeded_and_always_used(drive: Drive, seed: int) -> None:
    """QUOTA-12: workers come and go with what they have; whenever somebody asks, every slot is taken."""
    pick, cap, total = Random(seed), 10, 200
    await put(drive, "queue", "default", max_running=cap)
    await drive.engine.apply([enqueue(payload=b"x") for _ in range(total)])
    held: list[Task] = []
    done = 0
    while done < total:
        held += await poll_all(drive, 5)
        assert len(held) == min(cap, total - done)
        assert sum((await occupied(drive)).values()) == len(held)
        for _ in range(pick.randint(1, 6)):
            if held:
                ended = held.pop(pick.randrange(len(held)))
                outcome = pick.choice(("succeeded", "succeeded", "released"))
                await complete(drive, ended, outcome)
                done += outcome == "succeeded"


def test_b048_a_limit_is_an_option_of_the_decorator() -> None:
    """And times of a task are not among those of its limit."""
    made = task(name="field_flow_options", concurrency=3, rate="5/s", timeout="1m")(lambda ctx, payload: None)
    assert (made.concurrency, made.rate) == (3, "5/s")
    assert made.timeouts == TimeoutOptions(start_to_close=60.0)
