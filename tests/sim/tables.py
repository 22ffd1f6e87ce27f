"""What a commit changed, row by row, in either store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from perdure.core.model import Key, Pulse, Task, WorkerSession
from perdure.core.outbox import OutboxEvent
from perdure.core.run import Message, Page
from perdure.core.states import Kind
from perdure.core.webhooks import Webhook
from perdure.store import rows
from perdure.store.sqlite import SQL
from perdure.store.sqlite_batch import chunks
from perdure.store.statements import expand

NAMES = ("tasks", "closed", "attempts", "keys", "sessions", "pulse", "runs", "history", "inbox")
"""Tables; changes of "outbox" are new events, in order."""


class Change(msgspec.Struct, frozen=True):
    """A row before and after a commit; None is no row."""

    table: str  #: of NAMES, or "outbox"
    key: Any
    before: Any
    after: Any


Observer = Callable[[Sequence[Change], str], None]
"""Is told what a commit changed, and which process asked for it."""


def diff_of(written: dict[Any, dict[Any, Any]], tables: Any) -> list[Change]:
    """What a transaction of the memory store is about to write."""
    found: list[Change] = []
    for name in NAMES:
        table = getattr(tables, name)
        for key, row in written.get(table, {}).items():
            before = table.rows.get(key)
            if before != row:
                found.append(Change(name, key, before, row))
    return found


class SqliteTables:
    """Reads everything after each commit and tells the difference."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._known: dict[str, dict[Any, Any]] = {name: {} for name in NAMES}
        self._published = 0  #: the last event

    def changes(self) -> list[Change]:
        found: list[Change] = []
        for name, now in self._read().items():
            before = self._known[name]
            found += [Change(name, key, before.get(key), row) for key, row in now.items() if before.get(key) != row]
            found += [Change(name, key, row, None) for key, row in before.items() if key not in now]
            self._known[name] = now
        for row in self._store._writer.rows(SQL["events"], ("default", 0, self._published, -1)):
            event = OutboxEvent(*row)
            self._published = event.seq
            found.append(Change("outbox", event.seq, None, event))
        return found

    def webhook(self, id: str) -> Webhook:
        rows_: list[Any] = self._store._writer.rows(SQL["webhooks"], ("default",))
        return next(hook for row in rows_ if (hook := Webhook(*row)).id == id)

    def _read(self) -> dict[str, dict[Any, Any]]:
        query: Callable[..., list[Any]] = self._store._writer.rows
        ids = [row[0] for row in query("select id from tasks union all select id from closed_tasks order by id")]
        tasks: dict[str, dict[bytes, Task]] = {"tasks": {}, "closed": {}}
        for part in chunks(ids):
            for row in query(expand(SQL["read"], len(part)), part):
                task = rows.task(row)
                task.rowid = 0
                tasks["tasks" if task.closed_at is None else "closed"][task.id] = task
        attempts = query("select task_id, lease_number, outcome from attempts order by 1, 2")
        keys = [Key(*row) for row in query(f"select {', '.join(Key.__struct_fields__)} from keys order by 1, 2, 3, 4")]
        fields = ", ".join(WorkerSession.__struct_fields__)
        sessions = [WorkerSession(*row) for row in query(f"select {fields} from workers order by 1")]
        alive_at, hold_until, _mark = query(SQL["lock_pulse"])[0]
        return {
            **tasks,
            "attempts": {(row[0], row[1]): row for row in attempts},
            "keys": {key.name: key for key in keys},
            "sessions": {session.incarnation: session for session in sessions},
            "pulse": {None: Pulse(alive_at, hold_until)},
            **self._runs(
                [task.id for table in tasks.values() for task in table.values() if task.kind == Kind.WORKFLOW]
            ),
        }

    def _runs(self, run_ids: list[bytes]) -> dict[str, dict[Any, Any]]:
        query: Callable[..., list[Any]] = self._store._writer.rows
        found = [row for part in chunks(run_ids) for row in query(expand(SQL["run_rows"], len(part)), part)]
        pages = [Page(*row) for row in query("select run_id, first, count, data from history order by 1, 2")]
        messages = [Message(*row) for row in query("select run_id, seq, kind, at, body from inbox order by 1, 2")]
        return {
            "runs": rows.runs(found),
            "history": {(page.run_id, page.first): page for page in pages},
            "inbox": {(message.run_id, message.seq): message for message in messages},
        }
