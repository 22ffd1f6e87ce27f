"""Worker processes in the database: registered, replaced by a newer connection, and ended in bounded steps.

Ending a session only notes it (`ends_at`); a chore then ends its leases, some at a time, and deletes the row when none
is left, so a process with ten thousand leases delays nobody, and a server that dies half-way leaves the rest to the
next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.core import commands as c
from perdure.core import pulse
from perdure.core.errors import Conflict, PerdureError
from perdure.core.model import SECOND, Task, WorkerSession
from perdure.engine.pulse import take
from perdure.store.base import Batch as Rows

if TYPE_CHECKING:
    from perdure.engine.batch import Batch
    from perdure.engine.gather import Item

MAX_ENDING = 200  #: sessions that one chore looks at
SETTLED = SECOND  #: microseconds after which a batch that held one of its rows, or was leasing to it, has committed


async def serve(batch: Batch, rows: Rows, work: list[tuple[Item, Any]]) -> None:
    """Open and close sessions, one by one: they are rare."""
    for item, command in sorted(work, key=lambda pair: pair[1].incarnation):
        outcome: c.Outcome = c.Accepted()
        try:
            if isinstance(command, c.OpenSession):
                await _open(rows, command)
            else:
                await _close(rows, command)
        except PerdureError as error:
            outcome = error
        batch.answers.append((item, outcome))


async def _open(rows: Rows, command: c.OpenSession) -> None:
    known = await rows.lock_session(command.incarnation)
    if known is not None and known.epoch >= command.epoch:
        raise Conflict(
            f"epoch {command.epoch} is not newer than {known.epoch}", field="epoch", limit=f"above {known.epoch}"
        )
    await rows.put_session(
        WorkerSession(
            incarnation=command.incarnation,
            epoch=command.epoch,
            namespace=command.namespace,
            identity=command.identity,
            queues=command.queues,
            slots=command.slots,
            build=command.build,
            started_at=rows.now if known is None else known.started_at,
            seen_at=rows.now,
        )
    )


async def _close(rows: Rows, command: c.CloseSession) -> None:
    """Somebody knows that the process is gone; with an epoch only its connection broke, which means nothing if it has
    connected again since, or is known to end anyway."""
    known = await rows.lock_session(command.incarnation)
    if known is None:
        return
    if command.epoch is not None and (known.epoch != command.epoch or known.ends_at is not None):
        return
    seen = await take(rows) or await rows.pulse()  # it tells later what was noted before an outage
    known.ends_at = rows.now if command.epoch is None else pulse.silent(seen, rows.now)
    await rows.put_session(known)


async def reap(rows: Rows, limit: int) -> list[Task]:
    """At most `limit` leased tasks of sessions that end; sessions with none left are deleted."""
    tasks: list[Task] = []
    ended: list[int] = []
    ending = await rows.ending_sessions(MAX_ENDING)
    if ending:
        seen = await rows.pulse()
        ending = [session for session in ending if pulse.may_end(seen, session.ends_at or 0, rows.now)]
    for session in ending:
        if len(tasks) >= limit:
            break
        found = await rows.leased_by(session.incarnation, limit - len(tasks))
        if not found and rows.now - (session.ends_at or 0) >= SETTLED:
            ended.append(session.incarnation)
        tasks.extend(found)
    if ended:
        await rows.delete_sessions(ended)
    return tasks
