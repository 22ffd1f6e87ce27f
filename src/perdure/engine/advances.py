"""Appends by which turns go on from step to step (core/advance.py), in one fenced statement: they lock nothing else and
decide nothing. What it does not take goes the long way in the next batch, which looks at the rows and has the answer:
the append was taken before, its lease is lost, or the row is held elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.core import commands as c
from perdure.core.advance import advance, is_advance
from perdure.core.states import State
from perdure.engine.gather import Item
from perdure.store.base import Batch as Rows

Answers = list[tuple[Item, c.Outcome]]


def are_advances(items: Sequence[Item], max_events: int) -> bool:
    """Whether this is all that these are, each of another run."""
    appends = [(item, item.command) for item in items if isinstance(item.command, c.Append)]
    ids = {command.lease.task_id for item, command in appends if _is_fit(item, command, max_events)}
    return len(ids) == len(items)


def _is_fit(item: Item, command: c.Append, max_events: int) -> bool:
    """Whether to try it without a look at the row."""
    return not item.deferrals and is_advance(command, max_events)


async def advance_all(
    rows: Rows, appends: list[tuple[Item, Any]], max_events: int
) -> tuple[Answers, list[Item], list[tuple[Item, Any]]]:
    """The answers, what is for the next batch, and what needs a look at its row in this one."""
    wanted: dict[bytes, tuple[Item, c.Append]] = {}
    others: list[tuple[Item, Any]] = []
    for item, command in appends:
        if _is_fit(item, command, max_events) and command.lease.task_id not in wanted:
            wanted[command.lease.task_id] = (item, command)
        else:
            others.append((item, command))
    answers: Answers = []
    deferred: list[Item] = []
    waiting = await rows.advance([advance(command, rows.now) for _, command in wanted.values()]) if wanted else {}
    for run_id, (item, command) in wanted.items():
        if run_id in waiting:
            last = command.after + len(command.commands)
            answers.append((item, c.Appended(run_id, State.LEASED, last, waiting[run_id])))
        else:
            deferred.append(item)
    return answers, deferred, others
