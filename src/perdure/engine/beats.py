"""The heartbeats of a batch, in one fenced statement of their own: they lock nothing else and decide nothing."""

from __future__ import annotations

from typing import Any

from perdure.core import commands as c
from perdure.core import decide
from perdure.core.errors import LeaseLost
from perdure.engine.gather import Item
from perdure.store.base import Batch as Rows

Answers = list[tuple[Item, c.Outcome]]


async def beat(rows: Rows, beats: list[tuple[Item, Any]], *, patient: bool) -> tuple[Answers, list[Item]]:
    """Beats of one lease count as one, the last progress and checkpoint winning; beats of another lease of the same
    task wait for the next batch."""
    answers: Answers = []
    deferred: list[Item] = []
    distinct: dict[bytes, c.Heartbeat] = {}
    named: list[tuple[Item, c.Heartbeat]] = []
    for item, command in beats:
        first = distinct.setdefault(command.lease.task_id, command)
        if first.lease != command.lease:
            deferred.append(item)
            continue
        named.append((item, command))
        if first is not command:
            distinct[command.lease.task_id] = c.Heartbeat(
                lease=command.lease,
                progress=command.progress or first.progress,
                checkpoint=command.checkpoint or first.checkpoint,
            )
    if not distinct:
        return answers, deferred
    if patient:
        await rows.lock(list(distinct), wait=True)
    alive = await rows.beat(list(distinct.values()))
    silent = [task_id for task_id in distinct if task_id not in alive]
    traces = await rows.trace(silent) if silent else {}
    for item, command in named:
        task_id = command.lease.task_id
        task = traces.get(task_id)
        if task_id in alive:
            answers.append((item, c.Alive(alive[task_id])))
        elif task is not None and decide.holds(task, command):
            deferred.append(item)  # held elsewhere
        else:
            answers.append((item, LeaseLost(decide.why_lost(task))))
    return answers, deferred
