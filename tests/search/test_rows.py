"""What runs are found by is written with what changes it, and goes with the run; and searches go along indexes."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence

import pytest

from perdure.core import search_keys
from perdure.core.query import Attribute, Compare
from perdure.core.query_text import parse
from perdure.core.search import Hit, Search
from perdure.core.states import Kind
from perdure.store.base import Store
from perdure.store.search import Entry, reach, statement
from perdure.store.sqlite_file import split
from perdure.store.sqlite_search import PARAMETER
from perdure.store.statements import migrations
from tests.clock import START
from tests.search.asking import ATTRIBUTES
from tests.store.rows import close, closed, insert, task_id
from tests.store.runs import insert_runs, new_run, new_workflow

GOLD = Search(
    namespace="default", kind=Kind.WORKFLOW, where=Compare(Attribute("tier"), "=", search_keys.text("gold"))
)  # fmt: skip


def entry(n: int, tier: str | None, *, closed: bool = False, namespace: str = "default") -> Entry:
    return Entry(task_id(n), namespace, closed, search_keys.entries({} if tier is None else {"tier": tier}))


async def found(store: Store, search: Search = GOLD) -> list[int]:
    return [int.from_bytes(hit.id, "big") for hit in (await store.search(search, 100)).hits]


async def put(store: Store, *entries: Entry) -> None:
    async with store.batch() as batch:
        await batch.lock([one.task_id for one in entries])
        await batch.put_attributes(entries)


async def test_what_a_run_is_found_by_is_replaced(store: Store) -> None:
    await insert_runs(store, new_run(1), new_run(2))
    await put(store, entry(1, "gold"), entry(2, "gold"))
    assert await found(store) == [2, 1]
    await put(store, entry(1, "basic"), entry(2, None))
    assert await found(store) == []


async def test_a_closed_run_is_found_among_closed_ones(store: Store) -> None:
    """VIS-04."""
    await insert_runs(store, new_run(1), new_run(2))
    await put(store, entry(1, "gold"), entry(2, "gold"))
    async with store.batch() as batch:
        await batch.lock([task_id(1)])
        await batch.close([closed(new_workflow(1))])
        await batch.put_attributes([entry(1, "gold", closed=True)])
    assert await found(store) == [2, 1]
    ended = parse("tier = 'gold' AND ExecutionStatus = 'Completed'", Kind.WORKFLOW, ATTRIBUTES)
    assert await found(store, Search(namespace="default", kind=Kind.WORKFLOW, where=ended.where)) == [1]


async def test_retention_takes_what_a_run_is_found_by(store: Store) -> None:
    await insert_runs(store, new_run(1), new_run(2))
    await put(store, entry(1, "gold"), entry(2, "gold"))
    await close(store, closed(new_workflow(1)))
    async with store.batch() as batch:
        assert await batch.trim_closed(START + 1, 10) == 1
    await insert_runs(store, new_run(1))
    assert await found(store) == [2], "a run of the same id is found by nothing"


async def test_namespaces_are_apart(store: Store) -> None:
    """VIS-05: also where the names and the values are the same."""
    await insert(store, new_workflow(1), new_workflow(2, namespace="other"))
    async with store.batch() as batch:
        await batch.lock([task_id(1), task_id(2)])
        await batch.put_runs([new_run(1), new_run(2)])
        await batch.put_attributes([entry(1, "gold"), entry(2, "gold", namespace="other")])
    assert await found(store) == [1]
    for text in (f"RunId = '{'0' * 8}-0000-0000-0000-{'0' * 11}2'", "WorkflowId = 'order'", "NOT RunId IS NULL"):
        where = parse(text, Kind.WORKFLOW, ATTRIBUTES).where
        assert 2 not in await found(store, Search(namespace="default", kind=Kind.WORKFLOW, where=where)), text


async def test_types_are_registered_once(store: Store) -> None:
    assert await store.add_attribute_type("default", "tier", "Keyword")
    assert not await store.add_attribute_type("default", "tier", "Int")
    assert await store.add_attribute_type("other", "tier", "Int")
    assert await store.add_attribute_type("default", "amount", "Int")
    assert await store.attribute_types("default") == {"amount": "Int", "tier": "Keyword"}
    assert await store.remove_attribute_type("default", "tier")
    assert not await store.remove_attribute_type("default", "tier")
    assert await store.attribute_types("other") == {"tier": "Int"}


async def test_brief_tasks_have_no_payload(store: Store) -> None:
    await insert_runs(store, new_run(1), new_run(2))
    await close(store, closed(new_workflow(2), result=b"result"))
    tasks = await store.brief([task_id(n) for n in (1, 2, 3)])
    assert sorted(tasks) == [task_id(1), task_id(2)]
    assert {(task.payload, task.headers, task.result) for task in tasks.values()} == {(None, None, None)}


async def test_no_look_takes_more_rows_than_its_window(store: Store) -> None:
    await insert_runs(store, *(new_run(n) for n in range(1, 8)))
    await put(store, entry(2, "gold"), entry(6, "gold"))
    every = Search(namespace="default", kind=Kind.WORKFLOW)
    first = await store.search(every, 3)
    assert [hit.id for hit in first.hits] == [task_id(n) for n in (7, 6, 5)]
    assert first.last == Hit(task_id(5))
    rest = await store.search(every, 10, first.last)
    assert [hit.id for hit in rest.hits] == [task_id(n) for n in (4, 3, 2, 1)]
    assert rest.last is None


@pytest.fixture(scope="module")
def schema() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    for _, script in migrations("sqlite"):
        for part in split(script):
            connection.execute(part)
    yield connection
    connection.close()


@pytest.mark.parametrize(
    ("kind", "text", "index"),
    [
        (Kind.JOB, "TaskQueue = 'mail'", "closed_tasks_id"),
        (Kind.JOB, "State = 'FAILED'", "closed_tasks_state"),
        (Kind.JOB, "ErrorType = 'ValueError'", "closed_tasks_error"),
        (Kind.JOB, "FailureGroup = '0000000000000001' AND Retried = false", "closed_tasks_failures"),
        (Kind.JOB, "Attempt = 1 ORDER BY CloseTime", "closed_tasks_closed_at"),
        (Kind.WORKFLOW, "TaskQueue = 'mail'", "closed_tasks_runs"),
        (Kind.WORKFLOW, "WorkflowType = 'order'", "closed_tasks_runs_type"),
        (Kind.WORKFLOW, "WorkflowType = 'order'", "tasks_runs_type"),
        (Kind.WORKFLOW, "WorkflowId = 'order-1'", "closed_tasks_workflow"),
        (Kind.WORKFLOW, "tier = 'gold'", "search_attributes_value"),
        (Kind.WORKFLOW, "ExecutionStatus = 'Failed'", "closed_tasks_state"),
        (Kind.WORKFLOW, "RequiresIntervention = true", "closed_tasks_owing"),
        (Kind.WORKFLOW, "tier = 'gold' ORDER BY CloseTime DESC", "closed_tasks_runs_closed_at"),
    ],
)
def test_a_search_walks_along_an_index_and_sorts_no_table(
    schema: sqlite3.Connection, kind: Kind, text: str, index: str
) -> None:
    """No part of it reads a table from end to end, or sorts more than its window."""
    asked = parse(text, kind, ATTRIBUTES)
    search = Search(namespace="default", kind=kind, where=asked.where, by_close=asked.by_close)
    after = Hit(task_id(7), START if asked.by_close else None)
    sql, values = statement(search, 100, after, PARAMETER)
    steps = [row[3] for row in schema.execute(f"explain query plan {sql}", _named(values))]
    assert any(re.search(rf"USING (COVERING )?INDEX {index} ", step) for step in steps), steps
    assert not [step for step in steps if re.match(r"SCAN (t|a|s)\b(?! USING)", step)], steps
    ways = search.ways(closed=True)
    if ways[0].test is not None:
        sql, values = reach(search, ways, 100, PARAMETER, closed=True)
        steps = [row[3] for row in schema.execute(f"explain query plan {sql}", _named(values))]
        assert not [step for step in steps if re.match(r"SCAN (t|a|s)\b(?! USING)", step)], steps


def _named(values: Sequence[object]) -> dict[str, object]:
    return {f"p{n}": value for n, value in enumerate(values, 1)}
