"""Limits that a batch makes, changes and deletes, one by one: they are rare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.core import commands as c
from perdure.core.errors import NotFound, PerdureError
from perdure.core.limit_rules import Limit, LimitName, pause, put, switch
from perdure.engine.gather import Item
from perdure.store.base import Batch as Rows

if TYPE_CHECKING:
    from perdure.engine.batch import Batch

_MOST_DEFERRALS = 3
"""Batches after which a limit that this server knows, and that is not to be had, counts as deleted by another one."""


async def serve(batch: Batch, rows: Rows, work: dict[type, list[tuple[Item, Any]]]) -> list[str]:
    """Do all that commands ask about limits; the subjects to look at."""
    for kind in (c.PutLimit, c.PauseLimit, c.DeleteLimit, c.SwitchBreaker):
        for item, command in work.get(kind, ()):
            outcome: c.Outcome | None
            try:
                outcome = await _change(batch, rows, item, command)
            except PerdureError as error:
                outcome = error
            if outcome is None:
                batch.deferred.append(item)
            else:
                batch.answers.append((item, outcome))
    return [subject for _, command in work.get(c.Pull, ()) for subject in command.subjects]


async def _change(batch: Batch, rows: Rows, item: Item, command: c.LimitChange) -> c.Outcome | None:
    """None: another batch holds the limit."""
    name = command.limit.id if isinstance(command, c.PutLimit) else command.name
    known = (await rows.hold_limits([name])).get(name)
    if known is None and batch.flow.knows(name) and item.deferrals < _MOST_DEFERRALS:
        return None
    now = max(rows.now, batch.flow.latest + 1)  # so that other servers notice, whatever their clocks
    after: Limit | None
    match command:
        case c.PutLimit(limit=limit):
            after = put(known, limit, now)
        case c.PauseLimit(paused=paused, note=note):
            after = pause(known, name, paused, note, now)
        case c.DeleteLimit():
            if known is None:
                raise NotFound("there is no such limit", field="name")
            after = None
        case c.SwitchBreaker(open=open_, note=note):
            after = switch(known, open_, note, now)
            batch.flow.breakers.moved(after)
    await _write(rows, name, known, after)
    batch.flow.changes[name] = after
    return c.LimitIs(after)


async def _write(rows: Rows, name: LimitName, known: Limit | None, after: Limit | None) -> None:
    if after is not None and after is not known:
        await rows.put_limit(after)
    elif after is None and known is not None:
        await rows.delete_limit(name)
