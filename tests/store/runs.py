"""Workflow runs and what belongs to them, for the store tests."""

from __future__ import annotations

from typing import Any

from perdure.core.model import Task
from perdure.core.run import Message, Page, Run
from perdure.core.states import Kind
from perdure.store.base import Store
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
