"""What must be true of every database, whatever was killed, cut off or frozen before: the end of each crash test."""

from __future__ import annotations

from perdure.core.describe import waiting_for
from perdure.core.lanes import lanes_of
from perdure.core.model import Task
from perdure.core.states import State, is_closed
from perdure.store.base import Filter, Store

MOST = 100_000


async def all_tasks(store: Store, namespace: str = "default") -> list[Task]:
    """Open and closed."""
    return await store.find(Filter(namespace=namespace, limit=MOST))


async def assert_sound(store: Store, namespace: str = "default") -> list[Task]:
    """No open task without an owner, a due time or a stated reason; counters equal to counts. The tasks."""
    tasks = await all_tasks(store, namespace)
    for task in tasks:
        if is_closed(task.state):
            assert task.closed_at is not None, task
            assert (task.place, task.wake_at) == (None, None), task
            continue
        assert waiting_for(task), task
        match task.state:
            case State.LEASED:
                assert None not in (task.session, task.worker, task.wake_at), task
            case State.RETRY_WAIT:
                assert None not in (task.ready_at, task.wake_at), task
            case State.ENQUEUED:
                assert task.place is not None or None not in (task.ready_at, task.wake_at), task
    await _assert_counts(store, tasks, namespace)
    return tasks


async def _assert_counts(store: Store, tasks: list[Task], namespace: str) -> None:
    """What lists count is what there is."""
    lanes = await store.count_lanes(*lanes_of(namespace), MOST)
    for state, counted in ((State.LEASED, "running"), (State.RETRY_WAIT, "retrying")):
        assert sum(getattr(lane, counted) for lane in lanes) == sum(task.state == state for task in tasks)
    ready = sum(task.state == State.ENQUEUED and task.place is not None for task in tasks)
    assert sum(lane.ready for lane in lanes) == ready
