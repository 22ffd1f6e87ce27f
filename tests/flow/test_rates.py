"""So many starts in a time: a token bucket of a queue, a type, or each value of a key (QUOTA-24)."""

from __future__ import annotations

from tests.clock import SteppedClock
from tests.engine.drive import Drive
from tests.flow.limited import complete, look, poll_all, put


async def test_a_rate_lets_a_burst_through_and_then_one_at_a_time(drive: Drive, clock: SteppedClock) -> None:
    await put(drive, "queue", "default", rate=2, per=1, burst=3)
    for _ in range(7):
        await drive.enqueue()
    assert len(await poll_all(drive)) == 3
    for _ in range(2):
        await look(drive, clock, 0.5)
        assert len(await poll_all(drive)) == 1
    await look(drive, clock, 10)
    assert len(await poll_all(drive)) == 2


async def test_a_full_bucket_holds_no_more_than_its_burst(drive: Drive, clock: SteppedClock) -> None:
    await put(drive, "type", "t", rate=10, per=1, burst=2)
    clock.advance(3600)
    for _ in range(6):
        await drive.enqueue()
    assert len(await poll_all(drive)) == 2


async def test_the_service_says_when_it_wants_to_run_for_the_next_token(drive: Drive, clock: SteppedClock) -> None:
    """A rate needs no look that finds nothing."""
    await put(drive, "queue", "default", rate=10, per=1, burst=1)
    for _ in range(3):
        await drive.enqueue()
    assert len(await poll_all(drive)) == 1
    service = drive.engine.flow
    await service.run_once()
    clock.advance(0.1)
    service._due.update(dict.fromkeys(service._due, 0.0))
    assert 0 < await service.run_once() <= 0.1
    assert len(await poll_all(drive)) == 1


async def test_each_value_of_a_key_has_a_bucket(drive: Drive) -> None:
    await put(drive, "key", "customer", rate=1, per=60, burst=1)
    for value in (1, 1, 2, 2, 3):
        await drive.enqueue(concurrency_key=f"customer:{value}")
    assert [task.concurrency_key for task in await poll_all(drive)] == ["customer:1", "customer:2", "customer:3"]


async def test_a_cap_and_a_rate_hold_together(drive: Drive, clock: SteppedClock) -> None:
    await put(drive, "queue", "default", max_running=2, rate=1, per=10, burst=5)
    for _ in range(9):
        await drive.enqueue()
    first = await poll_all(drive)
    assert len(first) == 2
    for task in first:
        await complete(drive, task)
    second = await poll_all(drive)
    assert len(second) == 2
    for task in second:
        await complete(drive, task)
    last = await poll_all(drive)
    assert len(last) == 1, "five tokens are spent"
    await complete(drive, last[0])
    assert await poll_all(drive) == []
    await look(drive, clock, 10)
    assert len(await poll_all(drive)) == 1


async def test_a_bucket_that_is_full_is_not_kept(drive: Drive, clock: SteppedClock) -> None:
    await put(drive, "queue", "default", rate=1, per=1, burst=1)
    await drive.enqueue()
    await drive.lease()
    clock.advance(5)
    await drive.engine.flow.sweep()
    async with drive.engine.store.batch() as batch:
        assert await batch.trim_buckets(10) == 0
