"""A search as stores take it: which rows of a namespace, in which order, and where a walk to them begins.

A store walks along an index, looks at so many rows, and says which of them pass; however few do, no look takes long.
Which indexes it may be is decided here, from what every row that passes must have. Where there are several, the store
is asked on which one the fewest rows lie.
"""

from __future__ import annotations

import re
from contextlib import suppress

import msgspec

from perdure.core import ids, query
from perdure.core.errors import InvalidArgument
from perdure.core.query import Attribute, Column, Compare, Node
from perdure.core.states import Kind, State

_MICROSECONDS = re.compile(r"\d{1,18}", re.ASCII)
_RANKS = ("id", "workflow_id", "owed", "group", "attribute", "error", "state", "type")
_FRESH = Compare(Column("retried"), "=", False)


class Way(msgspec.Struct, frozen=True):
    """An index, and the test with which it is entered: that an attribute, or the column of this name, has a value.
    "ids" and "closed_at" are entered at an end."""

    index: str
    test: Compare | None = None


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks (`kind` JOB) or workflow runs that pass `where`: the newest first, or with `by_close` those that closed
    last, and only closed ones; `ascending` turns that around."""

    namespace: str
    kind: int
    where: Node | None = None
    by_close: bool = False
    ascending: bool = False
    open_way: Way | None = None  #: among open rows, of `ways`; the first one if None
    closed_way: Way | None = None

    def ways(self, *, closed: bool) -> list[Way]:
        """Where it can be walked to open or closed rows that pass, as a rule the shortest way first."""
        if self.by_close:
            return [Way("closed_at")]
        parts = query.conjuncts(self.where)
        found = [one for part in parts if (one := _way(part, self.kind, closed, _FRESH in parts))]
        return sorted(found, key=lambda one: _RANKS.index(one.index)) or [Way("ids")]

    def way(self, *, closed: bool) -> Way:
        return (self.closed_way if closed else self.open_way) or self.ways(closed=closed)[0]

    def may_be(self, *, closed: bool) -> bool:
        """Whether rows that are closed, or open, can pass."""
        return (closed or not self.by_close) and query.possible(self.where, closed=closed)


class Hit(msgspec.Struct, frozen=True):
    """A row that was looked at; a place in the order of a search."""

    id: bytes
    closed_at: int | None = None


class Found(msgspec.Struct, frozen=True):
    """Rows that passed, in the order of the search; `last` is the last one that was looked at, None at the end."""

    hits: list[Hit]
    last: Hit | None


def _way(part: Node, kind: int, closed: bool, fresh: bool) -> Way | None:
    """The index that a test goes by, if there is one for it; one holds only what is `fresh`, not retried yet."""
    match part:
        case Compare(Attribute(), "="):
            return Way("attribute", part)
        case Compare(Column("id" | "workflow_id" as name), "="):
            return Way(name, part)
        case Compare(Column("owed"), "=", True) if closed:
            return Way("owed", part)
        case Compare(Column("group"), "=") if closed and fresh:
            return Way("group", part)
        case Compare(Column("type"), "=") if kind == Kind.WORKFLOW:
            return Way("type", part)
        case Compare(Column("error"), "=") if closed:
            return Way("error", part)
        case Compare(Column("state"), "=", int(state)) if closed and state > State.SUCCEEDED:
            return Way("state", part)
    return None


def cursor(search: Search, hit: Hit) -> str:
    """A place in the order as text."""
    return f"{hit.closed_at}.{ids.text(hit.id)}" if search.by_close else ids.text(hit.id)


def place(search: Search, text: str) -> Hit:
    """What `cursor` wrote; InvalidArgument for anything else, also for a cursor of another order."""
    closed_at, dot, id = text.rpartition(".")
    if bool(dot) == search.by_close and (not dot or _MICROSECONDS.fullmatch(closed_at)):
        with suppress(InvalidArgument):
            return Hit(ids.parse(id), int(closed_at) if dot else None)
    raise InvalidArgument(
        f"cursor is not one of this query: {text[:50]!r}", field="cursor", limit="the `next` of the page before",
        kind="str",
    )  # fmt: skip
