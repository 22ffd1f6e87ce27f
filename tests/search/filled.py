"""Random rows for searches, the same in every store."""

from __future__ import annotations

from random import Random
from typing import Any

from perdure.core import search_keys
from perdure.core.model import Failure, pack
from perdure.core.states import State
from perdure.store.base import Store
from perdure.store.search import Entry
from tests.clock import START
from tests.search.asking import NUMBERS, RATIOS, WORDS, moment
from tests.store.rows import closed, insert, new_task, task_id
from tests.store.runs import new_run, new_workflow

SECOND = 1_000_000
ENDS = (State.SUCCEEDED, State.FAILED, State.CANCELED, State.TERMINATED, State.TIMED_OUT)


def attributes(random: Random) -> dict[str, Any]:
    values: dict[str, Any] = {
        "tier": random.choice(WORDS),
        "amount": random.choice(NUMBERS),
        "ratio": random.choice(RATIOS),
        "vip": random.random() < 0.5,
        "due": moment(START + random.randint(-3, 60) * SECOND),
        "tags": random.sample(WORDS, 2),
        "note": random.choice(("gold", "Fish, gold!", "nothing", "it's GOLD")),
        "odd name'`": random.choice(WORDS),
    }
    return {name: value for name, value in values.items() if random.random() < 0.7}


async def fill(store: Store, seed: int, count: int = 60) -> None:
    """Jobs and runs in two namespaces, some of them closed."""
    random = Random(seed)
    for n in range(1, count + 1):
        fields: dict[str, Any] = {
            "namespace": random.choice(("default", "default", "other")),
            "type": random.choice(("email", "order")),
            "queue": random.choice(("default", "mail")),
            "created_at": START + n * SECOND,
            "attempt": random.choice((0, 1, 2)),
            "worker": random.choice((None, "w1", "w2")),
            "started_at": random.choice((None, START + 40 * SECOND)),
            "place": None,
        }
        of_run = random.random() < 0.6
        found_by = attributes(random) if of_run else {}
        task = new_workflow(n, **fields) if of_run else new_task(n, **fields)
        await insert(store, task)
        if of_run:
            await _write_run(store, random, n, task.namespace, found_by)
        if random.random() < 0.6:
            await _close(store, random, n, found_by, of_run, fields)


async def _write_run(store: Store, random: Random, n: int, namespace: str, found_by: dict[str, Any]) -> None:
    run = new_run(
        n,
        random.choice(("order-1", "order-2")),
        event_count=random.choice(NUMBERS[1:5]),
        history_bytes=random.choice((10, 2**40)),
        parent_workflow_id=random.choice((None, "order-1")),
        root_workflow_id=random.choice(("order-1", "order-2")),
        search_attributes=pack(found_by) if found_by else None,
    )
    async with store.batch() as batch:
        await batch.lock([run.id])
        await batch.put_runs([run])
        await batch.put_attributes([Entry(run.id, namespace, False, search_keys.entries(found_by))])


async def _close(
    store: Store, random: Random, n: int, found_by: dict[str, Any], of_run: bool, fields: dict[str, Any]
) -> None:
    state = random.choice(ENDS if of_run else ENDS[:3])
    made = new_workflow(n, **fields) if of_run else new_task(n, **fields)
    error = pack(Failure(message="boom", type=random.choice(("ValueError", "w1"))))
    task = closed(made, state, closed_at=START + random.randint(50, 60) * SECOND, failure=error)
    async with store.batch() as batch:
        await batch.lock([task.id])
        await batch.close([task])
        if state == State.FAILED:
            await batch.mark_failed([task])
        if of_run:
            await batch.put_attributes([Entry(task.id, task.namespace, True, search_keys.entries(found_by))])
    if state == State.FAILED and not of_run and random.random() < 0.5:
        async with store.batch() as batch:
            await batch.mark_retried({task.id: task_id(1000 + n)})
