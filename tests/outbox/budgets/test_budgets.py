"""What events and streams cost in statements, whatever the number of rows."""

from __future__ import annotations

from perdure.core import commands as c
from perdure.core.model import Task
from perdure.core.streams import ChunkKind
from tests.engine.drive import Drive, enqueue
from tests.engine.test_budgets import ROWS, Counter, _is_sqlite, many, statements


async def leased(drive: Drive) -> list[Task]:
    await drive.engine.apply(many(lambda n: enqueue()))
    return await drive.poll(ROWS)


def successes(tasks: list[Task]) -> list[c.Complete]:
    return [c.Complete(lease=task.lease, outcome="succeeded", result=b"r") for task in tasks]


async def test_events_are_one_statement_more(drive: Drive, counter: Counter) -> None:
    """And nothing where nobody asked for them. (PostgreSQL: that one statement stood for begin and commit as well.)"""
    tasks = await leased(drive)
    plain = 2 if _is_sqlite(drive) else 1
    assert await counter.during(drive.engine.apply(successes(tasks))) == statements(drive, plain)
    await drive.engine.outbox.record("default", True)
    tasks = await leased(drive)
    assert await counter.during(drive.engine.apply(successes(tasks))) == statements(drive, plain + 1)
    tasks = await leased(drive)
    failures = [c.Complete(lease=task.lease, outcome="failed", failure=b"\x80", retryable=False) for task in tasks]
    await drive.engine.outbox.record("default", False)
    off = await counter.during(drive.engine.apply(failures))
    tasks = await leased(drive)
    await drive.engine.outbox.record("default", True)
    failures = [c.Complete(lease=task.lease, outcome="failed", failure=b"\x80", retryable=False) for task in tasks]
    assert await counter.during(drive.engine.apply(failures)) == off + 1


async def test_chunks_are_four_statements(drive: Drive, counter: Counter) -> None:
    """Lock, how far the streams are, and both writes; for any number of tasks."""
    writes = [c.WriteStream(lease=task.lease, first=0, chunks=[(ChunkKind.TEXT, b"a")]) for task in await leased(drive)]
    assert await counter.during(drive.engine.apply(writes)) == statements(drive, 4)
