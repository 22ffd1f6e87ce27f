"""Searches and counts for one caller, and the search attributes that its queries may name.

A store is asked in looks of so many rows, first few and then more, until a page is full. Live work goes between two
looks, and where a page has cost MOST_LOOKS it is answered as it is, short or empty: `next` tells that more may follow.
So no query takes long, whatever it asks (field case B162).
"""

from __future__ import annotations

import asyncio
import importlib
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from perdure.api.part import Part
from perdure.api.reading import reading
from perdure.api.workflow_views import RUNNING, STATUSES
from perdure.core import failures, limits, query
from perdure.core import messages as m
from perdure.core import search as searches
from perdure.core import search_messages as s
from perdure.core import workflow_messages as w
from perdure.core.errors import Conflict, InvalidArgument, NotFound
from perdure.core.model import Task
from perdure.core.query import Column, Compare, Node, Not, both
from perdure.core.search import Hit, Search, Way
from perdure.core.search_fields import FIELDS, KNOWN, REGISTRABLE, Type
from perdure.core.states import CLOSED_FROM, Kind, State
from perdure.store.base import Store

FIRST_LOOK = 200
"""Rows of the first look of a page; each one takes four times as many as the one before, up to the largest."""
LARGEST_LOOK = 5_000
"""With up to FEW_TESTS in a query; with more, a look takes fewer rows."""
FEW_TESTS = 4
LEAST_LOOK = 50
MOST_LOOKS = 20
"""Of the largest, that a page may cost."""
MOST_COUNTED = 100_000
"""At which a count stops."""
MOST_LOOKS_TO_COUNT = 200
MAX_REGISTERED = 100
"""Search attributes that a namespace may register."""

_LANGUAGE = "perdure.core.query_text"
if TYPE_CHECKING:
    from perdure.core.query_text import Query


class Searches(Part):
    """A part of api/service.py."""

    async def search(self, body: m.Find, limit: int) -> tuple[list[Task], str | None]:
        """A page of the jobs that pass, and the cursor of the next one."""
        search = await jobs(self._engine.store, self._namespace, body)
        return await page(self._engine.store, search, limit, body.cursor)

    async def count(self, body: s.Count) -> s.CountReply:
        return await count(self._engine.store, await jobs(self._engine.store, self._namespace, body))

    async def count_workflows(self, body: s.CountWorkflows) -> s.CountReply:
        return await count(self._engine.store, await runs(self._engine.store, self._namespace, body))

    async def search_attributes(self, body: s.ListSearchAttributes) -> s.SearchAttributes:
        found = await registered(self._engine.store, self._namespace)
        return s.SearchAttributes([s.SearchAttribute(name, type.value) for name, type in sorted(found.items())])

    async def add_search_attribute(self, body: s.AddSearchAttribute) -> s.SearchAttribute:
        name = limits.name(body.name, "name")
        type = limits.choice(body.type, "type", [one.value for one in REGISTRABLE])
        if name in FIELDS:
            raise InvalidArgument(f"{name} is a field of every query", field="name", limit="another name", kind="str")
        known = await registered(self._engine.store, self._namespace)
        if name not in known and len(known) >= MAX_REGISTERED + len(KNOWN):
            raise Conflict(f"the namespace has registered {MAX_REGISTERED} search attributes", field="name")
        with reading():
            if name not in known and await self._engine.store.add_attribute_type(self._namespace, name, type):
                return s.SearchAttribute(name, type)
        known = await registered(self._engine.store, self._namespace)
        if known.get(name) != type:
            raise Conflict(f"{name} is registered with another type", field="type", limit=known.get(name))
        return s.SearchAttribute(name, type)

    async def remove_search_attribute(self, body: s.RemoveSearchAttribute) -> m.Done:
        name = limits.name(body.name, "name")
        with reading():
            if not await self._engine.store.remove_attribute_type(self._namespace, name):
                raise NotFound(f"{name} is not registered", field="name")
        return m.Done()


async def registered(store: Store, namespace: str) -> dict[str, Type]:
    """The search attributes that queries of a namespace may name."""
    with reading():
        found = await store.attribute_types(namespace)
    return {**{name: Type(type) for name, type in found.items()}, **KNOWN}


async def jobs(store: Store, namespace: str, body: m.Find | s.Count) -> Search:
    """The jobs that a request is about; InvalidArgument names what is wrong with it."""
    filters = [
        Not(Compare(Column("type"), "=", w.QUERY)),
        _equal("state", None if body.state is None else state(body.state)),
        *_filters(body.queue, body.type, body.since),
    ]
    if body.failure_group is not None:
        filters.append(_equal("group", failures.parse_group(body.failure_group)))
        filters.append(_equal("retried", False))
    return await _search(store, namespace, Kind.JOB, body.query, filters)


async def runs(store: Store, namespace: str, body: w.FindWorkflows | s.CountWorkflows) -> Search:
    """The same for workflow runs."""
    wanted = status(body.status)
    filters = [
        _equal("state", next((int(one) for one, word in STATUSES.items() if word == wanted), None)),
        Compare(Column("state"), "<", int(CLOSED_FROM)) if body.open or wanted == RUNNING else None,
        Compare(Column("owed"), "=", True) if body.requires_intervention else None,
        _equal("workflow_id", None if body.workflow_id is None else limits.name(body.workflow_id, "workflow_id")),
        *_filters(body.queue, body.type, body.since),
    ]
    return await _search(store, namespace, Kind.WORKFLOW, body.query, filters)


def state(given: str, field: str = "state") -> int:
    """A state by name."""
    limits.text(given, field)
    found = State.__members__.get("CANCELED" if given == "CANCELLED" else given)  # both spellings
    if found is None:
        raise InvalidArgument(f"{field} is {given[:50]!r}", field=field, limit=", ".join(State.__members__), kind="str")
    return int(found)


def status(given: str | None) -> str | None:
    """A status of runs; both spellings of canceled (X-07)."""
    known = (RUNNING, *STATUSES.values())
    word = "CANCELLED" if given == "CANCELED" else given
    if word is not None and word not in known:
        raise InvalidArgument(f"status is {word[:50]!r}", field="status", limit=", ".join(known), kind="str")
    return word


def _filters(queue: str | None, type: str | None, since: datetime | None) -> list[Node | None]:
    after = None if since is None else limits.microseconds(since, "since")
    return [
        _equal("queue", None if queue is None else limits.name(queue, "queue")),
        _equal("type", None if type is None else limits.name(type, "type")),
        None if after is None else Compare(Column("created_at"), ">=", after),
    ]


def _equal(column: str, value: query.Value | None) -> Node | None:
    return None if value is None else Compare(Column(column), "=", value)


async def _search(store: Store, namespace: str, kind: Kind, text: str, filters: list[Node | None]) -> Search:
    """What a query and filters ask for together."""
    found = await parsed(store, namespace, kind, text)
    where = both(*filters, found.where)
    return Search(namespace=namespace, kind=kind, where=where, by_close=found.by_close, ascending=found.ascending)


async def parsed(store: Store, namespace: str, kind: Kind, text: str) -> Query:
    """What the text of a query asks for. The language is loaded beside the loop."""
    language = await asyncio.to_thread(importlib.import_module, _LANGUAGE)
    found: Query = language.parse(text, kind, await registered(store, namespace))
    return found


async def page(store: Store, search: Search, limit: int, cursor: str | None) -> tuple[list[Task], str | None]:
    """The first tasks that pass, behind a cursor, without payloads; and the cursor of those that follow."""
    last = None if cursor is None else searches.place(search, cursor)
    search = await _shortest(store, search)
    hits: list[Hit] = []
    largest = _largest_look(search)
    window, read = min(max(FIRST_LOOK, 2 * limit), largest), 0
    while len(hits) <= limit and read < MOST_LOOKS * largest:
        with reading():
            found = await store.search(search, window, last)
        hits += found.hits
        read += window
        last = found.last
        if last is None:
            break
        window = min(4 * window, largest)
        await asyncio.sleep(0)
    if len(hits) > limit:
        hits, last = hits[:limit], hits[limit - 1]
    with reading():
        tasks = await store.brief([hit.id for hit in hits])
    shown = [tasks[hit.id] for hit in hits if hit.id in tasks]
    return shown, None if last is None else searches.cursor(search, last)


def _largest_look(search: Search) -> int:
    tests = sum(1 for _ in query.tests(search.where))
    return max(LEAST_LOOK, min(LARGEST_LOOK, FEW_TESTS * LARGEST_LOOK // max(tests, 1)))


async def _shortest(store: Store, search: Search) -> Search:
    """A search on the ways on which the fewest rows lie. Pages of one query may go different ways: the order is one."""
    ways: dict[bool, Way] = {}
    for closed in (False, True):
        found = search.ways(closed=closed) if search.may_be(closed=closed) else []
        if len(found) > 1:
            with reading():
                rows = await store.reach(search, found, LARGEST_LOOK, closed=closed)
            ways[closed] = found[rows.index(min(rows))]
    return msgspec.structs.replace(search, open_way=ways.get(False), closed_way=ways.get(True))


async def count(store: Store, search: Search) -> s.CountReply:
    search = await _shortest(store, search)
    number, last, window = 0, None, _largest_look(search)
    for _ in range(MOST_LOOKS_TO_COUNT):
        with reading():
            found = await store.search(search, window, last)
        number += len(found.hits)
        last = found.last
        if last is None:
            return s.CountReply(min(number, MOST_COUNTED), number > MOST_COUNTED)
        if number > MOST_COUNTED:
            break
        await asyncio.sleep(0)
    return s.CountReply(min(number, MOST_COUNTED), True)
