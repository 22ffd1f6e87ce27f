"""Two batches at once and one workflow run: what one may see and touch of it while the other holds it. The same on
PostgreSQL and on its model."""

from __future__ import annotations

import pytest

from perdure.core.states import State
from perdure.store.base import DataFault, Store
from tests.store.rows import blocked, changed, closed, insert, task_id
from tests.store.runs import append, child, ids, insert_runs, message, new_run, page, post


async def test_what_is_not_committed_is_not_seen(shared: Store) -> None:
    await insert_runs(shared, new_run(1))
    await insert(shared, child(2, 1))
    await post(shared, message(1, 1))
    async with shared.batch() as one:
        held = await one.lock([task_id(1), task_id(2)])
        await one.delete([held[task_id(2)]])
        await one.put_runs([new_run(1, event_count=5)])
        await one.append([page(1, 1, 5)])
        await one.post([message(1, 2)])
        await one.take({task_id(1): 1})
        assert (await shared.run_rows([task_id(1)]))[task_id(1)].event_count == 0
        assert await shared.histories({task_id(1): 0}, 9) == {}
        children, messages = await shared.pending(task_id(1), 9)
        assert (ids(children), messages) == ([2], [message(1, 1)])
        async with shared.batch() as two:
            assert set(await two.trace([task_id(2)])) == {task_id(2)}
    assert (await shared.run_rows([task_id(1)]))[task_id(1)].event_count == 5
    assert await shared.histories({task_id(1): 0}, 9) == {task_id(1): [page(1, 1, 5)]}
    assert await shared.pending(task_id(1), 9) == ([], [message(1, 2)])


async def test_whoever_waited_for_a_run_sees_its_newest_columns_and_inbox(shared: Store) -> None:
    """DESIGN section 3: they are read after the lock was granted, never joined with it."""
    await insert_runs(shared, new_run(1))
    await post(shared, message(1, 1))
    async with shared.batch() as two:
        async with shared.batch() as one:
            held = await one.lock([task_id(1)])
            waiting = await blocked(two.lock([task_id(1)], wait=True))
            await one.change([changed(held[task_id(1)], state=State.WAITING)])
            await one.put_runs([new_run(1, inbox_count=2)])
            await one.post([message(1, 2)])
            await one.take({task_id(1): 1})
        await waiting
        assert (await two.runs([task_id(1)]))[task_id(1)].inbox_count == 2
        assert await two.inbox({task_id(1): 0}) == {task_id(1): [message(1, 2)]}


async def test_children_skip_what_is_held(shared: Store) -> None:
    """A cascade goes on around a child that completes just now."""
    await insert(shared, *(child(n, 1) for n in (2, 3, 4, 5)))
    async with shared.batch() as one, shared.batch() as two:
        held = await one.lock([task_id(2), task_id(4)])
        for limit, after, found in ((1, b"", [3]), (9, b"", [3, 5]), (1, task_id(2), [3]), (9, task_id(4), [5])):
            children, whole = await two.children(task_id(1), limit, after)
            assert (ids(children), whole) == (found, after != b"")
        await one.delete(list(held.values()))
    async with shared.batch() as batch:
        children, whole = await batch.children(task_id(1), 9)
        assert (ids(children), whole) == ([3, 5], True)


async def test_a_deleted_row_is_gone_for_whoever_waited(shared: Store) -> None:
    await insert(shared, child(2, 1), child(3, 1))
    async with shared.batch() as two:
        async with shared.batch() as one:
            held = await one.lock([task_id(2), task_id(3)])
            waiting = await blocked(two.lock([task_id(2), task_id(3)], wait=True))
            await one.delete([held[task_id(2)]])
        assert set(await waiting) == {task_id(3)}
        assert await two.trace([task_id(2)]) == {}


async def test_other_runs_are_not_held_up(shared: Store) -> None:
    """Messages, pages and columns of two runs have nothing to do with each other."""
    await insert_runs(shared, new_run(1), new_run(2))
    await post(shared, message(1, 1), message(2, 1))
    async with shared.batch() as one, shared.batch() as two:
        for batch, run in ((one, 1), (two, 2)):
            await batch.lock([task_id(run)])
            await batch.put_runs([new_run(run, event_count=run)])
            await batch.append([page(run, 1)])
            await batch.post([message(run, 2)])
            await batch.take({task_id(run): 1})
    found = await shared.run_rows([task_id(1), task_id(2)])
    assert [found[task_id(run)].event_count for run in (1, 2)] == [1, 2]
    assert [(await shared.pending(task_id(run), 9))[1] for run in (1, 2)] == [[message(1, 2)], [message(2, 2)]]


async def test_two_batches_cannot_write_the_same_event(shared: Store) -> None:
    """One after the other holds the run; the second did not look at what the first has written."""
    await insert_runs(shared, new_run(1))
    await append(shared, page(1, 1))
    async with shared.batch() as one:
        with pytest.raises(DataFault):
            async with shared.batch() as two:
                await two.lock([task_id(1)])
                await two.append([page(1, 1)])
        held = await one.lock([task_id(1)])
        await one.append([page(1, 2)])
        await one.close([closed(held[task_id(1)])])
    assert await shared.histories({task_id(1): 0}, 9) == {task_id(1): [page(1, 1), page(1, 2)]}


async def test_retention_skips_a_run_that_another_batch_trims(shared: Store) -> None:
    await insert_runs(shared, new_run(1), new_run(2))
    await append(shared, page(1, 1), page(2, 1))
    async with shared.batch() as batch:
        held = await batch.lock([task_id(1), task_id(2)])
        await batch.close([closed(held[task_id(n)], closed_at=n) for n in (1, 2)])
    async with shared.batch() as one, shared.batch() as two:
        assert await one.trim_closed(10, 1) == 1
        assert await two.trim_closed(10, 9) == 1
    assert await shared.histories({task_id(1): 0, task_id(2): 0}, 9) == {}
    assert await shared.run_rows([task_id(1), task_id(2)]) == {}
