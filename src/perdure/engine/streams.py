"""The chunks that handlers write while they run: added under the lock of their tasks' rows, which are only looked at.

They come before the ends of tasks, so what is written in the batch of its own end is kept.
"""

from __future__ import annotations

from typing import Any

from perdure.core import commands as c
from perdure.core import streams
from perdure.core.errors import PerdureError
from perdure.core.streams import Chunk, StreamEnd
from perdure.engine.gather import Item
from perdure.store.base import Batch as Rows

Answers = list[tuple[Item, c.Outcome]]


async def write_streams(
    rows: Rows, writes: list[tuple[Item, Any]], *, patient: bool
) -> tuple[Answers, list[Item], set[bytes]]:
    """The answers, what is deferred because its row is held elsewhere, and the tasks whose streams have grown."""
    ids = list(dict.fromkeys(command.lease.task_id for _, command in writes))
    tasks = await rows.lock(ids, wait=patient)
    missing = [task_id for task_id in ids if task_id not in tasks]
    gone = await rows.trace(missing) if missing else {}
    ends = await rows.stream_ends(list(tasks)) if tasks else {}
    answers: Answers = []
    deferred: list[Item] = []
    written: dict[bytes, StreamEnd] = {}
    chunks: list[Chunk] = []
    for item, command in writes:
        task_id = command.lease.task_id
        if task_id in gone and gone[task_id].closed_at is None:
            deferred.append(item)
            continue
        try:
            end, new = streams.write(tasks.get(task_id) or gone.get(task_id), command, ends.get(task_id), rows.now)
        except PerdureError as error:
            answers.append((item, error))
            continue
        answers.append((item, c.Accepted()))
        if new:
            ends[task_id] = written[task_id] = end
            chunks += new
    if chunks:
        await rows.add_chunks(list(written.values()), chunks)
    return answers, deferred, set(written)
