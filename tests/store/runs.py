"""Workflow runs and what belongs to them, for the store tests."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from perdure.core.model import Task
from perdure.core.run import Message, Page, Run
from perdure.core.states import Kind
from perdure.store.base import Batch, Store
from tests.clock import START
from tests.store.rows import changed, new_task, task_id


def ids(tasks: list[Task]) -> list[int]:
    return [int.from_bytes(task.id, "big") for task in tasks]


def new_run(n: int, workflow_id: str = "order", **fields: Any) -> Run:
    given: dict[str, Any] = {"id": task_id(n), "first_run_id": task_id(n), "original_run_id": task_id(n)}
    return Run(workflow_id=workflow_id, **(given | fields))


def new_workflow(n: int, **fields: Any) -> Task:
    return new_task(n, **({"kind": Kind.WORKFLOW} | fields))


def child(n: int, parent: int, **fields: Any) -> Task:
    given: dict[str, Any] = {"kind": Kind.ACTIVITY, "parent_run_id": task_id(parent), "parent_event_id": n * 10}
    return new_task(n, **(given | fields))


def message(run: int, seq: int, **fields: Any) -> Message:
    given: dict[str, Any] = {"kind": 1, "at": START + seq, "body": b"m%d" % seq}
    return Message(task_id(run), seq, **(given | fields))


def page(run: int, first: int, count: int = 1) -> Page:
    return Page(task_id(run), first, count, b"page %d" % first)


async def insert_runs(store: Store, *runs: Run) -> None:
    """Open workflow runs with their columns."""
    async with store.batch() as batch:
        await batch.insert([changed(new_workflow(1), id=run.id) for run in runs])
        await batch.put_runs(runs)


async def post(store: Store, *messages: Message) -> None:
    async with store.batch() as batch:
        await batch.lock(sorted({message.run_id for message in messages}))
        await batch.post(messages)


async def append(store: Store, *pages: Page) -> None:
    async with store.batch() as batch:
        await batch.lock(sorted({page.run_id for page in pages}))
        await batch.append(pages)


async def start_runs(batch: Batch, count: int) -> None:
    """New runs as an engine starts them: 4 statements. Each has an activity, and a signal in its inbox."""
    runs = range(1_000, 1_000 + count)
    await batch.insert([*(new_workflow(n, place=None) for n in runs), *(child(n + 1_000, n, place=None) for n in runs)])
    await batch.put_runs([new_run(n, f"order-{n}", inbox_count=1) for n in runs])
    await batch.append([page(n, 1) for n in runs])
    await batch.post([message(n, 1) for n in runs])


async def take_turns(batch: Batch, count: int) -> None:
    """A turn of each of `start_runs`, which sees the end of the activity and begins another one: 9 statements."""
    ids = [task_id(n) for n in range(1_000, 1_000 + count)]
    held = await batch.lock([*ids, *(task_id(n + 2_000) for n in range(count))])
    runs = await batch.runs(ids)
    await batch.inbox(dict.fromkeys(ids, 0))
    await batch.put_runs([replace(run, event_count=3) for run in runs.values()])
    await batch.delete([task for task in held.values() if task.kind is Kind.ACTIVITY])
    await batch.change([task for task in held.values() if task.kind is Kind.WORKFLOW])
    await batch.insert([child(n + 3_000, n + 1_000, place=None) for n in range(count)])
    await batch.append([page(n + 1_000, 2, 2) for n in range(count)])
    await batch.take(dict.fromkeys(ids, 1))
    await batch.record([])
