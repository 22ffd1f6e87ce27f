"""What a task says while it runs, kept in order: the rules of streams.

A stream belongs to a task and is written by whoever holds its lease, chunk by chunk. Chunks are numbered over all
attempts, so a reader keeps one number; each carries its attempt, so the reader sees where another attempt began again.
The worker numbers the chunks of its lease, and a write that arrives twice adds nothing the second time.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from perdure.core.commands import WriteStream
from perdure.core.decide import why_lost
from perdure.core.errors import Conflict, LeaseLost, ResourceExhausted
from perdure.core.limits import MAX_STREAM
from perdure.core.model import Task
from perdure.core.states import State


class ChunkKind(IntEnum):
    """What a chunk holds."""

    BYTES = 1
    TEXT = 2
    JSON = 3
    PAYLOAD = 4  #: what a plug-in of the SDK made of it


class StreamEnd(msgspec.Struct, gc=False):
    """How far a stream is. Field names are column names."""

    task_id: bytes
    namespace: str
    lease_number: int = 0  #: of whoever wrote last
    lease_chunks: int = 0  #: chunks of that lease
    chunks: int = 0  #: over all attempts: the number of the next one
    bytes: int = 0
    touched_at: int = 0


class Chunk(msgspec.Struct, gc=False):
    """A piece of a stream. Field names are column names."""

    task_id: bytes
    number: int
    attempt: int
    kind: int
    data: bytes


def write(task: Task | None, command: WriteStream, end: StreamEnd | None, now: int) -> tuple[StreamEnd, list[Chunk]]:
    """The end of the stream, and the chunks that are new. `task` is what its row is. Raises LeaseLost, Conflict where
    chunks before these are missing, ResourceExhausted at 16 MiB; nothing is to be written then."""
    if task is None or task.state != State.LEASED or task.lease != command.lease:
        raise LeaseLost(why_lost(task))
    before = end or StreamEnd(task.id, task.namespace)
    known = before.lease_chunks if before.lease_number == task.lease_number else 0
    if command.first > known:
        raise Conflict(f"chunk {command.first} came before chunk {known}", field="first", limit=str(known))
    new = command.chunks[known - command.first :]
    size = before.bytes + sum(len(data) for _, data in new)
    if size > MAX_STREAM:
        raise ResourceExhausted(f"the stream has {size} bytes", field="chunks", limit=f"{MAX_STREAM} bytes a task")
    after = StreamEnd(
        task.id, task.namespace, task.lease_number, known + len(new), before.chunks + len(new), size,
        max(now, task.updated_at),
    )  # fmt: skip
    attempt = task.attempt + 1
    return after, [Chunk(task.id, before.chunks + i, attempt, kind, data) for i, (kind, data) in enumerate(new)]
