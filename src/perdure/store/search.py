"""The verbs of searches, parts of base.py; and the statement that a search is.

The statement is made of the tree of core/query.py: names come from the tables below, and everything else, the names of
attributes too, is a bound parameter. It keeps to what both databases understand alike, so it differs only in how they
spell parameters. (Tried: SQLite's text, made PostgreSQL's by sqlglot. It took 6 ms for each test of a query, and told
PostgreSQL where nulls go, which cost it the index.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeGuard

import msgspec

from perdure.core import query
from perdure.core.bulk import Selection
from perdure.core.model import Task
from perdure.core.query import And, Attribute, Column, Compare, Node, Not, OneOf, Or, Present, Test, Value, Within
from perdure.core.search import Found, Hit, Search, Way
from perdure.core.states import Kind
from perdure.store.failures import FailureStore, Picked


class Entry(msgspec.Struct, frozen=True):
    """What a run is found by: names and keys (search_keys.py) of its attributes, each once."""

    task_id: bytes
    namespace: str
    closed: bool
    keys: Sequence[tuple[str, bytes]]

    def rows(self) -> Iterable[tuple[bytes, str, bytes, str, int]]:
        """In the order in which statements take them."""
        return ((self.task_id, name, key, self.namespace, int(self.closed)) for name, key in self.keys)


class SearchBatch(Protocol):
    """Part of Batch."""

    async def put_attributes(self, entries: Sequence[Entry]) -> None:
        """Write what runs are found by in place of what they were found by before. This batch holds the rows of the
        runs, or has made or closed them."""
        ...


class SearchStore(Protocol):
    """Part of Store."""

    async def search(self, search: Search, window: int, after: Hit | None = None) -> Found:
        """The rows that pass among the next `window` on the way of a search, behind `after`. How many rows it takes to
        find the next one depends on the way, and differs between stores."""
        ...

    async def reach(self, search: Search, ways: Sequence[Way], most: int, *, closed: bool) -> list[int]:
        """How many open or closed rows lie on each of these ways of a search, counted as far as `most`. Rows of another
        kind that lie there too may be counted."""
        ...

    async def brief(self, task_ids: Sequence[bytes]) -> dict[bytes, Task]:
        """Open and closed tasks without payload, headers and result."""
        ...

    async def attribute_types(self, namespace: str) -> dict[str, str]:
        """The search attributes that a namespace has registered: names and types, by name."""
        ...

    async def add_attribute_type(self, namespace: str, name: str, type: str) -> bool:
        """False when there is one of this name; it stays as it is."""
        ...

    async def remove_attribute_type(self, namespace: str, name: str) -> bool:
        """False when there is none of this name."""
        ...


class Picking(FailureStore, SearchStore, Protocol):
    """What `pick` needs of a store."""


_BOTH = {
    "id": "t.id",
    "type": "t.type",
    "workflow_id": "t.workflow_id",
    "state": "t.state",
    "created_at": "t.created_at",
    "started_at": "t.started_at",
    "queue": "t.queue",
    "attempt": "t.attempt",
    "chain_attempt": "t.chain_attempt",
    "worker": "t.worker",
    "event_count": "t.event_count",
    "history_bytes": "t.history_bytes",
    "parent_workflow_id": "t.parent_workflow_id",
    "root_workflow_id": "t.root_workflow_id",
}
_CLOSED = {
    **_BOTH,
    "closed_at": "t.closed_at",
    "run_time": "(t.closed_at - t.created_at)",
    "work_time": "(t.closed_at - t.started_at)",
    "error": "t.failure_type",
    "group": "t.failure_group",
    "retried": "(t.retried_by is not null)",
    "owed": "(t.owed is not null)",
}
"""What the columns of a query are in the tables; the open one lacks some."""

_RANGES = {
    "id": "t.id = {0} and t.namespace = {ns}",
    "workflow_id": "t.namespace = {ns} and t.workflow_id = {0}",
    "type": "t.namespace = {ns} and t.kind = 3 and t.type = {0}",
    "error": "t.namespace = {ns} and t.kind = {kind} and t.failure_type = {0}",
    "state": "t.namespace = {ns} and t.kind = {kind} and t.state <> 10 and t.state = {0}",
    "owed": "t.namespace = {ns} and t.owed is not null",
    "group": "t.namespace = {ns} and t.failure_group = {0} and t.failure_group is not null and t.retried_by is null",
}
"""What the ways of core/search.py ask of their index, but for those of all runs, by closing, and of attributes."""

_ENTRIES = "search_attributes as a"


class _Statement:
    """The text of a search, and its parameters; `parameter` is how one is spelled, with its number from 1 on."""

    def __init__(self, search: Search, window: int, after: Hit | None, parameter: str) -> None:
        self._parameter = parameter
        self._search = search
        self._after = after
        self.values: list[Value] = []
        self._window = self._bind(window)
        self._namespace = self._bind(search.namespace)
        self._kind = str(int(search.kind))
        self._order = "asc" if search.ascending else "desc"
        self._behind = ">" if search.ascending else "<"

    def text(self) -> str:
        parts = [self._part(closed) for closed in (False, True) if self._search.may_be(closed=closed)]
        if not parts:
            return ""
        order = f"closed_at {self._order}, id {self._order}" if self._search.by_close else f"id {self._order}"
        rows = " union all ".join(f"select * from ({part}) as part" for part in parts)
        return f"select id, closed_at, passes from ({rows}) as found order by {order} limit {self._window}"

    def reach(self, ways: Sequence[Way], closed: bool) -> str:
        """How many rows lie on each of these ways, as far as the window."""
        table = "closed_tasks" if closed else "tasks"
        counts = []
        for on in ways:
            source, wanted, _, _ = self._range(on, table, closed)
            if on.index == "attribute":
                source, wanted = _ENTRIES, wanted[:-1]  # without a look at the rows
            rows = f"select 1 as one from {source} where {' and '.join(wanted)} limit {self._window}"
            counts.append(f"(select count(*) from ({rows}) as part)")
        return f"select {', '.join(counts)}"

    def _part(self, closed: bool) -> str:
        """The rows of one table that are to be looked at."""
        table = "closed_tasks" if closed else "tasks"
        columns = _CLOSED if closed else _BOTH
        closed_at = "t.closed_at" if closed else "cast(null as bigint)"
        on = self._search.way(closed=closed)
        source, wanted, ids, whole = self._range(on, table, closed)
        passes = [self._node(part, columns) for part in query.conjuncts(self._search.where) if part != on.test]
        if not whole:
            passes += [f"t.namespace = {self._namespace}", f"t.kind = {self._kind}"]
        if self._search.by_close:
            wanted += [
                self._comparison(part, "t.closed_at")
                for part in query.conjuncts(self._search.where)
                if _on_closing(part)
            ]
        where = " and ".join([*wanted, *self._beyond(ids)]) or "true"
        order = f"t.closed_at {self._order}, " if self._search.by_close else ""
        return (
            f"select t.id as id, {closed_at} as closed_at, {' and '.join(passes) or 'true'} as passes "
            f"from {source} where {where} order by {order}{ids} {self._order} limit {self._window}"
        )

    def _range(self, on: Way, table: str, closed: bool) -> tuple[str, list[str], str, bool]:
        """Where from, what must hold there, by which id it is ordered, and whether that leaves only rows of the
        namespace and the kind."""
        runs = self._search.kind == Kind.WORKFLOW
        source = f"{table} as t"
        if on.test is None:
            return source, [f"t.namespace = {self._namespace}", "t.kind = 3"] if runs else [], "t.id", runs
        key = self._bind(on.test.value)
        if isinstance(on.test.field, Attribute):
            name = self._bind(on.test.field.name)
            source = f"{_ENTRIES} cross join {source}"
            wanted = [
                f"a.namespace = {self._namespace}", f"a.name = {name}", f"a.value = {key}", f"a.closed = {int(closed)}",
                "t.id = a.task_id",
            ]  # fmt: skip
            return source, wanted, "a.task_id", False
        wanted = [_RANGES[on.index].format(key, ns=self._namespace, kind=self._kind)]
        return source, wanted, "t.id", on.index in ("type", "error", "state")

    def _beyond(self, ids: str) -> list[str]:
        """Behind the last row that was looked at."""
        if self._after is None:
            return []
        id = self._bind(self._after.id)
        if not self._search.by_close:
            return [f"{ids} {self._behind} {id}"]
        assert self._after.closed_at is not None
        at = self._bind(self._after.closed_at)
        return [f"t.closed_at {self._behind}= {at}", f"(t.closed_at {self._behind} {at} or {ids} {self._behind} {id})"]

    # what a row has to pass ------------------------------------------------------------------------------------
    def _node(self, node: Node, columns: dict[str, str]) -> str:
        match node:
            case And(parts):
                return f"({' and '.join(self._node(part, columns) for part in parts)})"
            case Or(parts):
                return f"({' or '.join(self._node(part, columns) for part in parts)})"
            case Not(part):
                return f"(not {self._node(part, columns)})"
            case _:
                return self._test(node, columns)

    def _test(self, test: Test, columns: dict[str, str]) -> str:
        if isinstance(test.field, Attribute):
            name = self._bind(test.field.name)
            wanted = "" if isinstance(test, Present) else f" and {self._comparison(test, 's.value')}"
            rows = f"from search_attributes as s where s.task_id = t.id and s.name = {name}{wanted}"
            return f"coalesce((select true {rows} limit 1), false)"  # PostgreSQL may read all rows for an `exists`
        column = columns.get(test.field.name)
        if column is None:
            return "false"
        if isinstance(test, Present):
            return f"({column} is not null)"
        return f"coalesce({self._comparison(test, column)}, false)"

    def _comparison(self, test: Compare | OneOf | Within, column: str) -> str:
        match test:
            case Compare(_, op, value):
                return f"{column} {op} {self._bind(value)}"
            case OneOf(_, values):
                return f"{column} in ({', '.join(map(self._bind, values))})"
            case Within(_, low, below):
                end = "" if below is None else f" and {column} < {self._bind(below)}"
                return f"({column} >= {self._bind(low)}{end})"

    def _bind(self, value: Value) -> str:
        self.values.append(value)
        name = self._parameter.format(len(self.values))
        return f"cast({name} as bigint)" if type(value) is int else name


def _on_closing(part: Node) -> TypeGuard[Compare]:
    """Whether a walk in the order of closing can begin or end with a test."""
    return isinstance(part, Compare) and part.field == Column("closed_at")


def statement(search: Search, window: int, after: Hit | None, parameter: str) -> tuple[str, list[Value]]:
    """The SQL of one look, and the values of its parameters; no SQL where nothing can pass."""
    made = _Statement(search, window, after, parameter)
    return made.text(), made.values


def reach(search: Search, ways: Sequence[Way], most: int, parameter: str, *, closed: bool) -> tuple[str, list[Value]]:
    """The SQL of `SearchStore.reach`, and the values of its parameters."""
    made = _Statement(search, most, None, parameter)
    return made.reach(ways, closed), made.values


def found(rows: Sequence[tuple[bytes, int | None, object]], window: int) -> Found:
    """What the rows of such a statement say."""
    last = Hit(rows[-1][0], rows[-1][1]) if len(rows) == window else None
    return Found([Hit(id, closed_at) for id, closed_at, passes in rows if passes], last)


async def pick(store: Picking, selection: Selection, window: int, before: bytes | None) -> Picked:
    """`Store.pick`, also for selections with a query."""
    if selection.where is None:
        return await store.pick(selection, window, before)
    looked = await store.search(selection.search, window, None if before is None else Hit(before))
    return Picked([hit.id for hit in looked.hits], None if looked.last is None else looked.last.id)
