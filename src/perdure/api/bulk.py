"""Actions on many jobs, as callers ask for them: what they mean, how many jobs they are about, and how far they are."""

from __future__ import annotations

import asyncio
import hashlib

import msgspec

from perdure.api.search import parsed, state
from perdure.api.views import moment, moment_or_none
from perdure.core import bulk, failures, ids, limits
from perdure.core import failure_messages as f
from perdure.core.bulk import Action, Selection
from perdure.core.errors import InvalidArgument
from perdure.core.model import Task
from perdure.core.states import Kind, State
from perdure.store.base import Store
from perdure.store.search import pick

MOST_COUNTED = 100_000
"""Jobs at which a count stops."""
MOST_READ = 1_000_000
"""Rows at which it stops however few pass."""
_WINDOW = 5_000  #: rows of one look

_canonical = msgspec.msgpack.Encoder(order="deterministic").encode


def selection(body: f.StartBulk, namespace: str) -> Selection:
    """The jobs that a request is about; InvalidArgument names what is wrong with it."""
    limits.choice(body.action, "action", f.ACTIONS)
    given = body.filter
    filter = {
        "state": None if given.state is None else state(given.state, "filter.state"),
        "queue": None if given.queue is None else limits.name(given.queue, "filter.queue"),
        "type": None if given.type is None else limits.name(given.type, "filter.type"),
        "since": None if given.since is None else limits.microseconds(given.since, "filter.since"),
        "group": None if given.failure_group is None else _group(given.failure_group),
        "error": None if given.error is None else limits.text(given.error, "filter.error"),
    }
    if body.action != "retry" and not given.query.strip() and all(value is None for value in filter.values()):
        raise InvalidArgument(f"this would {body.action} everything", field="filter", limit="at least one field")
    return bulk.selection(body.action, namespace, filter)


async def asked(store: Store, wanted: Selection, query: str) -> Selection:
    """A selection that a query narrows. Order means nothing to an action."""
    if not query.strip():
        return wanted
    found = await parsed(store, wanted.namespace, Kind(wanted.kind), query)
    if found.by_close or found.ascending:
        raise InvalidArgument("an action has no order", field="filter.query", limit="a query without ORDER BY")
    return msgspec.structs.replace(wanted, query=query, where=found.where)


def digest(body: f.StartBulk) -> bytes:
    """What makes two requests with one request id the same."""
    same = msgspec.structs.replace(body, request_id="", dry_run=False)
    return hashlib.blake2b(_canonical(same), digest_size=16).digest()


async def count(store: Store, wanted: Selection) -> tuple[int, bool]:
    """How many jobs a selection finds, and whether there may be more."""
    number, read, before = 0, 0, None
    while number < MOST_COUNTED and read < MOST_READ:
        picked = await pick(store, wanted, _WINDOW, before)
        number += len(picked.ids)
        read += _WINDOW
        before = picked.last
        if before is None:
            return min(number, MOST_COUNTED), number > MOST_COUNTED
        await asyncio.sleep(0)  # live work goes between
    return min(number, MOST_COUNTED), True


def view(task: Task) -> f.BulkView:
    """An action for its owner."""
    action = bulk.action_of(task)
    return f.BulkView(
        action=action.action,
        filter=_filter(action),
        total=action.total,
        at_least=action.at_least,
        id=ids.text(task.id),
        state="RUNNING" if task.state == State.WAITING else task.state.name,
        done=action.done,
        failed=action.failed,
        errors=[f.BulkError(ids.text(one.task_id), one.error) for one in action.errors],
        created_at=moment(task.created_at),
        closed_at=moment_or_none(task.closed_at),
    )


def _filter(action: Action) -> f.BulkFilter:
    wanted = action.selection
    return f.BulkFilter(
        state=None if wanted.state is None else State(wanted.state).name,
        queue=wanted.queue,
        type=wanted.type,
        since=moment_or_none(wanted.since),
        failure_group=None if wanted.group is None else failures.group_text(wanted.group),
        error=wanted.error,
        query=wanted.query,
    )


def _group(given: str) -> int:
    return failures.parse_group(limits.text(given, "filter.failure_group"), "filter.failure_group")
