"""What base.py promises of the verbs about workflow runs, held against all three stores."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from perdure.core.effects import CopyPages
from perdure.core.model import SECOND
from perdure.core.run import ClosePolicy, Message, Page, Run
from perdure.core.states import Kind, State
from perdure.store.base import DataFault, Filter, Store, StoreFault
from tests.clock import START, SteppedClock
from tests.store.rows import (
    changed,
    close,
    closed,
    insert,
    insert_leased,
    leased,
    new_attempt,
    new_key,
    new_task,
    plain,
    read,
    task_id,
)
from tests.store.runs import append, child, ids, insert_runs, message, new_run, new_workflow, page, post

FULL = new_run(
    1, "Ω", first_run_id=task_id(2), original_run_id=task_id(3), previous_run_id=task_id(4), root_workflow_id="root",
    root_run_id=task_id(5), reset_run_id=task_id(6), reset_event_id=7, parent_namespace="other",
    parent_workflow_id="parent", parent_close_policy=ClosePolicy.ABANDON, chain_attempt=3, chain_deadline=START + 8,
    cron="* * * * *", branch=2, event_count=2**40, history_bytes=2**41, inbox_count=9, inbox_taken=7, turn_inbox=8,
    turn_prepared_at=START + 1, turn_scheduled_at=START + 2, turn_written=2**40 - 1, turn_timeout=10 * SECOND,
    failures=4, sticky_session=-(2**63), children=6, build="b1", versioning_behavior=1, paused=True, memo=b"memo",
    search_attributes=b"attributes",
)  # fmt: skip
"""A run with something in every column."""

CLOSED_FULL = Run(
    **{name: getattr(FULL, name) for name in Run.__struct_fields__}
    | {
        "inbox_count": 0, "inbox_taken": 0, "turn_inbox": 0, "turn_prepared_at": None, "turn_scheduled_at": 0,
        "turn_written": 0, "failures": 0, "sticky_session": None, "children": 0, "paused": False,
    }
)  # fmt: skip
"""What its closed row keeps."""


BODIES = {1: 2, 2: 3, 3: 1, 4: 5}
"""Bytes of messages, by number."""


async def inbox(store: Store, run: int, after: int = 0) -> list[Message]:
    async with store.batch() as batch:
        await batch.lock([task_id(run)])
        return (await batch.inbox({task_id(run): after})).get(task_id(run), [])


# the columns of runs -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("run", [FULL, new_run(1), new_run(1, build="b", turn_timeout=1), new_run(1, memo=b"")])
async def test_every_column_of_a_run_is_kept(store: Store, run: Run) -> None:
    await insert_runs(store, run)
    async with store.batch() as batch:
        await batch.lock([run.id])
        assert await batch.runs([run.id]) == {run.id: run}
    assert await store.run_rows([run.id]) == {run.id: run}


@pytest.mark.parametrize(("before", "after"), [(FULL, new_run(1)), (new_run(1), FULL)])
async def test_every_column_of_a_run_is_written(store: Store, before: Run, after: Run) -> None:
    await insert_runs(store, before)
    async with store.batch() as batch:
        await batch.lock([task_id(1)])
        await batch.put_runs([after])
        assert await batch.runs([task_id(1)]) == {task_id(1): after}


async def test_runs_leave_the_rest_of_the_row_alone(store: Store) -> None:
    task = leased(child(1, 9, kind=Kind.WORKFLOW, wake_at=START + 5))
    await insert(store, task)
    async with store.batch() as batch:
        await batch.lock([task.id])
        await batch.put_runs([FULL])
    assert plain(await read(store, 1)) == task


async def test_changes_of_a_row_leave_the_run_alone(store: Store) -> None:
    await insert_runs(store, FULL)
    async with store.batch() as batch:
        held = (await batch.lock([task_id(1)]))[task_id(1)]
        await batch.lease([leased(held)])
        await batch.change([changed(held, state=State.WAITING, place=None)])
    assert await store.run_rows([task_id(1)]) == {task_id(1): FULL}
    assert (await read(store, 1)).state is State.WAITING


async def test_what_is_no_run_has_no_run_columns(store: Store) -> None:
    await insert(store, new_task(1), new_task(2), child(3, 1))
    await close(store, closed(new_task(2)))
    async with store.batch() as batch:
        await batch.lock([task_id(1), task_id(3)])
        assert await batch.runs([task_id(1), task_id(3)]) == {}
        assert await batch.runs([]) == {}
    assert await store.run_rows([task_id(n) for n in (1, 2, 3, 4)]) == {}
    assert await store.run_rows([]) == {}


async def test_many_runs_in_one_verb(store: Store) -> None:
    """Usual and other rows, whatever their chunk."""
    runs = [
        replace(FULL, id=task_id(n), failures=n) if n in (3, 201, 250, 270) else new_run(n, f"w{n}", event_count=n)
        for n in range(1, 271)
    ]
    await insert_runs(store, *runs)
    assert await store.run_rows([run.id for run in runs]) == {run.id: run for run in runs}


async def test_a_run_without_a_row_is_a_fault(store: Store) -> None:
    await insert_runs(store, new_run(1))
    await close(store, closed(new_workflow(1)))
    with pytest.raises((StoreFault, AssertionError)):
        async with store.batch() as batch:
            await batch.put_runs([new_run(1, event_count=3)])
    assert (await store.run_rows([task_id(1)]))[task_id(1)].event_count == 0


async def test_what_a_caller_does_to_a_run_does_not_reach_the_store(store: Store) -> None:
    run = new_run(1)
    await insert_runs(store, run)
    run.event_count = 5
    (await store.run_rows([run.id]))[run.id].event_count = 6
    assert (await store.run_rows([run.id]))[run.id].event_count == 0


# closing -------------------------------------------------------------------------------------------------------------
async def test_a_closed_run_keeps_what_it_was(store: Store) -> None:
    """It has no turn, no inbox and no children any more."""
    task = child(1, 9, kind=Kind.WORKFLOW)
    await insert(store, task)
    async with store.batch() as batch:
        await batch.lock([task.id])
        await batch.put_runs([FULL])
        await batch.close([closed(task, result=b"result")])
    assert await store.run_rows([task.id]) == {task.id: CLOSED_FULL}
    found = await read(store, 1)
    assert (found.kind, found.state, found.result) == (Kind.WORKFLOW, State.SUCCEEDED, b"result")
    assert (found.parent_run_id, found.parent_event_id) == (task_id(9), 10)


async def test_jobs_and_runs_close_in_one_verb(store: Store) -> None:
    await insert_runs(store, FULL)
    job = await insert_leased(store, 2)
    update = child(3, 1, kind=Kind.UPDATE, state=State.WAITING, place=None)
    await insert(store, update)
    async with store.batch() as batch:
        await batch.lock([task_id(n) for n in (1, 2, 3)])
        await batch.put_runs([new_run(3, "Ω")])
        await batch.close([closed(job, result=b"job"), closed(new_workflow(1)), closed(update, result=b"answer")])
    found = await store.read([task_id(n) for n in (1, 2, 3)])
    assert [(found[task_id(n)].kind, found[task_id(n)].result) for n in (1, 2, 3)] == [
        (Kind.WORKFLOW, None),
        (Kind.JOB, b"job"),
        (Kind.UPDATE, b"answer"),
    ]
    assert found[task_id(3)].parent_run_id == task_id(1)
    assert {run.id: run.workflow_id for run in (await store.run_rows(list(found))).values()} == {
        task_id(1): "Ω",
        task_id(3): "Ω",
    }


@pytest.mark.parametrize("kind", [Kind.WORKFLOW, Kind.UPDATE])
async def test_close_of_every_kind_is_fenced(store: Store, kind: Kind) -> None:
    """LEASE-05."""
    await insert(store, leased(new_task(1, kind=kind)), leased(new_task(2)))
    with pytest.raises(StoreFault):
        async with store.batch() as batch:
            await batch.lock([task_id(1), task_id(2)])
            await batch.close([closed(leased(new_task(2))), closed(leased(new_task(1, kind=kind), bits=78))])
    assert {task.state for task in (await store.read([task_id(1), task_id(2)])).values()} == {State.LEASED}


# children ------------------------------------------------------------------------------------------------------------
async def test_a_timer_waits_for_its_alarm(store: Store, clock: SteppedClock) -> None:
    timer = child(1, 9, kind=Kind.TIMER, state=State.WAITING, place=None, wake_at=START + SECOND)
    await insert(store, timer)
    assert plain(await read(store, 1)) == timer
    assert await store.next_alarm() == START + SECOND
    clock.advance(1)
    async with store.batch() as batch:
        [found] = await batch.due(10)
    assert plain(found) == changed(timer, payload=None, headers=None)


async def test_children_are_those_of_one_run_in_order(store: Store) -> None:
    await insert(store, child(5, 1), child(3, 1, kind=Kind.TIMER), child(4, 2), new_task(6), child(7, 1))
    await close(store, closed(child(7, 1, kind=Kind.WORKFLOW)))
    async with store.batch() as batch:
        found, whole = await batch.children(task_id(1), 10)
        assert whole
        assert ids(found) == [3, 5]
        assert plain(found[1]) == changed(child(5, 1), payload=None, headers=None)
        assert ids((await batch.children(task_id(1), 1))[0]) == [3]
        assert ids((await batch.children(task_id(1), 9, task_id(3)))[0]) == [5]
        assert ids((await batch.children(task_id(1), 9, task_id(4)))[0]) == [5]
        assert await batch.children(task_id(1), 9, task_id(5)) == ([], True)
        assert await batch.children(task_id(6), 10) == ([], True)
        assert batch.now == START
        await batch.change([changed(task, priority=1) for task in found])
    assert (await read(store, 5)).priority == 1


async def test_delete_leaves_nothing_of_a_task(store: Store) -> None:
    await insert(store, *(leased(child(n, 1)) for n in (2, 3)), child(4, 1, payload=None, headers=None))
    async with store.batch() as batch:
        await batch.record([new_attempt(n, 1) for n in (2, 3)])
    async with store.batch() as batch:
        held = await batch.lock([task_id(n) for n in (2, 4)])
        await batch.delete(list(held.values()))
        assert await batch.lock([task_id(2)]) == {}
    everything = [task_id(n) for n in (2, 3, 4)]
    assert set(await store.read(everything)) == {task_id(3)}
    assert [attempt.task_id for attempt in await store.attempts(everything)] == [task_id(3)]
    assert (await read(store, 3)).payload == b"payload"
    assert await store.next_alarm() == leased(child(3, 1)).wake_at


@pytest.mark.parametrize(("number", "bits"), [(2, 77), (1, 76)])
async def test_delete_is_fenced(store: Store, number: int, bits: int) -> None:
    """LEASE-05: a row with another lease stays, and the whole batch is undone."""
    await insert(store, leased(child(2, 1)), child(3, 1))
    async with store.batch() as batch:
        await batch.record([new_attempt(2, 1)])
    with pytest.raises(StoreFault):
        async with store.batch() as batch:
            held = await batch.lock([task_id(2), task_id(3)])
            stale = changed(held[task_id(2)], lease_number=number, lease_bits=bits)
            await batch.delete([held[task_id(3)], stale])
    assert plain(await read(store, 2)) == leased(child(2, 1))
    assert plain(await read(store, 3)) == child(3, 1)
    assert len(await store.attempts([task_id(2)])) == 1


async def test_many_are_deleted_in_one_verb(store: Store) -> None:
    tasks = [child(n, 1) for n in range(1, 272)]
    await insert(store, *tasks)
    async with store.batch() as batch:
        await batch.lock([task.id for task in tasks[1:]])
        await batch.delete(tasks[1:])
        await batch.delete([])
    assert set(await store.read([task.id for task in tasks])) == {task_id(1)}


async def test_pending_shows_children_and_messages(store: Store) -> None:
    await insert_runs(store, new_run(1))
    await insert(store, child(3, 1), child(2, 1), child(4, 9))
    await post(store, message(1, 2), message(1, 1), message(1, 3))
    children, messages = await store.pending(task_id(1), 10)
    assert [plain(task) for task in children] == [changed(child(n, 1), payload=None, headers=None) for n in (2, 3)]
    assert messages == [message(1, n) for n in (1, 2, 3)]
    children, messages = await store.pending(task_id(1), 1)
    assert (ids(children), messages) == ([2], [message(1, 1)])
    assert await store.pending(task_id(5), 10) == ([], [])


# inboxes -------------------------------------------------------------------------------------------------------------
async def test_messages_come_in_order_from_behind_a_number(store: Store) -> None:
    await insert_runs(store, new_run(1), new_run(2), new_run(3))
    kinds = message(1, 2, kind=2, body=bytes(range(256)) * 1024)
    await post(store, message(1, 3), message(2, 7), kinds, message(1, 1), message(3, 1))
    assert await inbox(store, 1) == [message(1, 1), kinds, message(1, 3)]
    async with store.batch() as batch:
        await batch.lock([task_id(n) for n in (1, 2, 3)])
        found = await batch.inbox({task_id(1): 2, task_id(2): 0, task_id(3): 1})
        assert found == {task_id(1): [message(1, 3)], task_id(2): [message(2, 7)]}
        assert await batch.inbox({}) == {}


@pytest.mark.parametrize(
    ("size", "seqs"), [(1, [1]), (2, [1]), (3, [1, 2]), (6, [1, 2, 3]), (7, [1, 2, 3, 4]), (99, [1, 2, 3, 4])]
)
async def test_an_inbox_is_read_as_far_as_so_many_bytes_go(store: Store, size: int, seqs: list[int]) -> None:
    """The message that goes beyond is the last one; each run by itself."""
    await insert_runs(store, new_run(1), new_run(2))
    await post(store, *(message(run, seq, body=b"x" * length) for run in (1, 2) for seq, length in BODIES.items()))
    async with store.batch() as batch:
        await batch.lock([task_id(1), task_id(2)])
        found = await batch.inbox({task_id(1): 0, task_id(2): 2}, size)
        assert [message.seq for message in found[task_id(1)]] == seqs
        assert [message.seq for message in found[task_id(2)]] == ([3] if size <= 1 else [3, 4])
        assert await batch.inbox({task_id(1): 4}, size) == {}


async def test_a_number_is_given_once_in_an_inbox(store: Store) -> None:
    await insert_runs(store, new_run(1))
    await post(store, message(1, 1))
    with pytest.raises(DataFault):
        await post(store, message(1, 2), message(1, 1))
    assert await inbox(store, 1) == [message(1, 1)]


async def test_take_deletes_up_to_a_number(store: Store) -> None:
    await insert_runs(store, new_run(1), new_run(2))
    await post(store, *(message(run, seq) for run in (1, 2) for seq in (1, 2, 3)))
    async with store.batch() as batch:
        await batch.lock([task_id(1), task_id(2)])
        await batch.take({task_id(1): 2, task_id(2): 0})
        await batch.take({})
    assert [message.seq for message in await inbox(store, 1)] == [3]
    assert [message.seq for message in await inbox(store, 2)] == [1, 2, 3]


async def test_many_messages_in_one_verb(store: Store) -> None:
    runs = [new_run(n) for n in range(1, 136)]
    await insert_runs(store, *runs)
    messages = [message(n, seq) for n in range(1, 136) for seq in (1, 2)]
    await post(store, *messages)
    async with store.batch() as batch:
        await batch.lock([run.id for run in runs])
        found = await batch.inbox({run.id: 0 for run in runs})
        assert [message for run in runs for message in found[run.id]] == messages
        await batch.take({run.id: 1 for run in runs})
        assert {len(left) for left in (await batch.inbox({run.id: 0 for run in runs})).values()} == {1}


# histories -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("after", "limit", "firsts"),
    [
        (0, 9, [1, 4, 5, 9]),
        (2, 9, [1, 4, 5, 9]),
        (3, 9, [4, 5, 9]),
        (4, 9, [5, 9]),
        (7, 9, [5, 9]),
        (8, 9, [9]),
        (11, 9, [9]),
        (12, 9, []),
        (99, 9, []),
        (0, 2, [1, 4]),
        (6, 1, [5]),
    ],
)
async def test_histories_are_read_from_an_event_on(store: Store, after: int, limit: int, firsts: list[int]) -> None:
    """Pages of events 1-3, 4, 5-8 and 9-12."""
    await insert_runs(store, new_run(1), new_run(2))
    pages = [page(1, 5, 4), page(1, 1, 3), page(1, 4, 1), page(1, 9, 4)]
    await append(store, *pages, page(2, 1, 99))
    found = await store.histories({task_id(1): after}, limit)
    assert [page.first for page in found.get(task_id(1), [])] == firsts
    assert set(found) <= {task_id(1)} and all(page in pages for page in found.get(task_id(1), []))


@pytest.mark.parametrize(("size", "firsts"), [(1, [1]), (7, [1, 2]), (12, [1, 2]), (13, [1, 2, 3]), (99, [1, 2, 3])])
async def test_histories_are_read_as_far_as_so_many_bytes_go(store: Store, size: int, firsts: list[int]) -> None:
    """The page that goes beyond is the last one. Each has 6 bytes."""
    await insert_runs(store, new_run(1))
    await append(store, *(page(1, n) for n in (1, 2, 3)))
    found = await store.histories({task_id(1): 0}, 9, size)
    assert [page.first for page in found[task_id(1)]] == firsts
    assert [page.first for page in (await store.histories({task_id(1): 0}, 1, size))[task_id(1)]] == [1]


async def test_histories_of_several_runs(store: Store) -> None:
    """The limit is that of each."""
    await insert_runs(store, new_run(1), new_run(2), new_run(3))
    await append(store, *(page(run, first) for run in (1, 2) for first in (1, 2, 3)))
    await close(store, closed(new_workflow(2)))
    found = await store.histories({task_id(1): 0, task_id(2): 1, task_id(3): 0, task_id(4): 0}, 2)
    assert found == {task_id(1): [page(1, 1), page(1, 2)], task_id(2): [page(2, 2), page(2, 3)]}
    assert await store.histories({}, 2) == {}


async def test_an_event_is_written_once(store: Store) -> None:
    """RPLY-05: two turns that begin with the same event, and one of them is wrong."""
    await insert_runs(store, new_run(1))
    await append(store, page(1, 1, 3))
    with pytest.raises(DataFault):
        await append(store, page(1, 4), page(1, 1))
    assert await store.histories({task_id(1): 0}, 9) == {task_id(1): [page(1, 1, 3)]}


async def test_large_pages_come_back_whole(store: Store) -> None:
    await insert_runs(store, new_run(1))
    large = Page(task_id(1), 1, 5, bytes(range(256)) * 4096)
    await append(store, large)
    assert await store.histories({task_id(1): 0}, 9) == {task_id(1): [large]}


async def test_a_batch_sees_what_it_wrote_and_a_rollback_undoes_it(store: Store) -> None:
    await insert_runs(store, new_run(1))
    await post(store, message(1, 1), message(1, 2))
    await insert(store, child(2, 1))
    with pytest.raises(ZeroDivisionError):
        async with store.batch() as batch:
            held = await batch.lock([task_id(1), task_id(2)])
            await batch.delete([held[task_id(2)]])
            await batch.put_runs([FULL])
            await batch.append([page(1, 1)])
            await batch.post([message(1, 3)])
            await batch.take({task_id(1): 1})
            assert await batch.runs([task_id(1)]) == {task_id(1): FULL}
            assert await batch.inbox({task_id(1): 0}) == {task_id(1): [message(1, 2), message(1, 3)]}
            raise ZeroDivisionError
    assert await store.run_rows([task_id(1)]) == {task_id(1): new_run(1)}
    children, messages = await store.pending(task_id(1), 9)
    assert (ids(children), messages) == ([2], [message(1, 1), message(1, 2)])
    assert await store.histories({task_id(1): 0}, 9) == {}


# reads and retention -------------------------------------------------------------------------------------------------
async def test_find_key(store: Store) -> None:
    key = new_key("order", 1, kind="workflow", app="")
    async with store.batch() as batch:
        await batch.reserve_keys([key, new_key("order", 2)])
    assert await store.find_key(key.name) == key
    assert await store.find_key(("other", "", "workflow", "order")) is None


@pytest.mark.parametrize(
    ("filter", "found"),
    [
        ({"kind": Kind.WORKFLOW}, [6, 5, 4, 2, 1]),
        ({"kind": Kind.JOB}, [7]),
        ({"workflow_id": "order"}, [5, 4, 1]),
        ({"workflow_id": "order", "limit": 2}, [5, 4]),
        ({"workflow_id": "order", "before": task_id(5)}, [4, 1]),
        ({"workflow_id": "order", "state": State.SUCCEEDED}, [4, 1]),
        ({"workflow_id": "order", "kind": Kind.UPDATE}, []),
        ({"workflow_id": "order", "type": "resize"}, [4]),
        ({"workflow_id": "order", "since": START + 5}, [5]),
        ({"workflow_id": "order", "queue": "mail"}, []),
        ({"workflow_id": "order", "namespace": "other"}, [3]),
        ({"workflow_id": "none"}, []),
        ({"workflow_id": "order", "open": True}, [5]),
        ({"workflow_id": "order", "without_type": "resize"}, [5, 1]),
        ({"kind": Kind.WORKFLOW, "state": State.ENQUEUED}, [6, 5, 2]),
    ],
)
async def test_find_runs(store: Store, filter: dict[str, Any], found: list[int]) -> None:
    """VIS: by workflow id, of which one run is open at a time, and by kind."""
    workflow_ids = {1: "order", 2: "ship", 3: "order", 4: "order", 5: "order", 6: "orde"}
    rows: dict[int, dict[str, Any]] = {3: {"namespace": "other"}, 4: {"type": "resize"}, 5: {"created_at": START + 5}}
    async with store.batch() as batch:
        await batch.insert([*(new_workflow(n, **rows.get(n, {})) for n in workflow_ids), new_task(7)])
        await batch.put_runs([new_run(n, name) for n, name in workflow_ids.items()])
    await close(store, *(closed(new_workflow(n)) for n in (1, 4)))
    query = Filter(**({"namespace": "default", "limit": 10} | filter))  # type: ignore[arg-type]
    listed = await store.find(query)
    assert ids(listed) == found
    assert all(task.payload is None and task.headers is None for task in listed)


async def test_an_activity_is_found_by_its_id(store: Store) -> None:
    await insert_runs(store, new_run(1))
    await insert(
        store,
        child(2, 1, idempotency_key="pay"),
        child(3, 1, idempotency_key="nap", kind=Kind.TIMER),
        child(4, 9, idempotency_key="ship"),
    )
    assert await store.find_activity(task_id(1), "pay") == task_id(2)
    for run, name in ((1, "nap"), (1, "ship"), (1, "PAY"), (8, "pay")):
        assert await store.find_activity(task_id(run), name) is None


async def test_what_people_write_into_closed_runs(store: Store) -> None:
    """OPS-14: of closed runs only; the last word counts."""
    await insert_runs(store, new_run(1), new_run(2), new_run(3))
    await close(store, closed(new_workflow(1)), closed(new_workflow(2)))
    everything = [task_id(n) for n in (1, 2, 3, 4)]
    assert [await store.resolve(key, b"one") for key in everything] == [True, True, False, False]
    assert await store.resolve(task_id(1), b"two")
    assert await store.resolutions(everything) == {task_id(1): b"two", task_id(2): b"one"}
    assert await store.resolutions([]) == {}
    assert set(await store.read(everything)) == {task_id(1), task_id(2), task_id(3)}


async def test_pages_are_copied_up_to_a_number(store: Store) -> None:
    """RPLY-39: what a run that was reset keeps of its groups."""
    await insert_runs(store, new_run(1), new_run(2), new_run(3))
    await append(store, page(1, 1, 200), page(1, 201, 50), page(1, 251, 100), page(2, 1, 3))
    async with store.batch() as batch:
        await batch.lock([task_id(3)])
        await batch.insert([new_workflow(4)])
        await batch.copy_pages([CopyPages(task_id(1), task_id(3), 250), CopyPages(task_id(2), task_id(4), 1_000)])
    found = await store.histories({task_id(3): 0, task_id(4): 0, task_id(1): 0}, 10)
    assert found[task_id(3)] == [page(3, 1, 200), page(3, 201, 50)]
    assert found[task_id(4)] == [page(4, 1, 3)]
    assert len(found[task_id(1)]) == 3


async def test_retention_takes_the_pages_of_groups(store: Store) -> None:
    group = child(1, 9, kind=Kind.GROUP)
    await insert(store, group)
    await append(store, page(1, 1))
    await close(store, closed(group, closed_at=START - 1))
    async with store.batch() as batch:
        assert await batch.trim_closed(START, 10) == 1
    assert await store.histories({task_id(1): 0}, 10) == {}


async def test_retention_takes_histories_and_inboxes_of_what_it_trims(store: Store) -> None:
    await insert_runs(store, *(new_run(n) for n in (1, 2, 3)))
    await insert(store, new_task(4))
    await append(store, *(page(n, first) for n in (1, 2, 3) for first in (1, 2)))
    await post(store, *(message(n, 1) for n in (1, 2, 3)))
    await close(store, closed(new_workflow(1), closed_at=START - 5), closed(new_workflow(2), closed_at=START + 5))
    await close(store, closed(new_task(4), closed_at=START - 5))
    async with store.batch() as batch:
        assert await batch.trim_closed(START, 10) == 2
    everything = [task_id(n) for n in (1, 2, 3, 4)]
    assert set(await store.read(everything)) == {task_id(2), task_id(3)}
    assert set(await store.run_rows(everything)) == {task_id(2), task_id(3)}
    assert set(await store.histories(dict.fromkeys(everything, 0), 9)) == {task_id(2), task_id(3)}
    assert [len((await store.pending(key, 9))[1]) for key in everything] == [0, 1, 1, 0]
