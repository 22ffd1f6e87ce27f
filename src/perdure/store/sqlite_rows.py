"""How tasks and runs become the parameters of SQLite's writing statements.

sqlite3 takes 0.2 us to bind None or bytes (0.02 for an int or a text), and most columns of most tasks have one usual
value. So a verb has two statements: one that says the usual values in its own text and binds the other columns only,
and one that binds everything, for a chunk in which some row is not usual. (Tried: the same for selects. To check that a
row is usual took nearly as long as its columns.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from msgspec.structs import astuple

from perdure.core.model import Task
from perdure.core.run import Run
from perdure.core.states import Kind, State
from perdure.store.rows import CHANGE, Row
from perdure.store.statements import expand

_CHUNKS = (200, 100, 50, 20, 10, 5, 2, 1)
_FIELDS = Task.__struct_fields__
_NEW = astuple(Task(b"", "", "", State.ENQUEUED, "", 0, 0))


class Write(NamedTuple):
    """A statement, its parameters, and how many rows it must write."""

    sql: str
    values: list[Any]
    rows: int


class Shape:
    """The columns that a verb writes: `often`, behind what finds the row, and `seldom`, with their usual values."""

    def __init__(
        self,
        statements: Sequence[str],
        often: Sequence[str],
        seldom: dict[str, Any],
        fields: Sequence[str] = _FIELDS,
    ) -> None:
        self._narrow, self._whole = statements
        self._often = itemgetter(*map(fields.index, often))
        self._seldom = itemgetter(*map(fields.index, seldom))
        self._usual = tuple(seldom.values())

    def writes(self, written: Sequence[Task] | Sequence[Run], numbers: Sequence[int | bytes | None]) -> Iterator[Write]:
        """`numbers` are the row numbers, or the ids, that go with what is written."""
        often, seldom, usual = self._often, self._seldom, self._usual
        for start, end in bounds(len(written)):
            given = [astuple(value) for value in written[start:end]]
            narrow = all(seldom(row) == usual for row in given)
            values: list[Any] = []
            for number, row in zip(numbers[start:end], given, strict=True):
                values.append(number)
                values += often(row)
                if not narrow:
                    values += seldom(row)
            sql = self._narrow if narrow else self._whole
            yield Write(expand(sql, end - start), values, end - start)


INSERT = (
    "id", "namespace", "type", "lane", "created_at", "updated_at", "app", "queue", "idempotency_key", "max_attempts",
    "identity", "priority", "fairness_key", "place", "lease_length",
)  # fmt: skip
_NOT_INSERTED = ("rowid", "payload", "headers", "result", "closed_at")
INSERT_SELDOM = {
    field: value
    for field, value in zip(_FIELDS, _NEW, strict=True)
    if field not in INSERT and field not in _NOT_INSERTED
}

LEASE = (
    "lease_number", "lease_bits", "session", "worker", "poll", "attempt_started_at", "heartbeat_at", "lease_until",
    "wake_at", "updated_at",
)  # fmt: skip
LEASE_SELDOM = {"state": State.LEASED, "received": False, "attempt_deadline": None, "heartbeat_deadline": None}

CLOSE = (
    "lease_number", "lease_bits", "updated_at", "attempt", "lost_deliveries", "started_at", "done_number", "done_bits",
    "done_state", "closed_at", "result",
)  # fmt: skip
CLOSE_SELDOM = {
    "state": State.SUCCEEDED, "kind": Kind.JOB, "cancel_requested_at": None, "cancel_reason": None, "progress": None,
    "checkpoint": None, "failure": None,
}  # fmt: skip

RUN_FIELDS = Run.__struct_fields__
RUN = (
    "workflow_id", "first_run_id", "original_run_id", "root_workflow_id", "root_run_id", "event_count",
    "history_bytes", "inbox_count", "inbox_taken", "turn_inbox", "turn_prepared_at", "turn_scheduled_at",
    "turn_written", "turn_timeout", "sticky_session", "children", "build",
)  # fmt: skip
RUN_SELDOM = {
    field: value
    for field, value in zip(RUN_FIELDS, astuple(Run(b"", "", b"", b"")), strict=True)
    if field not in RUN and field != "id"
}

_change = attrgetter(*CHANGE)


def change_row(task: Task, number: int | None) -> Row:
    """State, received, row number, CHANGE. State and received as plain ints: their own types are bound slowly."""
    return (int(task.state), int(task.received), number, *_change(task))


def bounds(count: int) -> Iterator[tuple[int, int]]:
    """(start, end) of parts of the fixed sizes, largest first."""
    start = 0
    for size in _CHUNKS:
        while count - start >= size:
            yield start, start + size
            start += size
