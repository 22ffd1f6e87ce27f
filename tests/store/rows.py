"""Rows for the store tests, made without the rules of core: a store must keep whatever it is given."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from copy import copy
from typing import Any

from perdure.core.model import SECOND, Attempt, Key, Task, WorkerSession
from perdure.core.states import State
from perdure.store.base import Store
from tests.clock import START

BLOCKED_SECONDS = 0.1
"""How long a verb is watched before it counts as waiting."""


def task_id(n: int) -> bytes:
    """Ids that sort by n."""
    return n.to_bytes(16, "big")


def new_task(n: int, **fields: Any) -> Task:
    """An ENQUEUED task, ready in LANE at place n."""
    given: dict[str, Any] = {
        "namespace": "default", "type": "email", "state": State.ENQUEUED, "lane": "lane-1", "created_at": START,
        "updated_at": START, "payload": b"payload", "headers": b"headers", "place": n,
    }  # fmt: skip
    return Task(id=task_id(n), **(given | fields))


def changed(task: Task, **fields: Any) -> Task:
    task = copy(task)
    for name, value in fields.items():
        setattr(task, name, value)
    return task


def leased(task: Task, *, number: int = 1, bits: int = 77, session: int = 7, **fields: Any) -> Task:
    """`task` as a claim leaves it."""
    return changed(
        task, state=State.LEASED, place=None, ready_at=None, lease_number=number, lease_bits=bits, received=False,
        session=session, worker="w1", poll=1, attempt_started_at=START, heartbeat_at=START, lease_until=START + 10 *
        SECOND, wake_at=START + 10 * SECOND, **fields,
    )  # fmt: skip


def closed(task: Task, state: State = State.SUCCEEDED, **fields: Any) -> Task:
    """`task` as a decision that closes it leaves it."""
    return changed(task, **({"state": state, "place": None, "wake_at": None, "closed_at": START} | fields))


def new_key(name: str, task: int, *, expires_at: int = START + 60 * SECOND, **fields: Any) -> Key:
    given: dict[str, Any] = {"namespace": "default", "app": "default", "kind": "task", "digest": b"digest"}
    return Key(key=name, task_id=task_id(task), expires_at=expires_at, **(given | fields))


def new_attempt(task: int, number: int, **fields: Any) -> Attempt:
    given: dict[str, Any] = {
        "attempt": number, "outcome": "failed", "worker": "w1", "started_at": START, "finished_at": START + 1,
        "failure": b"failure",
    }  # fmt: skip
    return Attempt(task_id=task_id(task), lease_number=number, **(given | fields))


def new_session(incarnation: int, **fields: Any) -> WorkerSession:
    given: dict[str, Any] = {
        "epoch": 1, "namespace": "default", "identity": "host-1", "queues": "default", "slots": 10, "build": "b1",
        "started_at": START, "seen_at": START,
    }  # fmt: skip
    return WorkerSession(incarnation=incarnation, **(given | fields))


async def insert(store: Store, *tasks: Task) -> None:
    async with store.batch() as batch:
        await batch.insert(tasks)


async def insert_leased(store: Store, n: int, **fields: Any) -> Task:
    """A task that a worker holds; `fields` are those of `leased`."""
    async with store.batch() as batch:
        await batch.insert([new_task(n)])
    async with store.batch() as batch:
        held = await batch.lock([task_id(n)])
        task = leased(held[task_id(n)], **fields)
        await batch.change([task])
    return await read(store, n)


async def close(store: Store, *tasks: Task) -> None:
    """Close rows, which are decided upon as `closed` says."""
    async with store.batch() as batch:
        await batch.lock([task.id for task in tasks])
        await batch.close(tasks)


async def read(store: Store, n: int) -> Task:
    """Task n as it is stored."""
    return (await store.read([task_id(n)]))[task_id(n)]


def plain(task: Task) -> Task:
    """Without what only SQLite has."""
    return changed(task, rowid=0)


async def blocked(verb: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """The verb as a task that waits for another batch."""
    task = asyncio.create_task(verb)
    done, _ = await asyncio.wait({task}, timeout=BLOCKED_SECONDS)
    assert not done, "the verb did not wait"
    return task
